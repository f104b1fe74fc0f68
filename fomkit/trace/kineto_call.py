"""Calls as a trace tells them, in the words of the rules: arguments get their names from the table of schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from fomkit.dtypes import ITEM_BYTE
from fomkit.trace.calls import Array, Call
from fomkit.trace.kineto_events import Signature

DTYPES: Mapping[str, str] = {
    "float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16", "long int": "int64",
    "long": "int64", "__int64": "int64", "long long": "int64", "int": "int32", "short int": "int16",
    "short": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8", "c10::Float8_e4m3fnuz": "fp8", "c10::Float8_e5m2fnuz": "fp8",
}  # fmt: skip
"""Names of number formats as C++ compilers write them."""
LISTS = ("TensorList", "GenericList")
MAX_LENGTH = 1e15


class CallError(ValueError):
    """Why a call cannot be told from the trace."""


class Schema(NamedTuple):
    """One spelling of an op: its arguments with their kind (tensor, list or "") and those written in place."""

    arguments: tuple[tuple[str, str], ...]
    written: tuple[str, ...]


@cache
def schemas() -> tuple[Mapping[str, str], Mapping[str, list[Schema]]]:
    """Read the table of schemas: the state of each op's name, and the spellings of those that are priced."""
    states: dict[str, str] = {}
    spellings: dict[str, list[Schema]] = {}
    lines = Path(__file__).with_name("aten_schemas.csv").read_text(encoding="utf-8").splitlines()
    for line in lines[1:]:
        name, state, arguments, written = line.split(",")
        states[name] = "priced" if "priced" in (state, states.get(name)) else state
        if state == "priced":
            parts = [argument.partition(":") for argument in arguments.split()]
            named = tuple((argument, kind) for argument, _, kind in parts)
            spellings.setdefault(name, []).append(Schema(named, tuple(written.split())))
    return states, spellings


def _lengths(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one <= MAX_LENGTH for one in value):
        raise CallError("its dims are no whole numbers")
    if len(value) > 64 or prod(value) > MAX_LENGTH:
        raise CallError("its dims are beyond all bounds")
    return tuple(value)


def packed(shape: Sequence[int]) -> tuple[int, ...]:
    """Give the strides of a tensor without gaps, row by row."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def make_array(shape: Sequence[int], dtype: str, storage: int, stride: Any = None) -> Array:
    """Describe a tensor; without usable strides it stands row by row."""
    whole = isinstance(stride, list) and len(stride) == len(shape)
    steps = tuple(stride) if whole and all(type(one) is int for one in stride) else packed(shape)
    return Array(tuple(shape), steps, dtype, int(ITEM_BYTE[dtype]), storage)


def parse_value(text: Any) -> Any:
    """Read an argument that is no tensor, as the profiler writes it.

    Examples
    --------
    >>> parse_value("[1, -2]"), parse_value("True"), parse_value("0.5"), parse_value("")
    ([1, -2], True, 0.5, None)
    """
    if not isinstance(text, str) or not text.strip():
        return None
    text = text.strip()
    if text[0] == "[":
        return [parse_value(part) for part in text.strip("[]").split(",") if part.strip()]
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text) if any(letter in text for letter in ".enf") else int(text)
    except ValueError:
        return text


class _Given:
    """The arguments of a signature by position."""

    def __init__(self, signature: Signature, usual: str) -> None:
        dims, types, strides, values = signature
        if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
            raise CallError("its dims or types are not in the trace")
        self.dims, self.types, self._usual = dims, types, usual
        self._strides = strides if isinstance(strides, list) and len(strides) == len(dims) else [None] * len(dims)
        self._values = values if isinstance(values, list) and len(values) == len(dims) else [None] * len(dims)

    def kind(self, place: int) -> str:
        """Give what an argument is: tensor, list or ""."""
        word = self.types[place]
        if isinstance(word, list):
            return "list"
        if not isinstance(word, str):
            return ""
        return "list" if word in LISTS else "tensor" if word in DTYPES else ""

    def argument(self, place: int, kind: str) -> Any:
        """Give an argument in the rules' words."""
        word, dims, stride = self.types[place], self.dims[place], self._strides[place]
        if kind == "tensor":
            if isinstance(word, str) and word in DTYPES:
                return make_array(_lengths(dims), DTYPES[word], place, stride)
            if word and word not in ("Scalar", "ScalarList"):
                raise CallError(f"its number format {str(word)[:40]!r} is not known")
            return None
        if kind == "list" and isinstance(dims, list) and self.kind(place) == "list":
            steps = stride if isinstance(stride, list) and len(stride) == len(dims) else [None] * len(dims)
            words = word if isinstance(word, list) and len(word) == len(dims) else [""] * len(dims)
            return tuple(
                make_array(_lengths(one), DTYPES.get(str(each), self._usual), 1000 * (place + 1) + number, step)
                for number, (one, step, each) in enumerate(zip(dims, steps, words, strict=True))
            )
        return parse_value(self._values[place])


def _fits(schema: Schema, given: _Given) -> bool:
    """Tell whether arguments are those of a spelling, or of it with a tensor for the result behind them."""
    more = len(given.dims) - len(schema.arguments)
    if more not in (0, 1) or (more == 1 and given.kind(-1) != "tensor"):
        return False
    for place, (_, kind) in enumerate(schema.arguments):
        found = given.kind(place)
        if found != kind and given.types[place]:
            return False
    return True


def describe(name: str, signature: Signature, usual: str) -> tuple[Call, Schema]:
    """Put a call into the rules' words; its results are those written in place.

    Parameters
    ----------
    name : str
        The op's without its library.
    signature : Signature
    usual : str
        Number format of lists of tensors, which the trace does not tell.

    Raises
    ------
    CallError
        When the trace does not say enough.
    """
    given = _Given(signature, usual)
    fitting = [schema for schema in schemas()[1].get(name, ()) if _fits(schema, given)]
    if not fitting:
        raise CallError("its arguments are none that are known")
    schema = min(fitting, key=lambda one: len(given.dims) - len(one.arguments))
    arguments = {argument: given.argument(place, kind) for place, (argument, kind) in enumerate(schema.arguments)}
    results = tuple(value for one in schema.written if isinstance(value := arguments.get(one), Array))
    if len(given.dims) > len(schema.arguments):
        results = (given.argument(len(given.dims) - 1, "tensor"),)
    return Call(f"aten::{name}", arguments, results), schema


def loose(signature: Signature, usual: str) -> list[Any]:
    """Give the arguments of a call whose spelling nobody keeps, by position.

    Raises
    ------
    CallError
        When the trace does not say enough.
    """
    given = _Given(signature, usual)
    return [given.argument(place, given.kind(place)) for place in range(len(given.dims))]
