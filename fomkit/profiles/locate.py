"""Where a profile is: a path first, then the folder beside the user, then the ones that come with fomkit."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import fomkit
from fomkit.errors import FomkitError, nearest_names

Folder = Literal["machine_profiles", "model_profiles", "validation"]


def shipped_folder(folder: Folder) -> Path:
    """Give the folder of profiles that came with this installation (or lies beside a checkout)."""
    package = Path(fomkit.__file__).parent
    installed = package / "shipped" / folder
    return installed if installed.is_dir() else package.parent / folder


def folders(folder: Folder) -> list[Path]:
    """Give the folders to search, nearest first, each once."""
    beside, shipped = Path(folder), shipped_folder(folder)
    return [beside, shipped] if beside.is_dir() and not beside.samefile(shipped) else [shipped]


def profile_names(folder: Folder) -> list[str]:
    """Name every YAML file in the folders, without its ending."""
    found = {
        str(path.relative_to(root).with_suffix("")) for root in folders(folder) for path in root.rglob("*.yaml")
    }
    return sorted(found)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False  # a name that is too long, or holds a zero character, is no file


def locate(name: str, folder: Folder) -> Path:
    """Find the file of a profile named by a path or by its name.

    Parameters
    ----------
    name : str
        ``machine_profiles/v100.yaml``, ``v100.yaml`` or ``v100``.
    folder : str

    Raises
    ------
    FomkitError
        With the nearest names when there is none.
    """
    candidates = [name] if name.endswith((".yaml", ".yml")) else [name, f"{name}.yaml", f"{name}.yml"]
    for root in (Path(), *folders(folder)):
        for candidate in candidates:
            path = root / candidate.removeprefix(f"{folder}/") if root != Path() else Path(candidate)
            if _is_file(path):
                return path
    what = folder.removesuffix("_profiles")
    shown = name if len(name) <= 80 else f"{name[:80]}…"
    raise FomkitError(
        shown or "the name", f"no {what} profile of this name. {nearest_names(name, profile_names(folder))}"
    )
