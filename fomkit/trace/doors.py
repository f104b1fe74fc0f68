"""Which framework a user's file or model is of, found out without importing any."""

from __future__ import annotations

import ast
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from fomkit.errors import FomkitError

Framework = Literal["torch", "tensorflow"]
_NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "onnx": "the package onnx"}
_KERAS = ("keras", "tensorflow", "keras_hub", "keras_cv", "keras_nlp")
_MOST_FILES = 50


def _imported(path: Path) -> set[str]:
    """Give the modules that a file imports anywhere, by their first names; none where it is no Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def framework_of_file(path: Path) -> Framework:
    """Tell a file's framework by what it and the files beside it import; PyTorch unless it is TensorFlow."""
    waiting, seen, names = [path], {path}, set[str]()
    while waiting and len(seen) < _MOST_FILES:
        found = _imported(waiting.pop())
        names |= found
        beside = {path.with_name(f"{name}.py") for name in found} - seen
        waiting += [one for one in beside if one.is_file()]
        seen |= beside
    return "tensorflow" if names & set(_KERAS) and os.environ.get("KERAS_BACKEND") != "torch" else "torch"


def framework_of_model(model: Any) -> Framework:
    """Tell a model's framework by the classes it is made from."""
    kinds = model if isinstance(model, type) else type(model)
    return "tensorflow" if any(kind.__module__.partition(".")[0] == "keras" for kind in kinds.__mro__) else "torch"


def check_installed(framework: Framework | Literal["onnx"], where: str) -> None:
    """Raise unless a framework is here.

    Raises
    ------
    FomkitError
    """
    if find_spec(framework) is None:
        name = _NAMES[framework]
        raise FomkitError(
            where,
            f"profiling needs {name}, which is not here. Install it, or fomkit with its extra [{framework}].",
        )
