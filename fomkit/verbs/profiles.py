"""Profiles in and out: loaded by name, traced from code, imported from foreign files, written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile, Workload
from fomkit.files.write import check_absent
from fomkit.profiles.locate import file_key, kept
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import TRACED, load_model, save_model
from fomkit.verbs.answer import as_name, check_options

if TYPE_CHECKING:
    from fomkit.readers.measurements import ImportedMeasurements


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
    return load_machine(as_name(name, "machine"))


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
    return load_model(as_name(name, "model"))


def as_machine(given: str | Path | Machine, what: str = "machine") -> Machine:
    """Take a machine as it is, or load the profile that is named."""
    return given if isinstance(given, Machine) else load_machine(as_name(given, what))


def as_model(
    given: str | Path | ModelProfile | Workload | Any, inputs: Any = None, batch: int | None = None
) -> ModelProfile:
    """Take a model as it is, load the profile that is named, or trace what is code: a file, a workload, a module.

    `inputs`: of a module, as `Workload` takes them; `batch`: at which a function of it is called.
    """
    if isinstance(given, str | Path | ModelProfile):
        if inputs is not None:
            raise FomkitError("inputs", "are those of a module. Leave them out: a profile or a file has its own.")
        if isinstance(given, ModelProfile):
            return given
        return traced(Path(given)) if Path(given).suffix in TRACED else load_model(given)
    if not (isinstance(given, Workload) or callable(given)):
        return load_model(as_name(given, "model"))  # which says what was expected
    return profile(given, inputs=inputs, batch=batch if callable(inputs) else None)


_READ = (".py", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt")
"""Endings of what a file of code may read beside it."""
_MOST_BESIDE = 2000
"""Names below a file's folder up to which it is known what the file may read."""


def _read_beside(path: Path) -> list[Path] | None:
    """Name what a file of code may import or read in its folder and below; None for more than can be looked at."""
    found: list[Path] = []
    names = 0
    for folder, folders, files in os.walk(path.resolve().parent):
        folders[:] = sorted(
            one for one in folders if one[0] not in "._" and not Path(folder, one, "pyvenv.cfg").exists()
        )
        names += len(folders) + len(files)
        if names > _MOST_BESIDE:
            return None
        found += [Path(folder, one) for one in sorted(files) if one.endswith(_READ)]
    return found


def _key_of_code(path: Path) -> str:
    """Hash what makes a trace: the file, what it may read beside it, what is installed; "" where nobody knows."""
    from importlib.metadata import distributions

    beside = _read_beside(path) if path.suffix == ".py" else []
    if beside is None:
        return ""
    installed = sorted(f"{one.name} {one.version}" for one in distributions())
    around = [os.environ.get(name, "") for name in ("KERAS_BACKEND", "PYTHONPATH")]
    files = file_key([path, *beside])
    names = [str(one) for one in beside]
    return (
        hashlib.sha256(f"{path.stem} {names} {files} {installed} {around}".encode()).hexdigest() if files else ""
    )


def traced(path: Path) -> ModelProfile:
    """Profile a file, or give what was made of the same bytes before, from the user's cache."""
    if not path.is_file():
        return profile(path)
    return kept("traced", _key_of_code(path), partial(profile, path), partial(_key_of_code, path))


