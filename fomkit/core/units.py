"""Quantities as text and as SI floats (the only place with prefixes and ``2**30``), and number formats.

The properties of a number format here are its bytes per element and the engine of its products.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Real
from typing import Any, Literal, TypeVar, get_args

from fomkit.core.errors import FomkitError, nearest_names

DECIMAL: Mapping[str, float] = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "": 1.0,
                                "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}  # fmt: skip
BINARY: Mapping[str, float] = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
DAY_S = 86_400.0
KWH_J = 3.6e6
LEAST, MOST = 1e-18, 1e30
"""Bounds of a quantity in SI units, far beyond real values; inside them no product overflows."""


def _prefixed(units: Mapping[str, float], prefixes: Mapping[str, float]) -> dict[str, float]:
    return {prefix + unit: scale * size for unit, size in units.items() for prefix, scale in prefixes.items()}


_LARGE = {prefix: scale for prefix, scale in DECIMAL.items() if scale >= 1}
_BYTES = _prefixed({"B": 1.0}, {**_LARGE, **BINARY})
_BITS = _prefixed({"b": 1 / 8, "bit": 1 / 8}, _LARGE)
_SMALL = {"f": 1e-15, "p": 1e-12, **{prefix: scale for prefix, scale in DECIMAL.items() if scale <= 1}}
_JOULES = _prefixed({"J": 1.0}, _SMALL)
_PER_BYTE = {f"{unit}/{per}": size for unit, size in _JOULES.items() for per in ("B", "byte")}
_PER_BIT = {f"{unit}/bit": 8 * size for unit, size in _JOULES.items()}
UNITS: Mapping[str, Mapping[str, float]] = {
    "byte": _BYTES,
    "byte_per_s": {f"{unit}/s": size for unit, size in {**_BYTES, **_BITS}.items()},
    "flop": _prefixed({"FLOP": 1.0}, _LARGE),
    "flop_per_s": _prefixed({"FLOP/s": 1.0, "OP/s": 1.0}, _LARGE),
    "time_s": {
        **_prefixed({"s": 1.0}, {prefix: scale for prefix, scale in DECIMAL.items() if scale <= 1}),
        "min": 60.0, "h": 3600.0, "d": DAY_S,
    },
    "share": {"%": 0.01, "": 1.0},
    "power_w": _prefixed({"W": 1.0}, {**_LARGE, "m": 1e-3}),
    "energy_j": {**_prefixed({"J": 1.0}, {**_SMALL, **_LARGE}), **_prefixed({"Wh": 3600.0}, _LARGE)},
    "joule_per_flop": {f"{unit}/{per}": size for unit, size in _JOULES.items()
                       for per in ("FLOP", "flop")},
    "joule_per_byte": {**_PER_BYTE, **_PER_BIT},
    "length_m": _prefixed({"m": 1.0}, _SMALL),
    "frequency_hz": _prefixed({"Hz": 1.0}, _LARGE),
    "kg_per_j": {"kg/J": 1.0, "kg/kWh": 1 / KWH_J, "t/MWh": 1 / KWH_J, "g/kWh": 1e-3 / KWH_J},
}  # fmt: skip
"""All units that a file may use, by dimension, as their size in SI units; giga is 1e9, gibi 2**30, b a bit."""

EXAMPLES: Mapping[str, str] = {
    "byte": "16 GiB", "byte_per_s": "900 GB/s", "flop": "12 GFLOP", "flop_per_s": "15.7 TFLOP/s",
    "time_s": "5 us", "share": "2 %", "power_w": "300 W", "frequency_hz": "1.38 GHz",
    "energy_j": "12 kJ", "joule_per_flop": "12 pJ/flop", "joule_per_byte": "30 pJ/B", "length_m": "12 nm",
    "kg_per_j": "0.38 kg/kWh",
}  # fmt: skip
_CALLED = {
    "byte": "memory", "byte_per_s": "bandwidth", "flop": "arithmetic work", "flop_per_s": "arithmetic rate",
    "time_s": "time", "share": "share", "power_w": "power", "frequency_hz": "frequency", "energy_j": "energy",
    "joule_per_flop": "energy per operation", "joule_per_byte": "energy per byte", "length_m": "length",
    "kg_per_j": "carbon intensity",
}  # fmt: skip

MONEY_PER = ("h", "d", "min", "s")
"""Units of time in a price."""
_TIMES = " Units of time: ns, us, ms, s, min, h, d."
_NUMBER = r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
_NUMBER_AND_UNIT = re.compile(_NUMBER + r"(\S*)\s*")
_MONEY = re.compile(_NUMBER + r"([^\s/]*)\s*(?:/\s*(\w+))?\s*")
_CURRENCY = re.compile(r"[A-Z]{3}")


def in_si(number: float, size: float) -> float:
    """Convert a number of units to SI units."""
    # Dividing by a whole number keeps "10 us" the float 1e-05; multiplying by 1e-6 would not.
    return number * size if size >= 1 else number / round(1 / size)


def parse_quantity(text: object, dimension: str, where: str, name: str) -> float:
    """Parse a quantity with its unit, for example ``900 GB/s``, into SI units.

    `text`: the file's value; anything but text with a number and a unit is refused; `dimension`: a key of `UNITS`;
    `where`, `name`: the file and line, and the field, for the error message. Returns the value in SI units, finite
    and not negative. Raises FomkitError for anything else.

    >>> parse_quantity("16 GiB", "byte", "x.yaml:1", "capacity")
    17179869184.0
    >>> parse_quantity("100 Gb/s", "byte_per_s", "x.yaml:1", "bandwidth")
    12500000000.0
    >>> parse_quantity("10 us", "time_s", "x.yaml:1", "launch")
    1e-05
    """
    units = UNITS[dimension]
    example = f"Write, for example, '{EXAMPLES[dimension]}'.{_TIMES if dimension == 'time_s' else ''}"
    text = "0" if text == 0 and text is not False and dimension == "byte" else text
    match = _NUMBER_AND_UNIT.fullmatch(text) if isinstance(text, str) else None
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise FomkitError(where, f"{name} is '{text}', which has no unit. {example}")
    if match is None:
        raise FomkitError(where, f"{name} is {text!r}, which is not a number with a unit. {example}")
    number, unit = float(match[1]), match[2]
    if unit not in units and (unit or number or dimension != "byte"):  # no memory is 0 in every unit
        reason = "which has no unit" if not unit else f"and '{unit}' is not a unit of {_CALLED[dimension]}"
        raise FomkitError(where, f"{name} is '{text}', {reason}. {example}")
    if not math.isfinite(number) or number < 0:
        raise FomkitError(where, f"{name} is '{text}'. Give a finite value of 0 or more.")
    value = in_si(number, units.get(unit, 1.0))
    if value and not LEAST <= value <= MOST:
        raise FomkitError(where, f"{name} is '{text}', outside the plausible range. Check number and unit.")
    return value


STATED = "stated by you"
"""First words of sources and notes of figures that were stated in Python."""
_LONG = 60
Stated = Mapping[str, tuple[str, object]]
"""Figures stated by the user, by fact: the name that was used, and the value as given."""


def stated_facts(stated: object, more: Mapping[str, object], words: Mapping[str, str]) -> Stated:
    """Collect the facts of a call of ``with_``, from mapping and keywords; `words`: other names of facts.

    >>> stated_facts({"bandwidth": 1e12}, {"nodes": 2}, {"bandwidth": "byte_per_s"})
    {'byte_per_s': ('bandwidth', 1000000000000.0), 'nodes': ('nodes', 2)}
    """
    by_name = stated if isinstance(stated, Mapping) else {}
    if (stated is not None and by_name is not stated) or not all(isinstance(word, str) for word in by_name):
        raise FomkitError("with_", f"{_brief(stated)} is not a mapping of facts by name. Give one, or name=value.")
    found: dict[str, tuple[str, object]] = {}
    for word, value in (*by_name.items(), *more.items()):
        name = words.get(word, word)
        if name in found:
            raise FomkitError("with_", f"{found[name][0]!r} and {word!r} are the same fact. State it once.")
        found[name] = word, value
    return found


def stated_note(stated: Stated) -> str:
    """Write the stated facts as a call of ``with_``."""
    return f"{STATED}: with_({', '.join(f'{word}={_brief(value)}' for word, value in stated.values())})"


Key = TypeVar("Key")
Value = TypeVar("Value")


def by_key(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, keys and values in the order of the pairs."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def sums_by_key(pairs: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Return the sum of the values of each key, added in the order of the pairs."""
    found: dict[Key, float] = {}
    for key, value in pairs:
        found[key] = found.get(key, 0.0) + value
    return found


