"""Model profiles from code, a training program, an ONNX file or a transformer's sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypedDict, cast

from fomkit.core.errors import FomkitError
from fomkit.core.model import Workload
from fomkit.core.units import format_quantity
from fomkit.plan.options import check_counts, options_of, with_size
from fomkit.verbs.answer import Answer, StoredResult, command

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.core.machine import Machine
    from fomkit.core.model import ModelProfile, Workload


def _needed_byte(model: ModelProfile) -> float:
    """Return the memory [byte] that a step needs; a lower bound where the order of the ops is unknown."""
    from fomkit.ops.resize import resize_ops
    from fomkit.plan.memory import standing_memory
    from fomkit.plan.memory_of import can_follow, peak_byte

    if can_follow(model, model.sizes) and (peak := peak_byte(model, model.sizes)) is not None:
        return peak
    standing = standing_memory(resize_ops(model.ops, model.sizes, model.name), model.parameters_total)
    return 0.0 if standing is None else standing.byte


def _estimate_next(model: ModelProfile) -> str:
    """Return the command to estimate a model next: on the default machine, else on the oldest with timings.

    The machine must have the model's number formats, and memory for a step. Where no device holds it, return the
    command that says by how much, and which layout fits, on the largest; "" where no machine has the formats.
    """
    from fomkit.ops.kinds import PRODUCT_KINDS
    from fomkit.plan.memory_of import room_byte
    from fomkit.profiles.locate import profile_names
    from fomkit.profiles.machines import load_machine

    def memory_byte(machine: Machine) -> float:
        return room_byte(machine) or 0.0

    needed = _needed_byte(model)
    wanted = {*model.ops["dtype"][model.ops["kind"].isin(PRODUCT_KINDS)].astype(str)}

    def computes(machine: Machine) -> bool:
        return wanted <= {peak.dtype for peak in machine.device.peaks}

    default = load_machine(_DEFAULT_MACHINE)
    if computes(default) and needed <= memory_byte(default):
        return f"fomkit estimate {{file}} --target {_DEFAULT_MACHINE}"
    timed = [one for one in map(load_machine, profile_names("machine_profiles")) if len(one.timings)]
    known = sorted(filter(computes, timed), key=lambda one: (one.year or 9999, -memory_byte(one)))
    if found := next((one for one in known if needed <= memory_byte(one)), None):
        return f"fomkit estimate {{file}} --target {found.name}"
    return f"fomkit memory {{file}} --target {max(known, key=memory_byte).name}" if known else ""


_DEFAULT_MACHINE = "v100"
Mode = Literal["train", "infer", "prefill", "decode"]
"""Steps of a model: training, forward pass only, a prompt, one token after a cache."""
Fusion = Literal["eager", "compiled", "vendor"]
"""Which ops run as one kernel: none, chains that a compiler joins, those that the vendor's libraries join."""
MAIN_SHARE = 0.95
"""Share of a step's flop that the listed ops reach together."""
_OF_FILE = "file"
_TRACED = {
    _OF_FILE: "traced from the graph in the file",
    "meta": "traced on the meta device",
    "fake": "traced on fake tensors",
    "data": "traced in a run with data",
    "graph": "traced on the graph of its step",
    "sizes": "made by rule from its sizes",
}


