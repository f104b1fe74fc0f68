"""Profile a framework's model: trace its step, without data where the framework allows it, into a table of ops.

`profile_file`, `profile_script` and `profile_onnx` run a child process; `profile_workload` runs in a notebook.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.model import STATE_TENSORS, ModelProfile, Workload
from fomkit.files import child_process as children
from fomkit.files.child_process import error_in, run_child
from fomkit.frontends import model_file
from fomkit.frontends.layers import GraphNode, Nodes
from fomkit.frontends.step import Draft, Route, profile_by_routes

Mode = Literal["train", "infer"]
TIME_LIMIT_S = 300.0
MEMORY_LIMIT_BYTE = 8e9
MAX_SIZE = 2**31 - 1
"""Frameworks count a tensor's elements in 64 bits, and a tensor has several sizes."""
SCRIPT_MEMORY_LIMIT_BYTE = 16e9
"""A script trains for real, with data and weights."""
_KERAS_FILES = {"tensorflow": children.KERAS_FILE, "keras_torch": children.KERAS_TORCH_FILE}
_SCRIPTS = {
    "torch": children.SCRIPT, "tensorflow": children.KERAS_SCRIPT, "keras_torch": children.KERAS_TORCH_SCRIPT,
}  # fmt: skip


def _wanted_sizes(where: str, batch: int | None, sizes: Mapping[str, int] | None) -> dict[str, int]:
    """Return the requested sizes, the batch among them; raise for a value that is out of range."""
    wanted = {**({} if batch is None else {"batch": batch}), **(sizes or {})}
    for name, size in wanted.items():
        if type(size) is not int or not 1 <= size <= MAX_SIZE:
            expected = f"A whole number from 1 to {MAX_SIZE:,} was expected."
            raise FomkitError(where, f"the {name} is {size!r}. {expected}")
    return wanted


def _named_request(path: Path, name: str | None = None) -> dict[str, str]:
    """Return the entries of a child's request that name the file and the profile."""
    return {"path": str(path.resolve()), "where": str(path), "name": name or path.stem}


def _check_request(where: str, mode: str, framework: model_file.Framework | Literal["onnx"]) -> None:
    if mode not in ("train", "infer"):
        raise FomkitError(where, f"the mode is {mode!r}. Choose 'train' or 'infer'.")
    model_file.check_installed(framework, where)


_OTHER = "Profiles of tables and traces are made by 'fomkit import'."


def _check_file(path: Path, wanted: str, ending: str = ".py") -> None:
    """Raise for a file that cannot hold a model, whatever framework is installed."""
    if not path.is_file():
        raise FomkitError(str(path), f"is not a file. Give {wanted}.")
    if ending and path.suffix != ending:
        raise FomkitError(str(path), f"is not a Python file. Its name must end in {ending}. {_OTHER}")
    if not path.stat().st_size:
        raise FomkitError(str(path), f"is empty. Give {wanted}.")
    if ending:  # told here, because a process that imports the framework takes seconds to start
        try:
            ast.parse(path.read_bytes())
        except (SyntaxError, ValueError) as error:
            wrong = error if isinstance(error, SyntaxError) else SyntaxError(str(error))
            raise model_file.explain_exception(wrong, str(path)) from error


