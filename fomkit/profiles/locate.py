"""Where a profile is: at its path; by name in the folder beside the user, then in those that come with fomkit.

What was made of files before is kept in the user's cache, under the hash of their bytes: profiles after their
strict check, and what is told of their tables. An entry is nouns of `fomkit.core`, tables and numbers, and cannot
run code; one that was cut or edited, or that another fomkit, Python, numpy or pandas wrote, is made again.
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
from fomkit.core.errors import FomkitError, nearest_names
from fomkit.files.csv import MAX_BYTE, check_beside, check_file, note_read, open_file
from fomkit.files.write import write_whole

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Folder = Literal["machine_profiles", "model_profiles", "measurements", "validation", "docs/schema"]
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


def _by_path(name: str, kind: Kind = "", known: Sequence[str] = _YAML) -> str:
    """Say how a file of the working folder is named that may be meant; "" where there is none."""
    endings = ("", *known) if not kind else (f".{kind}{one}" for one in _YAML)
    own = next((f"{name}{one}" for one in endings if name and is_file(Path(f"{name}{one}"))), None)
    return "" if own is None else f"A file of the working folder is named by its path: './{own}'."


_FEW = 5
"""Names that are listed to who gives a path, which are more in `fomkit show`."""


def no_file_of(
    name: str, what: str, known: Sequence[str], stem: str = "", endings: Sequence[str] = _YAML
) -> FomkitError:
    """Say that a path leads to no file, or a name to no profile, with the nearest names.

    All names are listed for a name only, unless they are few: who gives a path looks for a file.
    """
    shown = name if len(name) <= 80 else f"{name[:80]}…"
    path, there = Path(name), list[str]()
    with suppress(OSError, ValueError):  # absent, or a name that the system refuses
        files = {Path(one).stem: one for one in os.listdir(path.parent) if one.endswith(path.suffix)}
        there = [files[one] for one in get_close_matches(path.stem, files, n=3)]
        check_file(path)
        if name and path.is_dir():
            return FomkitError(shown, f"is a folder, not a file. Give a {what} by path or by name.")
    if "/" not in name and not _ENDING.search(name):
        hint = _by_path(name, known=endings) or nearest_names(name, known)
        return FomkitError(shown or "the name", f"no {what} of this name. {hint}")
    nearest = nearest_names(stem or name, known)
    if there:
        nearest = f"In that folder are {', '.join(map(repr, there))}."
    elif len(known) <= _FEW:
        nearest = f"Give the path of a file that is there, or a name. {nearest_names(stem or name, known)}"
    elif not nearest.startswith("The nearest"):
        nearest = "Give the path of a file that is there, or a name; 'fomkit show' lists the names."
    return FomkitError(shown, f"no such file, and no {what} of this name. {nearest}")


def _stem(name: str, endings: Sequence[str]) -> str:
    return next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)


def _missing(name: str, folder: Folder, kind: Kind) -> FomkitError:
    """Say that there is none, with the nearest names as one would write them."""
    endings = _ENDINGS.get(folder, _YAML)
    stem = _stem(name, endings)
    what, suffix = _what(folder), f".{kind}"
    known = [name for name in profile_names(folder) if not name.endswith((".suite", ".campaign"))]
    if kind:
        what, stem = str(kind), stem.removesuffix(suffix)
        known = [name.removesuffix(suffix) for name in profile_names(folder) if name.endswith(suffix)]
    if not kind or "/" in name or _ENDING.search(name):
        return no_file_of(name, what, known, stem, endings)
    hint = _by_path(stem, kind) or nearest_names(stem, known)
    return FomkitError(name, f"no such file, and no {what} of this name. {hint}")


_YET = {".py": "a Python program", ".onnx": "an ONNX graph", ".csv": "a table"}


def check_profile(path: Path, wanted: str) -> None:
    """Refuse a file that has yet to be made a profile of, with the command that makes one."""
    what, verb = _YET.get(path.suffix.lower()), "import" if path.suffix.lower() == ".csv" else "profile"
    if what and not (verb == "import" and wanted.startswith(("table", "file"))) and is_file(path):
        do = f"fomkit makes a profile of it: fomkit {verb} {path} -o {path.name.partition('.')[0]}.yaml"
        raise FomkitError(str(path), f"is {what}, no {wanted}. {do}")


def locate(given: str, folder: Folder, kind: Kind = "") -> Path:
    """Find the file of a profile named by a path or by its name.

    `given`: ``machine_profiles/v100.yaml``, ``v100.yaml`` or ``v100``, which is no file of the working folder:
    these have an ending or begin with a point; of one in a folder of the folder ``candle/p1b1`` or ``p1b1``; of a
    machine its name as far as a hyphen, ``h100`` for ``h100-sxm``, where no
    other has it; `kind`: what the file holds where its name says so: ``lecture`` is ``lecture.suite.yaml`` for a
    suite.
    """
    endings = _ENDINGS.get(folder, _YAML)
    name = given if not kind or given.endswith((*endings, f".{kind}")) else f"{given}.{kind}"
    candidates = [name] if name.endswith(endings) else [name, *(f"{name}{ending}" for ending in endings)]
    # A bare name is never a file that happens to lie here; of names with a folder ours come first.
    is_path = given.startswith((".", "/"))
    here = [Path(one) for one in candidates if is_path or (one == given and _ENDING.search(given))]
    named = [root / one.removeprefix(f"{folder}/") for root in folders(folder) for one in candidates]
    beside = [Path(one) for one in candidates] if "/" in given else []
    for path in (*here, *named, *beside):
        if is_file(path):
            check_profile(path, kind or _what(folder))
            return path
    stem = _stem(name, endings)
    if "/" not in name and (deeper := _deeper(stem, endings, folder)) is not None:
        return deeper
    if stem == given and folder == "machine_profiles" and boards(stem):
        check_one_board(stem)
        return locate(boards(stem)[0], folder)
    check_profile(Path(given), kind or _what(folder))
    raise _missing(given, folder, kind)


def cache_folder() -> Path:
    """Give the folder of what is kept: ``FOMKIT_CACHE``, else ``fomkit`` in the user's cache folder."""
    base = os.environ.get("FOMKIT_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fomkit"


_KEPT = "fomkit/kept/1"
_KEPT_S = 90 * 86_400
"""Age [s] of an entry that goes when another is written; files change, and nobody asks for what they were."""
_SETTLED_NS = 100_000_000
"""What is made of files that changed so shortly before [ns], or since, is not kept: others may have been read."""
_DAMAGE = (OSError, FomkitError, ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)
_NOUNS = ("fomkit.core.machine", "fomkit.core.measurement", "fomkit.core.model")
_NUMBERS, _COLUMNS = ("<f8", "<i4", "<i8"), ("float64", "object", "str")
_PLAIN = (float, str, int, bool, type(None))
_MOST_ENTRIES, _MOST_BYTE = 2000, 1_000_000_000
"""What the cache holds at most, the newest first."""
Value = TypeVar("Value")


@cache
def _maker() -> str:
    """Hash what makes the things kept: this fomkit, by version and the state of its files, and what it runs on."""
    import numpy as np
    import pandas as pd

    package = Path(fomkit.__file__).parent
    rooms = (room for room, _, _ in os.walk(package) if "shipped" not in Path(room).parts[-2:])
    files = (one for room in rooms for one in os.scandir(room) if one.name.endswith((".py", ".csv")))
    state = sorted((one.path, one.stat().st_size, one.stat().st_mtime_ns) for one in files)
    makers = (_KEPT, fomkit.__version__, sys.version, sys.byteorder, np.__version__, pd.__version__, state)
    return hashlib.sha256(repr(makers).encode()).hexdigest()


def _packed(value: Any, parts: list[bytes]) -> Any:
    """Put a value in the form of JSON, columns of numbers among ``parts``; TypeError where it has no such form."""
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
    """Make a table of its numbers, column by column, and of its texts, each an array."""
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
    return (found.astype(named) if named else found).copy()  # in few blocks, as tables are made


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


def _kept_as(what: str, key: str) -> Path:
    return cache_folder() / f"{what}-{key[:32]}.kept"


def _read_kept(what: str, key: str) -> tuple[Any, ...]:
    """Give what is kept, as the only item; nothing where there is none, or none to be believed."""
    with suppress(*_DAMAGE):
        seal, _, whole = _bytes_up_to_cap(_kept_as(what, key)).partition(b"\n")
        if hashlib.sha256(whole).hexdigest().encode() == seal:
            head, _, content = whole.partition(b"\n")
            found = json.loads(head)
            if found["maker"] == _maker() and found["key"] == key:
                return (_restored(found["value"], content),)
    return ()


def _keep(what: str, key: str, value: object) -> None:
    """Keep a value; a cache that cannot be written to costs the time of making it again and nothing else."""
    parts = list[bytes]()
    with suppress(OSError, FomkitError, TypeError, RuntimeError):
        path = _kept_as(what, key)
        head = json.dumps({"maker": _maker(), "key": key, "value": _packed(value, parts)})
        whole = b"".join((head.encode(), b"\n", *parts))
        sealed = hashlib.sha256(whole).hexdigest().encode() + b"\n" + whole
        if len(sealed) <= MAX_BYTE:  # more is never read
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, sealed)
            _clear(path.parent)