@command(
    "profiling",
    arguments={"source": "FILE", "arguments": "ARGUMENTS"},
    spelled={"precision": ("--precision",)},
    metavar={"measure": "<step|ops>", "memory_limit": "GB", "optimizer": "RULE"},
    python_only={"inputs": None, "loss": None},
    stores=StoredResult(
        "model",
        "The profile to write; default: ./NAME.yaml.",
        lambda asked: (
            f"{asked['name'] or Path(asked['source']).stem.removesuffix('.transformer') or 'model'}.yaml"
        ),
        lambda asked, file: file.stem if Path(asked["source"]).suffix == ".json" else None,
        _estimate_next,
    ),
    plain=True,
)
def profile(
    source: str | Path | Workload | Any, *, arguments: Sequence[str] | None = None, script: bool = False,
    mode: Mode = "train", fusion: Fusion = "vendor", batch: int | None = None, seq: int | None = None,
    name: str | None = None, sizes: Mapping[str, int] | None = None, optimizer: str | Any = None,
    measure: Literal["step", "ops"] | None = None, threads: int | None = None, inputs: Any = None,
    precision: Literal["bf16"] | None = None, time_limit: float = 300.0, memory_limit: float | None = None,
    loss: Callable[[Any, Any], Any] | None = None, tell: Callable[[str], None] = lambda _: None,
) -> ModelProfile:  # fmt: skip
    """Trace a PyTorch or Keras model into a profile, from shapes alone: without data, accelerator or real weights.

    A Python file is executed, so use only files that you trust. It defines workload(), which returns a
    fomkit.Workload, or the names model, inputs, loss_fn, optimizer, batch_size, train_samples and epochs. A
    compiled keras.Model already has its inputs, loss and optimizer.

    Parameters
    ----------
    source : path, Workload, torch.nn.Module or keras.Model
        The .py file with the model, or with a training program, which is run; an ONNX file, whose backward pass
        and update are derived and marked so; a transformer's config.json, or its sizes (.yaml, docs/parallel.md).
    arguments : sequence of str, optional
        With --script, after '--': arguments that are passed to the program.
    script : bool
        The file is a training program, to run on the CPU for a few steps; found out for files without `inputs`.
    mode : str
        Training step or forward pass (infer); of a config.json also prefill, and decode (one token after a cache).
    batch : int, optional
        Samples in the step; default: the file's own.
    seq : int, optional
        Tokens of a sequence, as --set seq=N; default: the file's own.
    sizes : mapping, optional
        Value at which a size named in the inputs is traced; default: its own.
    optimizer : str, or the optimizer of a module
        For an ONNX file, which has none: sgd, momentum, adam, adamw, …, none; default: sgd.
    name : str, optional
        Name of the profile; default: the file's name, for a config.json that of the profile file.
    measure : str, optional
        Also run the model with real weights and time it: the step and its energy, or also each op, profiled (ops).
    threads : int, optional
        With --measure: CPU threads; default: the framework's default.
    precision : str, optional
        With --measure step: time the step under torch.autocast to this format; default: no autocast.
    fusion : str
        For a config.json: ops run as one kernel: none (eager), chains (compiled), or as libraries do (vendor).
    time_limit : float
        Time limit of one attempt [s].
    memory_limit : float, optional
        Memory limit [GB], on Linux; default: 8, or 16 where the model or program really runs.
    inputs, loss, tell
        For a module in memory, in the form that `Workload` takes. `tell` gets a message before each part.

    Raises
    ------
    FomkitError
        When the file fails, exceeds a limit or lacks something.
    """
    args = _Arguments(arguments, script, mode, _wanted_sizes(sizes, batch, seq), optimizer, name, measure, threads,
                      precision or "", fusion, time_limit, memory_limit)  # fmt: skip
    if isinstance(source, str | Path):
        return _profile_at_path(Path(source), args, tell, is_bare=inputs is None and loss is None)
    return _profile_module(source, inputs, loss, args)


def _wanted_sizes(sizes: Mapping[str, int] | None, batch: int | None, seq: int | None) -> dict[str, int]:
    return options_of(batch=batch, sizes=with_size(sizes or {}, "seq", seq)).wanted_sizes


class _Arguments(NamedTuple):
    """The arguments of `profile`."""

    arguments: Sequence[str] | None
    script: bool
    mode: Mode
    wanted: Mapping[str, int]
    optimizer: Any
    name: str | None
    measure: str | None
    threads: int | None
    precision: str
    fusion: Fusion
    time_limit: float
    memory_limit: float | None

    @property
    def batch(self) -> int | None:
        """Requested samples of a step, from ``batch`` or ``sizes``."""
        return self.wanted.get("batch")

    @property
    def sizes(self) -> dict[str, int]:
        """The other requested sizes."""
        return {name: size for name, size in self.wanted.items() if name != "batch"}