def equal_fields(one: Any, other: object) -> bool:
    """Return whether two objects of a dataclass agree in all fields that count; a table equals only itself.

    A dataclass compares its fields with `==` from Python 3.13 on, even with themselves, and the `==` of two tables
    compares their cells. So a dataclass with tables calls this in its `__eq__`.
    """
    pairs = ((getattr(one, of.name), getattr(other, of.name, None)) for of in fields(one) if of.compare)
    return type(one) is type(other) and all(
        left is right or (not hasattr(left, "iloc") and left == right) for left, right in pairs
    )


def stated_on_top(
    notes: Sequence[str], before: Stated, given: Stated, more: str = ""
) -> tuple[Stated, tuple[str, ...]]:
    """Return earlier and new stated facts together, and the notes, with a single one on all of them."""
    stated = {name: said for name, said in {**before, **given}.items() if name != "name" or name in given}
    others = (note for note in notes if not before or not note.startswith(stated_note(before)))
    return stated, (*others, stated_note(stated) + more)


def _brief(given: object) -> str:
    is_huge = isinstance(given, int) and abs(given) > MOST
    text = "a number far too large" if is_huge else " ".join(repr(given).split())
    return text[:_LONG] + "…" * (len(text) > _LONG)


def versioned(text: str, name: str, where: str = "") -> str:
    """Return the name and version of a library; text without a digit states no version."""
    if not any(one.isdigit() for one in text):
        raise FomkitError(where, f"{name} {text!r} states no version. Write, for example, 'PyTorch 2.1'.")
    return text


