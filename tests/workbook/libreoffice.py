"""Recalculate workbooks by LibreOffice, after removing the values that fomkit stored with the formulas."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

_VALUE = re.compile(rb"(</f>)(?:<v>[^<]*</v>|<v ?/>)")


def program() -> str:
    """Find LibreOffice; without it a test is skipped, in CI it fails."""
    found = shutil.which("soffice") or shutil.which("libreoffice")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("soffice is absent: install libreoffice-calc, .ci/run does")
        pytest.skip("soffice is absent: install libreoffice-calc to compute workbooks anew")
    return found


def without_values(path: Path, target: Path) -> Path:
    """Copy a workbook without the values of its formulas, because a program may keep a stored value."""
    removed = 0
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as copy:
        for name in archive.namelist():
            data = archive.read(name)
            if name.startswith("xl/worksheets/sheet"):
                data, count = _VALUE.subn(rb"\1", data)
                removed += count
            copy.writestr(name, data)
    assert removed
    return target


def resaved(path: Path, folder: Path) -> Path:
    """Let LibreOffice compute and save a workbook."""
    (found,) = all_resaved([path], folder)
    return found


def all_resaved(paths: Sequence[Path], folder: Path) -> list[Path]:
    """Let LibreOffice compute and save some workbooks; its start takes longer than a workbook."""
    out = folder / "resaved"
    command = [
        program(), "--headless", f"-env:UserInstallation={(folder / 'profile').as_uri()}",
        "--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", str(out), *map(str, paths),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return [out / path.name for path in paths]


def recalculated(paths: Sequence[Path], folder: Path) -> list[Path]:
    """Let LibreOffice compute every formula of some workbooks from their inputs."""
    return all_resaved([without_values(path, folder / f"bare-{path.name}") for path in paths], folder)
