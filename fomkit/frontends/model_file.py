"""A user's ``model.py``: find its framework without importing any, run it, read its workload, explain its errors.

`CodeLines` finds the line of the user's code that runs: that of the innermost frame that is neither in a library
nor in fomkit. A model from a library may run without any line of the user's; then the line is that of the
innermost frame in a package.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from fomkit.core.errors import FomkitError, install_hint
from fomkit.core.model import DOUBTFUL, LastBatch, Workload
from fomkit.ops.tables import code_line

Framework = Literal["torch", "tensorflow", "keras_torch"]
"""PyTorch itself, Keras on TensorFlow, and Keras on PyTorch."""
BACKENDS = ("tensorflow", "torch")
"""Backends of Keras whose steps fomkit can read."""
_NEEDED = {
    "torch": ("torch",), "tensorflow": ("tensorflow",), "keras_torch": ("keras", "torch"), "onnx": ("onnx",),
}  # fmt: skip
_NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "keras": "Keras", "onnx": "the package onnx"}
_EXTRAS = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow", "onnx": "onnx"}
KERAS = frozenset({"keras", "keras_hub", "keras_cv", "keras_nlp"})
_SWITCH = "KERAS_BACKEND"
_MOST_FILES = 50
_COMPREHENSION = re.compile(r"(\.<locals>\.)?<(list|set|dict)comp>")
"""The name of a comprehension, which is part of its function from Python 3.12 on."""


def source_tree(path: Path) -> ast.AST | None:
    """Parse a file; return None for a file that is missing or is not Python."""
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return None


def nodes_of(file: str | Path) -> list[ast.AST]:
    """Return the nodes of a file's source, outer ones before inner ones; none if it is missing or not Python."""
    tree = source_tree(Path(file))
    return [*ast.walk(tree)] if tree else []


def imported(tree: ast.AST) -> set[str]:
    """Return the top-level names of all modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def trees_of(path: Path) -> Iterator[ast.AST]:
    """Yield the parsed source of a file and of the files beside it that it imports, packages with all files."""
    waiting, seen = [path], {path}
    while waiting and len(seen) < _MOST_FILES:
        tree = source_tree(waiting.pop(0))
        if tree is not None:
            yield tree
            found: list[Path] = []
            for name in sorted(imported(tree)):
                module = path.with_name(f"{name}.py")
                found += [module] if module.is_file() else sorted(path.with_name(name).rglob("*.py"))
            waiting += [one for one in found if one not in seen]
            seen |= set(found)


def _stated_backend(tree: ast.AST) -> str | None:
    """Return the backend that a file sets by ``os.environ``."""
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            values = [node.targets[0].slice, node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 2:
            values = node.args
        texts = [
            value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)
        ]
        if len(texts) == 2 and texts[0] == _SWITCH:
            return texts[1]
    return None


def _configured_backend() -> str:
    """Return the backend in Keras's configuration file; TensorFlow if it states none."""
    folder = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")  # where there is no home, not found
    try:
        stated = json.loads(Path(folder, "keras.json").read_text(encoding="utf-8")).get("backend")
    except (OSError, ValueError, AttributeError):
        stated = None
    return stated if isinstance(stated, str) else "tensorflow"


def other_backend(where: str, backend: str) -> FomkitError:
    """Return the error for a backend whose steps are not read."""
    return FomkitError(
        where,
        f"Keras runs on its {backend} backend here, whose steps cannot be profiled. Let it run on TensorFlow or "
        f"PyTorch: {_SWITCH}=tensorflow or {_SWITCH}=torch.",
    )


def framework_of_file(path: Path) -> Framework:
    """Return a file's framework from the imports of the file and the files beside it; PyTorch by default.

    A PyTorch program may import TensorFlow too, for its logs.
    """
    trees = list(trees_of(path))
    names = {name for tree in trees for name in imported(tree)}
    if not names & KERAS and ("tensorflow" not in names or "torch" in names):
        return "torch"
    stated = next((backend for tree in trees if (backend := _stated_backend(tree))), None)
    backend = stated or os.environ.get(_SWITCH) or _configured_backend()
    if backend not in BACKENDS:
        raise other_backend(str(path), backend)
    return "keras_torch" if backend == "torch" else "tensorflow"


def framework_of_model(model: Any) -> Framework:
    """Return a model's framework from its base classes."""
    kinds = model if isinstance(model, type) else type(model)
    if not any(kind.__module__.partition(".")[0] == "keras" for kind in kinds.__mro__):
        return "torch"
    return "keras_torch" if sys.modules["keras"].backend.backend() == "torch" else "tensorflow"


