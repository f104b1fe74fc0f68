"""Registry of foreign formats: how each is recognised and read, and which profile it becomes.

Timings, network logs and recorded calls become a machine; ops, traces and ONNX a model; runs measurements.
`choose_import` finds a file's format; `import_model` and `import_timings` read the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.machine import Device, Machine
from fomkit.core.model import ModelProfile
from fomkit.files.csv import read_header
from fomkit.files.op_csv import read_numbered_table
from fomkit.frontends.onnx.file import recognise_onnx
from fomkit.frontends.profile import profile_onnx
from fomkit.ops.check import check_table, fill_defaults
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops, sizes_used
from fomkit.ops.tables import COSTS, TIMES
from fomkit.prediction.exact import settle_engines
from fomkit.profiles.locate import check_profile
from fomkit.profiles.models import load_model_facts
from fomkit.readers.adapters import choose_adapter, ops_by_adapter, timings_by_adapter
from fomkit.readers.measurements import TITLE as METER
from fomkit.readers.measurements import read_meter, recognise_meter
from fomkit.readers.profilers.kineto import bare_model, model_of_trace, timings_of_trace
from fomkit.readers.profilers.kineto_stream import recognise_kineto
from fomkit.readers.profilers.nsys import read_nsys, recognise_nsys
from fomkit.readers.profilers.tfprof import model_of_tfprof, recognise_tfprof
from fomkit.readers.profilers.xplane import model_of_planes
from fomkit.readers.profilers.xplane_file import recognise_xplane
from fomkit.readers.records import IMPORTERS, Format
from fomkit.readers.tables.aiconfigurator import read_aiconfigurator, recognise_aiconfigurator
from fomkit.readers.tables.deepbench import (
    read_deepbench,
    read_deepbench_log,
    recognise_deepbench,
    recognise_deepbench_log,
)
from fomkit.readers.tables.foreign import ImportedTimings, read_timings_table, recognise_timings_table
from fomkit.readers.tables.network_logs import read_nccl_tests, read_osu, recognise_nccl_tests, recognise_osu
from fomkit.readers.tables.neusight import read_neusight, recognise_neusight
from fomkit.readers.tables.simulators import read_vidur, read_vtrain, recognise_vidur, recognise_vtrain


def as_machine(imported: ImportedTimings, name: str, facts: Machine | None = None) -> Machine:
    """Combine timings with a machine's facts; peaks and bandwidth come from the facts or stay unknown."""
    if facts is not None and len(facts.timings):
        line = f"'device: {facts.device_of}'; state its facts instead" if facts.device_of else "'timings'"
        what = f"has timings of its own, and facts must be a machine file without them. Remove its line {line}."
        raise FomkitError(f"facts of {facts.name}", what)
    base = facts or Machine(name, imported.device or name, "published", Device(), imported.timings)
    files = ", ".join(sorted(set(imported.timings["source_file"])))
    stated = "; ".join(f"{key} {value}" for key, value in imported.specs.items() if value) or "nothing"
    source = f"Timings from {files}. The file states of the system: {stated}."
    notes = dict.fromkeys((*base.notes, source, *imported.notes))
    links = (*base.links, *imported.links)
    return replace(base, name=name, timings=imported.timings, links=links, notes=tuple(notes))


def model_of_onnx(path: Path, sizes: Mapping[str, int], **more: Any) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile from an ONNX file; ``more``: arguments of `fomkit.frontends.profile.profile_onnx`."""
    profile = profile_onnx(path, sizes=sizes, **more)
    return replace(profile, notes=()), profile.notes


MADE = frozenset(column.name for column in (*COSTS, *TIMES))


def _from_table(table: pd.DataFrame, path: Path, sizes: Mapping[str, int]) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model from an op table alone, checked at the given sizes."""
    made = [name for name in table.columns if name in MADE]
    ops, messages = fill_defaults(table.drop(columns=made), str(path))
    if made:
        messages = (*messages, f"{', '.join(made)}: left out; an estimate recomputes them.")
    if missing := sorted(sizes_used(ops) - set(sizes)):
        need, example = ", ".join(missing), " ".join(f"--set {name}=64" for name in missing)
        raise FomkitError(str(path), f"its dimensions use {need}. Give values, for example {example}.")
    check_table(resize_ops(ops, sizes, str(path)), "OPS", str(path))
    return bare_model(path, ops.reset_index(drop=True), sizes, framework="none"), messages


