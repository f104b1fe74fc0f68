"""Make the tables of ``validation`` from NeuSight's tables, EIE's layers, Vidur's pieces and published steps.

``python benchmarks/validation_tables.py SHARED``. NeuSight's tables keep all rows, and nothing is computed: only
columns that `fomkit validate` does not read are dropped, and gzipped files have no name or time. ``profiles.csv``
was written by hand. EIE's dense layers on machines that have a profile are kept, as BLAS products, in seconds. Of
Vidur's layers, as imported, `VIDUR_ROWS` rows of each piece and file are kept, evenly spaced by time from
`VIDUR_LEAST_S`. Of steps on many devices every row is kept, in a user's terms, except those that `bridge_rows`
leaves out by name; ``models.csv`` and ``sets.csv`` in that folder were written by hand.
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
STEP_COLUMNS = ["set", "model", "blocks", "seq", "devices", "batch", "precision", "layout", "step_s", "source_row"]
BRIDGE_MODELS = {"LLAMA3_70B": "llama3-70b", "LLAMA3.1_405B": "llama3.1-405b", "Qwen3_30B_a3B": "qwen3-30b-a3b",
                 "Qwen3_235B_a22B": "qwen3-235b-a22b", "GPT OSS 120B": "gpt-oss-120b"}  # fmt: skip
UNREAD: Mapping[str, str] = {
    "opgraphs.csv.gz": "idx",
    "oplabels.csv.gz": "",
    "e2e.csv": """measured_ms pred_roofline pred_habitat pred_micro pred_neusight num_layer device_group
        model_group""",
    "devices.csv": "Dev_Mem Core_Per_SM Freq file real_fp32_lanes_per_sm arch",
}


def thinned(path: Path) -> str:
    """Return a table as text without its unread columns."""
    rows = read_rows(path)
    _, header = next(rows)
    kept = [place for place, name in enumerate(header) if name not in UNREAD[path.name].split()]
    return format_rows([header[place] for place in kept], ([row[place] for place in kept] for _, row in rows))


def packed(text: str) -> bytes:
    """Compress text by gzip, without a name or a time."""
    stream = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as file:
        file.write(text.encode("utf-8"))
    return stream.getvalue()


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def eie_rows(folder: Path) -> Iterator[list[str]]:
    """Yield EIE's dense layers; the printed times are per frame, also at batch 64."""
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
    """Yield some rows of each piece of a layer, from 10 us on: times are whole microseconds, so known to 5 %."""
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
    """Return the table of Vidur's pieces, gzipped."""
    return packed(format_rows(VIDUR_COLUMNS, vidur_rows(shared / "data" / "layer_kernels")))


def _words(**of: str) -> str:
    return ",".join(f"{name}={value}" for name, value in of.items() if value not in ("", "1", "1.0"))


def mpt_rows(lines: list[dict[str, str]]) -> Iterator[list[str]]:
    """Yield MPT's steps under FSDP."""
    for number, line in enumerate(lines, 1):
        layout = f"microbatch={line['MicroBatchSize']}"
        layout += ",recompute=full" * (line["Activation Checkpointing"] == "True")
        layout += ",gradient_byte=2" * (line["MP Mode"] == "PURE")
        seq, batch = line["SeqLen (T)"], line["GlobalBatchSize"]
        step_s = int(batch) * int(seq) / float(line["Throughput (T/s)"])
        yield ["MPT under FSDP", f"mpt-{line['Model']}", "", seq, line["# GPUs"], batch, "bf16", layout,
               f"{step_s:.6g}", str(number)]  # fmt: skip


def vtrain_rows(lines: list[dict[str, str]]) -> Iterator[list[str]]:
    """Yield vTrain's rows, which a formula composed of 31 measured settings."""
    for line in lines:
        layout = _words(tensor=line["tensor parallelism"], pipeline=line["pipeline parallelism"])
        layout = ",".join(filter(None, [layout, f"microbatch={line['micro batch']}"]))
        step_s = f"{float(line['iteration time (ms)']) / 1e3:.6g}"
        yield ["vTrain's small layers", f"vtrain-{line['hidden size']}", line["layers"], line["sequence length"],
               line["GPUs"], line["global batch"], "bf16", layout, step_s, line["row"]]  # fmt: skip