def _profile_module(source: Any, inputs: Any, loss: Any, args: _Arguments) -> ModelProfile:
    from fomkit.frontends.profile import profile_workload

    if not isinstance(source, Workload):
        source = Workload(source, inputs, loss, args.optimizer)
    elif inputs is not None or loss is not None or args.optimizer is not None:
        raise FomkitError("profile", "inputs, loss and optimizer are for a module. Leave them out.")
    if args.measure is not None or args.threads is not None or args.precision:
        raise FomkitError("profile", "only a model.py can be timed, in a separate process. Give its path.")
    if args.script or args.arguments is not None:
        raise FomkitError("profile", "script and arguments are for a training program. Give its file.")
    return profile_workload(source, mode=_code_mode(args), batch=args.batch, sizes=args.sizes, name=args.name)


def _code_mode(args: _Arguments) -> Literal["train", "infer"]:
    """Return the mode for code, which is train or infer; raise for any other."""
    if args.mode not in ("train", "infer"):
        what = "is for a transformer's config.json. Code is traced as train or infer."
        raise FomkitError(f"mode {args.mode}", what)
    return args.mode


_HOLDS_WEIGHTS = "holds weights. Give the Python file that builds the model, or its config.json."
_SAVED_BY_KERAS = "is a model saved by Keras. Load it in a Python file: model = keras.saving.load_model(…)."
_OTHERS = {
    ".ipynb": "is a notebook. Call fomkit.estimate(model, 'v100', inputs=…) in it, or save it as a .py file.",
    **dict.fromkeys((".keras", ".h5"), _SAVED_BY_KERAS),
    **dict.fromkeys((".ckpt", ".safetensors", ".gguf"), _HOLDS_WEIGHTS),
    **dict.fromkeys((".pt", ".pth"), f"{_HOLDS_WEIGHTS[:-1]}; of TorchScript one with model = torch.jit.load(…)."),
    ".pt2": "is an exported graph. Load it in a Python file: model = torch.export.load(…).module().",
    ".tflite": "is a model for TensorFlow Lite. Give the Keras file it was converted from.",
    ".pb": "is a TensorFlow graph. Give the Python file that builds the model, or convert it to ONNX.",
}
"""What to do with files of models that cannot be read as one, by their ending."""


def model_in(given: Any) -> Any:
    """Return the config.json of a model's folder; refuse a file of a model that says nothing of its ops."""
    if not isinstance(given, str | Path):
        return given
    path = Path(given)
    if (ending := path.suffix.lower()) in _OTHERS and path.is_file():
        raise FomkitError(str(given), _OTHERS[ending])
    if (path / "saved_model.pb").is_file():
        raise FomkitError(str(given), f"is a SavedModel. {_OTHERS['.pb'].partition('. ')[2]}")
    return path / "config.json" if (path / "config.json").is_file() else given


def _profile_at_path(path: Path, args: _Arguments, tell: Callable[[str], None], *, is_bare: bool) -> ModelProfile:
    from fomkit.frontends.profile import is_program, profile_file, profile_onnx, profile_script

    if not is_bare or not isinstance(args.optimizer, str | None):
        raise FomkitError("profile", "inputs, loss and optimizer are for a module. Leave them out.")
    path = Path(model_in(path))
    args = args._replace(script=args.script or is_program(path))
    is_onnx = _is_onnx(path, args)
    _check_use(path, args)
    _check_measuring(path, args, is_onnx=is_onnx)
    limits: dict[str, Any] = {"time_limit_s": args.time_limit}
    limits |= {"memory_limit_byte": args.memory_limit * 1e9} if args.memory_limit else {}
    mode = args.mode if path.suffix == ".json" else _code_mode(args)
    of_step: dict[str, Any] = {"mode": mode, "batch": args.batch, "sizes": args.sizes, "name": args.name}
    tell(f"{'running' if args.script else 'profiling'} {path.name}")
    if args.script:
        found = profile_script(path, args.arguments or (), name=args.name, **limits)
    elif path.suffix in (".yaml", ".yml"):
        found = _profile_of_sizes(path, args)
    elif path.suffix == ".json":
        from fomkit.frontends.config import profile_config

        found = profile_config(path, fusion=args.fusion, **of_step)
    elif is_onnx:
        found = profile_onnx(path, optimizer=args.optimizer, **of_step, **limits)
    else:
        found = profile_file(path, **of_step, **limits)
    if args.measure is None:
        return found
    from fomkit.bench.measured_run import measure_profile
    from fomkit.bench.power import watch_energy

    tell(f"timing {path.name}")
    timed = {"ops": args.measure == "ops", "threads": args.threads, "precision": args.precision, **limits}
    with watch_energy() as energy:
        return measure_profile(found, path, energy=energy, **timed)