def model_of_ops(path: Path, sizes: Mapping[str, int], **_: Any) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile from a table of ops; options of other formats are ignored."""
    return _from_table(read_numbered_table(path, "TIMED"), path, sizes)


def recognise_ops_table(path: Path) -> bool:
    """Return whether a file is text whose header names the columns of an op: a kind, and a count or no time."""
    header = read_header(path)
    return "kind" in header and ("count" in header or not any(name.lower().startswith("time") for name in header))


TRACES = ("kineto", "xplane", "nsys")
LARGE = (*TRACES, "onnx")
"""Formats whose files may be larger than any table."""
PRODUCTS = ("machine", "model", "measurements")

_MODEL = partial(Format, product="model")
FORMATS: Mapping[str, Format] = {
    "deepbench": Format("DeepBench result workbook (.xlsx)", recognise_deepbench, read_deepbench),
    "aiconfigurator": Format(
        "aiconfigurator table of products, attention (latent too), experts or collectives (.csv)",
        recognise_aiconfigurator,
        read_aiconfigurator,
    ),
    "neusight": Format("NeuSight table of kernels (.csv)", recognise_neusight, read_neusight, "device"),
    "nccl-tests": Format("log of nccl-tests (all_reduce_perf, …)", recognise_nccl_tests, read_nccl_tests, "run"),
    "osu": Format("output of OSU micro-benchmarks", recognise_osu, read_osu, "run"),
    "deepbench-log": Format(
        "text of DeepBench's NCCL all-reduce", recognise_deepbench_log, read_deepbench_log, "run"
    ),
    "vidur": Format("Vidur's table of a layer's pieces or of a collective (.csv)", recognise_vidur, read_vidur),
    "vtrain": Format("vTrain's table of all-reduces (.csv)", recognise_vtrain, read_vtrain),
    "timings": Format(
        "table of timings (.csv: kind, dtype, engine, time_s, sizes such as m, n, k)",
        recognise_timings_table,
        read_timings_table,
    ),
    "ops": _MODEL("table of ops (.csv: kind, dtype, count, sizes)", recognise_ops_table, model_of_ops),
    "kineto": _MODEL(
        "trace of PyTorch's profiler (.json, .json.gz)", recognise_kineto, model_of_trace, also="machine"
    ),
    "xplane": _MODEL("trace of TensorFlow's profiler (.xplane.pb)", recognise_xplane, model_of_planes),
    "nsys": _MODEL(
        "export of Nsight Systems (nsys export --type sqlite)",
        recognise_nsys,
        partial(model_of_trace, read=read_nsys),
    ),
    "tfprof": _MODEL("output of tfprof, its view of ops with shapes", recognise_tfprof, model_of_tfprof),
    "onnx": _MODEL("ONNX model (.onnx)", recognise_onnx, model_of_onnx),
    **IMPORTERS,
    "meter": Format(METER, recognise_meter, read_meter, product="measurements"),
}
READERS = {name: one for name, one in FORMATS.items() if one.product == "machine"}
"""Formats that are read as timings."""


class AmbiguousFormatError(FomkitError):
    """A file that fits more than one format."""


def choose_format(path: Path, file_format: str | None, formats: Mapping[str, Format]) -> str:
    """Return the named format, else the only one that recognises the file's content."""
    if path.is_file() and not path.stat().st_size:
        raise FomkitError(str(path), "is empty. Copy it, or write it, again.")
    if file_format is not None:
        if file_format not in formats:
            nearest = nearest_names(file_format, formats)
            raise FomkitError(str(path), f"{file_format!r} is not a known format. {nearest}")
        return file_format
    found = [name for name, one in formats.items() if one.recognise(path)]
    if len(found) != 1:
        ending = path.suffix.lower()
        alike = found or [name for name, one in formats.items() if ending and ending in one.title] or [*formats]
        listed = "; ".join(f"{name}: {formats[name].title}" for name in alike)
        what = "fits more than one format" if found else "is not of a known format. The formats of such files are"
        kind = AmbiguousFormatError if found else FomkitError
        raise kind(str(path), f"{what}: {listed}. Name one with --format, or check the file.")
    return found[0]