@cache
def _clear(folder: Path) -> None:
    """Remove entries that are old, or beyond what the cache holds, once in a process."""
    found = []
    for one in folder.glob("*.kept*"):
        with suppress(OSError):  # another process may be clearing too
            found.append((one.stat().st_mtime, one.stat().st_size, one))
    total = 0
    for number, (changed, byte, one) in enumerate(sorted(found, reverse=True)):
        total += byte
        if changed < time.time() - _KEPT_S or number >= _MOST_ENTRIES or total > _MOST_BYTE:
            with suppress(OSError):
                one.unlink()


def kept(what: str, key: str, make: Callable[[], Value], again: Callable[[], str] | None = None) -> Value:
    """Give what was made of things of this key before, or make it now; "" is no key.

    `again`: gives the key once more; what was made of things that changed meanwhile is not kept.
    """
    if not key:
        return make()
    for found in _read_kept(what, key):
        return cast(Value, found)
    value = make()
    if again is None or again() == key:
        _keep(what, key, value)
    return value


def file_key(paths: Iterable[Path]) -> str:
    """Hash the bytes of files, of which some may be absent; "" where one cannot be read or is too large."""
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


def kept_profile(
    what: str, paths: Sequence[Path], make: Callable[[], tuple[Value, Iterable[str]]]
) -> tuple[Value, str]:
    """Give what was made of a profile's files before, or make it now; with the key of all their bytes.

    `paths`: the profile, and files that are read wherever they are; `make`: gives the value and the names of the
    other files in the profile's folder that it is made of.
    """
    start, key = time.time_ns(), file_key(paths)
    folder = paths[0].parent
    note_read(*paths)
    for value, names, known in _read_kept(what, key) if key else ():
        for name in names:
            check_beside(folder / name, paths[0])
        if known and file_key((*paths, *(folder / name for name in names))) == known:
            note_read(*(folder / name for name in names))
            return cast(Value, value), known
    value, read = make()
    names = list(read)
    files = [*paths, *(folder / name for name in names)]
    whole = file_key(files)
    if not (key and whole) or any(one.stat().st_ctime_ns > start - _SETTLED_NS for one in files if one.exists()):
        return value, ""
    _keep(what, key, (value, names, whole))
    return value, whole
