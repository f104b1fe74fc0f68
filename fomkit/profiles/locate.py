"""Where a profile is: a path first, then the folder beside the user, then the ones that come with fomkit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

import fomkit
from fomkit.errors import FomkitError, nearest_names

Folder = Literal["machine_profiles", "model_profiles", "measurements", "validation"]
Kind = Literal["", "suite", "campaign"]
_ENDINGS: dict[str, tuple[str, ...]] = {"measurements": (".csv", ".csv.gz")}
_YAML = (".yaml", ".yml")


def shipped_folder(folder: Folder) -> Path:
    """Give the folder of profiles that came with this installation (or lies beside a checkout)."""
    package = Path(fomkit.__file__).parent
    installed = package / "shipped" / folder
    return installed if installed.is_dir() else package.parent / folder


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


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False  # a name that is too long, or holds a zero character, is no file


def _deeper(name: str, endings: tuple[str, ...], folder: Folder) -> Path | None:
    """Find a profile by its own name in a folder of a folder, such as candle/p1b1 by p1b1.

    Raises
    ------
    FomkitError
        When several have the name.
    """
    for root in folders(folder):
        found = [path for ending in endings for path in _nested(root, ending) if path.name == f"{name}{ending}"]
        if len(found) > 1:
            raise FomkitError(name, f"several have this name: {', '.join(map(str, found))}. Give one of these.")
        if found:
            return root / found[0]
    return None


def _missing(name: str, folder: Folder, kind: Kind) -> FomkitError:
    """Say that there is none, with the nearest names as one would write them."""
    endings = _ENDINGS.get(folder, _YAML)
    stem = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)
    what, suffix = f"{folder.removesuffix('_profiles')} profile", f".{kind}"
    known = [one for one in profile_names(folder) if not one.endswith((".suite", ".campaign"))]
    if folder == "measurements":
        what = "table of measurements"
    if kind:
        what, stem = str(kind), stem.removesuffix(suffix)
        known = [one.removesuffix(suffix) for one in profile_names(folder) if one.endswith(suffix)]
    no_file = "no such file, and " if kind or stem != name or "/" in name else ""
    shown = name if len(name) <= 80 else f"{name[:80]}…"
    return FomkitError(shown or "the name", f"{no_file}no {what} of this name. {nearest_names(stem, known)}")


def locate(asked: str, folder: Folder, kind: Kind = "") -> Path:
    """Find the file of a profile named by a path or by its name.

    Parameters
    ----------
    asked : str
        ``machine_profiles/v100.yaml``, ``v100.yaml`` or ``v100``; of one in a folder of the folder ``candle/p1b1``
        or ``p1b1``.
    folder : str
    kind : str
        What the file holds where its name says so: ``lecture`` is ``lecture.suite.yaml`` for a suite.

    Raises
    ------
    FomkitError
        With the nearest names when there is none, with the paths when several have the name.
    """
    endings = _ENDINGS.get(folder, _YAML)
    name = asked if not kind or asked.endswith((*endings, f".{kind}")) else f"{asked}.{kind}"
    candidates = [name] if name.endswith(endings) else [name, *(f"{name}{ending}" for ending in endings)]
    for root in (Path(), *folders(folder)):
        for candidate in candidates:
            path = root / candidate.removeprefix(f"{folder}/") if root != Path() else Path(candidate)
            if _is_file(path):
                return path
    stem = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)
    deeper = None if "/" in name else _deeper(stem, endings, folder)
    if deeper is not None:
        return deeper
    raise _missing(asked, folder, kind)
