"""Facts as files state them: a value, perhaps with bounds, its basis and its source.

Among them are the energy facts (docs/profiles.md, docs/energy.md) and the price (docs/cost.md) of a machine file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.machine import AveragePower, Basis, Energy, EnergyScope, Fact, FlopEnergy, Peak, Price, Scope
from fomkit.core.units import BLOCKS_AS_FP8, BLOCKS_OF_FP8, ITEM_BYTE, MONEY_PER, UNITS, exact_quantity, versioned
from fomkit.files.documents import Document, Keys
from fomkit.profiles.records import FIELD, Byte, Length, MoneyRate, PerByte, PerFlop, Power, Record, known, parsed


def fact_of(record: Any, name: str, *, has_ends: bool = True) -> Fact | None:
    """Return the fact that a record states under a name; None if there is no record, or nothing of that name.

    ``low`` and ``high`` of the record are its bounds if ``has_ends``; the default of each is the value.
    """
    value = getattr(record, name, None)
    if value is None:
        return None
    low, high = (getattr(record, end, None) if has_ends else None for end in ("low", "high"))
    return Fact(value, value if low is None else low, value if high is None else high, record.basis, record.source)


def with_blocks(peaks: tuple[Peak, ...]) -> tuple[Peak, ...]:
    """Return the peaks of a device, and for scaled blocks of fp8 the peak of fp8 if they have none of their own.

    The same engine multiplies, and the program scales the sums (docs/adr/0084). Blocks that the engine itself
    scales (mxfp8, nvfp4) need an engine made for them, so that fp8 says nothing of these.
    """
    stated = {(peak.dtype, peak.engine) for peak in peaks}
    lacking = [peak for peak in peaks if peak.dtype == "fp8" and (BLOCKS_OF_FP8, peak.engine) not in stated]
    return *peaks, *(
        replace(peak, dtype=BLOCKS_OF_FP8, rate=replace(peak.rate, basis="assumed", source=BLOCKS_AS_FP8))
        for peak in lacking
    )


def checked(parse: Callable[[Any], Any]) -> AfterValidator:
    """Return a validator for a value, so that its mistake is reported with all others of the file."""
    return AfterValidator(partial(parsed, parse=parse))


def _above_0(value: float) -> float:
    if value <= 0:
        raise FomkitError("", f"{FIELD} is 0. Write a value above 0, or leave it out if it is unknown.")
    return value


def _number_format(text: str) -> str:
    if text not in ITEM_BYTE:
        raise FomkitError("", f"{FIELD}: {text!r} is not a number format. {nearest_names(text, ITEM_BYTE)}")
    return text


def check_once(document: Document, keys: tuple[str, ...], entries: Sequence[tuple[object, ...]]) -> None:
    """Raise FomkitError if two entries of a list have the same identifying words: either may be right."""
    for index, one in enumerate(entries):
        if (first := entries.index(one)) != index:
            name, of = ".".join(keys), " ".join(str(word) for word in one if word not in ("", None))
            what = f"{name}[{index}] and {name}[{first}] both describe {of}. Keep one of them."
            raise document.error((*keys, index), what)


def _one_word(text: str) -> str:
    if not text or any(letter.isspace() for letter in text):
        example = "-".join(text.split()) or "mine"
        raise FomkitError("", f"the {FIELD} {text!r} is not a single word. Write, for example, {example!r}.")
    return text


SomeByte = Annotated[Byte, checked(_above_0)]
NumberFormat = Annotated[str, checked(_number_format)]
OneWord = Annotated[str, checked(_one_word)]
Versioned = Annotated[str, checked(partial(versioned, name=f"the {FIELD}"))]


class Ended(Record):
    """A figure, above 0 unless it `may_be_0`, and as far as stated the bounds of its interval, low and high."""

    value_at: ClassVar[str]
    may_be_0: ClassVar[bool] = False

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        stated = (getattr(self, name, None) for name in ("low", self.value_at, "high"))
        figures = [figure for figure in stated if figure is not None]
        above = all(figure >= 0 if self.may_be_0 else figure > 0 for figure in figures)
        least = "0 or more" if self.may_be_0 else "above 0"
        wrong = f"{FIELD}.{self.value_at} must be {least} with low ≤ value ≤ high. Correct these."
        if getattr(self, self.value_at) is not None and not (above and figures == sorted(figures)):
            raise PydanticCustomError("quantity", "{what}", {"what": wrong})
        return self


Figure = TypeVar("Figure", bound=float)


class Sourced(Ended, Generic[Figure]):
    """A figure with its source, its basis and, as far as stated, the bounds of its interval."""

    source: str
    basis: Basis = "published"
    low: Figure | None = None
    high: Figure | None = None


class ReserveRecord(Sourced[Byte]):
    """``reserve``: memory of a device that a program holds besides its tensors; 0 is no reserve."""

    value_at = "memory"
    may_be_0 = True
    memory: Byte
    basis: Basis = "measured"


class IdleRecord(Sourced[Power]):
    """``energy.idle``: power while nothing is computed."""

    value_at = "power"
    power: Power
    basis: Basis = "measured"


class PerFlopRecord(Sourced[PerFlop]):
    """``energy.per_flop[…]``: energy of one flop besides idle power; without an engine, of both engines."""

    value_at = "energy"
    dtype: NumberFormat
    energy: PerFlop
    engine: Literal["vector", "matrix"] | None = None
    basis: Basis = "modelled"


class PerByteRecord(Sourced[PerByte]):
    """``energy.per_byte``: energy of one byte of device-memory traffic besides idle power."""

    value_at = "energy"
    energy: PerByte
    basis: Basis = "modelled"


class AverageRecord(Sourced[Power]):
    """``energy.average[…]``: mean power while a workload ran."""

    value_at = "power"
    workload: str
    power: Power
    scope: EnergyScope | None = None
    devices: int | None = Field(default=None, ge=1)
    batch: int | None = Field(default=None, ge=1)
    precision: str = ""
    basis: Basis = "measured"


class LimitRecord(Ended):
    """``energy.limit``: power limit of one chip, its design power; an upper bound, never an average."""

    value_at = "power"
    power: Power
    source: str
    basis: Basis = "published"


class EnergyRecord(Record):
    """``energy``: energy facts of a machine, and what the figures include."""

    scope: EnergyScope
    devices: int | None = Field(default=None, ge=1)
    process: Annotated[Length, checked(_above_0)] | None = None
    idle: IdleRecord | None = None
    per_flop: list[PerFlopRecord] = []
    per_byte: PerByteRecord | None = None
    average: list[AverageRecord] = []
    limit: LimitRecord | None = None


def _devices(document: Document, keys: Keys, scope: EnergyScope, stated: int | None, node: int | None) -> int:
    if scope == "chip":
        if stated not in (None, 1):
            raise document.error((*keys, "devices"), f"a chip is one device, not {stated}. Write node or wall.")
        return 1
    devices = stated if stated is not None else node
    if devices is None:
        raise document.error(
            (*keys, "scope"),
            f"the scope is {scope!r}, but the number of devices that its power covers is not stated. Add "
            "energy.devices or node.devices.",
        )
    return devices


def _check(document: Document, energy: Energy) -> None:
    if not (energy.idle_w or energy.byte_j or energy.limit_w or energy.per_flop or energy.average):
        raise document.error(("energy",), "energy has no value. Add one, for example idle.")
    of_work = "per_byte" if energy.byte_j is not None else "per_flop" if energy.per_flop else ""
    if of_work and energy.process_m is None:
        what = f"energy.{of_work} needs the process node of the chip"
        raise document.error(("energy", of_work), f"{what}. Add, for example, 'process: 12 nm' to energy.")
    idle, limit = energy.idle_w, energy.limit_w
    if energy.scope == "chip" and idle is not None and limit is not None and idle.value > limit.value:
        power = f"the idle power, {idle.value:g} W, is above the chip's limit, {limit.value:g} W"
        raise document.error(("energy", "idle"), f"{power}. Correct one of them.")


def _per_flop(document: Document, records: list[PerFlopRecord]) -> tuple[FlopEnergy, ...]:
    made: dict[tuple[str, str], FlopEnergy] = {}
    for index, one in enumerate(records):
        where, pair = document.where(("energy", "per_flop", index)), (one.dtype, one.engine or "")
        if pair in made:
            raise FomkitError(where, f"energy.per_flop lists {' on '.join(filter(None, pair))} twice. Keep one.")
        if (fact := fact_of(one, "energy")) is not None:
            made[pair] = FlopEnergy(*pair, fact)
    return tuple(made.values())


def energy_of(document: Document, record: EnergyRecord | None, node_devices: int | None) -> Energy | None:
    """Return the energy facts of a machine file; None if it has none."""
    if record is None:
        return None
    average = []
    for index, one in enumerate(record.average):
        fact, scope = fact_of(one, "power"), one.scope or record.scope
        stated = one.devices if one.scope else one.devices or record.devices
        devices = _devices(document, ("energy", "average", index), scope, stated, node_devices)
        if fact is not None:
            average.append(AveragePower(one.workload, fact, scope, one.batch, one.precision, devices))
    energy = Energy(
        scope=record.scope,
        devices=_devices(document, ("energy",), record.scope, record.devices, node_devices),
        process_m=record.process,
        idle_w=fact_of(record.idle, "power"),
        per_flop=_per_flop(document, record.per_flop),
        byte_j=fact_of(record.per_byte, "energy"),
        average=tuple(average),
        limit_w=fact_of(record.limit, "power"),
    )
    _check(document, energy)
    return energy


def stated(name: str, fact: Fact | None, dimension: str) -> dict[str, str]:
    """Write a fact under its name, with its interval, basis and source; nothing if it is not stated."""
    if fact is None:
        return {}
    ends = {} if fact.low == fact.high else {"low": fact.low, "high": fact.high}
    figures = {name: fact.value, **ends}
    written = {key: exact_quantity(value, dimension) for key, value in figures.items()}
    return {**written, "basis": fact.basis, "source": fact.source}


def peak_content(peak: Peak) -> dict[str, str]:
    """Write a peak with its source, and the rate that long products sustain, if it is stated."""
    held = {} if peak.sustained == 1 else {"sustained": peak.rate.value * peak.sustained}
    return known({
        "dtype": peak.dtype, "engine": peak.engine, "accumulate_dtype": peak.accumulate_dtype,
        **{name: exact_quantity(rate, "flop_per_s") for name, rate in held.items()},
        **stated("rate", peak.rate, "flop_per_s"),
    })  # fmt: skip


def _average_content(power: AveragePower) -> dict[str, Any]:
    devices = power.devices if power.scope != "chip" else None
    conditions = known({"batch": power.batch, "precision": power.precision, "devices": devices})
    start = {"workload": power.workload, **conditions, "scope": power.scope}
    return {**start, **stated("power", power.power_w, "power_w")}


def energy_content(energy: Energy) -> dict[str, Any]:
    """Return energy facts as content of the YAML file, without unknown ones."""
    per_flop = [
        {"dtype": one.dtype, **known({"engine": one.engine}), **stated("energy", one.joule, "joule_per_flop")}
        for one in energy.per_flop
    ]
    content = {
        "scope": energy.scope,
        "devices": energy.devices if energy.scope != "chip" else None,
        "process": None if energy.process_m is None else exact_quantity(energy.process_m, "length_m"),
        "idle": stated("power", energy.idle_w, "power_w"),
        "per_flop": per_flop,
        "per_byte": stated("energy", energy.byte_j, "joule_per_byte"),
        "average": [_average_content(one) for one in energy.average],
        "limit": stated("power", energy.limit_w, "power_w"),
    }
    return known(content)


_CODES = """
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY
COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS
INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP
MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR
SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND
VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
"""
CURRENCIES = tuple(_CODES.split())
"""Currencies in use: ISO 4217, list one, in 2025 (www.six-group.com, maintenance agency), without funds, metals
and codes for tests."""

EARLIEST_ZONE = timedelta(hours=14)
"""The time zone in which a day begins first, ahead of UTC."""


class PriceRecord(Record):
    """``price``: price of using a device, a node or the system; low and high belong to the rate."""

    rate: MoneyRate
    per: Scope
    date: Annotated[str, checked(lambda text: check_day(text, ""))]
    source: str
    low: MoneyRate | None = None
    high: MoneyRate | None = None
    basis: Basis = "published"

    @property
    def ends(self) -> tuple[tuple[float, str], ...]:
        """Return the low rate, the rate and the high rate, each with its currency."""
        return self.low or self.rate, self.rate, self.high or self.rate

    @model_validator(mode="after")
    def _possible(self) -> Self:
        parsed(self.ends, lambda rates: check_price("", rates))
        return self


def check_day(text: str, where: str) -> str:
    """Return a day such as 2018-04-01; raise FomkitError if it is no date, or in the future in all time zones."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise FomkitError(
            where, f"the price's date is {text!r}. Write the day of the price, for example 2018-04-01."
        )
    if day > (datetime.now(UTC) + EARLIEST_ZONE).date():
        raise FomkitError(
            where, f"the price's date is {text}, which is in the future. Write the day of the price."
        )
    return text


