"""Which framework a user's file or model is of, found out without importing any."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from fomkit.core.errors import FomkitError, install_hint

Framework = Literal["torch", "tensorflow", "keras_torch"]
"""PyTorch itself, Keras on TensorFlow, and Keras on PyTorch."""
BACKENDS = ("tensorflow", "torch")
"""Backends of Keras whose steps are read."""
_NEEDED = {
    "torch": ("torch",), "tensorflow": ("tensorflow",), "keras_torch": ("keras", "torch"), "onnx": ("onnx",),
}  # fmt: skip
_NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "keras": "Keras", "onnx": "the package onnx"}
_EXTRAS = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow", "onnx": "onnx"}
_KERAS = frozenset({"keras", "keras_hub", "keras_cv", "keras_nlp"})
_SWITCH = "KERAS_BACKEND"
_MOST_FILES = 50


def source_tree(path: Path) -> ast.AST | None:
    """Parse a file; None for one that is not there or is no Python."""
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return None


def _imported(tree: ast.AST) -> set[str]:
    """Give the modules that a file imports anywhere, by their first names."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _files_of(folder: Path, name: str) -> list[Path]:
    """Give the files that an import of ``name`` may run, where it lies beside the importing file."""
    module, package = folder / f"{name}.py", folder / name
    return [module] if module.is_file() else sorted(package.rglob("*.py")) if package.is_dir() else []


def _trees(path: Path) -> Iterator[ast.AST]:
    """Give the source of a file and of those beside it that it imports, packages with all that is in them."""
    waiting, seen = [path], {path}
    while waiting and len(seen) < _MOST_FILES:
        tree = source_tree(waiting.pop(0))
        if tree is not None:
            yield tree
            found = [one for name in sorted(_imported(tree)) for one in _files_of(path.parent, name)]
            waiting += [one for one in found if one not in seen]
            seen |= set(found)


_TRAINERS = frozenset({"transformers", "lightning", "pytorch_lightning", "accelerate", "trl"})
"""Packages that have the loop of a training, or take part in it."""
_MAKES_TRAINER = ("Trainer", "Accelerator", "Fabric")
_MODEL_FILE = frozenset({"workload", "inputs"})
"""What a file with a model gives besides, one or the other."""


def is_trainer_program(path: Path) -> bool:
    """Tell a program that trains by a library's trainer from a file that gives a model.

    It names a trainer (`transformers.Trainer` or one that ends so, Lightning's, accelerate's), and has neither
    ``inputs`` nor ``workload`` at its top.
    """
    tree = source_tree(path) if path.suffix == ".py" else None
    if not isinstance(tree, ast.Module) or not _imported(tree) & _TRAINERS:
        return False
    targets = [one for node in tree.body if isinstance(node, ast.Assign) for one in node.targets]
    own = {getattr(node, "name", getattr(node, "id", "")) for node in (*tree.body, *targets)}
    names = (getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(tree))
    return not own & _MODEL_FILE and any(name.endswith(_MAKES_TRAINER) for name in names)


def _stated_backend(tree: ast.AST) -> str | None:
    """Find the backend that a file sets by ``os.environ``."""
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
    """Read Keras's own file of settings."""
    folder = os.environ.get("KERAS_HOME") or Path("~", ".keras").expanduser()
    try:
        stated = json.loads(Path(folder, "keras.json").read_text(encoding="utf-8")).get("backend")
    except (OSError, ValueError, AttributeError):
        stated = None
    return stated if isinstance(stated, str) else "tensorflow"


def other_backend(where: str, backend: str) -> FomkitError:
    """Say that a backend's steps are not read."""
    return FomkitError(
        where,
        f"Keras runs on its {backend} backend here, whose steps are not read. Let it run on TensorFlow or "
        f"PyTorch: {_SWITCH}=tensorflow or {_SWITCH}=torch.",
    )


def framework_of_file(path: Path) -> Framework:
    """Tell a file's framework by what it and the files beside it import; PyTorch where nothing tells.

    A program of PyTorch may import TensorFlow too, for its own logs.

    Raises FomkitError when Keras runs on a backend whose steps are not read.
    """
    trees = list(_trees(path))
    names = {name for tree in trees for name in _imported(tree)}
    if not names & _KERAS and ("tensorflow" not in names or "torch" in names):
        return "torch"
    stated = next((backend for tree in trees if (backend := _stated_backend(tree))), None)
    backend = stated or os.environ.get(_SWITCH) or _configured_backend()
    if backend not in BACKENDS:
        raise other_backend(str(path), backend)
    return "keras_torch" if backend == "torch" else "tensorflow"


def framework_of_model(model: Any) -> Framework:
    """Tell a model's framework by the classes it is made from."""
    kinds = model if isinstance(model, type) else type(model)
    if not any(kind.__module__.partition(".")[0] == "keras" for kind in kinds.__mro__):
        return "torch"
    return "keras_torch" if sys.modules["keras"].backend.backend() == "torch" else "tensorflow"


def check_installed(framework: Framework | Literal["onnx"], where: str) -> None:
    """Raise unless a framework is here."""
    for package in _NEEDED[framework]:
        if find_spec(package) is None:
            what = f"this needs {_NAMES[package]}, which is not here. Run: {install_hint(_EXTRAS[package])}"
            raise FomkitError(where, what)