def stated_text(given: object, name: str) -> str:
    """Check a text that was stated by ``with_``, and return it."""
    if isinstance(given, str) and given.strip() and given.isprintable():
        return versioned(given, name, "with_") if name == "software" else given
    raise FomkitError("with_", f"{name} is {_brief(given)}. Give a text of one line.")


def stated_number(given: object, dimension: str, name: str, least: int = 1) -> float:
    """Parse a figure that was stated by ``with_``: text with its unit, or a number in SI units.

    `dimension`: "" for an integer of ``least`` or more; `least`: 0 also allows a quantity of 0, as in files.

    >>> stated_number("1.2 TB/s", "byte_per_s", "bandwidth"), stated_number(8, "", "nodes")
    (1200000000000.0, 8.0)
    """
    number: Any = math.nan if isinstance(given, bool) or not isinstance(given, Real) else given
    value = float(number) if abs(number) <= MOST else math.nan
    if isinstance(given, str) and dimension:
        value = parse_quantity(given, dimension, "with_", name)
    expected = f"a whole number of {least} or more"
    if dimension:
        span = "above 0" if least else "of 0 or more"
        span += " and at most 1" if dimension == "share" else ""
        expected = f"a value {span}: text such as {EXAMPLES[dimension]!r}, or a number in SI units"
    good = (value > 0 or (value == 0 and not least)) and value <= (1 if dimension == "share" else MOST)
    if not good or not (dimension or (value >= least and value == round(value))):
        raise FomkitError("with_", f"{name} is {_brief(given)}. Give {expected}.")
    return value


def parse_money_rate(text: object, where: str, name: str) -> tuple[float, str]:
    """Parse a price of use, ``4.56 USD/h``: money per second, above 0, and its ISO 4217 code.

    >>> parse_money_rate("3600 USD/h", "--price", "price")
    (1.0, 'USD')
    """
    write = "Write a number, a currency by its code, and a time, for example '4.56 USD/h'."
    match = _MONEY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise FomkitError(where, f"{name} is {text!r}, which is not a price per time. {write}")
    number, currency, time = match.groups()
    if not _CURRENCY.fullmatch(currency):
        problem = f"and {currency!r} is not a currency code" if currency else "which has no currency"
        raise FomkitError(where, f"{name} is '{text}', {problem}. {write}")
    if time not in MONEY_PER:
        times = f"and {time!r} is not one of {', '.join(MONEY_PER)}"
        problem = times if time else "which has no time"
        raise FomkitError(where, f"{name} is '{text}', {problem}. {write}")
    amount = float(number)
    if not LEAST <= amount <= MOST:
        raise FomkitError(where, f"{name} is '{text}'. Give a finite amount above 0.")
    return amount / UNITS["time_s"][time], currency


