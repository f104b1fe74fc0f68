"""Where a profile is: a path first, then the folder beside the user, then the ones that come with fomkit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import fomkit
from fomkit.core.errors import FomkitError, nearest_names
from fomkit.files.csv import check_file

Folder = Literal["machine_profiles", "model_profiles", "measurements", "validation"]
Kind = Literal["", "suite", "campaign"]
_ENDINGS: dict[str, tuple[str, ...]] = {"measurements": (".csv", ".csv.gz")}
_YAML = (".yaml", ".yml")
_ENDING = re.compile(r"\.[A-Za-z]\w*$")


def shipped_folder(folder: Folder) -> Path:
    """Give the folder of profiles that came with this installation (or lies beside a checkout)."""
    package = Path(fomkit.__file__).parent
    installed = package / "shipped" / folder
    return installed if installed.is_dir() else package.parent / folder


def is_shipped(path: Path, folder: Folder) -> bool:
    """Tell whether a file lies in the folder that came with this installation, whatever its own folder is called.

    A folder beside the user of the same name is not it, and a link leads to where its file really lies.
    """
    return path.resolve().is_relative_to(shipped_folder(folder).resolve())


def folders(folder: Folder) -> list[Path]:
    """Give the folders to search, nearest first, each once."""
    beside, shipped = Path(folder), shipped_folder(folder)
    return [beside, shipped] if beside.is_dir() and not beside.samefile(shipped) else [shipped]


def _nested(root: Path, ending: str) -> list[Path]:
    """Give every file of a folder and those in it, as paths from there."""
    return sorted(path.relative_to(root) for path in root.rglob(f"*{ending}"))


def profile_names(folder: Folder) -> list[str]:
    """Name every profile in the folders, without its ending; by its path where two share a name."""
    ending = _ENDINGS.get(folder, _YAML)[0]
    found = {path for root in folders(folder) for path in _nested(root, ending)}
    shared = Counter(path.name for path in found)
    return sorted(str(path if shared[path.name] > 1 else path.name).removesuffix(ending) for path in found)


def is_file(path: Path) -> bool:
    """Tell whether there is such a file; a path that the system refuses is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False  # a name that is too long, or holds a zero character, is no file


def _deeper(name: str, endings: tuple[str, ...], folder: Folder) -> Path | None:
    """Find a profile by its own name in a folder of a folder, such as candle/p1b1 by p1b1."""
    for root in folders(folder):
        found = [path for ending in endings for path in _nested(root, ending) if path.name == f"{name}{ending}"]
        if len(found) > 1:
            raise FomkitError(name, f"several have this name: {', '.join(map(str, found))}. Give one of these.")
        if found:
            return root / found[0]
    return None


def boards(name: str) -> list[str]:
    """Name the machines that are boards of the chip of this name, such as h100-sxm of h100."""
    return [one for one in profile_names("machine_profiles") if one.startswith(f"{name}-")]


def check_one_board(name: str) -> None:
    """Raise where the name of a chip may mean several boards."""
    if len(found := boards(name)) > 1:
        raise FomkitError(name, f"several machines begin with this name: {', '.join(found)}. Give one of these.")


def _what(folder: Folder) -> str:
    return "table of measurements" if folder == "measurements" else f"{folder.removesuffix('_profiles')} profile"


def no_file_of(name: str, what: str, known: Sequence[str], stem: str = "") -> FomkitError:
    """Say that a path leads to no file, or a name to no profile, with the nearest names.

    All names are listed for a name only: who gives a path looks for a file.
    """
    shown = name if len(name) <= 80 else f"{name[:80]}…"
    path = Path(name)
    with suppress(OSError, ValueError):  # absent, or a name that the system refuses
        check_file(path)
        if path.is_dir():
            return FomkitError(shown, f"is a folder, not a file. Give a {what} by path or by name.")
    if "/" not in name and not _ENDING.search(name):
        return FomkitError(shown or "the name", f"no {what} of this name. {nearest_names(name, known)}")
    nearest = nearest_names(stem or name, known)
    if not nearest.startswith("The nearest"):
        nearest = "Give the path of a file that is there, or a name; 'fomkit show' lists the names."
    return FomkitError(shown, f"no such file, and no {what} of this name. {nearest}")


def _missing(name: str, folder: Folder, kind: Kind) -> FomkitError:
    """Say that there is none, with the nearest names as one would write them."""
    endings = _ENDINGS.get(folder, _YAML)
    stem = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)
    what, suffix = _what(folder), f".{kind}"
    known = [name for name in profile_names(folder) if not name.endswith((".suite", ".campaign"))]
    if kind:
        what, stem = str(kind), stem.removesuffix(suffix)
        known = [name.removesuffix(suffix) for name in profile_names(folder) if name.endswith(suffix)]
    if not kind or "/" in name or _ENDING.search(name):
        return no_file_of(name, what, known, stem)
    return FomkitError(name, f"no such file, and no {what} of this name. {nearest_names(stem, known)}")


_TO_PROFILE = {".py": "a Python program", ".onnx": "an ONNX graph"}


def check_profile(path: Path, wanted: str) -> None:
    """Refuse a file that has yet to be made a profile of, with the command that makes one."""
    if (what := _TO_PROFILE.get(path.suffix.lower())) and is_file(path):
        do = f"fomkit makes a model profile of it: fomkit profile {path} -o {path.stem}.yaml"
        raise FomkitError(str(path), f"is {what}, no {wanted}. {do}")


def locate(given: str, folder: Folder, kind: Kind = "") -> Path:
    """Find the file of a profile named by a path or by its name.

    `given`: ``machine_profiles/v100.yaml``, ``v100.yaml`` or ``v100``; of one in a folder of the folder
    ``candle/p1b1`` or ``p1b1``; of a machine its name as far as a hyphen, ``h100`` for ``h100-sxm``, where no
    other has it; `kind`: what the file holds where its name says so: ``lecture`` is ``lecture.suite.yaml`` for a
    suite.
    """
    endings = _ENDINGS.get(folder, _YAML)
    name = given if not kind or given.endswith((*endings, f".{kind}")) else f"{given}.{kind}"
    candidates = [name] if name.endswith(endings) else [name, *(f"{name}{ending}" for ending in endings)]
    for root in (Path(), *folders(folder)):
        for candidate in candidates:
            path = root / candidate.removeprefix(f"{folder}/") if root != Path() else Path(candidate)
            if is_file(path):
                check_profile(path, kind or _what(folder))
                return path
    stem = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)
    deeper = None if "/" in name else _deeper(stem, endings, folder)
    if deeper is None and stem == given and folder == "machine_profiles" and boards(stem):
        check_one_board(stem)
        return locate(boards(stem)[0], folder)
    if deeper is not None:
        return deeper
    check_profile(Path(given), kind or _what(folder))
    raise _missing(given, folder, kind)
