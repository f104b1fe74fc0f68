"""Load, trace and save profiles."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.core.model import CACHE, OF_SIZES, ModelProfile, Workload
from fomkit.files.write import check_absent, write_table
from fomkit.profiles.locate import file_key, locate, user_cached
from fomkit.verbs.answer import checked
from fomkit.verbs.profiling import Fusion, Mode, model_in, profile

if TYPE_CHECKING:
    from fomkit.readers.measurements import ImportedMeasurements
    from fomkit.workbook.review import Review


def as_name(value: object, what: str) -> str | Path:
    """Return a name or path of a profile unchanged; raise FomkitError when the value is neither."""
    if isinstance(value, str | Path):
        return value
    raise FomkitError(what, f"is of type {type(value).__name__}. Give a name, a path or a loaded {what} profile.")


def machine(name: str | Path) -> Machine:
    """Load a machine profile by name (``"v100"``) or path.

    Raises
    ------
    FomkitError
        When there is none, or a field of it is wrong.

    Examples
    --------
    >>> machine("titan").system_nodes
    18688
    """
    return as_machine(as_name(name, "machine"))


def model(name: str | Path) -> ModelProfile:
    """Load a model profile by name (``"p1b3"``) or path.

    Raises
    ------
    FomkitError
        When there is none, or a field or a row of it is wrong.

    Examples
    --------
    >>> model("p1b3-lecture").parameters_total
    30088701
    """
    from fomkit.profiles.models import load_model

    return load_model(as_name(name, "model"))


def as_machine(given: str | Path | Machine, what: str = "machine") -> Machine:
    """Return a machine as it is, or load the profile that is named."""
    if isinstance(given, Machine):
        return given
    from fomkit.profiles.machines import load_machine  # imports pandas, which help does not need

    return load_machine(as_name(given, what))


def as_model(
    given: str | Path | ModelProfile | Workload | Any, inputs: Any = None, batch: int | None = None
) -> ModelProfile:
    """Return a model as it is, load the profile that is named, or trace code: a file, a workload, a module.

    `inputs`: of a module, in the form that `Workload` takes; `batch`: where the model is code and states none.
    """
    from fomkit.profiles.models import TRACED, load_model

    given = model_in(given)
    if isinstance(given, str | Path | ModelProfile):
        if inputs is not None:
            raise FomkitError("inputs", "are for a module. Leave them out: a profile or a file has its own.")
        if isinstance(given, ModelProfile):
            return given
        is_code = Path(given).suffix in TRACED
        return replace(traced(Path(given), batch), asked_as=str(given)) if is_code else load_model(given)
    if not (isinstance(given, Workload) or callable(given)):
        return load_model(as_name(given, "model"))  # as_name raises: it names the types that are expected
    return profile(given, inputs=inputs, batch=batch if callable(inputs) else None)


def in_mode(
    given: str | Path | ModelProfile | Any, mode: Mode | None = None, fusion: Fusion | None = None,
    batch: int | None = None, sizes: Mapping[str, int] | None = None, inputs: Any = None,
) -> ModelProfile:  # fmt: skip
    """Return a model in a mode: its own profile, the profile of the mode, or one built from its file or sizes.

    `mode`: None keeps the profile as it is. For a name, the profile itself is used if it has this mode, else
    NAME-MODE beside it, else a profile built from NAME.config.json beside it; a file is traced in this mode.
    `fusion`: for a profile built from sizes, which ops are one kernel; for a trace, ``eager`` is how it ran, and
    ``compiled`` joins its chains. `batch`, `sizes`: of a profile that is built; `inputs`: as of `as_model`.
    """
    from fomkit.ops.fusion import join_chains
    from fomkit.profiles.models import TRACED

    given = model_in(given)
    is_file = isinstance(given, str | Path) and Path(given).suffix in TRACED
    by_sizes = is_file and Path(str(given)).suffix == ".json"
    if is_file and inputs is None and (mode is not None or (by_sizes and fusion is not None)):
        of_kernels: dict[str, Any] = {"fusion": fusion or "vendor"} if by_sizes else {}
        found = profile(given, mode=mode or "train", batch=batch, sizes=sizes, **of_kernels)
    elif mode is not None and (isinstance(given, Workload) or callable(given)):
        found = profile(given, inputs=inputs, mode=mode, batch=batch if callable(inputs) else None)
    else:
        found = as_model(given, inputs, batch)
        own = "decode" if CACHE in found.sizes else found.traced_with.get("mode", "train")
        fills_a_cache = found.order is not None and bool(found.order["module"].eq(CACHE).any())
        by_sizes = found.traced_with.get("device") == OF_SIZES
        is_own = mode in (None, own) or (mode == "prefill" and own == "infer" and fills_a_cache)
        if not is_own or (by_sizes and fusion not in (None, "vendor")):
            found = _stored_mode(given, found, mode or own, is_own, fusion or "vendor", batch, sizes)
    if by_sizes or fusion in (None, "eager"):
        return found
    if fusion == "compiled":
        return join_chains(found)
    what = "was traced as it runs, so the ops that a vendor's library fuses are unknown"
    raise FomkitError(found.name, f"{what}. Use compiled or eager, or leave `fusion` out.")


def _stored_mode(
    given: object, found: ModelProfile, mode: Any, is_own: bool, fusion: Fusion, batch: int | None,
    sizes: Mapping[str, int] | None,
) -> ModelProfile:  # fmt: skip
    """Return the profile of a mode that is stored beside a given one, or build it from the config.json there."""
    from fomkit.frontends.config import profile_config
    from fomkit.frontends.config_models import SEQ, SOURCE
    from fomkit.profiles.models import load_model

    if isinstance(given, str | Path):
        path = locate(str(given), "model_profiles")
        stem = path.stem.removesuffix(f"-{mode}")
        stored, config = path.with_name(f"{stem}-{mode}.yaml"), path.with_name(f"{stem}.config.json")
        base = load_model(stored) if stored.is_file() else found if is_own else None
        if base is not None and fusion == "vendor":
            return base
        if config.is_file():
            # By default a prompt is as long as a training sequence.
            tokens = () if mode == "decode" else (SEQ, SOURCE)
            as_trained = {name: found.sizes[name] for name in tokens if name in found.sizes}
            known = {**(as_trained if base is None else base.sizes), **(sizes or {})}
            known_batch = known.pop("batch", None)
            made = profile_config(config, mode=mode, fusion=fusion, batch=batch or known_batch, sizes=known,
                                  name=f"{stem}-{mode}" if base is None else base.name)  # fmt: skip
            return made if base is None else replace(made, data=base.data, run=base.run, unit=base.unit)
    request = f"`mode` {mode}" if fusion == "vendor" else f"`mode` {mode} with `fusion` {fusion}"
    hint = f"Give a config.json, a profile made in that mode, or leave `{'fusion' if is_own else 'mode'}` out."
    raise FomkitError(found.name, f"has no config.json beside it, which {request} needs. {hint}")


_READABLE_ENDINGS = (".py", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt")
"""Endings of files that a code file may read beside it."""
_MOST_NAMES = 2000
"""Most names below a code file's folder for which the files that it may read are determined."""


