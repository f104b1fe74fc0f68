"""Make the tables of ``validation/neusight`` from NeuSight's own, ``validation/eie`` from EIE's, Vidur's pieces.

``python benchmarks/validation_tables.py SHARED``. Of NeuSight nothing is computed and no row is left out: only
columns that `fomkit validate` does not read are, and packed files carry no name or time. ``profiles.csv`` was
written by hand. Of EIE the dense layers on machines that have a profile are kept, as BLAS products, in seconds. Of
Vidur's layers, as they are imported, `VIDUR_ROWS` of each piece and file are, evenly by time from `VIDUR_LEAST_S`.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fomkit.files.csv import read_rows
from fomkit.files.op_csv import format_rows
from fomkit.readers.tables.simulators import read_vidur

VALIDATION = Path(__file__).parent.parent / "validation"
TARGET = VALIDATION / "neusight"
EIE_MACHINES = {"Titan X": "titan-x"}
EIE_COLUMNS = ["machine", "network", "layer", "batch", "kind", "dtype", "b", "m", "n", "k",
               "trans_a", "trans_b", "layout", "time_s", "source"]  # fmt: skip
VIDUR_MACHINES = {"a100": "a100-sxm", "h100": "h100-sxm"}
VIDUR_ROWS, VIDUR_LEAST_S = 20, 10e-6
VIDUR_COLUMNS = ["machine", "model", "piece", "kind", "op", "dtype", "engine", "pass_name", "b", "m", "n", "k",
                 "trans_a", "trans_b", "numel", "row", "inputs", "read_byte", "write_byte", "time_s",
                 "source_file", "source_row"]  # fmt: skip
UNREAD: Mapping[str, str] = {
    "opgraphs.csv.gz": "idx",
    "oplabels.csv.gz": "",
    "e2e.csv": """measured_ms pred_roofline pred_habitat pred_micro pred_neusight num_layer device_group
        model_group""",
    "devices.csv": "Dev_Mem Num_Sm Core_Per_SM Freq L2Cache file real_sm real_fp32_lanes_per_sm arch",
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


def vidur_rows(folder: Path) -> Iterator[list[str]]:
    """Give some rows of each piece of a layer; of a whole microsecond those above ten are known to 5 %."""
    for path in sorted(folder.glob("*.csv.gz")):
        board, _, model = path.name.removesuffix(".mlp.csv.gz").partition("_")
        timings = read_vidur(path).timings.rename(columns={"note": "piece"})
        timings = timings[timings["time_s"] >= VIDUR_LEAST_S].assign(machine=VIDUR_MACHINES[board], model=model)
        for _, rows in timings.groupby("piece", sort=True):
            places = np.unique(np.linspace(0, len(rows) - 1, min(VIDUR_ROWS, len(rows))).round().astype(int))
            chosen = rows.sort_values(["time_s", "source_row"], kind="stable").iloc[places][VIDUR_COLUMNS]
            for row in chosen.to_dict("records"):
                yield [value if isinstance(value, str) else "" if value != value else f"{value:.9g}"
                       for value in row.values()]  # fmt: skip


def vidur_table(shared: Path) -> bytes:
    """Give Vidur's pieces, packed."""
    return packed(format_rows(VIDUR_COLUMNS, vidur_rows(shared / "data" / "layer_kernels")))


def tables(shared: Path) -> dict[str, bytes]:
    """Give each table's name and content."""
    found = {name: thinned(shared / "data" / "neusight" / name) for name in UNREAD}
    return {name: packed(text) if name.endswith(".gz") else text.encode("utf-8") for name, text in found.items()}


if __name__ == "__main__":
    made = {f"neusight/{name}": content for name, content in tables(Path(sys.argv[1])).items()}
    eie = format_rows(EIE_COLUMNS, eie_rows(Path(sys.argv[1]) / "data" / "eie"))
    made |= {"eie/layers.csv": eie.encode("utf-8"), "vidur/pieces.csv.gz": vidur_table(Path(sys.argv[1]))}
    for name, content in made.items():
        (VALIDATION / name).parent.mkdir(exist_ok=True)
        (VALIDATION / name).write_bytes(content)
        print(f"{name}: {len(content):,} bytes")
