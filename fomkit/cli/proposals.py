"""``--propose LINE.CONDITION=VALUE``: what a target does otherwise than a suite's line fixes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from fomkit.dtypes import Precision
from fomkit.errors import FomkitError
from fomkit.suite import Conditions

_PROPOSAL = re.compile(r"(.+)\.([A-Za-z_]\w*)=(.+)")
_COUNTS = ("batch", "epochs", "samples")


def _value(text: str, name: str, where: str) -> Any:
    if name == "quality":
        return text
    if name == "precision":
        if text not in get_args(Precision):
            raise FomkitError(where, f"{text!r} is no precision. Use one of {', '.join(get_args(Precision))}.")
        return text
    if not re.fullmatch(r"[1-9]\d{0,14}", text):
        raise FomkitError(where, f"{name} is a whole number from 1. Write, for example, {name}=256.")
    return int(text)


def parse_proposals(texts: Sequence[str]) -> dict[str, Conditions]:
    """Read proposals such as ``TC1.batch=256``; a name that is no condition is a named size of the model.

    Raises
    ------
    FomkitError
        When one has another form, or says something twice.

    Examples
    --------
    >>> parse_proposals(["TC1.batch=256"])["TC1"].batch
    256
    """
    proposals: dict[str, Conditions] = {}
    for text in texts:
        where = f"--propose {text}"
        match = _PROPOSAL.fullmatch(text)
        if match is None:
            raise FomkitError(where, "is not LINE.CONDITION=VALUE. Write, for example, --propose TC1.batch=256.")
        line, name = match[1], match[2]
        one = proposals.get(line, Conditions())
        if name in one.stated():
            raise FomkitError(where, f"proposes {name} a second time. Propose it once.")
        value = _value(match[3], name, where)
        known = name in (*_COUNTS, "quality", "precision")
        proposals[line] = (
            replace(one, **{name: value}) if known else replace(one, sizes={**one.sizes, name: value})
        )
    return proposals
