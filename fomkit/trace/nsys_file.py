"""Reports of Nsight Systems exported to SQLite (``nsys export --type sqlite``): opened without trusting them.

Tables and columns: NVIDIA's *SQLite Export Schema Reference*, schema version 3. The file is a stranger's program
as much as its data: views, virtual tables and computed columns are refused, and only plain reading is allowed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fomkit.errors import FomkitError
from fomkit.tables.opening import check_file, open_file

MAGIC = b"SQLite format 3\0"
SCHEMA = "3"
"""First part of the versions of the export's schema that are read."""
MAX_TEXT = 1_000_000
_VERSION = "META_DATA_EXPORT"
_EXPORT = "Export it anew from its .nsys-rep with a present nsys: nsys export --type sqlite report.nsys-rep"
NEEDED: Mapping[str, tuple[str, ...]] = {
    _VERSION: ("name", "value"),
    "StringIds": ("id", "value"),
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end", "correlationId", "shortName", "demangledName"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId"),
}
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end", "correlationId", "bytes", "copyKind"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("start", "end", "correlationId", "bytes"),
    "NVTX_EVENTS": ("start", "end", "eventType", "text", "textId", "globalTid"),
    "TARGET_INFO_GPU": ("name",),
}
"""Tables that an export has only where it recorded such."""
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
_COMPUTED = re.compile(r"\b(?:generated|as\s*\()", re.IGNORECASE)
_FUNCTION = "coalesce"


def recognise_nsys(path: Path) -> bool:
    """Tell by its first bytes whether a file is an SQLite database; no other format of fomkit's is one."""
    with suppress(OSError, ValueError), open_file(path) as stream:
        return stream.read(len(MAGIC)) == MAGIC
    return False


class Report:
    """An open export.

    Attributes
    ----------
    tables : set of str
        Those of `NEEDED` and `OPTIONAL` that it has.
    """

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self._connection, self._where = connection, where
        self.tables = self._checked()

    def _refused(self, what: str) -> FomkitError:
        return FomkitError(self._where, what)

    def _checked(self) -> set[str]:
        listed = self._connection.execute("SELECT name, type, sql FROM sqlite_master LIMIT 10000").fetchall()
        known = {str(name): (str(kind), str(sql or "")) for name, kind, sql in listed}
        missing = [name for name in NEEDED if name not in known]
        if _VERSION in missing:
            raise self._refused(f"is an SQLite database, and no export of Nsight Systems: it has no {_VERSION}.")
        wanted = {name: columns for name, columns in {**NEEDED, **OPTIONAL}.items() if name in known}
        for name in wanted:
            kind, sql = known[name]
            if kind != "table" or "virtual" in sql.lower()[:20] or _COMPUTED.search(sql):
                raise self._refused(f"is no export of Nsight Systems: its {name} is no plain table.")
        self._connection.set_authorizer(_only_reading)
        self._check_version()
        if missing:
            kernels = "CUPTI_ACTIVITY_KIND_KERNEL" in missing
            record = "Record with CUDA: nsys profile --trace=cuda,nvtx python train.py" if kernels else _EXPORT
            raise self._refused(f"has no table {', '.join(missing)}. {record}.")
        for name, columns in wanted.items():
            if lacking := [one for one in columns if one not in self._columns(name)]:
                raise self._refused(
                    f"its table {name} has no column {', '.join(lacking)}: a schema that fomkit does not know. "
                    f"{_EXPORT}."
                )
        return set(wanted)

    def _columns(self, table: str) -> list[str]:
        return [one[0] for one in self._connection.execute(f'SELECT * FROM "{table}" LIMIT 0').description]  # noqa: S608

    def has(self, table: str, column: str) -> bool:
        """Tell whether a column is there that not every version has."""
        return table in self.tables and column in self._columns(table)

    def _check_version(self) -> None:
        rows = dict(self._connection.execute(f"SELECT name, value FROM {_VERSION} LIMIT 1000").fetchall())  # noqa: S608
        version = str(rows.get("EXPORT_SCHEMA_VERSION", ""))
        if version.partition(".")[0] != SCHEMA:
            told = f"version {version!r:.40}" if version else "no version"
            raise self._refused(f"its export schema has {told}; fomkit knows {SCHEMA}.x. {_EXPORT}.")

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Run a query on the known tables, row by row."""
        yield from self._connection.execute(query)


def _only_reading(action: int, _first: str | None, second: str | None, *_: Any) -> int:
    called = action == sqlite3.SQLITE_FUNCTION and second == _FUNCTION
    return sqlite3.SQLITE_OK if called or action in _ALLOWED else sqlite3.SQLITE_DENY


@contextmanager
def open_report(path: Path) -> Iterator[Report]:
    """Open an export for a block.

    Raises
    ------
    FomkitError
        When it is no database, is still written to, is damaged, or has another schema; also inside the block.
    """
    where = str(path)
    if any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal")):
        raise FomkitError(
            where, "is still being written, or was not closed: a journal lies beside it. Export it anew."
        )
    try:
        check_file(path)
        uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", errors="replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT)
            for setting in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
                connection.execute(f"PRAGMA {setting}")
            yield Report(connection, where)
    except OSError as error:
        raise FomkitError(where, f"cannot be read ({error.strerror}). Check the path.") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a complaint that quotes damaged names is no text
        told = " ".join(getattr(error, "object", str(error).encode()).decode(errors="replace").split())
        raise FomkitError(
            where, f"cannot be read as an SQLite database ({told:.200}). Copy it, or export it, again."
        ) from error