def read_timings(
    path: Path,
    file_format: str | None = None,
    readers: Mapping[str, Format] = READERS,
    *,
    device: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> ImportedTimings:
    """Read timings of one device from a file of any known format, by default the one that its content shows."""
    name = choose_format(path, file_format, readers)
    reader = readers[name]
    if sizes and reader.takes != "run":
        raise FomkitError("--set", "these sizes describe a model, not a machine. Leave them out.")
    if device is not None and not sizes and reader.takes != "device":
        raise FomkitError(f"--device {device}", f"a file of the format {name!r} is of one device. Leave it out.")
    given = (sizes,) if sizes else () if device is None else (device,)
    imported: ImportedTimings = reader.read(path, *given)
    return imported


def choose_import(path: Path, product: str | None, file_format: str | None) -> tuple[str, str]:
    """Choose a file's format by name, product or content; return it (or an adapter's name) and the product."""
    if product is not None and product not in PRODUCTS:
        raise FomkitError(f"product {product}", f"cannot be imported. {nearest_names(product, PRODUCTS)}")
    try:
        chosen = _own_format(path, product, file_format)
    except AmbiguousFormatError:
        raise
    except FomkitError as refusal:
        check_profile(path, "file of a known format")
        return choose_adapter(path, product, file_format, FORMATS, refusal)
    own = FORMATS[chosen]
    if not own.makes(product):
        what = f"the format {chosen!r} makes a {own.product}. Leave one of them out."
        raise FomkitError(f"product {product}", what)
    return chosen, product or own.product


def _own_format(path: Path, product: str | None, file_format: str | None) -> str:
    if file_format is not None:
        return choose_format(path, file_format, FORMATS)
    fitting = {name: one for name, one in FORMATS.items() if one.makes(product)}
    # The other formats would refuse a file that is larger than a table may be.
    large = {name: one for name, one in fitting.items() if name in LARGE and one.recognise(path)}
    return choose_format(path, None, large or fitting)


_OF_OPS = ("ops", "parts", "order", "layers", "sizes", "unsupported")
_STATED_FIRST = ("parameters_total", "parameters_trainable", "traced_with", "optimizer")
_OF_BOTH = ("missing", "derived")
"""Fields of a model that come with its ops, fields that facts may override, and fields that are merged."""


def _with_ops(stated: ModelProfile, bare: ModelProfile) -> ModelProfile:
    """Add a table of ops, and the facts known with it, to stated facts."""
    both: dict[str, Any] = {name: getattr(bare, name) for name in _OF_OPS}
    both |= {name: getattr(stated, name) or getattr(bare, name) for name in _STATED_FIRST}
    both |= {name: tuple(dict.fromkeys((*getattr(stated, name), *getattr(bare, name)))) for name in _OF_BOTH}
    return replace(stated, notes=(*stated.notes, *bare.notes), **both)


def _read_bare(
    path: Path, file_format: str, sizes: Mapping[str, int], more: Mapping[str, Any]
) -> tuple[ModelProfile, tuple[str, ...]]:
    """Read a model from a file alone, by fomkit's own reader of its format or an installed one."""
    if more.get("graph") and file_format != "xplane":
        raise FomkitError(
            f"--graph {more['graph']}", "is for traces of TensorFlow's profiler; this is not one. Leave it out."
        )
    if file_format in FORMATS:
        made: tuple[ModelProfile, tuple[str, ...]] = FORMATS[file_format].read(path, sizes, **more)
        return made
    table, messages = ops_by_adapter(path, file_format, FORMATS)
    bare, filled = _from_table(table, path, sizes)
    return bare, (*messages, *filled)


def flop_use_message(model: ModelProfile, machine: Machine) -> str:
    """Return a message on the flop utilisation of a traced model: flop / (time × peak), weighted by time.

    Ops without flop, time, or a peak for their number format and engine do not count; the message states the share
    of time that counts. `model`: with ``traced_time_s`` in its ops; `machine`: that the trace was recorded on.
    """
    ops = add_costs(resize_ops(model.ops, model.sizes, model.name))
    ops, _ = settle_engines(ops, machine)
    peaks = {(peak.dtype, peak.engine): peak.rate.value for peak in machine.device.peaks}
    peak = ops[["dtype", "engine"]].apply(tuple, axis=1).map(peaks).astype("float64")
    time_s = (ops["traced_time_s"] * ops["count"]).astype("float64")
    counted = time_s.gt(0) & ops["flop"].gt(0) & peak.notna()
    whole_s = float(time_s.sum())
    if not counted.any() or not whole_s:
        known = f"no op has a time, flop, and a peak of {machine.name} for its format"
        return f"flop utilisation is not known: {known}"
    spent_s = float(time_s[counted].sum())
    least_s = float((ops["flop"] * ops["count"] / peak)[counted].sum())
    share = f"{spent_s / whole_s:.0%} of it is of ops that have flop and a peak"
    return f"flop utilisation {least_s / spent_s:.1%} of the peaks of {machine.name}, weighted by time ({share})"


def import_model(
    path: Path,
    facts: Path | None = None,
    *,
    name: str | None = None,
    file_format: str = "ops",
    sizes: Mapping[str, int] | None = None,
    train_samples: int | None = None,
    epochs: int | None = None,
    machine: Machine | None = None,
    **more: Any,
) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile from a table of ops, a trace or an ONNX file; return it and a line per value filled in.

    `path`: a CSV file, gzipped or not, with the columns of OPS (`fill_defaults` says which may be missing), or a
    trace; `facts`: a model file without ``ops``; ``name``, ``sizes``, ``train_samples`` and ``epochs`` override
    it; `file_format`: the key in `FORMATS` of one that makes models; `machine`: that a trace was recorded on, for
    the share of its peak that was reached; `more`: for an ONNX file ``mode`` and ``optimizer``, for a trace of
    TensorFlow ``graph``, the ``model.py`` of its Keras model, which is run.
    """
    stated = load_model_facts(facts) if facts else None
    bare, messages = _read_bare(path, file_format, {**(stated.sizes if stated else {}), **(sizes or {})}, more)
    if machine is not None:
        messages = (*messages, flop_use_message(bare, machine))
    model = _with_ops(stated, bare) if stated else bare
    counts = {"train_samples": train_samples, "epochs": epochs}
    model = model.with_run({key: count for key, count in counts.items() if count is not None})
    notes = (*model.notes, f"Op table from {path.name}.", *messages)
    name = name or model.name
    title = model.title if stated or file_format == "onnx" else name
    return replace(model, name=name, title=title, notes=notes), messages


def import_timings(
    path: Path, file_format: str, *, device: str | None = None, sizes: Mapping[str, int] | None = None
) -> ImportedTimings:
    """Read timings of a machine from a file of any format of `FORMATS` that makes one."""
    if file_format in READERS:
        return read_timings(path, file_format, device=device, sizes=sizes)
    if device is not None:
        what = "trace" if file_format in FORMATS else "file of an adapter"
        raise FomkitError(f"device {device}", f"a {what} is of one device. Leave it out.")
    if file_format not in FORMATS:
        return timings_by_adapter(path, file_format, FORMATS)
    return timings_of_trace(path)
