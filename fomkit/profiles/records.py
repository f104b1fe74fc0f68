"""Records: pydantic models that check the content of a file and report all its mistakes together.

`check_record` is the main function. ``measured``: conversion of measured steps from and to a model's file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Annotated, Any, Literal, Self, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from fomkit.core.errors import FomkitError, ManyFomkitError, nearest_names
from fomkit.core.measurement import Clock, MeasuredOps, MeasuredRun, Repeated, StepEnergy, StepTimes, Unjoined
from fomkit.core.model import PassGroup
from fomkit.core.transformer import Latent, Transformer
from fomkit.core.units import EXAMPLES, UNITS, exact_quantity, parse_money_rate, parse_quantity, readable_time
from fomkit.files.documents import Document

FIELD = "FIELD"
_EXPECTED = {
    "string_type": "text; quote what looks like a number",
    "list_type": "a list, for example [a, b]",
    "dict_type": "a mapping, for example {a: b}",
    "int_type": "a whole number, without quotes or a unit",
    "int_from_float": "a whole number",
    "float_type": "a number, without quotes or a unit",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "too_short": "at least one entry",
}
"""Messages in words of the file, by the name of pydantic's error."""
_SHOWN = 60


class Record(BaseModel):
    """A part of a file: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


RecordType = TypeVar("RecordType", bound=Record)
Value = TypeVar("Value")
Parsed = TypeVar("Parsed")


def parsed(value: Parsed, parse: Callable[[Parsed], Value]) -> Value:
    """Parse a value while the file is read; errors are converted to pydantic's."""
    try:
        return parse(value)
    except FomkitError as error:
        raise PydanticCustomError("quantity", "{what}", {"what": error.what}) from error


def _quantity(value: object, dimension: str) -> float:
    return parsed(value, lambda text: parse_quantity(text, dimension, "", FIELD))


def _written(dimension: str) -> WithJsonSchema:
    """Return how a quantity is written in a file, for the JSON schema."""
    pattern = rf"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*({'|'.join(sorted(UNITS[dimension]))})\s*$"
    what = f"A number with its unit, such as {EXAMPLES[dimension]}."
    zero = {"type": ["string", "number"], "minimum": 0, "maximum": 0} if dimension == "byte" else {}
    return WithJsonSchema({"title": dimension, "type": "string", "pattern": pattern, "description": what} | zero)


FlopRate = Annotated[float, BeforeValidator(partial(_quantity, dimension="flop_per_s")), _written("flop_per_s")]
ByteRate = Annotated[float, BeforeValidator(partial(_quantity, dimension="byte_per_s")), _written("byte_per_s")]
Byte = Annotated[float, BeforeValidator(partial(_quantity, dimension="byte")), _written("byte")]
Time = Annotated[float, BeforeValidator(partial(_quantity, dimension="time_s")), _written("time_s")]
Share = Annotated[float, BeforeValidator(partial(_quantity, dimension="share")), _written("share")]
Joule = Annotated[float, BeforeValidator(partial(_quantity, dimension="energy_j")), _written("energy_j")]
Power = Annotated[float, BeforeValidator(partial(_quantity, dimension="power_w")), _written("power_w")]
PerFlop = Annotated[
    float, BeforeValidator(partial(_quantity, dimension="joule_per_flop")), _written("joule_per_flop")
]
PerByte = Annotated[
    float, BeforeValidator(partial(_quantity, dimension="joule_per_byte")), _written("joule_per_byte")
]
Length = Annotated[float, BeforeValidator(partial(_quantity, dimension="length_m")), _written("length_m")]
MoneyRate = Annotated[
    tuple[float, str],
    BeforeValidator(lambda value: parsed(value, lambda text: parse_money_rate(text, "", FIELD))),
    WithJsonSchema({"type": "string", "examples": ["4.56 USD/h"]}),
]


class AlsoText:
    """Marks a field that may also be a text, for the JSON schema."""

    def __init__(self, description: str) -> None:
        self.description = description

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "description": self.description}, handler(core)]}


_share_or_number = BeforeValidator(lambda value: _quantity(value, "share") if isinstance(value, str) else value)
Part = Annotated[float, _share_or_number, AlsoText("A share of the whole, such as 95 %.")]


