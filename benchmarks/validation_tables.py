"""Make the tables of ``validation/neusight`` from NeuSight's own.

``python benchmarks/validation_tables.py SHARED``. Nothing is computed and no row is left out: only columns that
`fomkit validate` does not read are, and packed files carry no name or time. ``profiles.csv`` was written by hand.
"""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Mapping
from pathlib import Path

from fomkit.tables.text import read_rows
from fomkit.tables.write import format_rows

TARGET = Path(__file__).parent.parent / "validation" / "neusight"
UNREAD: Mapping[str, str] = {
    "opgraphs.csv.gz": "idx",
    "oplabels.csv.gz": "",
    "e2e.csv": """measured_ms pred_roofline pred_habitat pred_micro pred_neusight num_layer device_group
        model_group""",
    "devices.csv": """Dev_Mem Num_Sm Core_Per_SM Freq L2Cache file real_sm real_fp32_lanes_per_sm arch tdp_w
        node_nm""",
}


def thinned(path: Path) -> str:
    """Give a table as text without its unread columns."""
    rows = read_rows(path)
    _, header = next(rows)
    kept = [place for place, name in enumerate(header) if name not in UNREAD[path.name].split()]
    return format_rows([header[place] for place in kept], ([row[place] for place in kept] for _, row in rows))


def packed(text: str) -> bytes:
    """Pack text without a name or a time in it."""
    stream = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as file:
        file.write(text.encode("utf-8"))
    return stream.getvalue()


def tables(shared: Path) -> dict[str, bytes]:
    """Give each table's name and content."""
    found = {name: thinned(shared / "data" / "neusight" / name) for name in UNREAD}
    return {name: packed(text) if name.endswith(".gz") else text.encode("utf-8") for name, text in found.items()}


if __name__ == "__main__":
    for name, content in tables(Path(sys.argv[1])).items():
        (TARGET / name).write_bytes(content)
        print(f"{name}: {len(content):,} bytes")
