"""Content as YAML text that `strict_yaml` reads back the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from fomkit.profiles.strict_yaml import check_shown, is_plain_text


class _Dumper(yaml.SafeDumper):
    """Quotes what the strict reader would take for a number or a word, ``1e3`` among them."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    check_shown(text, "save")
    style = None if is_plain_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def format_document(content: Mapping[str, Any]) -> str:
    r"""Write content as YAML, keys in their order.

    Raises
    ------
    FomkitError
        When a text holds a character that cannot be shown.

    Examples
    --------
    >>> format_document({"name": "1e3", "rate": "900 GB/s"})
    "name: '1e3'\nrate: 900 GB/s\n"
    """
    return yaml.dump(dict(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
