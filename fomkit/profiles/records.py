"""The door between files and records: pydantic checks a document once, and all its mistakes are told together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from fomkit.errors import FomkitError, ManyFomkitError, nearest_names
from fomkit.profiles.strict_yaml import Document
from fomkit.quantities import parse_money_rate, parse_quantity

_FIELD = "FIELD"
_EXPECTED = {
    "string_type": "text; quote what looks like a number",
    "list_type": "a list, for example [a, b]",
    "dict_type": "a mapping, for example {a: b}",
    "model_type": "a mapping, for example {a: b}",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
}
"""What pydantic misses, in words of the file, by the name of its error."""
_SHOWN = 60


class Record(BaseModel):
    """A part of a file: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=True)


RecordType = TypeVar("RecordType", bound=Record)
Value = TypeVar("Value")


def _told(value: object, parse: Callable[[object], Value]) -> Value:
    """Read text at the door, its mistake told as pydantic tells its own."""
    try:
        return parse(value)
    except FomkitError as error:
        raise PydanticCustomError("quantity", "{what}", {"what": error.what}) from error


def _quantity(value: object, dimension: str) -> float:
    return _told(value, lambda text: parse_quantity(text, dimension, "", _FIELD))


def _money_rate(value: object) -> tuple[float, str]:
    return _told(value, lambda text: parse_money_rate(text, "", _FIELD))


def wrong_together(what: str) -> PydanticCustomError:
    """Make the mistake of a record whose fields do not go together; ``FIELD`` in the text becomes its place."""
    return PydanticCustomError("quantity", "{what}", {"what": what})


FlopRate = Annotated[float, BeforeValidator(partial(_quantity, dimension="flop_per_s"))]
ByteRate = Annotated[float, BeforeValidator(partial(_quantity, dimension="byte_per_s"))]
Byte = Annotated[float, BeforeValidator(partial(_quantity, dimension="byte"))]
Time = Annotated[float, BeforeValidator(partial(_quantity, dimension="time_s"))]
Share = Annotated[float, BeforeValidator(partial(_quantity, dimension="share"))]
Joule = Annotated[float, BeforeValidator(partial(_quantity, dimension="energy_j"))]
Power = Annotated[float, BeforeValidator(partial(_quantity, dimension="power_w"))]
PerFlop = Annotated[float, BeforeValidator(partial(_quantity, dimension="joule_per_flop"))]
PerByte = Annotated[float, BeforeValidator(partial(_quantity, dimension="joule_per_byte"))]
Length = Annotated[float, BeforeValidator(partial(_quantity, dimension="length_m"))]
MoneyRate = Annotated[tuple[float, str], BeforeValidator(_money_rate)]


def _dotted(keys: tuple[str | int, ...]) -> str:
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.lstrip(".")


def _siblings(record: type[BaseModel], keys: tuple[str | int, ...]) -> list[str]:
    """Names that were allowed where an unknown key stands."""
    current: Any = record
    for key in keys[:-1]:
        if isinstance(key, str) and isinstance(current, type) and issubclass(current, BaseModel):
            current = current.model_fields[key].annotation
        arguments = [part for part in getattr(current, "__args__", ()) if part is not type(None)]
        current = arguments[0] if arguments else current
    if not (isinstance(current, type) and issubclass(current, BaseModel)):
        return []
    return [info.alias or name for name, info in current.model_fields.items()]


def _message(error: Any, record: type[BaseModel]) -> str:
    keys, kind = error["loc"], error["type"]
    name = _dotted(keys)
    if kind == "quantity":
        return str(error["msg"]).replace(_FIELD, name)
    if kind == "missing":
        return f"{name} is missing. Add it."
    if kind == "extra_forbidden":
        return f"{name} is not a known key. {nearest_names(str(keys[-1]), _siblings(record, keys))}"
    said = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ").rstrip(".")
    value = "empty" if error["input"] is None else repr(error["input"])
    value = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return f"{name} is {value}. Expected: {_EXPECTED.get(kind, said)}."


def check_record(document: Document, record: type[RecordType]) -> RecordType:
    """Turn a document into a record.

    Raises
    ------
    ManyFomkitError
        With every mistake, each with its file and line.
    """
    try:
        return record.model_validate(document.content)
    except ValidationError as error:
        raise ManyFomkitError(
            FomkitError(document.where(tuple(one["loc"])), _message(one, record)) for one in error.errors()
        ) from error


def check_schema(document: Document, schema: str) -> None:
    """Raise unless the file says that it is of this schema.

    Raises
    ------
    FomkitError
        When it says nothing, or another schema.
    """
    found = document.content.get("schema")
    if found == schema:
        return
    what = "has no schema line" if found is None else f"schema is {found!r}"
    raise FomkitError(document.where(("schema",)), f"{what}. Expected: 'schema: {schema}'.")
