"""Find the file of a profile, by path or by name in the user's folder, then in the shipped one; cache results.

The user's cache stores checked profiles and results from their tables, under the hash of the files' bytes
(`kept`). An entry consists of nouns of `fomkit.core`, tables and numbers, and cannot run code. One that was
truncated or edited, or was written by another version of fomkit, Python, numpy or pandas, is recomputed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import fomkit
from fomkit.core.errors import FomkitError, letters, names_meant, names_within, nearest_names
from fomkit.files.csv import MAX_BYTE, check_beside, check_file, note_read, open_file
from fomkit.files.write import write_whole

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Folder = Literal["machine_profiles", "model_profiles", "measurements", "validation", "docs/schema"]
Kind = Literal["", "suite", "campaign"]
_PROFILES: tuple[Folder, Folder] = ("machine_profiles", "model_profiles")
_ENDINGS: dict[str, tuple[str, ...]] = {"measurements": (".csv", ".csv.gz")}
_YAML = (".yaml", ".yml")
_ENDING = re.compile(r"\.[A-Za-z]\w*$")


def shipped_folder(folder: Folder) -> Path:
    """Return the folder of profiles that ships with this installation (or is beside a checkout)."""
    package = Path(fomkit.__file__).parent
    installed = package / "shipped" / folder
    return installed if installed.is_dir() else package.parent / folder


def is_shipped(path: Path, folder: Folder) -> bool:
    """Return whether a file is in the folder that ships with this installation, after resolving links.

    A folder of the same name in the working folder does not count.
    """
    return path.resolve().is_relative_to(shipped_folder(folder).resolve())


def folders(folder: Folder) -> list[Path]:
    """Return the distinct folders to search, nearest first."""
    beside, shipped = Path(folder), shipped_folder(folder)
    return [beside, shipped] if beside.is_dir() and not beside.samefile(shipped) else [shipped]


def _nested(root: Path, ending: str) -> list[Path]:
    """Return every file of a folder and its subfolders, as relative paths."""
    return sorted(path.relative_to(root) for path in root.rglob(f"*{ending}"))


def profile_names(folder: Folder, *, as_paths: bool = False) -> list[str]:
    """Return the names of all profiles in the folders, without ending; paths if wanted, or if two have a name."""
    ending = _ENDINGS.get(folder, _YAML)[0]
    found = {path for root in folders(folder) for path in _nested(root, ending)}
    shared = Counter(path.name for path in found)
    by_path = {path for path in found if as_paths or shared[path.name] > 1}
    return sorted((path.as_posix() if path in by_path else path.name).removesuffix(ending) for path in found)


def _deeper(name: str, endings: tuple[str, ...], folder: Folder) -> Path | None:
    """Find a profile in a subfolder by its file name, such as candle/p1b1 by p1b1."""
    for root in folders(folder):
        found = [path for ending in endings for path in _nested(root, ending) if path.name == f"{name}{ending}"]
        if len(found) > 1:
            raise FomkitError(name, f"several have this name: {', '.join(map(str, found))}. Give one of these.")
        if found:
            return root / found[0]
    return None


def boards(name: str) -> list[str]:
    """Return the machines that are boards of the chip of this name, such as h100-sxm for h100, not gtx-1080-ti."""
    is_chip, known = "/" not in name and any(map(str.isdigit, name)), profile_names("machine_profiles")
    return [one for one in known if is_chip and "-" in one and letters(one.partition("-")[0]) == letters(name)]


def check_one_board(name: str) -> None:
    """Raise FomkitError if the name of a chip may mean several boards."""
    if len(found := boards(name)) > 1:
        raise FomkitError(name, f"several machines begin with this name: {', '.join(found)}. Give one of these.")


def _what(folder: Folder) -> str:
    return "table of measurements" if folder == "measurements" else f"{folder.removesuffix('_profiles')} profile"


def _by_path(name: str, kind: Kind = "", known: Sequence[str] = _YAML) -> str:
    """Write how to refer to a file of the working folder that may be meant; "" if there is none."""
    endings = ("", *known) if not kind else (f".{kind}{one}" for one in _YAML)
    own = next((f"{name}{one}" for one in endings if name and os.path.isfile(f"{name}{one}")), None)
    return "" if own is None else f"To use the file in the working folder, give its path: './{own}'."


_OWN = {"model profile": " For a model that is not shipped, give its config.json or its code (docs/frontends.md)."}
"""What to give instead of a name that no profile has."""
_FEW = 5
"""Most names in the message on a path; `fomkit show` lists all."""


def no_file_of(
    name: str, what: str, known: Sequence[str], stem: str = "", endings: Sequence[str] = _YAML
) -> FomkitError:
    """Return the error for a path without a file, or a name without a profile, with the nearest names or few."""
    shown = name if len(name) <= 80 else f"{name[:80]}…"
    path, there = Path(name), list[str]()
    with suppress(OSError, ValueError):  # absent, or a name that the system refuses
        alike = _YAML if path.suffix in _YAML else path.suffix
        files = {Path(one).stem: one for one in os.listdir(path.parent) if one.endswith(alike)}
        there = [files[one] for one in get_close_matches(path.stem, files, n=3)]
        check_file(path)
        if name and path.is_dir():
            return FomkitError(shown, f"is a folder, not a file. Give a {what} by path or by name.")
        if name and path.is_file():
            return FomkitError(
                shown, f"is no {what} by its ending. Give a file that ends in {', '.join(endings)}."
            )
    if "/" not in name and not _ENDING.search(name):
        hint = _by_path(name, known=endings) or nearest_names(name, known, names_within(name, known))
        return FomkitError(shown or "the name", f"no {what} of this name. {hint}{_OWN.get(what, '')}")
    nearest = f"That folder has {', '.join(map(repr, there))}." if there else nearest_names(stem or name, known)
    if not there and len(known) <= _FEW:
        nearest = f"Give the path of an existing file, or a name. {nearest}"
    elif not there and not nearest.startswith("The nearest"):
        nearest = "Give the path of an existing file, or a name; 'fomkit show' lists the names."
    return FomkitError(shown, f"no such file, and no {what} of this name. {nearest}")


def _stem(name: str, endings: Sequence[str]) -> str:
    return next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)


def _missing(name: str, folder: Folder, kind: Kind) -> FomkitError:
    """Return the error for a missing profile, with the nearest names in the form in which they can be given."""
    endings, what, suffix = _ENDINGS.get(folder, _YAML), _what(folder), f".{kind}"
    stem = _stem(name, endings)
    known = [name for name in profile_names(folder) if not name.endswith((".suite", ".campaign"))]
    if kind:
        what, stem = str(kind), stem.removesuffix(suffix)
        known = [name.removesuffix(suffix) for name in profile_names(folder) if name.endswith(suffix)]
    if not kind and (hint := names_meant(stem, known, *map(profile_names, _PROFILES))):
        return FomkitError(name, f"no {what} of this name. {hint}")
    if not kind or "/" in name or _ENDING.search(name) or os.path.isdir(name):
        return no_file_of(name, what, known, stem, endings)
    hint = _by_path(stem, kind) or nearest_names(stem, known)
    return FomkitError(name, f"no such file, and no {what} of this name. {hint}")


_YET = {".py": "a Python program", ".onnx": "an ONNX graph", ".csv": "a table"}


def check_profile(path: Path, wanted: str) -> None:
    """Raise FomkitError for a file that must first be converted to a profile, with the command for it."""
    what, verb = _YET.get(path.suffix.lower()), "import" if path.suffix.lower() == ".csv" else "profile"
    if what and not (verb == "import" and wanted.startswith(("table", "file"))) and os.path.isfile(path):
        do = f"To convert it to a profile: fomkit {verb} {path} -o {path.name.partition('.')[0]}.yaml"
        raise FomkitError(str(path), f"is {what}, not a {wanted}. {do}")


def locate(given: str, folder: Folder, kind: Kind = "") -> Path:
    """Find the file of a profile by path or name.

    `given`: a path, ``machine_profiles/v100.yaml`` or ``v100.yaml``, or a name, ``v100``. A name never means a
    file of the working folder: such a file is given with its ending or with a leading ``./``. A profile in a
    subfolder is ``candle/p1b1`` or ``p1b1``. A machine may be given by its name up to the first hyphen, ``b200``
    for ``b200-sxm``, if that has a digit and is unique; ``RTX 4090`` and ``rtx-4090`` are one name. `kind`:
    content of the file, if its name contains it: ``lecture`` is ``lecture.suite.yaml`` for a suite.
    """
    endings, given = _ENDINGS.get(folder, _YAML), given.replace(os.sep, "/")
    name = given if not kind or given.endswith((*endings, f".{kind}")) else f"{given}.{kind}"
    candidates = [name] if name.endswith(endings) else [name, *(f"{name}{ending}" for ending in endings)]
    # A bare name never means a file of the working folder; names with a folder are first looked up in ours.
    is_path = given.startswith((".", "/"))
    here = [Path(one) for one in candidates if is_path or (one == given and _ENDING.search(given))]
    named = [root / one.removeprefix(f"{folder}/") for root in folders(folder) for one in candidates]
    beside = [Path(one) for one in candidates] if "/" in given else []
    for path in (*here, *named, *beside):
        if os.path.isfile(path):
            check_profile(path, kind or _what(folder))
            return path
    stem = _stem(name, endings)
    if "/" not in name and (deeper := _deeper(stem, endings, folder)) is not None:
        return deeper
    if stem == name and not is_path:  # upper case and signs between letters do not tell names apart
        known = profile_names(folder, as_paths="/" in name)
        same = [one for one in known if letters(one) == letters(name) and one != name]
        if len(same) == 1:
            return locate(same[0], folder, kind)
    if stem == given and folder == "machine_profiles" and boards(stem):
        check_one_board(stem)
        return locate(boards(stem)[0], folder)
    check_profile(Path(given), kind or _what(folder))
    raise _missing(given, folder, kind)


def cache_folder() -> Path:
    """Return the cache folder: ``FOMKIT_CACHE``, else ``fomkit`` in the user's cache folder."""
    base = os.environ.get("FOMKIT_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fomkit"


_KEPT = "fomkit/kept/1"
_KEPT_S = 90 * 86_400
"""Age [s] from which entries are removed when another is written: files change, and old entries are not used."""
_SETTLED_NS = 100_000_000
"""Results from files changed within this time before reading [ns], or since, are not cached: bytes may differ."""
_DAMAGE = (OSError, FomkitError, ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)
_NOUNS = ("fomkit.core.machine", "fomkit.core.measurement", "fomkit.core.model")
_NUMBERS, _COLUMNS = ("<f8", "<i4", "<i8"), ("float64", "object", "str")
_PLAIN = (float, str, int, bool, type(None))
_MOST_ENTRIES, _MOST_BYTE = 2000, 1_000_000_000
"""Most entries and bytes in the cache; the oldest are removed first."""
Value = TypeVar("Value")


@cache
def _maker() -> str:
    """Hash what cached results depend on: files and version of fomkit, its JSON evidence, and its environment."""
    import numpy as np
    import pandas as pd

    package = Path(fomkit.__file__).parent
    rooms = (room for room, _, _ in os.walk(package) if "shipped" not in Path(room).parts[-2:])
    files = (one for room in rooms for one in os.scandir(room) if one.name.endswith((".py", ".csv")))
    evidence = (one for one in os.scandir(shipped_folder("machine_profiles")) if one.name.endswith(".json"))
    state = sorted((one.path, one.stat().st_size, one.stat().st_mtime_ns) for one in (*files, *evidence))
    makers = (_KEPT, fomkit.__version__, sys.version, sys.byteorder, np.__version__, pd.__version__, state)
    return hashlib.sha256(repr(makers).encode()).hexdigest()


def _packed(value: Any, parts: list[bytes]) -> Any:
    """Convert a value to JSON, with arrays appended to ``parts``; raise TypeError if it cannot be converted."""
    import numpy as np
    import pandas as pd

    form: str = type(value).__name__
    of: list[Any] = []
    if type(value) in _PLAIN:
        return value
    if type(value) is dict and all(type(key) is str and key for key in value):
        return {key: _packed(one, parts) for key, one in value.items()}
    if type(value) in (list, tuple):
        of = [one if type(one) in _PLAIN else _packed(one, parts) for one in value]
    elif isinstance(value, np.ndarray) and value.dtype.str in _NUMBERS:
        of = [value.dtype.str, value.shape, sum(map(len, parts))]
        parts.append(value.tobytes() + bytes(-value.nbytes % 8))
    elif isinstance(value, np.ndarray) and value.dtype == object:
        shown = [*map(repr, value.tolist())]
        words = dict(zip(shown, value.tolist(), strict=True))
        places = {text: place for place, text in enumerate(words)}
        codes = np.array([places[text] for text in shown], np.int32)
        form, of = "words", [_packed(list(words.values()), parts), _packed(codes, parts)]
    elif type(value) is pd.DataFrame and value.index.equals(pd.RangeIndex(len(value))):
        kinds = [str(dtype) for dtype in value.dtypes]
        if not set(kinds) <= set(_COLUMNS):
            raise TypeError("a column of another type")
        numbers = value.loc[:, [kind == "float64" for kind in kinds]].to_numpy(np.float64)
        texts = [value.iloc[:, at].to_numpy(object) for at, kind in enumerate(kinds) if kind != "float64"]
        of = [_packed(one, parts) for one in (value.columns.tolist(), kinds, numbers.T, texts)]
    elif type(value).__module__ in _NOUNS:
        form = f"{type(value).__module__}.{form}"
        of = [_packed(getattr(value, name), parts) for name in _fields(type(value))]
    else:
        raise TypeError(form)
    return {"": form, "of": of}


def _table_of(names: list[str], kinds: list[str], numbers: NDArray[np.float64], texts: list[Any]) -> pd.DataFrame:
    """Return a table from its numbers, column by column, and its texts, an array per column."""
    import numpy as np
    import pandas as pd

    by_name = dict(
        zip([name for name, kind in zip(names, kinds, strict=True) if kind != "float64"], texts, strict=True)
    )
    cells = np.empty((len(texts), numbers.shape[1]), object)
    for place, text in enumerate(texts):
        cells[place] = text
    parts = [
        pd.DataFrame(numbers.T.copy(order="F"), columns=[name for name in names if name not in by_name]),
        pd.DataFrame(cells.T, columns=list(by_name), dtype=object),
    ]
    found = pd.concat(parts, axis=1)[names]
    named = {name: kind for name, kind in zip(names, kinds, strict=True) if kind == "str"}
    return (found.astype(named) if named else found).copy()  # in few blocks, like a table that was just read


def _fields(noun: Any) -> Sequence[str]:
    return tuple(noun._fields if hasattr(noun, "_fields") else noun.__dataclass_fields__)


def _restored(value: Any, content: bytes) -> Any:
    """Undo `_packed`."""
    if type(value) is not dict:
        return value
    if "" not in value:
        return {key: _restored(one, content) for key, one in value.items()}
    import numpy as np

    form: str = value[""]
    of = (
        value["of"]
        if form == "ndarray"
        else [_restored(one, content) if type(one) is dict else one for one in value["of"]]
    )
    if form == "ndarray" and of[0] in _NUMBERS:
        dtype, shape, at = of
        return np.frombuffer(content, dtype, math.prod(shape), at).reshape(shape)
    if form == "DataFrame":
        return _table_of(*of)
    if form in ("list", "tuple"):
        return of if form == "list" else tuple(of)
    if form == "words":
        return np.array(of[0], object)[of[1]]
    room, _, name = form.rpartition(".")
    noun = vars(import_module(room))[name] if room in _NOUNS else None
    if not (isinstance(noun, type) and noun.__module__ == room):
        raise ValueError(form)
    return noun(*of)


def _bytes_up_to_cap(path: Path) -> bytes:
    with open_file(path) as stream:
        return stream.read(MAX_BYTE + 1)


def _cache_path(what: str, key: str) -> Path:
    return cache_folder() / f"{what}-{key[:32]}.kept"


def _read_cached(what: str, key: str) -> tuple[Any, ...]:
    """Return the cached value in a tuple; empty if there is none or it is invalid."""
    with suppress(*_DAMAGE):
        seal, _, whole = _bytes_up_to_cap(_cache_path(what, key)).partition(b"\n")
        if hashlib.sha256(whole).hexdigest().encode() == seal:
            head, _, content = whole.partition(b"\n")
            found = json.loads(head)
            if found["maker"] == _maker() and found["key"] == key:
                return (_restored(found["value"], content),)
    return ()


def _write_cached(what: str, key: str, value: object) -> None:
    """Write a value to the cache; if that fails, the only cost is recomputing it later."""
    parts = list[bytes]()
    with suppress(OSError, FomkitError, TypeError, RuntimeError):
        path = _cache_path(what, key)
        head = json.dumps({"maker": _maker(), "key": key, "value": _packed(value, parts)})
        whole = b"".join((head.encode(), b"\n", *parts))
        sealed = hashlib.sha256(whole).hexdigest().encode() + b"\n" + whole
        if len(sealed) <= MAX_BYTE:  # larger files are never read
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, sealed)
            _clear(path.parent)