def _siblings(record: type[BaseModel], keys: tuple[str | int, ...]) -> dict[str, FieldInfo]:
    """Return the fields beside a key, by the name that a file has for each."""
    current: Any = record
    for key in keys[:-1]:
        if isinstance(key, str) and isinstance(current, type) and issubclass(current, BaseModel):
            current = current.model_fields[key].annotation
        arguments = [part for part in getattr(current, "__args__", ()) if part is not type(None)]
        current = arguments[0] if arguments else current
    if not (isinstance(current, type) and issubclass(current, BaseModel)):
        return {}
    return {info.alias or name: info for name, info in current.model_fields.items()}


def _message(error: Any, record: type[BaseModel]) -> str:
    keys, kind = error["loc"], error["type"]
    name = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")
    if kind == "quantity":
        return str(error["msg"]).replace(FIELD, name)
    if kind == "missing":
        field = _siblings(record, keys).get(str(keys[-1]))
        allowed = get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()
        return f"{name} is missing. Add it{': ' * bool(allowed)}{' or '.join(allowed)}."
    if kind == "extra_forbidden":
        return f"{name} is not a known key. {nearest_names(str(keys[-1]), _siblings(record, keys))}"
    expected = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ").rstrip(".")
    if kind == "model_type" and (fields := _siblings(record, (*keys, ""))):
        needed = [name for name, info in fields.items() if info.is_required()] or [*fields][:1]
        expected = f"a mapping, {{{', '.join(f'{one}: …' for one in needed)}}}"
    value = "empty" if error["input"] is None else repr(error["input"])
    return f"{name} is {value[:_SHOWN]}{'…' * (len(value) > _SHOWN)}. Expected: {_EXPECTED.get(kind, expected)}."


def check_schema(document: Document, schema: str) -> None:
    """Raise FomkitError unless the file states this schema."""
    found = document.content.get("schema")
    if found != schema:
        what = "has no schema line" if found is None else f"schema is {found!r}"
        raise document.error(("schema",), f"{what}. Expected: 'schema: {schema}'.")


def check_record(document: Document, record: type[RecordType], schema: str) -> RecordType:
    """Convert a document of this schema to a record; raise ManyFomkitError with all its mistakes."""
    check_schema(document, schema)
    try:
        return record.model_validate(document.content)
    except ValidationError as error:
        raise ManyFomkitError(
            FomkitError(document.where(tuple(one["loc"])), _message(one, record)) for one in error.errors()
        ) from error


class RepeatedRecord(Record):
    """The times of one clock."""

    median: Time
    p25: Time
    p75: Time
    low: Time | None = None
    high: Time | None = None
    p10: Time | None = None
    p90: Time | None = None

    @model_validator(mode="after")
    def _ordered(self) -> RepeatedRecord:
        if not 0 < self.p25 <= self.median <= self.p75:
            raise ValueError("p25 ≤ median ≤ p75, all above 0")
        for first, last in (("low", "high"), ("p10", "p90")):
            low, high = getattr(self, first), getattr(self, last)
            if (low is None) is not (high is None):
                raise ValueError(f"{first} and {last}, or neither")
            if low is not None and not low <= self.median <= high:
                raise ValueError(f"{first} ≤ median ≤ {last}")
        return self


class StepTimesRecord(Record):
    """``measured.step``, and ``measured.ops.step``: the time of the step by each clock that was read."""

    repeats: int = Field(ge=1)
    process: RepeatedRecord | None = None
    wall: RepeatedRecord | None = None
    device: RepeatedRecord | None = None


class UnjoinedRecord(Record):
    """One of ``measured.ops.unjoined``."""

    op: str
    pass_name: str = ""
    count: int = Field(ge=1)
    time: Time
    why: str


class MeasuredOpsRecord(Record):
    """``measured.ops``: the profiler's result."""

    profiler: str
    step: StepTimesRecord
    joined: Time
    scaled_by: float = Field(default=1.0, ge=1, strict=False)
    unjoined: list[UnjoinedRecord] = []


