"""Fits of timings on disk: JSON that names the timings it was made from, and is ignored for others.

A name is no proof: whoever changes a fit can name the same timings. So fits are read from two places only, those
that came with fomkit and the user's own cache (`fomkit.profiles.machines`, `fomkit.study.fits`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.profiles.strict_yaml import read_text
from fomkit.profiles.write import write_whole
from fomkit.schema import TABLES, in_order

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "fomkit/fits/5"
"""Counts up when fits look at ops in another way, so that older ones are made anew."""


def _content(cells: pd.Series, number: bool) -> bytes:
    """Give what a column holds as bytes; empty where every cell is."""
    import numpy as np

    if not number:
        texts = cells.fillna("").astype("str").tolist()
        return "\x1f".join(texts).encode() if any(texts) else b""
    values = cells.to_numpy("<f8")
    empty = np.isnan(values)
    return b"" if empty.all() else np.where(empty, np.nan, values).tobytes()


def fit_key(timings: pd.DataFrame) -> str:
    """Hash what a fit rests on, the timings in whatever order they stand; "" without any.

    Empty columns do not count, so the key of a table outlives new columns of the schema.
    """
    if not len(timings):
        return ""
    timings = in_order(timings)
    digest = hashlib.sha256(f"{len(timings)}".encode())
    for column in TABLES["TIMINGS"]:
        if column.name in timings.columns:
            content = _content(timings[column.name], column.dtype == "number")
            digest.update(f"\x1e{column.name}\x1f".encode() + content if content else b"")
    return digest.hexdigest()


def _seal(fits: Mapping[str, object]) -> str:
    """Hash fits themselves, so that an edited or cut file is found out."""
    return hashlib.sha256(json.dumps(fits, sort_keys=True).encode()).hexdigest()


def load_fits(path: Path, key: str) -> dict[str, object]:
    """Read fits; none when the file is absent or was made from other timings.

    Raises
    ------
    FomkitError
        When the file is not JSON, or was changed after it was made.
    """
    if not key or not path.is_file():
        return {}
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise FomkitError(str(path), f"is not JSON ({error}). Delete it; it is made again.") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or content.get("timings_key") != key:
        return {}
    fits = content.get("fits")
    if not isinstance(fits, dict):
        raise FomkitError(str(path), "has no fits. Delete it; it is made again.")
    if content.get("fits_sha256") != _seal(fits):
        raise FomkitError(
            str(path),
            "its fits are not those that its fits_sha256 names, so somebody changed them after they were "
            "made. Delete it; it is made again.",
        )
    return fits


def save_fits(fits: Mapping[str, object], path: Path, key: str) -> None:
    """Write fits, whole or not at all."""
    content = {"schema": SCHEMA, "timings_key": key, "fits_sha256": _seal(fits), "fits": fits}
    write_whole(path, json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n")