def check_installed(framework: Framework | Literal["onnx"], where: str) -> None:
    """Raise unless a framework is installed."""
    for package in _NEEDED[framework]:
        if find_spec(package) is None:
            what = f"this needs {_NAMES[package]}, which is not installed. Run: {install_hint(_EXTRAS[package])}"
            raise FomkitError(where, what)


PROFILED_MODULE = "__mp_main__"
"""Module name under which a profiled file runs. Where the system does not fork, multiprocessing runs the file of
the main module (`fomkit.files.child_process.read_request`) again in each new process, under this name, so that the
file's own classes are found there."""
_OPTIONAL = ("optimizer", "batch_size", "train_samples", "epochs", "validation_samples")
_LEAST: Mapping[str, int] = {"batch_size": 1, "train_samples": 1, "epochs": 1, "validation_samples": 0}
_KNOWN = {"workload", "model", "inputs", "loss_fn", "last_batch", "notes", *_OPTIONAL}
_NEAR = 0.7
"""Similarity from which a name is probably another's misspelling: loss and loss_fn have 0.73."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OF_LAYER = re.compile(
    r"(Exception encountered when calling .*|Graph execution error:|Could not .* Error encountered:)\.?"
)
_ADDED = re.compile(
    r"(Arguments received by|Exception raised from|Traceback|While executing|Call arguments received)"
)
"""Where a library appends the arguments of a call or its own stack to a message."""
MAX_LETTERS = 240
"""Most characters of an error's text that are reported."""
NEVER_MENDED = (FomkitError, SystemExit, SyntaxError, NameError, ImportError, OSError, ArithmeticError)
"""Errors that no other way of making tensors would mend."""


