"""Foreign files as profiles; records of runs are in `fomkit.api.measurements`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from fomkit.api.profiles import as_machine
from fomkit.hardware import Machine
from fomkit.study.asked import check_options
from fomkit.workload import ModelProfile


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
    from fomkit.study.imports import choose_import, import_timings
    from fomkit.timings import as_machine as _with_facts

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
    from fomkit.study.imports import choose_import
    from fomkit.study.imports import import_model as _import

    check_options(sizes=sizes)
    path = Path(source)
    chosen, _ = choose_import(path, "model", file_format)
    of_format = {"graph": None if graph is None else Path(graph), "mode": mode, "optimizer": optimizer}
    more: dict[str, Any] = {key: value for key, value in of_format.items() if value is not None}
    more |= {"train_samples": train_samples, "epochs": epochs, "sizes": sizes}
    ran_on = None if machine is None else as_machine(machine)
    stated = None if facts is None else Path(facts)
    return _import(path, stated, name=name, file_format=chosen, machine=ran_on, **more)[0]