def profile_file(
    path: Path,
    *,
    mode: Mode = "train",
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    memory_limit_byte: float = MEMORY_LIMIT_BYTE,
    name: str | None = None,
) -> ModelProfile:
    """Profile a ``model.py`` in a child process.

    The file is run, so it must be one you trust; the child only shields this process from its exits, crashes,
    hangs, prints and settings. The file defines ``workload()``, or the plain names ``model``, ``inputs``,
    ``loss_fn``, ``optimizer``, ``batch_size``, ``train_samples`` and ``epochs``; a compiled ``keras.Model`` is
    enough. Tensors that PyTorch makes, and weights that Keras makes, have shapes and no data.

    `mode`: ``train`` for forward, backward and update of one step, ``infer`` for the forward pass; `batch`:
    samples in the step; default: the file's own; `sizes`: values of further named sizes, the parameters of
    ``inputs(batch, seq=1024)`` with a whole-number default; `time_limit_s`, `memory_limit_byte`: wall time [s] of
    each attempt and resident memory [byte]; `name`: of the profile; default: the file's name without ``.py``.
    Raises FomkitError when the file lacks something, raises, exits, crashes, hangs, or needs the values of data.
    """
    where = str(path)
    _check_file(path, "a Python file with a model, for example model.py")
    framework = model_file.framework_of_file(path)
    _check_request(where, mode, framework)
    wanted = _wanted_sizes(where, batch, sizes)

    request = {**_named_request(path, name), "mode": mode, "sizes": wanted, "most_s": 0.4 * time_limit_s}
    limits = time_limit_s, memory_limit_byte

    def trace(route: Route) -> Draft | FomkitError:
        try:
            result = run_child({**request, "route": route}, where, *limits, children.MODEL_FILE)
        except FomkitError as error:
            if route != "data":
                raise
            # A limit that a run with data exceeds must not hide why the other routes failed.
            return FomkitError(error.where, f"{error.what} This step ran with data.")
        return _draft_in(result) if result.get("final", True) else error_in(result)

    if framework == "torch":
        profile = profile_by_routes(trace, where)
    else:
        profile = _draft_in(run_child(request, where, *limits, _KERAS_FILES[framework])).profile()
    return replace(profile, title=_first_sentence(path) or profile.title)


def profile_graph(path: Path, *, sizes: Mapping[str, int] | None = None) -> tuple[ModelProfile, Nodes]:
    """Profile a Keras ``model.py`` as `profile_file` does, and return the rows of each node of its graph, too."""
    where = str(path)
    _check_file(path, "the Python file with the Keras model")
    if model_file.framework_of_file(path) != "tensorflow":
        raise FomkitError(where, "has no TensorFlow model. Give the file of the Keras model that was traced.")
    _check_request(where, "train", "tensorflow")
    wanted = _wanted_sizes(where, None, sizes)
    request = {**_named_request(path), "mode": "train", "nodes": True, "sizes": wanted}
    result = run_child(request, where, TIME_LIMIT_S, MEMORY_LIMIT_BYTE, children.KERAS_FILE)
    profile = _draft_in(result).profile()
    return profile, {name: GraphNode(**node) for name, node in result["nodes"].items()}


def _draft_in(result: Mapping[str, Any]) -> Draft:
    """Return the draft in a child's result; raise the child's error."""
    if "draft" not in result:
        raise error_in(result)
    return Draft(**result["draft"])