def run_file(path: Path) -> ModuleType:
    """Execute a file as a module of its own; code under ``if __name__ == "__main__"`` does not run."""
    spec = importlib.util.spec_from_file_location(PROFILED_MODULE, path)
    if spec is None or spec.loader is None:
        raise FomkitError(str(path), "is not a Python file. Its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    # Files beside it can be imported, but come last on the path, so that a user's grp.py does not replace the
    # standard one.
    sys.path.append(str(path.parent))
    sys.modules[PROFILED_MODULE] = module
    spec.loader.exec_module(module)
    return module


def _unread_names(module: ModuleType) -> Iterator[str]:
    """Yield a note on each name of a file that is probably meant as one it lacks, such as loss as loss_fn."""
    given = {name for name, value in vars(module).items() if value is not None}
    own = {name.lower(): name for name in given - _KNOWN if not isinstance(vars(module)[name], type | ModuleType)}
    for name in {"loss_fn", *_OPTIONAL} - given:
        for near in get_close_matches(name, own, 1, _NEAR):
            yield f"{DOUBTFUL}: the file's {own[near]} is not read. If it is meant as {name}, rename it."


def take_workload(module: ModuleType, where: str, check: Callable[[Workload, str], None]) -> Workload:
    """Return the workload of ``workload()`` or of a module's plain names; ``check`` raises if it is not usable."""
    make = getattr(module, "workload", None)
    if make is None:
        given: dict[str, Any] = {name: getattr(module, name, None) for name in ("model", "inputs", *_OPTIONAL)}
        given |= {name: vars(module)[name] for name in ("last_batch", "notes") if name in vars(module)}
        workload = Workload(loss=getattr(module, "loss_fn", None), **given)
        check(workload, where)
        return replace(workload, notes=[*workload.notes, *sorted(_unread_names(module))])
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
    """Return errors in the counts and texts of a workload."""
    errors = []
    for name, least in _LEAST.items():
        value = getattr(workload, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            errors.append(
                FomkitError(where, f"{name} is {value!r:.80}. A whole number of {least} or more was expected.")
            )
    if workload.last_batch not in get_args(LastBatch):
        errors.append(FomkitError(where, f"last_batch is {workload.last_batch!r:.80}. Write 'drop' or 'keep'."))
    if not isinstance(workload.notes, list | tuple) or not all(isinstance(note, str) for note in workload.notes):
        errors.append(FomkitError(where, f"notes is {workload.notes!r:.80}. A list of strings was expected."))
    return errors


def model_errors(workload: Workload, where: str, kind: type, name: str, example: str) -> list[FomkitError]:
    """Return an error if a workload's model is missing or not of the framework's class, with an example."""
    model = workload.model
    if model is None:
        script = " A program that trains by itself is profiled with --script." if where.endswith(".py") else ""
        return [FomkitError(where, f"'model' is missing. Give one, for example: model = {example}.{script}")]
    made = "a class: call it" if isinstance(model, type) else f"of type {type(model).__name__}"
    right = isinstance(model, kind)
    return [] if right else [FomkitError(where, f"'model' is {made}. A {name} was expected.")]


def loss_errors(workload: Workload, where: str) -> list[FomkitError]:
    """Return an error if a loss is not a function of two arguments."""
    if workload.loss is None:
        return []
    example = "Give one of (output, inputs), for example: loss_fn = lambda output, inputs: output.mean()"
    if not callable(workload.loss):
        return [FomkitError(where, f"the loss is not a function. {example}")]
    try:
        inspect.signature(workload.loss).bind("output", "inputs")
    except TypeError as error:
        return [FomkitError(where, f"the loss does not take two arguments ({error}). {example}")]
    except ValueError:  # written in C, it has no signature
        pass
    return []


def _on_one_line(text: str) -> str:
    """Return an error's message on one line.

    Keras puts the layer first and colours the rest; both are removed, and so is what libraries add for their own
    developers. fomkit's messages set parameters in back quotes, so back quotes in the message become apostrophes.
    """
    lines = [line for line in map(str.strip, _COLOUR.sub("", text).splitlines()) if line]
    while len(lines) > 1 and _OF_LAYER.fullmatch(lines[0]):
        lines = lines[1:]
    message_lines = list(takewhile(lambda line: not _ADDED.match(line), lines)) or lines[:1]
    return " ".join(message_lines)[:MAX_LETTERS].replace("`", "'")


def _advice(error: BaseException) -> str:
    """Return advice for errors where the code itself may be right; "" for other errors."""
    owner = error if isinstance(error, ImportError) else getattr(error, "obj", None)
    name = owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "name", None)
    package = str(name).partition(".")[0] if isinstance(error, ImportError | AttributeError) else ""
    if (known := sys.modules.get(package)) and not is_user_file(str(known.__file__)):
        version = getattr(known, "__version__", "the installed one")
        return f" The file may be for another version of {package} than {version}: change this line."
    if isinstance(error, ModuleNotFoundError) and package:
        return f" Install {package} where fomkit is installed (for {sys.executable}), or remove it from the file."
    if isinstance(error, FileNotFoundError):
        return " It really runs, in the current folder: put its data there, or a few samples and --samples."
    if re.search("urlopen|url fetch|name resolution|couldn't connect|max retries", str(error), re.IGNORECASE):
        return " Let it download its data once outside fomkit, or pass a proxy on: FOMKIT_PASS_ENV=HTTPS_PROXY."
    if isinstance(error, NotImplementedError) and "Meta tensors" in str(error):
        return " PyTorch cannot run this op without data: use another op instead."
    if isinstance(error, MemoryError):
        return " This machine has less memory than that. Create less data or none in the file: shapes are enough."
    return ""


def _is_own(error: BaseException, file: Path, function: str) -> bool:
    """Return whether an error whose last frame is in a function of a file is one of fomkit itself."""
    folder = Path(__file__).parent
    # Keras hides its own frames, so the last one may be of a function that watches its calls.
    # PyTorch's modes run every call of the user's.
    watches = function in ("__torch_function__", "__torch_dispatch__") or (file, function) in (
        (folder / "keras/layers.py", "called"), (folder / "keras/ops.py", "attend"))  # fmt: skip
    # PyTorch's own code has no frames, and says so of ops that it cannot run without data.
    return file.is_relative_to(folder) and not watches and not isinstance(error, NotImplementedError)


def explain_exception(error: BaseException, where: str, path: Path | None = None, when: str = "") -> FomkitError:
    """Return an error that says what the user's code raised, `when`, and the line of file `path` (absolute)."""
    if isinstance(error, FomkitError):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    at = f"{where}:{lines[-1]}" if lines else where
    if isinstance(error, SystemExit):
        return FomkitError(at, f"ends the program by sys.exit({error.code!r}). Remove that from the file.")
    if isinstance(error, SyntaxError):
        line = f":{error.lineno}" if error.lineno else ""
        return FomkitError(f"{where}{line}", f"is not valid Python ({error.msg}). Correct it.")
    message = _on_one_line(str(error))
    raised = f"raises {type(error).__name__}{': ' if message else ''}{message}"
    if frames and _is_own(error, Path(frames[-1].filename), frames[-1].name):
        raised += f" (in fomkit itself, {Path(frames[-1].filename).name}:{frames[-1].lineno}; please report it)"
    own = [frame for frame in frames if frame.filename.endswith(".py") and is_user_file(frame.filename)]
    if own and path and own[-1].filename != str(path):
        raised += f" (at {Path(own[-1].filename).name}:{own[-1].lineno})"
    advice = _advice(error)
    return FomkitError(at, f"{raised}{when}{'.' * bool(advice)}{advice}")


_INSTALLED = frozenset({"site-packages", "dist-packages"})
_FRAMEWORKS = frozenset({"torch", "tensorflow", "keras", "tf_keras", "numpy", "jax"})
"""Packages that run a model's ops but contain no model."""
_FOMKIT = Path(__file__).parents[1]
_RUNNERS = tuple(
    Path(__file__).parent / name for name in ("torch/profile.py", "keras/profile.py", "keras/torch_step.py")
)
"""Files of fomkit that run a model; the frames outside them belong to the caller of the profiler."""
T = TypeVar("T")
Owner = Literal["user", "library", "framework", "end"]


@cache
def is_user_file(name: str) -> bool:
    """Return whether a file is the user's own source, not the standard library, an installed package or fomkit."""
    path = Path(name)
    foreign = (Path(sysconfig.get_path("stdlib")), _FOMKIT)
    return not any(map(path.is_relative_to, foreign)) and not _INSTALLED & {*path.parts}


@cache
def library_file(name: str) -> str:
    """Return the path of an installed file from its package on; "" for a package that contains no model."""
    parts = Path(name).parts
    at = max((place for place, part in enumerate(parts) if part in _INSTALLED), default=None)
    if at is None or parts[at + 1].removesuffix(".py") in _FRAMEWORKS or Path(name).is_relative_to(_FOMKIT):
        return ""
    return "/".join(parts[at + 1 :])


class _Source(NamedTuple):
    """A source file: its owner, and its name in profiles."""

    owner: Owner
    name: str


def _innermost(stack: Iterable[tuple[_Source, T]]) -> T | None:
    """Return the innermost user's item, else the innermost library's, else None; stop at the first ``end``."""
    library: T | None = None
    for source, found in stack:
        if source.owner == "user":
            return found
        if source.owner == "end":
            break
        if source.owner == "library" and library is None:
            library = found
    return library


class CodeLines:
    """Finds the user's lines; the owner of a function's source is looked up once.

    Paths are relative to the profiled file's folder, else to the folder that the file was imported from.
    """

    def __init__(self) -> None:
        # Functions are cached by id. Each code object is stored too, so that its id stays valid.
        self._codes: dict[int, tuple[CodeType, _Source]] = {}
        self._source = cache(self._classify)
        self._texts: dict[tuple[int, int], str] = {}

    @cached_property
    def _folder(self) -> Path:
        """The folder of the program: the profiled file's, else that of the main module."""
        names = (PROFILED_MODULE, "__main__")
        files = (getattr(sys.modules.get(name), "__file__", None) for name in names)
        return Path(next((file for file in files if file), "main")).absolute().parent

    def of(self, frame: FrameType | None) -> str:
        """Return the line of the innermost user's frame from ``frame`` outwards; "" if there is none."""
        found = _innermost(self._sources(frame))
        return "" if found is None else self._text(found)

    def of_stack(self, stack: Iterable[tuple[str, int, str]]) -> str:
        """Return the same for a stack of (file, line, function), the innermost first."""
        found = _innermost((self._source(call[0]), call) for call in stack)
        return "" if found is None else code_line(self._source(found[0]).name, *found[1:])

    def _sources(self, frame: FrameType | None) -> Iterator[tuple[_Source, FrameType]]:
        while frame is not None:
            code = frame.f_code
            if id(code) not in self._codes:
                self._codes[id(code)] = (code, self._source(code.co_filename))
            yield self._codes[id(code)][1], frame
            frame = frame.f_back

    def _text(self, frame: FrameType) -> str:
        code, line = frame.f_code, frame.f_lineno
        known = self._texts.get((id(code), line))
        if known is None:
            function = _COMPREHENSION.sub("", code.co_qualname) or "<module>"
            known = code_line(self._codes[id(code)][1].name, line, function)
            self._texts[(id(code), line)] = known
        return known

    def _classify(self, file: str) -> _Source:
        if "ipykernel_" in file or file.startswith("<ipython-input"):
            # A notebook cell goes by its number: its file name changes at each execution.
            shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
            number = getattr(getattr(shell, "compile", None), "_filename_map", {}).get(file)
            return _Source("user", "notebook" if number is None else f"In [{number}]")
        if file.startswith("<"):
            return _Source("framework", "")
        if is_user_file(file):
            folders = [Path(folder).absolute() for folder in sys.path]
            nearest = sorted(folders, key=lambda folder: len(folder.parts), reverse=True)
            # Relative to the first folder that contains it, else the bare file name: never a path of this machine.
            path = Path(file).absolute()
            around = next((one for one in (self._folder, *nearest) if path.is_relative_to(one)), path.parent)
            return _Source("user", path.relative_to(around).as_posix())
        if Path(file) in _RUNNERS:
            return _Source("end", "")
        name = library_file(file)
        return _Source("library" if name else "framework", name)
