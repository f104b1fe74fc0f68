"""Write results as JSON, CSV, XLSX, HTML or a timeline, and a sweep's points as files; names always stay text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from fomkit.core.errors import FomkitError, install_hint
from fomkit.core.interval import level_text
from fomkit.core.units import format_number, format_quantity
from fomkit.files.csv import escape_cell
from fomkit.files.op_csv import format_rows
from fomkit.files.write import whole_file, write_whole
from fomkit.output.screen import Entry
from fomkit.output.values import UNFIT, format_coverage, format_interval

if TYPE_CHECKING:
    import pandas as pd


def to_json(content: Entry, stream: TextIO | None = None) -> str:
    """Format content as JSON; NaN and infinity are refused, unknown values are null.

    `stream`: where it is printed; if its encoding lacks characters, all but ASCII are escaped, without a loss.
    """
    lacks = stream is not None and not (stream.encoding or "utf").lower().startswith("utf")
    return json.dumps(content, indent=2, ensure_ascii=lacks, allow_nan=False) + "\n"


def _flat(one: Entry) -> dict[str, object]:
    row: dict[str, object] = {}
    for key, value in one.items():
        if isinstance(value, Mapping):
            row |= {f"{key}.{name}": cell for name, cell in _flat(value).items()}
        else:
            row[key] = "; ".join(str(item) for item in value) if isinstance(value, list) else value
    return row


def _as_table(rows: Sequence[Entry]) -> tuple[list[str], list[list[Any]]]:
    flat = [_flat(row) for row in rows]
    header = _columns(flat)
    return header, [[row.get(key) for key in header] for row in flat]


def _columns(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the columns of flat rows; a key that is unknown in one row and nested in another has leaves only."""
    keys = dict.fromkeys(key for row in rows for key in row)
    unknown = {key for key in keys if all(row.get(key) is None for row in rows)}
    leaves: dict[str, list[str]] = {}
    for key in keys:
        wholes = (whole for whole in accumulate(key.split("."), "{}.{}".format) if whole in unknown)
        leaves.setdefault(next(wholes, key), []).append(key)
    return [leaf for key in keys for leaf in leaves.get(key, ()) if leaf != key or leaves[key] == [key]]


def to_frame(rows: Sequence[Entry]) -> pd.DataFrame:
    """Convert nested rows to a DataFrame with one column for each leaf (``step_s.low``), unknown values missing.

    >>> to_frame([{"op": "mm", "time_s": {"low": 1.0, "high": 3.0}}]).columns.tolist()
    ['op', 'time_s.low', 'time_s.high']
    """
    import pandas as pd

    header, table = _as_table(rows)
    return pd.DataFrame(table, columns=header)


def to_xlsx(rows: list[Entry], title: str) -> bytes:
    """Convert nested rows to a workbook with one column for each leaf (``step_s.low``), unknown values empty.

    Numbers are numbers; text stays text even where a spreadsheet program would read a formula.
    """
    from io import BytesIO

    from openpyxl import Workbook
    from openpyxl.styles import Font

    book = Workbook()
    sheet = book.active or book.create_sheet()
    sheet.title = title
    header, table = _as_table(rows)
    for line in (header, *table):
        sheet.append(line)
    for cell in (cell for line in sheet for cell in line if isinstance(cell.value, str)):
        cell.data_type = "s"
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    sheet.freeze_panes = "A2"
    stream = BytesIO()
    book.save(stream)
    return stream.getvalue()


def to_csv(rows: list[Entry]) -> str:
    """Convert nested rows to CSV with one column for each leaf (``step_s.low``), unknown values empty.

    Text that a spreadsheet program would run as a formula gets a leading apostrophe.
    """

    def cell(value: object) -> str:
        return escape_cell(value) if isinstance(value, str) else "" if value is None else str(value)

    header, table = _as_table(rows)
    return format_rows([escape_cell(key) for key in header], ([cell(value) for value in row] for row in table))


_HEADERS = (
    "model", "machine", "batch", "step", "interval", "units/day", "interval", "bound", "coverage", "excludes",
)  # fmt: skip


def estimates_html(content: Entry) -> str:
    """Format a study as an HTML table with its coverage and exclusions."""
    header, body = "".join(f"<th>{name}</th>" for name in _HEADERS), ""
    for one in content["models"]:
        per_day = one["unit_per_day"]
        rate = "unknown" if per_day is None else format_number(per_day["value"])
        unfit = f" {UNFIT} does not fit the memory" if one["fits"] is False else ""
        row = [
            one["model"], one["target"], one["batch"], format_quantity(one["step_s"]["value"], "time_s"),
            format_interval(one["step_s"], "time_s"), rate + unfit, format_interval(per_day, None), one["bound"],
            format_coverage(one["coverage"]), ", ".join(one["excludes"]),
        ]  # fmt: skip
        body += f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>"
    caption = f"{level_text(content['interval'])} intervals, scope {escape(content['scope'])}"
    return f"<table><caption>{caption}</caption><tr>{header}</tr>{body}</table>"


def timeline_text(content: Entry) -> str:
    """Format trace events in JSON object format; NaN and infinity are refused.

    >>> print(timeline_text({"traceEvents": [{"ph": "M"}, {"ph": "X"}], "displayTimeUnit": "ms"}), end="")
    {"traceEvents": [
    {"ph": "M"},
    {"ph": "X"}
    ],
    "displayTimeUnit": "ms"}
    """
    written = partial(json.dumps, ensure_ascii=False, allow_nan=False)
    events = ",\n".join(map(written, content["traceEvents"]))
    others = {key: value for key, value in content.items() if key != "traceEvents"}
    rest = ",\n".join(f"{written(key)}: {written(value)}" for key, value in others.items())
    return f'{{"traceEvents": [\n{events}\n],\n{rest}}}\n'


