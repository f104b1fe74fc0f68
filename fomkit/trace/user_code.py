"""The line of the user's code that is now running: the innermost frame that no library is behind.

A model that somebody else wrote is run without any line of the user's: then it is the innermost of its package.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple

from fomkit.schema import code_line
from fomkit.trace.model_file import PROFILED_MODULE

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_FRAMEWORKS = frozenset({"torch", "tensorflow", "keras", "tf_keras", "numpy", "jax"})
"""Packages that run a model's ops and are no model themselves."""
_RUNNERS = ("torch_step.py", "keras_step.py", "keras_torch_step.py")
"""What runs a model for fomkit; frames outside are of who asked for the profile."""
_FOMKIT = Path(__file__).parents[1]
Owner = Literal["user", "library", "framework", "end"]


def is_user_file(name: str) -> bool:
    """Tell the user's own source, wherever it lies, from the standard library, installed packages and fomkit."""
    path = Path(name)
    foreign = (Path(sysconfig.get_path("stdlib")), _FOMKIT)
    return not any(map(path.is_relative_to, foreign)) and not _INSTALLED & {*path.parts}


def _home() -> Path:
    """Give the folder of the program: the profiled file's, else that of the main module."""
    names = (PROFILED_MODULE, "__main__")
    files = (getattr(sys.modules.get(name), "__file__", None) for name in names)
    return Path(next((file for file in files if file), "main")).absolute().parent


def _cell_name(name: str) -> str:
    """Name a notebook's cell by its number; its file is made anew each time."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    number = getattr(getattr(shell, "compile", None), "_filename_map", {}).get(name)
    return "notebook" if number is None else f"In [{number}]"


def _library_file(name: str) -> str:
    """Give the path of an installed file from its package on; "" for what is no model's package."""
    parts = Path(name).parts
    at = max((place for place, part in enumerate(parts) if part in _INSTALLED), default=None)
    if at is None or parts[at + 1].removesuffix(".py") in _FRAMEWORKS or Path(name).is_relative_to(_FOMKIT):
        return ""
    return "/".join(parts[at + 1 :])


def _below(path: Path, folders: Iterable[Path]) -> str:
    """Give a path from the first folder on that it lies in, else its last part: never a path of the machine."""
    for folder in folders:
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return path.name


class _Source(NamedTuple):
    """A file of code: whose it is, and its name in profiles."""

    owner: Owner
    name: str


class CodeLines:
    """Finds the user's lines; what is known of a function's source is looked up once.

    Paths are written from the profiled file's folder on, else from the folder that the file was imported from.
    """

    def __init__(self) -> None:
        # Equal functions are told apart by their ids, which stay theirs as long as they are kept here.
        self._codes: dict[int, tuple[CodeType, _Source]] = {}
        self._files: dict[str, _Source] = {}
        self._texts: dict[tuple[int, int], str] = {}

    @cached_property
    def _folder(self) -> Path:
        return _home()

    def of(self, frame: FrameType | None) -> str:
        """Give the line of the innermost of the user's frames from ``frame`` outwards; "" where there is none."""
        library: FrameType | None = None
        while frame is not None:
            code = frame.f_code
            _, source = self._codes.get(id(code)) or self._look_up(code)
            if source.owner == "user":
                return self._text(frame)
            if source.owner == "end":
                break
            if source.owner == "library" and library is None:
                library = frame
            frame = frame.f_back
        return "" if library is None else self._text(library)

    def of_stack(self, stack: Iterable[tuple[str, int, str]]) -> str:
        """Give the same of a stack of files, lines and functions, the innermost first."""
        library = ""
        for file, line, function in stack:
            source = self._source(file)
            if source.owner == "user":
                return code_line(source.name, line, function)
            if source.owner == "end":
                break
            if source.owner == "library" and not library:
                library = code_line(source.name, line, function)
        return library

    def _text(self, frame: FrameType) -> str:
        code, line = frame.f_code, frame.f_lineno
        known = self._texts.get((id(code), line))
        if known is None:
            known = code_line(self._codes[id(code)][1].name, line, code.co_qualname)
            self._texts[(id(code), line)] = known
        return known

    def _look_up(self, code: CodeType) -> tuple[CodeType, _Source]:
        found = self._codes[id(code)] = (code, self._source(code.co_filename))
        return found

    def _source(self, file: str) -> _Source:
        if file not in self._files:
            self._files[file] = self._judge(file)
        return self._files[file]

    def _judge(self, file: str) -> _Source:
        if "ipykernel_" in file or file.startswith("<ipython-input"):
            return _Source("user", _cell_name(file))
        if file.startswith("<"):
            return _Source("framework", "")
        if is_user_file(file):
            folders = [Path(folder).absolute() for folder in sys.path]
            nearest = sorted(folders, key=lambda folder: len(folder.parts), reverse=True)
            return _Source("user", _below(Path(file).absolute(), (self._folder, *nearest)))
        if Path(file).parent == Path(__file__).parent and Path(file).name in _RUNNERS:
            return _Source("end", "")
        name = _library_file(file)
        return _Source("library" if name else "framework", name)