def juwels_rows(lines: list[dict[str, str]]) -> Iterator[list[str]]:
    """Yield the steps of GPT-175B on JUWELS Booster, four devices per node."""
    for line in lines:
        step_s = int(line["Batch_Size"]) * 2048 / float(line["Tokens/sec"])
        yield ["Megatron-LM on JUWELS Booster", "gpt-175b", "", "2048", str(4 * int(line["Nodes"])),
               line["Batch_Size"], "bf16", "", f"{step_s:.6g}", line["JobID"]]  # fmt: skip


def bridge_rows(lines: list[dict[str, str]]) -> Iterator[list[str]]:
    """Yield Megatron-Bridge's pretraining steps of models with published sizes and without state spaces.

    Left out: tuning (LoRA, and sequences packed to unknown lengths), Nemotron (state spaces).
    32 groups of experts in a stage of 32 devices, with tensor groups of two, are whole experts.
    """
    for number, line in enumerate(lines, 1):
        if line["section"] != "Pre-Training Performance" or line["Model"] not in BRIDGE_MODELS:
            continue
        tensor = line["TP"]
        expert = line["EP"].removesuffix(".0")
        layout = _words(
            tensor=tensor, pipeline=line["PP"], interleave=line["VP"], context=line["CP"], expert=expert
        )
        words = [layout, f"microbatch={line['MBS']}", *["sequence,tensor_overlap"] * (tensor != "1"),
                 *["whole_experts"] * (tensor != "1" and expert != "")]  # fmt: skip
        seq, devices = line["Sequence Length"], line["#-GPUs"]
        step_s = int(line["GBS"]) * int(seq) / (float(line["Tokens / sec / GPU"]) * int(devices))
        yield ["Megatron-Bridge on H100", BRIDGE_MODELS[line["Model"]], "", seq, devices, line["GBS"],
               line["Precision"].lower(), ",".join(filter(None, words)), f"{step_s:.6g}", str(number)]  # fmt: skip


PUBLISHED_STEPS = {"mpt_fsdp_a100_80": mpt_rows, "vtrain_single_odd": vtrain_rows,
                   "megatron_juwelsbooster_strong_scaling": juwels_rows,
                   "megatron_bridge_h100": bridge_rows}  # fmt: skip
"""Files of published steps, and the functions that read their rows."""


def step_table(shared: Path) -> bytes:
    """Return the table of published steps on many devices, gzipped."""
    rows = (row for name, taken in PUBLISHED_STEPS.items()
            for row in taken(_read(shared / "data" / "steps" / f"{name}.csv")))  # fmt: skip
    return packed(format_rows(STEP_COLUMNS, rows))


def tables(shared: Path) -> dict[str, bytes]:
    """Return the content of each of NeuSight's tables by name."""
    found = {name: thinned(shared / "data" / "neusight" / name) for name in UNREAD}
    return {name: packed(text) if name.endswith(".gz") else text.encode("utf-8") for name, text in found.items()}


if __name__ == "__main__":
    made = {f"neusight/{name}": content for name, content in tables(Path(sys.argv[1])).items()}
    eie = format_rows(EIE_COLUMNS, eie_rows(Path(sys.argv[1]) / "data" / "eie"))
    made |= {"eie/layers.csv": eie.encode("utf-8"), "vidur/pieces.csv.gz": vidur_table(Path(sys.argv[1])),
             "steps/steps.csv.gz": step_table(Path(sys.argv[1]))}  # fmt: skip
    for name, content in made.items():
        (VALIDATION / name).parent.mkdir(exist_ok=True)
        (VALIDATION / name).write_bytes(content)
        print(f"{name}: {len(content):,} bytes")