def check_price(where: str, rates: tuple[tuple[float, str], ...]) -> None:
    """Raise FomkitError unless rates, low, value and high, are in order and in one currency of ISO 4217."""
    if len({currency for _, currency in rates}) > 1:
        raise FomkitError(where, "low or high is in another currency than the price. Write all in one currency.")
    _, (_, currency), _ = rates
    if currency not in CURRENCIES:
        raise FomkitError(
            where, f"{currency!r} is not a current currency code of ISO 4217. Write, for example, USD."
        )
    if sorted(per_s for per_s, _ in rates) != [per_s for per_s, _ in rates]:
        raise FomkitError(where, "the price must have low ≤ value ≤ high. Correct these.")


def price_of(record: PriceRecord | None) -> Price | None:
    """Return the price of a machine file; None if it has none."""
    if record is None:
        return None
    (low, _), (rate, currency), (high, _) = record.ends
    return Price(Fact(rate, low, high, record.basis, record.source), currency, record.per, record.date)


def money_rate(per_s: float, currency: str) -> str:
    """Write a rate as text that is read back to the same float, per hour if that is short.

    >>> money_rate(4.56 / 3600, "USD")
    '4.56 USD/h'
    """
    for time in MONEY_PER:
        size = UNITS["time_s"][time]
        amount = f"{per_s * size:.12g}"
        if float(amount) / size == per_s:
            return f"{amount} {currency}/{time}"
    return f"{per_s!r} {currency}/s"


def price_content(price: Price) -> dict[str, str]:
    """Return a price as content of the YAML file."""
    fact: Fact = price.per_s
    ends = {} if fact.low == fact.high else {"low": fact.low, "high": fact.high}
    return {
        "rate": money_rate(fact.value, price.currency),
        **{end: money_rate(value, price.currency) for end, value in ends.items()},
        "per": price.per,
        "date": price.date,
        "basis": fact.basis,
        "source": fact.source,
    }