def check_ending(where: str, ending: str) -> None:
    """Raise where points cannot be written with this ending; called before the work."""
    if ending not in (".csv", ".parquet"):
        raise FomkitError(where, "has an ending that sweep cannot write. Use .csv, .parquet or .json.")
    if ending == ".parquet" and find_spec("pyarrow") is None:
        run = f"Run: {install_hint('parquet')}, or write .csv."
        raise FomkitError(where, f"needs PyArrow, which is not installed. {run}")


def write_blocks(blocks: Iterable[pd.DataFrame], stream: BinaryIO, ending: str) -> None:
    """Write points as CSV or Parquet by a file's ending: numbers that read back exactly, unknown values empty.

    Blocks are written one at a time (as row groups of Parquet), so that memory does not grow with the points.
    """
    if ending == ".csv":
        for place, block in enumerate(blocks):
            named = block.rename(columns=lambda name: escape_cell(str(name)))
            stream.write(named.to_csv(index=False, header=place == 0, lineterminator="\n").encode("utf-8"))
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    try:
        for block in blocks:
            table = pa.Table.from_pandas(block, preserve_index=False)
            writer = writer or pq.ParquetWriter(stream, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


class KeptStretches:
    """The finished stretches (blocks of points) of a sweep, each stored as a file in a folder beside the output.

    `output`: CSV or Parquet; `key`: a hash of all that determines the points.
    """

    def __init__(self, output: Path, key: str) -> None:
        self._output, self._key = output, key
        self._folder = output.with_name(f"{output.name}.stretches")
        self._note = self._folder / "sweep.txt"
        self.count = 0
        """Number of stretches that are stored."""

    def check_none(self) -> None:
        """Raise where an interrupted run stored stretches, which a new run would delete."""
        if self._note.is_file() and self._path(0).is_file():
            raise FomkitError(
                str(self._folder),
                "has the first points of an interrupted sweep. Continue it with --resume, or start again "
                "with --force.",
            )

    def begin(self, *, resume: bool) -> None:
        """Find the stretches that an earlier run stored, or begin anew."""
        anew = "To start again, give --force instead."
        if resume:
            if not self._note.is_file():
                raise FomkitError("--resume", f"finds no interrupted sweep beside {self._output}. {anew}")
            if self._note.read_bytes() != self._key.encode():
                raise FomkitError(
                    "--resume", f"the sweep begun in {self._folder} has other points, another model or another "
                    f"machine. {anew}"
                )  # fmt: skip
            while self._path(self.count).is_file():
                self.count += 1
            return
        if self._note.is_file():
            self.remove()
        if self._folder.exists():
            raise FomkitError(str(self._folder), "exists and is not the folder of a sweep. Choose another -o.")
        self._folder.mkdir()
        write_whole(self._note, self._key)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}{self._output.suffix}"

    def over(
        self, blocks: Iterable[pd.DataFrame], columns: Sequence[str], stretches: Sequence[tuple[int, int]]
    ) -> Iterator[pd.DataFrame]:
        """Yield the stored stretches of a sweep, then the others, each after it is written."""
        for number in range(self.count):
            start, stop = stretches[number] if number < len(stretches) else (0, -1)
            path = self._path(number)
            found, reason = None, ""
            try:
                found = self._read(path, columns)
            except (ValueError, OSError) as error:
                reason = f" ({error})"
            if found is None or len(found) != stop - start or list(found.columns) != list(columns):
                what = f"is not what the sweep wrote{reason}. To start again, give --force instead of --resume."
                raise FomkitError(str(path), what)
            yield found
        for block in blocks:
            with whole_file(self._path(self.count)) as stream:
                write_blocks([block], stream, self._output.suffix)
            self.count += 1
            yield block

    def _read(self, path: Path, columns: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        found = pd.read_csv(path, dtype=str, keep_default_na=False)
        if list(found.columns) != [escape_cell(name) for name in columns]:
            raise ValueError("other columns")
        cells = {name: found.iloc[:, place].tolist() for place, name in enumerate(columns)}
        # Cells are read as text and parsed by Python, so that each number equals the one that was written.
        fits = {"True": True, "False": False, "": None}
        whole = {"basis": cells.pop("basis"), "fits": [fits[cell] for cell in cells.pop("fits", ())]}
        numbers = {name: [float(cell or "nan") for cell in column] for name, column in cells.items()}
        known = {**numbers, **{name: column for name, column in whole.items() if name in columns}}
        return pd.DataFrame({name: known[name] for name in columns})

    def write(self) -> None:
        """Write the output file from all stretches, then delete them."""
        import pandas as pd

        paths = [self._path(number) for number in range(self.count)]
        with whole_file(self._output) as stream:
            if self._output.suffix == ".parquet":
                write_blocks(map(pd.read_parquet, paths), stream, ".parquet")
            for number, path in enumerate(paths if self._output.suffix == ".csv" else ()):
                with path.open("rb") as part:
                    if number:
                        part.readline()
                    shutil.copyfileobj(part, stream)
        self.remove()

    def remove(self) -> None:
        """Delete the stretches."""
        shutil.rmtree(self._folder)