def _profile_of_sizes(path: Path, args: _Arguments) -> ModelProfile:
    """Build the profile of a transformer from its sizes; nothing runs, so the limits have no effect."""
    from fomkit.profiles.models import load_recipe

    if args.sizes or args.mode != "train":
        raise FomkitError(
            str(path), "holds the sizes of a transformer for training. Only `batch`, `name` and -o apply."
        )
    found = load_recipe(path)
    used = {**found.sizes, **({"batch": args.batch} if args.batch is not None else {})}
    return replace(found, name=args.name or found.name, sizes=used)


def _is_onnx(path: Path, args: _Arguments) -> bool:
    """Identify an ONNX model by content; also by its ending, so that a damaged file gets a clear message."""
    from fomkit.frontends.onnx.file import recognise_onnx

    found = not args.script and (path.suffix == ".onnx" or recognise_onnx(path))
    if args.optimizer and not found:
        what = "is for an ONNX file. Name the optimizer in the Python file."
        raise FomkitError(f"optimizer {args.optimizer}", what)
    return found


def _check_use(path: Path, args: _Arguments) -> None:
    """Refuse a folder, invalid limits, and options that do not apply to this kind of file."""
    if args.fusion != "vendor" and path.suffix != ".json":
        what = f"fusion {args.fusion} is for a config.json, whose ops follow from its sizes"
        raise FomkitError(str(path), f"{what}. Leave it out: code is traced as it runs.")
    if path.is_dir():
        raise FomkitError(str(path), "is a folder. Give the Python file, or the ONNX file, in it.")
    for name in ("time_limit", "memory_limit"):
        limit = getattr(args, name)
        if limit is not None and not limit >= 0.1:
            raise FomkitError(name, f"is {limit!r}. Give a number of 0.1 or more.")
    if args.arguments is not None and not args.script:
        message = f"the arguments {' '.join(args.arguments)!r:.80} are for a training program"
        raise FomkitError(str(path), f"{message}. Add `script`, or leave them out.")
    options = (
        ("`mode` infer", args.mode == "infer"), ("`batch`", args.batch is not None), ("`sizes`", bool(args.sizes))
    )  # fmt: skip
    if args.script and (given := [option for option, is_given in options if is_given]):
        raise FomkitError(
            str(path),
            f"{given[0]} is not for a training program, which runs unchanged. Give the program's own arguments at "
            "the end of the command after '--', for example: -- --batch-size 32. A file that only holds a model "
            "defines `inputs`.",
        )


def _check_measuring(path: Path, args: _Arguments, *, is_onnx: bool) -> None:
    """Refuse options of timing that cannot be used, before anything runs."""
    check_counts(threads=args.threads)
    if args.precision and args.measure != "step":
        what = f"`precision` {args.precision} is for the plain step. Add `measure` step, or leave it out."
        raise FomkitError(str(path), what)
    if args.measure is None:
        if args.threads is not None:
            raise FomkitError(str(path), "`threads` is for timing. Add `measure` step, or leave it out.")
        return
    if is_onnx:
        raise FomkitError(str(path), "is an ONNX file, which is read, not run. Give a model.py to time it.")
    if path.suffix == ".json":
        raise FomkitError(str(path), "holds sizes only and cannot run. Give a model.py to time it.")
    if args.script:
        raise FomkitError(
            str(path),
            "`measure` is not for a training program, whose step cannot be repeated alone. Give its model as a "
            "model.py: model, inputs, loss_fn and optimizer.",
        )
    from fomkit.bench.model_steps import check_timed

    check_timed(path, args.precision)


def _missing_run_notes(model: ModelProfile) -> list[str]:
    """Return a note of what is missing for run times and units per day; empty where nothing is."""
    from fomkit.plan.run import lacking_for_run

    lacking = lacking_for_run(model)
    if not lacking or model.traced_with.get("mode") == "infer":
        return []
    made_by_code = model.traced_with.get("device") in _TRACED.keys() - {_OF_FILE}
    place = "file" if made_by_code else "profile's data and run"
    given = " and ".join(f"--{name.removeprefix('train_')}" for name in lacking)
    note = f"no run and no units per day without {' and '.join(lacking)}; the {place} may state them"
    return [f"note: {note}, or {given} of an estimate"]


