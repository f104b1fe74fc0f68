"""Protocol buffers without their classes: the fields of a message, read where they stand in a file.

Wire format: https://protobuf.dev/programming-guides/encoding/. Nothing is copied and no length is believed that
the message around it does not have room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from mmap import mmap

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_WIDTH = {FIXED64: 8, FIXED32: 4}
Source = bytes | mmap
Field = tuple[int, int, int]
"""Number of a field, and for a varint its value and 0, for all else the start and end of its bytes."""


class WireError(ValueError):
    """What is wrong with a message, as the end of a sentence about the file."""


def read_varint(source: Source, at: int, end: int) -> tuple[int, int]:
    r"""Read a number of up to ten bytes, seven bits each, the lowest first.

    Returns
    -------
    tuple of int
        The number without sign, and where the next field starts.

    Examples
    --------
    >>> read_varint(b"\x96\x01", 0, 2)
    (150, 2)
    """
    value = shift = 0
    for place in range(at, min(end, at + 10)):
        byte = source[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place + 1
        shift += 7
    raise WireError("is cut off" if end - at < 10 else "is damaged: a number has more than ten bytes")


def signed(value: int) -> int:
    """Give a number of 64 bits its sign.

    Examples
    --------
    >>> signed(2**64 - 5)
    -5
    """
    return value - (1 << 64) if value >> 63 else value


def fields(source: Source, start: int, end: int, wanted: Mapping[int, int]) -> Iterator[Field]:
    """Give the fields of a message that are wanted, in the order of the file; others are passed over.

    Parameters
    ----------
    source : bytes or mmap
    start, end : int
        Where the message stands.
    wanted : mapping
        Number of each field and its kind on the wire: VARINT, FIXED64, LENGTH or FIXED32.

    Raises
    ------
    WireError
        When a field reaches beyond the message, or has another kind than it must have.
    """
    at = start
    while at < end:
        key, at = read_varint(source, at, end)
        number, kind = key >> 3, key & 7
        if wanted.get(number, kind) != kind or not number:
            raise WireError(f"is damaged: field {number} is of another kind ({kind}) than it must be")
        value, after = 0, at
        if kind == VARINT:
            value, after = read_varint(source, at, end)
        elif kind == LENGTH:
            length, at = read_varint(source, at, end)
            after = at + length
        elif kind in _WIDTH:
            after = at + _WIDTH[kind]
        else:
            raise WireError(f"is damaged: field {number} is of a kind that is not used ({kind})")
        if after > end:
            raise WireError("is cut off, or damaged: a field is longer than what is around it")
        if number in wanted:
            yield (number, value, 0) if kind == VARINT else (number, at, after)
        at = after
