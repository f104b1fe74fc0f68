"""The points of a sweep as CSV or Parquet, and its stretches while it is under way."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fomkit.core.errors import FomkitError, install_hint
from fomkit.files.csv import disarm
from fomkit.files.write import whole_file, write_whole

if TYPE_CHECKING:
    import pandas as pd


ENDINGS = (".csv", ".parquet")


def check_ending(where: str, ending: str) -> None:
    """Raise where points cannot be written so: better before the work than after it.

    Raises FomkitError when the ending is another, or what Parquet needs is not installed.
    """
    if ending not in ENDINGS:
        raise FomkitError(where, "has an ending that sweep cannot write. Use .csv, .parquet or .json.")
    if ending == ".parquet" and find_spec("pyarrow") is None:
        run = f"Run: {install_hint('parquet')}, or write .csv."
        raise FomkitError(where, f"needs PyArrow, which is not installed. {run}")


def _write_csv(blocks: Iterable[pd.DataFrame], stream: BinaryIO) -> None:
    for place, block in enumerate(blocks):
        named = block.rename(columns=lambda name: disarm(str(name)))
        stream.write(named.to_csv(index=False, header=place == 0, lineterminator="\n").encode("utf-8"))


def _write_parquet(blocks: Iterable[pd.DataFrame], stream: BinaryIO) -> None:
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


def write_blocks(blocks: Iterable[pd.DataFrame], stream: BinaryIO, ending: str) -> None:
    """Write points as CSV or Parquet, by a file's ending: numbers that read back exactly, unknown as nothing.

    A stretch at a time (a row group of Parquet), so that memory does not grow with the points.
    """
    (_write_parquet if ending == ".parquet" else _write_csv)(blocks, stream)


_FITS = {"True": True, "False": False, "": None}


class KeptStretches:
    """The stretches of a sweep that were worked out, each a whole file beside the one that they become.

    `output`: CSV or Parquet; `key`: a hash of what decides the points.
    """

    def __init__(self, output: Path, key: str) -> None:
        self._output, self._key = output, key
        self._folder = output.with_name(f"{output.name}.stretches")
        self._note = self._folder / "sweep.txt"
        self.count = 0
        """Stretches that are there."""

    def begin(self, *, resume: bool) -> None:
        """Find what was worked out before, or begin anew.

        Raises FomkitError when there is nothing to go on with, or it is of another sweep.
        """
        anew = "Leave --resume out to begin anew."
        if resume:
            if not self._note.is_file():
                raise FomkitError("--resume", f"finds nothing to go on with beside {self._output}. {anew}")
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
            raise FomkitError(str(self._folder), "is no folder of a sweep, and is in the way. Choose another -o.")
        self._folder.mkdir()
        write_whole(self._note, self._key)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}{self._output.suffix}"

    def over(
        self, blocks: Iterable[pd.DataFrame], columns: Sequence[str], stretches: Sequence[tuple[int, int]]
    ) -> Iterator[pd.DataFrame]:
        """Give the stretches that are there, then the others, each once it is written.

        `columns`, `stretches`: of the sweep. Raises FomkitError when one that is there is not the sweep's.
        """
        for number in range(self.count):
            start, stop = stretches[number] if number < len(stretches) else (0, -1)
            path = self._path(number)
            try:
                found = self._read(path, columns)
            except (ValueError, OSError) as error:
                found, reason = None, f" ({error})"
            else:
                reason = ""
            if found is None or len(found) != stop - start or list(found.columns) != list(columns):
                raise FomkitError(
                    str(path), f"is not what the sweep wrote{reason}. Leave --resume out to begin anew."
                )
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
        if list(found.columns) != [disarm(name) for name in columns]:
            raise ValueError("other columns")
        cells = {name: found.iloc[:, place].tolist() for place, name in enumerate(columns)}
        # Text is read as Python reads it, so that each number is the one that was written.
        whole = {"basis": cells.pop("basis"), "fits": [_FITS[cell] for cell in cells.pop("fits", ())]}
        numbers = {name: [float(cell or "nan") for cell in column] for name, column in cells.items()}
        known = {**numbers, **{name: column for name, column in whole.items() if name in columns}}
        return pd.DataFrame({name: known[name] for name in columns})

    def write(self) -> None:
        """Make the file of all stretches, and take them away."""
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
        """Take the stretches away."""
        shutil.rmtree(self._folder)
