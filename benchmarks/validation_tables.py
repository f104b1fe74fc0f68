"""Make the tables of ``validation/neusight`` from NeuSight's own, and ``validation/eie`` from EIE's.

``python benchmarks/validation_tables.py SHARED``. Of NeuSight nothing is computed and no row is left out: only
columns that `fomkit validate` does not read are, and packed files carry no name or time. ``profiles.csv`` was
written by hand. Of EIE the dense layers on machines that have a profile are kept, as BLAS products, in seconds.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from fomkit.files.csv import read_rows
from fomkit.files.op_csv import format_rows

VALIDATION = Path(__file__).parent.parent / "validation"
TARGET = VALIDATION / "neusight"
EIE_MACHINES = {"Titan X": "titan-x"}
EIE_COLUMNS = ["machine", "network", "layer", "batch", "kind", "dtype", "b", "m", "n", "k",
               "trans_a", "trans_b", "layout", "time_s", "source"]  # fmt: skip
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


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def eie_rows(folder: Path) -> Iterator[list[str]]:
    """Give EIE's dense layers. A figure at batch 64 is printed as the time of one frame."""
    layers = {line["layer"]: line for line in _read(folder / "layers.csv")}
    for times in _read(folder / "times_us.csv"):
        machine = EIE_MACHINES.get(times["platform"])
        if machine is None or times["matrix"] != "dense":
            continue
        for name, layer in layers.items():
            batch, printed = times["batch"], times[name]
            sizes = [layer["outputs"], batch, layer["inputs"]]
            time_s = f"{float(printed) * int(batch) * 1e-6:.9g}"
            source = f"arXiv 1602.01528, Table IV: {printed} us a frame"
            yield [machine, layer["network"], name, batch, "gemm", "fp32", "1", *sizes, "0", "0", "column_major",
                   time_s, source]  # fmt: skip


def tables(shared: Path) -> dict[str, bytes]:
    """Give each table's name and content."""
    found = {name: thinned(shared / "data" / "neusight" / name) for name in UNREAD}
    return {name: packed(text) if name.endswith(".gz") else text.encode("utf-8") for name, text in found.items()}


if __name__ == "__main__":
    made = {f"neusight/{name}": content for name, content in tables(Path(sys.argv[1])).items()}
    eie = format_rows(EIE_COLUMNS, eie_rows(Path(sys.argv[1]) / "data" / "eie"))
    for name, content in {**made, "eie/layers.csv": eie.encode("utf-8")}.items():
        (VALIDATION / name).parent.mkdir(exist_ok=True)
        (VALIDATION / name).write_bytes(content)
        print(f"{name}: {len(content):,} bytes")