MainOp = TypedDict("MainOp", {"op": str, "count": float, "share": float})
MainProduct = TypedDict("MainProduct", {
    "product": str, "b": NotRequired[float], "m": NotRequired[float], "n": NotRequired[float],
    "k": NotRequired[float], "count": float, "share": float,
})  # fmt: skip
Profiled = TypedDict("Profiled", {"schema": str, "lines": list[str], "flop": float, "at_least": bool,
                                  "ops": list[MainOp], "products": list[MainProduct]})  # fmt: skip


def _main_ops(ops: pd.DataFrame, total: float) -> list[MainOp]:
    """Return the ops that reach `MAIN_SHARE` of a step's flop, by the framework's names, the largest first."""
    from fomkit.ops.groups import fewest

    sums = ops[["work", "count"]].groupby(ops["op"].astype("str")).sum()
    names = fewest({str(name): float(work) for name, work in sums["work"].items()}, MAIN_SHARE).groups
    listed = sums.loc[list(names)]
    rows = zip(names, listed["work"].tolist(), listed["count"].tolist(), strict=True)
    return [{"op": name, "count": count, "share": work / total} for name, work, count in rows]


def _main_products(ops: pd.DataFrame, total: float) -> list[MainProduct]:
    """Return the sizes of the products that reach `MAIN_SHARE` of the flop of all passes, the largest first."""
    from fomkit.ops.groups import fewest, row_dicts, shape_label
    from fomkit.ops.kinds import PRODUCT_KINDS

    found: dict[str, MainProduct] = {}
    for row in row_dicts(ops[ops["kind"].isin(PRODUCT_KINDS) & ops["work"].notna()]):
        label = shape_label({**row, "trans_a": 0.0, "trans_b": 0.0})
        sizes = {
            name: row[name] for name in "bmnk" if row.get(name) == row.get(name, "")
        }  # else NaN, or no column
        one = found.setdefault(label, cast("MainProduct", {"product": label, **sizes, "count": 0.0, "share": 0.0}))
        one["count"], one["share"] = one["count"] + row["count"], one["share"] + row["work"] / total
    shares = {label: one["share"] for label, one in found.items() if one["share"] > 0}
    return [found[label] for label in fewest(shares, MAIN_SHARE).groups] if shares else []


def profile_summary(model: ModelProfile) -> Answer:
    """Summarise a new profile: its work, the ops that account for most of it, the sizes of its products."""
    from fomkit.bench.measured_run import run_content
    from fomkit.ops.pricing import add_costs
    from fomkit.ops.resize import resize_ops
    from fomkit.output.explained import measured_lines
    from fomkit.output.models import format_profiled
    from fomkit.plan.coverage import work_per_pass

    costed = add_costs(resize_ops(model.ops, model.sizes, model.name))
    ops, work = costed.assign(work=costed["flop"] * costed["count"]), work_per_pass(costed)
    device = model.traced_with["device"]
    made = _TRACED.get(device, f"traced in its own run on the {device}")
    sizes = ", ".join(f"{name} {size:,}" for name, size in model.sizes.items()) or "sizes fixed"
    lines = [
        f"{model.name}: {model.title}, {sizes}, {made}",
        f"parameters: {model.parameters_total:,}, of them trainable {model.parameters_trainable:,}",
        f"work: {'at least ' if model.at_least else ''}"
        + ", ".join(f"{name} {format_quantity(flop, 'flop')}" for name, flop in work.items()),
        *(f"unsupported: {name}" for name in model.unsupported),
        *(f"note: {note}" for note in model.notes),
        *_missing_run_notes(model),
        *(measured_lines(run_content(model.measured)) if model.measured else ()),
    ]
    total = float(ops["work"].sum())  # of the rows that have a formula; the others are listed above
    carrying, products = (_main_ops(ops, total), _main_products(ops, total)) if total > 0 else ([], [])
    content: Profiled = {"schema": "fomkit/profiled/1", "lines": lines, "flop": total, "at_least": model.at_least,
               "ops": carrying, "products": products}  # fmt: skip
    return Answer(content, products, format_profiled)
