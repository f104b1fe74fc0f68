"""Colours of a workbook, whichever way they were stated, and whether a text stands out from its ground."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, fromstring

from openpyxl.styles.colors import COLOR_INDEX

BLACK, WHITE = "000000", "FFFFFF"
LEGIBLE = 1.6
"""Ratio of contrast below which a text is lost on its ground; WCAG 2.2 asks for 4.5."""
_SYSTEM = {"64": BLACK, "65": WHITE}
"""Colours of the system by index: its text, its ground."""
_THEME = (
    WHITE,
    BLACK,
    "EEECE1",
    "1F497D",
    "4F81BD",
    "C0504D",
    "9BBB59",
    "8064A2",
    "4BACC6",
    "F79646",
    "0000FF",
    "800080",
)
"""Office's colours, where a workbook has no theme."""
_ORDER = (
    "lt1",
    "dk1",
    "lt2",
    "dk2",
    "accent1",
    "accent2",
    "accent3",
    "accent4",
    "accent5",
    "accent6",
    "hlink",
    "folHlink",
)


def local(element: Element) -> str:
    """Give the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Give the ratio of contrast of two colours (WCAG 2.2, "contrast ratio"), from 1 to 21.

    Examples
    --------
    >>> contrast("000000", "FFFFFF"), round(contrast("FEFEFE", "FFF9D9"), 2)
    (21.0, 1.05)
    """
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _tinted(colour: str, tint: float) -> str:
    """Lighten or darken a colour, as ECMA-376 part 1, 18.8.19 says."""
    if not tint:
        return colour
    hue, light, full = colorsys.rgb_to_hls(*(int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)))
    light = light * (1 + tint) if tint < 0 else light * (1 - tint) + tint
    return "".join(f"{round(255 * min(max(one, 0.0), 1.0)):02X}" for one in colorsys.hls_to_rgb(hue, light, full))


@dataclass(frozen=True)
class Palette:
    """What numbers of colours mean in one workbook: those of its theme, and those of its index."""

    theme: Sequence[str] = _THEME
    index: Sequence[str] = COLOR_INDEX

    def colour(self, stated: Mapping[str, str], otherwise: str) -> str:
        """Give a colour as six hexadecimal digits; ``otherwise`` where none is stated, or it cannot be read.

        `stated`: attributes of an element of colour: ``rgb``, ``theme``, ``indexed`` or ``auto``, and ``tint``.
        """
        found = stated.get("rgb", "")[-6:]
        with_number = self.theme if "theme" in stated else self.index if "indexed" in stated else ()
        number = stated.get("theme", stated.get("indexed", ""))
        if "indexed" in stated and number in _SYSTEM:
            found = _SYSTEM[number]
        elif number.isdigit() and int(number) < len(with_number):
            found = with_number[int(number)][-6:]
        if not re.fullmatch(r"[0-9A-Fa-f]{6}", found):
            return otherwise
        try:
            return _tinted(found.upper(), float(stated.get("tint", 0.0)))
        except ValueError:
            return found.upper()


def palette_of(theme: bytes | None, index: Sequence[str] | None = None) -> Palette:
    """Read the colours of a workbook's theme."""
    found: dict[str, str] = {}
    scheme = () if not theme else fromstring(theme).iter()  # noqa: S314 - the door refuses document types
    for one in scheme:
        if local(one) in _ORDER and len(one) and local(one) not in found:
            found[local(one)] = one[0].get("lastClr") or one[0].get("val") or ""
    colours = tuple(found.get(name) or default for name, default in zip(_ORDER, _THEME, strict=True))
    return Palette(colours, tuple(index) if index else COLOR_INDEX)


def is_legible(text: str, ground: str) -> bool:
    """Tell whether a text of one colour can be read on a ground of another."""
    return contrast(text, ground) >= LEGIBLE
