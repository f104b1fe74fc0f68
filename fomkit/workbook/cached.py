"""Values beside formulas in a saved workbook, so that previews and readers that do not compute show numbers."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from xml.sax.saxutils import escape

_FORMULA = re.compile(r'<c r="([A-Z]+\d+)"([^>]*)><f>([^<]*)</f><v\s*/?>(?:</v>)?</c>')
_START = (1980, 1, 1, 0, 0, 0)
"""The same stamp in every part: a workbook of the same content has the same bytes."""


def _with_values(xml: str, values: Mapping[str, float | str]) -> str:
    def written(found: re.Match[str]) -> str:
        address, attributes, formula = found.groups()
        value = values[address]
        if isinstance(value, str):
            return f'<c r="{address}"{attributes} t="str"><f>{formula}</f><v>{escape(value)}</v></c>'
        return f'<c r="{address}"{attributes}><f>{formula}</f><v>{value!r}</v></c>'

    return _FORMULA.sub(written, xml)


def add_cached_values(content: bytes, sheets: Mapping[str, Mapping[str, float | str]]) -> bytes:
    """Put the value of every formula into the parts of an .xlsx archive.

    Parameters
    ----------
    content : bytes
        The archive as saved, with formulas that have no value.
    sheets : mapping
        Values by name of the part (``xl/worksheets/sheet1.xml``) and address.
    """
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(result, "w") as copy:
        for name in archive.namelist():
            data = archive.read(name)
            if name in sheets:
                data = _with_values(data.decode("utf-8"), sheets[name]).encode("utf-8")
            copy.writestr(zipfile.ZipInfo(name, _START), data, zipfile.ZIP_DEFLATED)
    return result.getvalue()