_TRAINERS = frozenset(
    """
    transformers lightning pytorch_lightning accelerate trl sentence_transformers setfit deepspeed composer fastai
    ignite skorch catalyst mmengine speechbrain ultralytics pytorch_tabnet darts gluonts neuralforecast
    pytorch_forecasting stable_baselines3 torchrl deepxde pyro
    """.split()  # noqa: SIM905 - as a list it fills a page
)
"""Packages that contain a training loop in PyTorch or take part in one."""
_MAKES_TRAINER = ("Trainer", "Accelerator", "Fabric")
_TRAINS = frozenset({"fit", "fit_one_cycle", "fine_tune", "train", "learn", "run", "initialize", "step"})
"""Methods by which these packages train."""
_MAKES_PROCESSES = frozenset(
    {"DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "init_process_group"}
)
"""Names in a PyTorch program that is started once for each device."""
_KERAS_LOOP = frozenset({"fit", "train_on_batch", "apply_gradients", "assign_sub"})
_NOT_YET = (ast.FunctionDef, ast.ClassDef, ast.If)
_MODEL_FILE = frozenset({"workload", "inputs"})
"""A file with a model defines at least one of these names."""


def is_program(path: Path) -> bool:
    """Return whether a file is a program that trains, and not one that defines a model for fomkit.

    Such a program uses a trainer (`transformers.Trainer` or a class with this ending, Lightning's, fastai's)
    or a PyTorch class or function for distributed training, or it calls what a training loop calls, also in a file
    beside it; and it has no ``inputs`` or ``workload`` at top level, except a tensor that it trains on.
    """
    tree = model_file.source_tree(path) if path.suffix == ".py" else None
    if not isinstance(tree, ast.Module):
        return False
    own = {name for node in tree.body for name in _bound(node)}
    # A tensor of a program may be called ``inputs``, too: a file that trains when it is read is a program.
    of_trainer = any(getattr(node, "id", "").endswith(_MAKES_TRAINER) for node in ast.walk(tree))
    at_once = {"backward", *_KERAS_LOOP, *["train"] * of_trainer}
    assigned = (one for one in tree.body if isinstance(one, ast.Assign) and not isinstance(one.value, ast.Lambda))
    tensors = {name for node in assigned for name in _bound(node)}
    # Without a model, what a program does under ``__main__`` counts, too.
    trains_here = _called(*_run_by(tree, _NOT_YET if "model" in own else _NOT_YET[:2])) & at_once
    if own & _MODEL_FILE and (own & _MODEL_FILE - tensors or not trains_here):
        return False
    # The names of another file may be those of a model file.
    trees = [tree] if "*" in own else list(model_file.trees_of(path))
    nodes = [node for one in trees for node in ast.walk(one)]
    named = {getattr(node, "id", getattr(node, "attr", "")) for node in nodes}
    named |= {node.name.rpartition(".")[2] for node in nodes if isinstance(node, ast.alias)}
    libraries, calls = {name for one in trees for name in model_file.imported(one)}, _called(*trees)
    makes = any(name.endswith(_MAKES_TRAINER) for name in named)
    if libraries & _TRAINERS and (makes or calls & _TRAINS):
        return True
    is_keras = bool(model_file.imported(tree) & {*model_file.KERAS, "tensorflow"})
    if of_trainer and not is_keras and _called(*_run_by(tree, _NOT_YET[:2])) & {"fit", "train"}:
        return True  # by a trainer of any other package
    trains = "backward" in calls and ("model" not in own or "step" in calls or "grad" in named)
    if "torch" in libraries and (named & _MAKES_PROCESSES or trains):
        return True
    # A Keras model needs no ``inputs``; functions of its file may train it when it is run, not when it is read.
    runs = _run_by(tree, _NOT_YET) if "model" in own else [tree]
    return is_keras and bool(_called(*runs) & _KERAS_LOOP)


def _run_by(tree: ast.Module, not_yet: tuple[type, ...]) -> list[ast.stmt]:
    """Return the statements of a file that run, except those of some kinds, and the functions that they call."""
    runs = [node for node in tree.body if not isinstance(node, not_yet)]
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for one in runs:  # which grows by the functions that are called
        called = {getattr(node.func, "id", "") for node in ast.walk(one) if isinstance(node, ast.Call)}
        runs += [functions.pop(name) for name in sorted(called & functions.keys())]
    return runs


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement binds; a loop over batches may call them ``inputs``."""
    if isinstance(node, ast.For):
        return []
    made = [*getattr(node, "targets", ()), *getattr(node, "names", ()), getattr(node, "target", node)]
    return [str(getattr(one, "asname", None) or getattr(one, "name", getattr(one, "id", ""))) for one in made]


def _called(*trees: ast.AST) -> set[str]:
    """Return the names of the methods that some code calls."""
    calls = (node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {call.attr for call in calls if isinstance(call, ast.Attribute)}


def profile_script(
    path: Path,
    arguments: Sequence[str] = (),
    *,
    time_limit_s: float = TIME_LIMIT_S,
    memory_limit_byte: float = SCRIPT_MEMORY_LIMIT_BYTE,
    name: str | None = None,
) -> ModelProfile:
    """Profile a training program unchanged: run it in a child process, stop it after some steps, use a later step.

    It runs as ``python path arguments`` would, here and on the CPU, with real data; it writes its files as usual.
    Parameters of a large PyTorch model get no values.
    A step ends where a ``torch.optim`` optimizer steps, else with a loop's round that changes parameters; in
    Keras, each batch of ``Model.fit`` or ``train_on_batch`` is a step. Once a step is recorded, an exception that
    no ``except Exception`` catches stops the program, so that its ``finally`` blocks run.

    `arguments`: the program's own; `time_limit_s`, `memory_limit_byte`: wall time [s] and resident memory [byte];
    `name`: of the profile; default: the file's name without ``.py``. Raises FomkitError when the program never
    trains, raises, exits, crashes or hangs before a step later than the first.
    """
    where = str(path)
    _check_file(path, "a Python program that trains, for example train.py")
    framework = model_file.framework_of_file(path)
    _check_request(where, "train", framework)
    calls = _called(*model_file.trees_of(path)) if framework == "keras_torch" else set()
    if "backward" in calls and not calls & _KERAS_LOOP:  # Keras's models in a loop of PyTorch's
        framework = "torch"
    request = {**_named_request(path, name), "arguments": list(arguments)}
    result = run_child(request, where, time_limit_s, memory_limit_byte, _SCRIPTS[framework])
    if "draft" not in result:
        error = error_in(result)
        raise FomkitError(error.where, error.what + (result["printed"] if result["quotes"] else ""))
    profile = Draft(**result["draft"]).profile()
    return replace(profile, title=_first_sentence(path) or profile.title)


def profile_onnx(
    path: Path,
    *,
    mode: Mode = "train",
    optimizer: str | None = None,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    train_samples: int | None = None,
    epochs: int | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    memory_limit_byte: float = MEMORY_LIMIT_BYTE,
    name: str | None = None,
) -> ModelProfile:
    """Profile an ONNX file in a child process; its weights are not needed, files beside it are not opened.

    The file holds a forward pass. Rules derive a training step's gradients and update, which a note states.

    `mode`, `time_limit_s`, `memory_limit_byte`: as in `profile_file`; `optimizer`: rule of the update, such as
    ``adam``; ``none`` for no update; default: sgd; `batch`: samples in the step; default: the file's, or 1 where
    the file leaves it open; `sizes`: values of further dimensions that the file leaves open; `train_samples`,
    `epochs`: of the training run; `name`: of the profile; default: the file's name without its ending. Raises
    FomkitError when the package onnx is not installed, the file is damaged or cannot run, or a size is missing.
    """
    where = str(path)
    _check_file(path, "an ONNX file, for example one that torch.onnx.export makes", "")
    rules = ("none", *STATE_TENSORS)
    if optimizer is not None and optimizer not in rules:
        raise FomkitError(f"--optimizer {optimizer}", f"has no formula. {nearest_names(optimizer, rules)}")
    _check_request(where, mode, "onnx")
    if optimizer and mode == "infer":
        raise FomkitError(f"--optimizer {optimizer}", "is for training. Remove it, or remove --mode infer.")
    request: dict[str, Any] = {**_named_request(path, name), "mode": mode, "optimizer": optimizer}
    request["sizes"] = _wanted_sizes(where, batch, sizes)
    request["run"] = {"train_samples": train_samples, "epochs": epochs}
    result = run_child(request, where, time_limit_s, memory_limit_byte, children.ONNX_FILE)
    return _draft_in(result).profile()


def _first_sentence(path: Path) -> str:
    """Return the first line of the file's docstring, without its full stop; "" where the file has none."""
    docstring = ast.get_docstring(ast.parse(path.read_bytes()))
    return docstring.splitlines()[0].rstrip(".") if docstring else ""


def profile_workload(
    workload: Workload,
    *,
    mode: Mode = "train",
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    name: str | None = None,
) -> ModelProfile:
    """Profile a workload made in this process, for notebooks; its default name is the model's class.

    The model may have real weights: a copy is traced, without data unless its step reads values (`ROUTES`), and
    the given model stays as it is.
    """
    framework = model_file.framework_of_model(workload.model)
    _check_request("profile", mode, framework)
    wanted = _wanted_sizes("profile", batch, sizes)
    if framework != "torch":
        from fomkit.frontends.keras import profile as notebook
    else:
        from fomkit.frontends.torch import profile as notebook  # type: ignore[no-redef]
    return notebook.profile_here(workload, name or type(workload.model).__name__.lower(), mode, wanted)