def _readable_files(path: Path) -> list[Path] | None:
    """List the files in or below a code file's folder that it may import or read; None for too many names."""
    found: list[Path] = []
    names = 0
    for folder, folders, files in os.walk(path.resolve().parent):
        folders[:] = sorted(
            one for one in folders if one[0] not in "._" and not Path(folder, one, "pyvenv.cfg").exists()
        )
        names += len(folders) + len(files)
        if names > _MOST_NAMES:
            return None
        found += [Path(folder, one) for one in sorted(files) if one.endswith(_READABLE_ENDINGS)]
    return found


def _key_of_code(path: Path) -> str:
    """Hash all that a trace depends on: the file, files it may read, installed packages; "" where undetermined."""
    from importlib.metadata import distributions

    readable = _readable_files(path) if path.suffix == ".py" else []
    if readable is None:
        return ""
    installed = sorted(f"{one.name} {one.version}" for one in distributions())
    env = [os.environ.get(name, "") for name in ("KERAS_BACKEND", "PYTHONPATH")]
    files = file_key([path, *readable])
    names = [str(one) for one in readable]
    return hashlib.sha256(f"{path.stem} {names} {files} {installed} {env}".encode()).hexdigest() if files else ""


def traced(path: Path, instead: int | None = None, **run: Any) -> ModelProfile:
    """Profile a file, by default at batch ``instead``, or return the cached profile of the same content."""

    def key() -> str:
        found = _key_of_code(path)
        return found and found + hashlib.sha256(repr(run).encode()).hexdigest() * bool(run)

    make = partial(profile, path, **run)
    try:
        return user_cached("traced", key(), make, key) if path.is_file() else make()
    except FomkitError as error:
        from fomkit.frontends.sizes import NO_BATCH

        if instead is None or error.what != NO_BATCH:
            raise
        return traced(path, **run, batch=instead)


