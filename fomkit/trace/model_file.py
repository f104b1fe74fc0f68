"""A user's ``model.py``: run it, take what it gives, and say what its code raised."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from fomkit.errors import FomkitError
from fomkit.workload import LastBatch, Workload

PROFILED_MODULE = "profiled_file"
"""Name under which a profiled file runs."""
_OPTIONAL = ("optimizer", "batch_size", "train_samples", "epochs", "validation_samples")
_LEAST: Mapping[str, int] = {"batch_size": 1, "train_samples": 1, "epochs": 1, "validation_samples": 0}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OF_LAYER = re.compile(
    r"(Exception encountered when calling .*|Graph execution error:|Could not .* Error encountered:)\.?"
)
NEVER_MENDED = (FomkitError, SystemExit, SyntaxError, NameError, ImportError, OSError, ArithmeticError)
"""What no other way of making tensors would mend."""


def run_file(path: Path) -> ModuleType:
    """Execute a file as a module of its own; code under ``if __name__ == "__main__"`` does not run.

    Raises
    ------
    BaseException
        Whatever the file raises.
    """
    spec = importlib.util.spec_from_file_location(PROFILED_MODULE, path)
    if spec is None or spec.loader is None:
        raise FomkitError(str(path), "is not a Python file. Its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    # Files beside it can be imported, but come last, so that one named grp.py does not stand for the standard one.
    sys.path.append(str(path.parent))
    sys.modules[PROFILED_MODULE] = module
    spec.loader.exec_module(module)
    return module


def take_workload(module: ModuleType, where: str, check: Callable[[Workload, str], None]) -> Workload:
    """Take ``workload()`` or the plain names of a module.

    Parameters
    ----------
    module : module
    where : str
        The user's file, for error messages.
    check : function of the workload and ``where``
        Raises where a framework could not use it.

    Raises
    ------
    ManyFomkitError
        With every name that is missing or is not what it should be.
    """
    make = getattr(module, "workload", None)
    if make is None:
        given: dict[str, Any] = {name: getattr(module, name, None) for name in ("model", "inputs", *_OPTIONAL)}
        given |= {name: vars(module)[name] for name in ("last_batch", "notes") if name in vars(module)}
        workload = Workload(loss=getattr(module, "loss_fn", None), **given)
    else:
        workload = make() if callable(make) else make
        if not isinstance(workload, Workload):
            raise FomkitError(
                where,
                f"workload() gave a {type(workload).__name__}. Let it return "
                "fomkit.Workload(model=…, inputs=…, loss=…, optimizer=…, train_samples=…, epochs=…).",
            )
    check(workload, where)
    return workload


def count_errors(workload: Workload, where: str) -> list[FomkitError]:
    """List what is wrong with the counts and texts of a workload."""
    errors = []
    for name, least in _LEAST.items():
        value = getattr(workload, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            errors.append(
                FomkitError(where, f"{name} is {value!r:.80}. A whole number of {least} or more was expected.")
            )
    if workload.last_batch not in get_args(LastBatch):
        errors.append(FomkitError(where, f"last_batch is {workload.last_batch!r:.80}. Write 'drop' or 'keep'."))
    if not isinstance(workload.notes, list | tuple) or not all(isinstance(one, str) for one in workload.notes):
        errors.append(FomkitError(where, f"notes is {workload.notes!r:.80}. A list of texts was expected."))
    return errors


def _first_line(text: str) -> str:
    """Give what an error says first; Keras puts the layer before it, and colours what follows."""
    lines = [line for line in _COLOUR.sub("", text).strip().splitlines() if line.strip()]
    while len(lines) > 1 and _OF_LAYER.fullmatch(lines[0]):
        lines = lines[1:]
    return lines[0][:240] if lines else ""


def explain_exception(error: BaseException, where: str, path: Path | None = None) -> FomkitError:
    """Say what the user's code raised and at which of its lines.

    Parameters
    ----------
    error : BaseException
    where : str
        The user's file as the user wrote it, or the stage.
    path : Path, optional
        The same file, absolute.
    """
    if isinstance(error, FomkitError):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    at = f"{where}:{lines[-1]}" if lines else where
    if isinstance(error, SystemExit):
        return FomkitError(
            at, f"ends the program by sys.exit({error.code!r}). Take that out of the profiled code."
        )
    if isinstance(error, SyntaxError):
        line = f":{error.lineno}" if error.lineno else ""
        return FomkitError(f"{where}{line}", f"is not valid Python ({error.msg}). Correct it.")
    first_line = _first_line(str(error))
    raised = f"raises {type(error).__name__}{': ' if first_line else ''}{first_line}"
    if frames and Path(frames[-1].filename).parent == Path(__file__).parent:
        raised += f" (in fomkit itself, {Path(frames[-1].filename).name}:{frames[-1].lineno}; please report it)"
    return FomkitError(at, raised)
