"""The points of a sweep as CSV or Parquet, a stretch at a time: memory does not grow with the points."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, BinaryIO

from fomkit.errors import FomkitError, install_hint
from fomkit.tables.cells import disarm

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".csv", ".parquet")


def check_ending(where: str, ending: str) -> None:
    """Raise where points cannot be written so: better before the work than after it.

    Raises
    ------
    FomkitError
        When the ending is another, or what Parquet needs is not installed.
    """
    if ending not in ENDINGS:
        raise FomkitError(where, "has an ending that sweep cannot write. Use .csv, .parquet or .json.")
    if ending == ".parquet" and find_spec("pyarrow") is None:
        raise FomkitError(
            where, f"needs PyArrow, which is not installed. Run: {install_hint('parquet')}, or write .csv."
        )


def write_csv(blocks: Iterable[pd.DataFrame], stream: BinaryIO) -> None:
    """Write points as CSV, numbers that read back exactly, unknown as an empty cell."""
    for place, block in enumerate(blocks):
        named = block.rename(columns=lambda name: disarm(str(name)))
        text = named.to_csv(index=False, header=place == 0, lineterminator="\n")
        stream.write(text.encode("utf-8"))


def write_parquet(blocks: Iterable[pd.DataFrame], stream: BinaryIO) -> None:
    """Write points as Parquet, a row group for each stretch, unknown as null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    try:
        for block in blocks:
            table = pa.Table.from_pandas(block, preserve_index=False)
            if writer is None:
                writer = pq.ParquetWriter(stream, table.schema)
            writer.write_table(table)
    except BaseException:
        writer = None  # its end would be written to a file that is given up
        raise
    if writer is not None:
        writer.close()


def write_blocks(blocks: Iterable[pd.DataFrame], stream: BinaryIO, ending: str) -> None:
    """Write points in the format of a file's ending, .csv or .parquet."""
    (write_parquet if ending == ".parquet" else write_csv)(blocks, stream)