def run_with(arguments: Sequence[str], models: Sequence[Any] | None) -> ModelProfile:
    """Return the profile of the one model that is given, a training program, run with arguments of its own."""
    one = models[0] if models and len(models) == 1 else None
    if not isinstance(one, str | Path) or Path(one).suffix != ".py":
        what = f"{' '.join(arguments)!r:.80} after '--' are for a training program"
        raise FomkitError("estimate", f"{what}. Give one Python file before '--'.")
    return replace(traced(Path(one), script=True, arguments=tuple(arguments)), asked_as=str(one))


@checked
def save(
    what: Machine | ModelProfile | ImportedMeasurements | Review, path: str | Path, *, force: bool = False
) -> list[Path]:
    """Write a profile with its tables beside it, or a table of measurements: all files whole, or none of them.

    Parameters
    ----------
    what : Machine, ModelProfile, ImportedMeasurements or Review
        For a review the changed machine is written.
    path : path
        ``NAME.yaml`` for a profile, ``NAME.csv`` for measurements.
    force : bool
        Replace files that exist.

    Returns
    -------
    list of Path
        The files that were written.

    Raises
    ------
    FomkitError
        When the path has another ending, or a file exists and ``force`` is not given.

    Examples
    --------
    >>> import tempfile
    >>> from dataclasses import replace
    >>> half = replace(machine("titan"), name="half-titan", system_nodes=9344)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = save(half, f"{folder}/half-titan.yaml")
    ...     machine(written[0]).system_nodes
    9344
    """
    from fomkit.readers.measurements import ImportedMeasurements

    target = Path(as_name(path, "path"))
    if not isinstance(what, Machine | ModelProfile | ImportedMeasurements):
        what = _changed(what, target)
    if isinstance(what, Machine):
        check_save("machine", target, force=force)
        from fomkit.profiles.machine_record import save_machine  # estimates save none

        return save_machine(what, target)
    if isinstance(what, ModelProfile):
        check_save("model", target, force=force)
        from fomkit.profiles.models import save_model

        return save_model(what, target)
    check_save("measurements", target, force=force)
    write_table(what.table, target, "MEASUREMENTS")
    return [target]


def check_save(kind: str, path: Path, *, force: bool) -> None:
    """Raise when a machine, a model or measurements cannot be written to a file."""
    from fomkit.profiles.models import tables_beside

    is_table = kind == "measurements"
    if path.suffix not in ((".csv",) if is_table else (".yaml", ".yml")):
        message = "measurements are a CSV" if is_table else "a profile is a YAML"
        example = "mine.csv" if is_table else "mine.yaml"
        raise FomkitError(str(path), f"{message} file. Write, for example, '{example}'.")
    tables = [path.with_name(f"{path.stem}.timings.csv")] if kind == "machine" else []
    check_absent([path, *(tables_beside(path) if kind == "model" else tables)], force)


def _changed(found: object, target: Path) -> Machine:
    """Return the machine as the returned workbook changed it."""
    from fomkit.workbook.review import Review, round_machine

    if not isinstance(found, Review):
        kind = type(found).__name__
        raise FomkitError("what", f"is of type {kind}. Give a profile, or measurements that were imported.")
    impossible = next((finding for finding in found.findings if finding.kind == "range"), None)
    if impossible is not None:
        raise FomkitError(
            str(target), f"is not written, because {impossible.where} is impossible: {impossible.message}"
        )
    return round_machine(found, own_profile(found))


def own_profile(found: Review) -> Machine | None:
    """Return the profile of the changed machine, where there is one: links and timings are not in a workbook."""
    from fomkit.workbook.review import changed_machine

    try:
        return as_machine(changed_machine(found))
    except FomkitError:
        return None
