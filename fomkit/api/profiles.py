"""Profiles in and out: loaded by name, traced from code, written to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.profiles import check_absent, load_machine, load_model, save_machine, save_model
from fomkit.study.asked import as_name
from fomkit.workload import ModelProfile, Workload

if TYPE_CHECKING:
    from fomkit.measurements import ImportedMeasurements


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


def as_model(given: str | Path | ModelProfile) -> ModelProfile:
    """Take a model as it is, or load the profile that is named."""
    return given if isinstance(given, ModelProfile) else load_model(as_name(given, "model"))


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
    from fomkit.measurements import ImportedMeasurements
    from fomkit.profiles.models import tables_beside
    from fomkit.profiles.write import write_table

    target = Path(as_name(path, "path"))
    endings, said = (".yaml", ".yml"), "a profile is a YAML file. Write, for example, 'mine.yaml'."
    if isinstance(what, ImportedMeasurements):
        endings, said = (".csv", ".csv"), "measurements are a CSV file. Write, for example, 'mine.csv'."
    if target.suffix not in endings:
        raise FomkitError(str(target), said)
    if isinstance(what, Machine):
        check_absent([target, target.with_name(f"{target.stem}.timings.csv")], force)
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
    source: str | Path | Workload,
    *,
    mode: Literal["train", "infer"] = "train",
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    arguments: Sequence[str] | None = None,
    measure: Literal["step", "ops"] | None = None,
    threads: int | None = None,
) -> ModelProfile:
    """Trace one training step, by shapes only unless a training program is run.

    Parameters
    ----------
    source : path or Workload
        A ``model.py``, which runs in a child process; an ONNX file, which is read; or a workload made here.
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
    from fomkit.trace import profile_file, profile_script, profile_workload

    if measure is not None and (isinstance(source, Workload) or arguments is not None):
        raise FomkitError("profile", "only a model.py is timed, in a process of its own. Give its path.")
    if arguments is not None:
        if isinstance(source, Workload) or mode != "train" or batch is not None or sizes:
            raise FomkitError(
                "profile",
                "arguments are for a training program, which decides mode, batch and sizes itself. Give its file "
                "and its arguments only.",
            )
        return profile_script(Path(source), arguments)
    if isinstance(source, Workload):
        return profile_workload(source, mode=mode, batch=batch, sizes=sizes)
    if (graph := _of_graph(Path(source), mode, batch, sizes, measure)) is not None:
        return graph
    found = profile_file(Path(source), mode=mode, batch=batch, sizes=sizes)
    if measure is None:
        return found
    from fomkit.measure.step_energy import watch_energy
    from fomkit.study.measured_profile import measure_profile

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
    from fomkit.trace import profile_onnx
    from fomkit.trace.onnx_file import recognise_onnx

    if not recognise_onnx(path):
        return None
    if measure is not None:
        raise FomkitError(str(path), "is an ONNX file, which is read, not run. Give a model.py to time it.")
    return profile_onnx(path, mode=mode, batch=batch, sizes=sizes)
