"""Traces of profilers and ONNX files as a model profile, or traces as a machine's timings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fomkit.core.errors import FomkitError, printable
from fomkit.core.model import ModelProfile
from fomkit.files.op_csv import empty_table
from fomkit.frontends.profile import profile_onnx
from fomkit.frontends.step_spread import sum_notes
from fomkit.ops.check import check_table
from fomkit.readers.profilers.kineto import TraceRows, read_trace, trace_table
from fomkit.readers.profilers.kineto_rows import trace_timings
from fomkit.readers.profilers.nsys import read_nsys
from fomkit.readers.profilers.tfprof import read_tfprof
from fomkit.readers.tables.foreign import ImportedTimings, SectionCount, make_timings

_BATCH = "the samples of a step are not in a trace; say them with --set batch=N"
_SPECS = ("name", "totalGlobalMem", "numSms", "computeMajor", "computeMinor", "maxThreadsPerBlock")


def model_of_trace(
    path: Path, sizes: Mapping[str, int], read: Callable[[Path], TraceRows] = read_trace
) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile of a trace of PyTorch's profiler.

    `sizes`: named sizes of the step that was recorded; `read`: reads the trace.

    Gives a model with ``traced_time_s`` in its ops, and how it was made and what is missing, a line each.
    """
    trace = read(path)
    ops = trace_table(trace.rows)
    check_table(ops, "OPS", str(path))
    name = path.name.partition(".")[0]
    updates = [row.op.dimensions for row in trace.rows if row.op.kind == "optimizer"]
    trainable = sum(int(update["numel"]) for update in updates)
    passes = {row.op.pass_name for row in trace.rows}
    mode = "infer" if passes == {"forward"} else "train"
    device = printable(trace.device) or ("accelerator" if trace.on_device else "cpu")
    updated = (f"the optimizer updates {trainable:,} parameters",) if trainable else ()
    added = sum_notes(float((ops["count"] * ops["traced_time_s"]).sum()), trace.step_s)
    messages = (*trace.notes, *added, *updated, *(() if "batch" in sizes else (_BATCH,)))
    profile = ModelProfile(
        name=name,
        title=name,
        ops=ops,
        parts=empty_table("OPS"),
        sizes=sizes,
        traced_with={"framework": "torch", "device": device, "mode": mode},
        optimizer={key: str(updates[0][key]) for key in ("rule", "impl")} if updates else {},
        unsupported=tuple(printable(one) for one in trace.unsupported),
    )
    return profile, messages


def model_of_nsys(path: Path, sizes: Mapping[str, int]) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile of an export of Nsight Systems; see `model_of_trace`."""
    return model_of_trace(path, sizes, read_nsys)


def model_of_tfprof(path: Path, sizes: Mapping[str, int]) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile of what tfprof printed."""
    ops, messages = read_tfprof(path, sizes)
    check_table(ops, "OPS", str(path))
    name = path.name.partition(".")[0]
    traced_with = {"framework": "tensorflow"}
    return ModelProfile(name, name, ops, empty_table("OPS"), sizes, traced_with), messages


def model_of_onnx(
    path: Path,
    sizes: Mapping[str, int],
    *,
    mode: Literal["train", "infer"] = "train",
    optimizer: str | None = None,
) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile of an ONNX file; see `fomkit.frontends.profile.profile_onnx`."""
    profile = profile_onnx(path, mode=mode, optimizer=optimizer, sizes=sizes)
    return replace(profile, notes=()), profile.notes


def timings_of_trace(path: Path) -> ImportedTimings:
    """Read the times of a trace's calls as timings of the machine that it was recorded on.

    Gives an ImportedTimings: of kernels where the trace has any, each call's together; else of calls on the host.
    """
    trace = read_trace(path)
    table, dropped = trace_timings(trace.rows)
    if table.empty:
        raise FomkitError(str(path), "has no call with shapes and a time of its own. Record whole steps.")
    timer = "kernels" if trace.on_device else "calls on the host"
    columns: dict[str, object] = {
        str(name): table[name].fillna("") if table[name].dtype == object else table[name] for name in table
    }
    columns |= {"harness": f"torch.profiler, {timer}", "library": "PyTorch", "source_row": float("nan")}
    if trace.on_device:
        columns["harness_s"] = 0.0
    timings = make_timings(columns, table.index, path)
    groups = Counter(zip(timings["kind"], timings["pass_name"], strict=True))
    counts = [
        SectionCount("-", "trace", pass_name, imported=rows, kind=kind)
        for (kind, pass_name), rows in groups.items()
    ]
    counts += [
        SectionCount("-", "trace", skipped=rows, reason=why, kind=kind) for (kind, why), rows in dropped.items()
    ]
    specs = {key: printable(str(trace.properties[key])[:80]) for key in _SPECS if key in trace.properties}
    left_out = tuple(trace.unsupported[:5])
    return ImportedTimings(timings, printable(trace.device), specs, tuple(counts), trace.notes, left_out)