class LoadRecord(Record):
    """``measured.load``: processes waiting for the processor, mean of a minute."""

    start: float | None = Field(default=None, ge=0, strict=False)
    end: float | None = Field(default=None, ge=0, strict=False)


class StepEnergyRecord(Record):
    """``measured.energy``: energy of the plain step."""

    step: Joule
    low: Joule
    high: Joule
    scope: Literal["chip", "node", "wall"]
    source: str

    @model_validator(mode="after")
    def _ordered(self) -> StepEnergyRecord:
        if not 0 <= self.low <= self.step <= self.high or not self.step > 0:
            raise ValueError("low ≤ step ≤ high, and a step above 0")
        return self


class MeasuredRecord(Record):
    """``measured``: written by ``fomkit profile --measure step`` or ``ops``."""

    clock: Clock
    device: Literal["cpu", "gpu"]
    processor: str
    threads: int = Field(ge=1)
    sizes: dict[str, int] = {}
    warm_up: int = Field(ge=0)
    step: StepTimesRecord
    ops: MeasuredOpsRecord | None = None
    software: dict[str, str] = {}
    allocator: dict[str, str] = {}
    load: LoadRecord = LoadRecord()
    date: str = ""
    notes: list[str] = []
    precision: Literal["", "bf16"] = ""
    energy: StepEnergyRecord | None = None

    @model_validator(mode="after")
    def _has_its_clock(self) -> MeasuredRecord:
        for step in (self.step, *((self.ops.step,) if self.ops else ())):
            if getattr(step, self.clock) is None:
                raise ValueError(f"every step has its time by the clock {self.clock!r}")
        return self


class ParametersRecord(Record):
    """``parameters``: number of parameters of the network."""

    total: int = Field(ge=0)
    trainable: int | None = Field(default=None, ge=0)


class DataRecord(Record):
    """``data``: the samples of one epoch."""

    train_samples: int | None = Field(default=None, ge=1)
    validation_samples: int | None = Field(default=None, ge=0)
    last_batch: Literal["drop", "keep"] = "drop"


class RunRecord(Record):
    """``run``: one complete training."""

    epochs: int | None = Field(default=None, ge=1)
    devices_per_run: int = Field(default=1, ge=1)


class UnitRecord(Record):
    """``unit``: the unit of work that units/day counts."""

    name: str = "trained model"
    runs: float = Field(default=1.0, gt=0, strict=False)


class LatentRecord(Record):
    """``latent``: the widths of attention over compressed keys and values."""

    query_rank: int = Field(default=0, ge=0)
    rank: int = Field(ge=1)
    plain: int = Field(ge=1)
    rotary: int = Field(ge=1)
    value: int = Field(ge=1)


class TransformerRecord(Record):
    """``transformer``: the sizes from which the ops were computed by rule."""

    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    blocks: int = Field(ge=1)
    seq: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    feed_forward: int = Field(default=0, ge=0)
    attention: Literal["unfused", "fused"] = "unfused"
    experts: int = Field(default=0, ge=0)
    top_k: int = Field(default=1, ge=1)
    capacity_factor: float = Field(default=1.0, gt=0)
    style: Literal["gpt", "llama"] = "gpt"
    kv_heads: int = Field(default=0, ge=0)
    head_dim: int = Field(default=0, ge=0)
    tied: bool = True
    head_norm: int = Field(default=0, ge=0)
    qkv_bias: bool = False
    window: int = Field(default=0, ge=0)
    window_share: float = Field(default=1.0, gt=0, le=1)

    norms: Literal[2, 4] = 2
    shared: int = Field(default=0, ge=0)
    dense_blocks: int = Field(default=0, ge=0)
    dense_feed_forward: int = Field(default=0, ge=0)
    latent: LatentRecord | None = None

    @property
    def sizes(self) -> Transformer:
        """The sizes as a noun."""
        return Transformer(**{**self.model_dump(), "latent": self.latent and Latent(*_values(self.latent))})

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if wrong := self.sizes.fault(self.model_fields_set):
            raise PydanticCustomError("quantity", "{what}", {"what": f"{FIELD}{wrong}"})
        return self