def save(
    what: Machine | ModelProfile | ImportedMeasurements, path: str | Path, *, force: bool = False
) -> list[Path]:
    """Write a profile, its tables beside it, or a table of measurements: all files whole, or none of them.

    Parameters
    ----------
    what : Machine, ModelProfile or ImportedMeasurements
    path : path
        ``NAME.yaml`` of a profile, ``NAME.csv`` of measurements.
    force : bool
        Replace files that exist.

    Returns
    -------
    list of Path
        What was written.

    Raises
    ------
    FomkitError
        When the path has another ending, or a file is there and ``force`` is not given.

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
    from fomkit.files.write import write_table
    from fomkit.profiles.models import tables_beside
    from fomkit.readers.measurements import ImportedMeasurements

    target = Path(as_name(path, "path"))
    endings, message = (".yaml", ".yml"), "a profile is a YAML file. Write, for example, 'mine.yaml'."
    if isinstance(what, ImportedMeasurements):
        endings, message = (".csv", ".csv"), "measurements are a CSV file. Write, for example, 'mine.csv'."
    if target.suffix not in endings:
        raise FomkitError(str(target), message)
    if isinstance(what, Machine):
        check_absent([target, target.with_name(f"{target.stem}.timings.csv")], force)
        from fomkit.profiles.save_machine import save_machine  # estimates save none

        return save_machine(what, target)
    if isinstance(what, ModelProfile):
        check_absent([target, *tables_beside(target)], force)
        return save_model(what, target)
    if isinstance(what, ImportedMeasurements):
        check_absent([target], force)
        write_table(what.table, target, "MEASUREMENTS")
        return [target]
    raise FomkitError("what", f"is a {type(what).__name__}. Give a profile, or measurements that were imported.")


def profile(
    source: str | Path | Workload | Any, *, inputs: Any = None, loss: Callable[[Any, Any], Any] | None = None,
    optimizer: Any = None, mode: Literal["train", "infer"] = "train", batch: int | None = None,
    sizes: Mapping[str, int] | None = None, arguments: Sequence[str] | None = None,
    measure: Literal["step", "ops"] | None = None, threads: int | None = None,
) -> ModelProfile:  # fmt: skip
    """Trace one training step, by shapes only unless a training program is run.

    Parameters
    ----------
    source : path, Workload, torch.nn.Module or keras.Model
        A ``model.py``, which runs in a child process; an ONNX file, which is read; a workload or a module made
        here, which stays as it is.
    inputs, loss, optimizer
        Of a module, as `Workload` takes them; a compiled ``keras.Model`` has its own.
    mode : str
        ``train`` for forward, backward and update, ``infer`` for the forward pass.
    batch : int, optional
        Samples in one step; default: the workload's own.
    sizes : mapping, optional
        Values of further named sizes, those that ``inputs(batch, seq=1024)`` has with a whole-number default.
    arguments : sequence of str, optional
        Where given, also empty, the file is a training program that is run with them until a step is recorded;
        its batch is its own.
    measure : str, optional
        Of a ``model.py``: time the plain ``step``, or its ``ops`` as well; it then runs for real.
    threads : int, optional
        Of the framework on the CPU while it is timed; default: as many as it takes.

    Raises
    ------
    FomkitError
        When the file fails, hangs or lacks something.
    """
    from fomkit.frontends.profile import profile_file, profile_script, profile_workload

    if not isinstance(source, str | Path | Workload):
        source = Workload(source, inputs, loss, optimizer)
    elif inputs is not None or loss is not None or optimizer is not None:
        raise FomkitError("profile", "inputs, loss and optimizer are those of a module. Leave them out.")
    if measure is not None and (isinstance(source, Workload) or arguments is not None):
        raise FomkitError("profile", "only a model.py is timed, in a process of its own. Give its path.")
    if arguments is not None:
        if isinstance(source, Workload) or mode != "train" or batch is not None or sizes:
            what = "arguments are for a training program, which decides mode, batch and sizes itself."
            raise FomkitError("profile", f"{what} Give its file and its arguments only.")
        return profile_script(Path(source), arguments)
    if isinstance(source, Workload):
        return profile_workload(source, mode=mode, batch=batch, sizes=sizes)
    if (graph := _of_graph(Path(source), mode, batch, sizes, measure)) is not None:
        return graph
    found = profile_file(Path(source), mode=mode, batch=batch, sizes=sizes)
    if measure is None:
        return found
    from fomkit.bench.step_energy import watch_energy
    from fomkit.verbs.measured_run import measure_profile

    with watch_energy() as energy:
        return measure_profile(found, Path(source), ops=measure == "ops", threads=threads, energy=energy)


def _of_graph(
    path: Path,
    mode: Literal["train", "infer"],
    batch: int | None,
    sizes: Mapping[str, int] | None,
    measure: str | None,
) -> ModelProfile | None:
    """Profile an ONNX file; None where it is none."""
    from fomkit.frontends.onnx.file import recognise_onnx
    from fomkit.frontends.profile import profile_onnx

    if not recognise_onnx(path):
        return None
    if measure is not None:
        raise FomkitError(str(path), "is an ONNX file, which is read, not run. Give a model.py to time it.")
    return profile_onnx(path, mode=mode, batch=batch, sizes=sizes)


def import_machine(
    source: str | Path,
    facts: str | Path | Machine | None = None,
    *,
    name: str | None = None,
    file_format: str | None = None,
    device: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Machine:
    """Read timings of ops as a machine profile; `fomkit.save` writes it.

    Parameters
    ----------
    source : path
        A DeepBench workbook, a table of timings, a log of a network's benchmark, a trace of PyTorch's profiler.
    facts : name, path or profile, optional
        What the file does not say: a machine without timings.
    name : str, optional
        Default: that of the facts, else the file's.
    file_format : str, optional
        Default: by its content.
    device : str, optional
        The device to read from a table of several.
    sizes : mapping, optional
        ``ranks`` and ``nodes`` of a network's log.

    Returns
    -------
    Machine
        Its ``notes`` say what the reader noticed.

    Raises
    ------
    FomkitError
        When the file is of no known format, or broken.
    """
    from fomkit.readers.imports import choose_import, import_timings
    from fomkit.readers.tables.registry import as_machine as _with_facts

    check_options(sizes=sizes)
    path = Path(source)
    chosen, _ = choose_import(path, "machine", file_format)
    stated = None if facts is None else as_machine(facts, "facts")
    imported = import_timings(path, chosen, device=device, sizes=sizes)
    return _with_facts(imported, name or (stated.name if stated else path.name.partition(".")[0]), stated)


def import_model(
    source: str | Path,
    facts: str | Path | None = None,
    *,
    name: str | None = None,
    file_format: str | None = None,
    sizes: Mapping[str, int] | None = None,
    train_samples: int | None = None,
    epochs: int | None = None,
    machine: str | Path | Machine | None = None,
    graph: str | Path | None = None,
    mode: Literal["train", "infer"] | None = None,
    optimizer: str | None = None,
) -> ModelProfile:
    """Read a table of ops, a profiler's trace or an ONNX file as a model profile; `fomkit.save` writes it.

    Parameters
    ----------
    source : path
    facts : path, optional
        What the file does not say: a model file without ``ops``.
    name : str, optional
        Default: that of the facts, else the file's.
    file_format : str, optional
        Default: by its content.
    sizes : mapping, optional
        Named sizes, for example ``{"batch": 64}``.
    train_samples, epochs : int, optional
        What makes a run; they go before the facts.
    machine : name, path or profile, optional
        That a trace was recorded on, for the share of its peak that was reached.
    graph : path, optional
        Of a trace of TensorFlow: the ``model.py`` of its Keras model, which is run.
    mode, optimizer : str, optional
        Of an ONNX file: train (the default) or infer, and the rule of the update.

    Returns
    -------
    ModelProfile
        Its ``notes`` say what was filled in and what is partial.

    Raises
    ------
    FomkitError
        When the file is of no known format or broken, a size is missing, or an argument is for another format.
    """
    from fomkit.readers.imports import choose_import
    from fomkit.readers.imports import import_model as _import

    check_options(sizes=sizes)
    path = Path(source)
    chosen, _ = choose_import(path, "model", file_format)
    of_format = {"graph": None if graph is None else Path(graph), "mode": mode, "optimizer": optimizer}
    more: dict[str, Any] = {key: value for key, value in of_format.items() if value is not None}
    more |= {"train_samples": train_samples, "epochs": epochs, "sizes": sizes}
    ran_on = None if machine is None else as_machine(machine)
    stated = None if facts is None else Path(facts)
    return _import(path, stated, name=name, file_format=chosen, machine=ran_on, **more)[0]
