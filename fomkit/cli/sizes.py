"""``--set NAME=NUMBER``: named sizes as they stand on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fomkit.errors import FomkitError

_SETTING = re.compile(r"([A-Za-z_]\w*)=(\d{1,15})")


def parse_sizes(settings: Sequence[str]) -> dict[str, int]:
    """Read settings such as ``seq=512``.

    Raises
    ------
    FomkitError
        When one is not a name and a whole number, or a name stands twice.

    Examples
    --------
    >>> parse_sizes(["seq=512", "batch=8"])
    {'seq': 512, 'batch': 8}
    """
    sizes: dict[str, int] = {}
    for setting in settings:
        match = _SETTING.fullmatch(setting)
        if match is None:
            raise FomkitError(
                f"--set {setting}", "is not a name and a whole number. Write, for example, --set seq=512."
            )
        if match[1] in sizes:
            raise FomkitError(f"--set {setting}", f"{match[1]} is set a second time. Set it once.")
        sizes[match[1]] = int(match[2])
    return sizes