class ModelRecord(Record):
    """A model file."""

    schema_: str = Field(alias="schema")
    name: str
    title: str = ""
    traced_with: dict[str, str] = {}
    parameters: ParametersRecord | None = None
    sizes: dict[str, int] = {}
    data: DataRecord = DataRecord()
    run: RunRecord = RunRecord()
    unit: UnitRecord = UnitRecord()
    optimizer: dict[str, str] = {}
    ops: str
    parts: str | None = None
    layers: str | None = None
    order: str | None = None
    transformer: TransformerRecord | None = None
    learnt_positions: int | None = Field(default=None, ge=1)
    measured: MeasuredRecord | None = None
    unsupported: list[str] = []
    bounded: list[str] = []
    missing: list[str] = []
    excludes: list[str] = []
    derived: list[PassGroup] = []
    notes: list[str] = []


def fields_of(record: Record, noun: type) -> dict[str, Any]:
    """Return the fields of a noun that its record has under the same name, lists as tuples."""
    found = {one.name: getattr(record, one.name) for one in fields(noun) if one.name in type(record).model_fields}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def content_of(noun: object, record: type[Record], **own: Any) -> dict[str, object]:
    """Return a noun as content of its file, in its record's order: ``own`` fields, else those of the same name."""
    content = dict[str, object]()
    for name, info in record.model_fields.items():
        value = own[name] if name in own else getattr(noun, name)
        plain = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
        content[info.alias or name] = plain
    return content


def _values(record: Record) -> list[Any]:
    """Return the values of a record, for a noun with the same fields in the same order, with their units."""
    return [value for _, value in record]


def _step(record: StepTimesRecord) -> StepTimes:
    repeats, *clocks = _values(record)
    return StepTimes(repeats, *(None if one is None else Repeated(*_values(one)) for one in clocks))


def measured_run(record: MeasuredRecord) -> MeasuredRun:
    """Return the measured run of a record."""
    own: dict[str, Any] = {"load_start": record.load.start, "load_end": record.load.end}
    own["step"] = _step(record.step)
    if (seen := record.ops) is not None:
        listed = tuple(Unjoined(*_values(one)) for one in seen.unjoined)
        own["ops"] = MeasuredOps(seen.profiler, _step(seen.step), seen.joined, listed, seen.scaled_by)
    if record.energy is not None:
        own["energy"] = StepEnergy(*_values(record.energy))
    return MeasuredRun(**{**fields_of(record, MeasuredRun), **own})


def known(content: Mapping[str, Value]) -> dict[str, Value]:
    """Return the content without unknown values: None, and empty ones."""
    return {name: value for name, value in content.items() if value not in (None, "", [], {}, ())}


def _repeated_content(times: Repeated | None) -> dict[str, str]:
    if times is None:
        return {}
    values = {name.removesuffix("_s"): value for name, value in vars(times).items()}
    return {name: readable_time(value) for name, value in values.items() if value is not None}


def _step_content(step: StepTimes) -> dict[str, Any]:
    repeats, *clocks = vars(step)
    return known({repeats: step.repeats, **{clock: _repeated_content(getattr(step, clock)) for clock in clocks}})


def _ops_content(ops: MeasuredOps) -> dict[str, Any]:
    listed = [known({**vars(one), "time": readable_time(one.time_s), "time_s": None}) for one in ops.unjoined]
    own = {"joined": readable_time(ops.joined_s), "scaled_by": ops.scaled_by if ops.scaled_by != 1 else None}
    return known(content_of(ops, MeasuredOpsRecord, step=_step_content(ops.step), unjoined=listed, **own))


def measured_block(run: MeasuredRun) -> dict[str, Any]:
    """Return a measured run as content of the file, without unknown fields."""
    energy = None
    if (spent := run.energy) is not None:
        step, low, high = (exact_quantity(one, "energy_j") for one in (spent.value_j, spent.low_j, spent.high_j))
        energy = {"step": step, "low": low, "high": high, "scope": spent.scope, "source": spent.source}
    own = {
        "step": _step_content(run.step),
        "ops": _ops_content(run.ops) if run.ops is not None else None,
        "load": known({"start": run.load_start, "end": run.load_end}),
        "energy": energy,
    }
    return known(content_of(run, MeasuredRecord, **own))