@cache
def _clear(folder: Path) -> None:
    """Remove entries that are old or exceed the limits of the cache, once per process."""
    found = []
    for one in folder.glob("*.kept*"):
        with suppress(OSError):  # another process may remove entries too
            found.append((one.stat().st_mtime, one.stat().st_size, one))
    total = 0
    for number, (changed, byte, one) in enumerate(sorted(found, reverse=True)):
        total += byte
        if changed < time.time() - _KEPT_S or number >= _MOST_ENTRIES or total > _MOST_BYTE:
            with suppress(OSError):
                one.unlink()


def user_cached(what: str, key: str, make: Callable[[], Value], again: Callable[[], str] | None = None) -> Value:
    """Return the cached result of this key, or compute it; "" means no key.

    `again`: recomputes the key; a result from data that changed meanwhile is not cached.
    """
    if not key:
        return make()
    for found in _read_cached(what, key):
        return cast(Value, found)
    value = make()
    if again is None or again() == key:
        _write_cached(what, key, value)
    return value


def file_key(paths: Iterable[Path]) -> str:
    """Hash the bytes of files, some of which may be absent; "" if one cannot be read or is too large."""
    digest = hashlib.sha256()
    for path in paths:
        content = b""
        try:
            content = _bytes_up_to_cap(path)
            digest.update(f"{len(content)} ".encode() + content)
        except FileNotFoundError:
            digest.update(b"absent ")
        except (OSError, ValueError, FomkitError):
            return ""
        if len(content) > MAX_BYTE:
            return ""
    return digest.hexdigest()


def user_cached_profile(
    what: str, paths: Sequence[Path], make: Callable[[], tuple[Value, Iterable[str]]]
) -> tuple[Value, str]:
    """Return the cached result of a profile's files, or compute it; also return the key of all their bytes.

    `paths`: the profile, and files that are read wherever they are; `make`: returns the value and the names of the
    other files in the profile's folder that it depends on.
    """
    start, key = time.time_ns(), file_key(paths)
    folder = paths[0].parent
    note_read(*paths)
    for value, names, known in _read_cached(what, key) if key else ():
        for name in names:
            check_beside(folder / name, paths[0])
        if known and file_key((*paths, *(folder / name for name in names))) == known:
            note_read(*(folder / name for name in names))
            return cast(Value, value), known
    value, read = make()
    names = list(read)
    files = [*paths, *(folder / name for name in names)]
    whole = file_key(files)
    # On Windows st_ctime is the time of creation.
    states = [one.stat() for one in files if one.exists()]
    if not (key and whole) or any(max(one.st_ctime_ns, one.st_mtime_ns) > start - _SETTLED_NS for one in states):
        return value, ""
    _write_cached(what, key, (value, names, whole))
    return value, whole