_STEPS: Mapping[str, list[tuple[float, str]]] = {
    "time_s": [(DAY_S, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
    "byte": [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")],
    "byte_per_s": [(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
    "flop": [(1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1.0, "FLOP")],
    "flop_per_s": [(1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")],
    "power_w": [(1e6, "MW"), (1e3, "kW"), (1.0, "W"), (1e-3, "mW")],
    "energy_j": [(1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"), (1.0, "J"),
                 (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ")],
    "joule_per_flop": [(1e-9, "nJ/flop"), (1e-12, "pJ/flop"), (1e-15, "fJ/flop")],
    "joule_per_byte": [(1e-9, "nJ/B"), (1e-12, "pJ/B"), (1e-15, "fJ/B")],
    "length_m": [(1e-6, "µm"), (1e-9, "nm")],
}  # fmt: skip


def format_number(value: float, digits: int = 4) -> str:
    """Write a plain number with ``digits`` significant digits; very small ones have an exponent.

    >>> format_number(82.597332, 4), format_number(7475.2, 5), format_number(0.0012345, 3), format_number(1.5e-52)
    ('82.60', '7475.2', '0.00123', '1.500e-52')
    >>> format_number(float("nan"))
    'unknown'
    """
    if math.isnan(value):
        return "unknown"
    if value == 0:
        return "0"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = digits - 1 - exponent
    if decimals < -3 or decimals > 15:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(decimals, 0)}f}" if abs(value) >= 10_000 else f"{value:.{max(decimals, 0)}f}"


def format_quantity(value: float, dimension: str, digits: int = 4) -> str:
    """Write an SI value with the most readable prefix; NaN is ``unknown``.

    >>> format_quantity(0.2872917, "time_s"), format_quantity(9e11, "byte_per_s")
    ('287.3 ms', '900.0 GB/s')
    """
    if math.isnan(value):
        return "unknown"
    steps = _STEPS[dimension]
    fitting = (step for step in steps if abs(value) >= step[0] * (1 - 5 * 10.0 ** (-digits - 1)))
    size, unit = next(fitting, steps[-1])
    return f"{format_number(value / size, digits)} {unit}"


def format_mebibyte(byte: float) -> str:
    """Write bytes as MiB without the unit, for columns that state it, with two decimals.

    >>> format_mebibyte(102_228_128.0), format_mebibyte(float("nan"))
    ('97.49', 'unknown')
    """
    return "unknown" if math.isnan(byte) else f"{byte / BINARY['Mi']:,.2f}"


def memory_text(byte: float) -> str:
    """Write memory in use, or a capacity that it is compared with, as MiB: from 100 MiB on without decimals.

    >>> memory_text(102_228_128.0), memory_text(2.0**34)
    ('97.49 MiB', '16,384 MiB')
    """
    return f"{byte / BINARY['Mi']:,.{0 if byte >= 100 * BINARY['Mi'] else 2}f} MiB"


def check_reserve(reserve: float, capacity: float, machine: str, where: str) -> None:
    """Raise FomkitError unless a reserve of a machine's devices is below their memory [byte]; 0 is no reserve."""
    if reserve >= capacity:
        has, takes = memory_text(capacity), memory_text(reserve)
        what = f"the reserve is {takes}, and a device of {machine} has {has} of memory"
        raise FomkitError(where, f"{what}. Give less than that; 0 GiB is no reserve.")


def count_text(count: int, noun: str) -> str:
    """Write a count with its noun.

    >>> count_text(1, "row"), count_text(1182, "row")
    ('1 row', '1,182 rows')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def agree(count: float, words: str) -> str:
    """Return the word that agrees with a count, of one for 1 and one for more.

    >>> agree(1, "has/have"), agree(0, "has/have")
    ('has', 'have')
    """
    return words.split("/")[int(count != 1)]


def exact_quantity(value: float, dimension: str) -> str:
    """Write an SI value as text that `parse_quantity` converts back to the same float.

    >>> exact_quantity(1.57e13, "flop_per_s"), exact_quantity(2.0**34, "byte")
    ('15.7 TFLOP/s', '16 GiB')
    """
    base = next(unit for unit, size in UNITS[dimension].items() if size == 1.0)
    best = f"{value!r} {base}".rstrip()
    readable = {unit for _, unit in _STEPS[dimension]} | {f"{prefix}B" for prefix in BINARY}
    for unit, size in UNITS[dimension].items():
        scaled = float(f"{value / size:.12g}")
        text = f"{scaled:g} {unit}" if f"{scaled:g}" == f"{scaled:.12g}" else f"{scaled!r} {unit}"
        exact = unit in readable and in_si(scaled, size) == value and 0.1 <= scaled < 10_000
        if exact and len(text) < len(best):
            best = text
    return best


def readable_time(value: float) -> str:
    """Write a time [s] in its most readable unit, unless that rounds it."""
    number, _, unit = format_quantity(value, "time_s", 6).replace(",", "").partition(" ")
    shown = f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"
    return shown if parse_quantity(shown, "time_s", "", "") == value else exact_quantity(value, "time_s")


def round_quantity(value: float, dimension: str) -> float:
    """Round an SI value to the value of its text with six digits.

    >>> exact_quantity(round_quantity(1 / 3, "time_s"), "time_s")
    '333.333 ms'
    """
    return parse_quantity(format_quantity(value, dimension, 6).replace(",", ""), dimension, "", "a figure")


ITEM_BYTE: dict[str, float] = {
    "complex128": 16.0, "complex64": 8.0, "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0,
    "fp8": 1.0, "fp8_block": 1 + 4 / 128**2, "mxfp8": 1 + 1 / 32, "nvfp4": 1 / 2 + 1 / 16,
    "int64": 8.0, "int32": 4.0, "int16": 2.0, "int8": 1.0, "uint8": 1.0, "bool": 1.0,
}  # fmt: skip
"""Storage of one element [byte]; tf32 is stored as fp32 and only multiplied in fewer bits.

fp8_block has a scale of 4 byte per 128 × 128 weights (DeepSeek-V3, arXiv 2412.19437, section 3.3.2; those of
activations are not counted), mxfp8 one byte per 32 numbers (OCP Microscaling Formats 1.0), nvfp4 one per 16
(NVIDIA, Transformer Engine user guide 2.18).
"""

ENGINES = ("vector", "matrix")
"""The two kinds of arithmetic unit: general (SIMT, SIMD) and matrix (tensor core, AMX, systolic array)."""

REAL_OF: dict[str, str] = {"complex64": "fp32", "complex128": "fp64"}
"""The number format of both parts of a complex number, which determines the arithmetic unit."""
REAL_PRODUCTS = 4.0
"""Real products in a complex one, (a + bi)(c + di) = (ac - bd) + (ad + bc)i: with the sums 8 flop instead of 2."""


def item_byte(dtype: str) -> float:
    """Return the storage of one element [byte].

    >>> item_byte("bf16")
    2.0
    """
    if dtype not in ITEM_BYTE:
        raise FomkitError("dtype", f"{dtype!r} is not a known number format. {nearest_names(dtype, ITEM_BYTE)}")
    return ITEM_BYTE[dtype]


Precision = Literal["fp32", "tf32", "mixed", "bf16", "fp8", "fp8_block", "mxfp8", "nvfp4", "int8"]
"""Precisions of a step; `fomkit.ops.precision` defines each."""


def precision_meant(word: str) -> str:
    """Say which precision was likely meant: what people call by its number format, else the nearest names."""
    called = "mixed" if word.lower() in ("fp16", "float16", "half", "amp", "autocast") else ""
    return f"It is called '{called}'." if called else nearest_names(word, get_args(Precision))


MATRIX_KINDS = ("gemm", "conv", "rnn", "attention")
"""Kinds of ops that run on a matrix engine if there is one for their number format."""
STANDS_IN: dict[str, str] = {
    "fp16": "bf16", "bf16": "fp16", "fp8": "bf16", "fp8_block": "fp8", "mxfp8": "fp8", "nvfp4": "fp8",
}  # fmt: skip
"""Formats whose timings replace those of similar formats on a matrix engine, with sums in fp32.

fp16 and bf16 have as many bits and the same rate. fp8 is predicted from bf16, and formats of scaled blocks from
fp8, with the rate and width of each (`fomkit.prediction.transfer`).
"""
BLOCKS_OF_FP8 = "fp8_block"
BLOCKS_AS_FP8 = "none is stated: the peak of fp8, whose engine multiplies these blocks, too (docs/adr/0084)"
"""Format with a scale per block that a program applies; source of its peak on a device that states none."""
_MATRIX_DTYPES = ("fp16", "bf16", "fp8", "fp8_block", "mxfp8", "nvfp4", "int8")


def default_engine(kind: str, dtype: str) -> str:
    """Return the arithmetic unit that the frameworks use by default.

    Half-width formats run on the matrix units; fp32 does not, because TF32 products must be enabled.

    >>> default_engine("gemm", "fp16"), default_engine("gemm", "fp32"), default_engine("norm", "fp16")
    ('matrix', 'vector', 'vector')
    """
    return "matrix" if kind in MATRIX_KINDS and dtype in _MATRIX_DTYPES else "vector"
