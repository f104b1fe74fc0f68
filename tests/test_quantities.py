"""Units at the edges: prefixes, bits, gibi, and text that reads back to the same float."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fomkit.core.errors import FomkitError
from fomkit.core.job import Layout
from fomkit.core.units import UNITS, agree, exact_quantity, format_number, format_quantity, parse_quantity


@pytest.mark.parametrize(("prefix", "power"), [("k", 1), ("M", 2), ("G", 3), ("T", 4), ("P", 5), ("E", 6)])
def test_decimal_prefixes_are_powers_of_a_thousand(prefix: str, power: int) -> None:
    assert parse_quantity(f"1 {prefix}B", "byte", "", "") == 10.0 ** (3 * power)
    assert parse_quantity(f"1 {prefix}FLOP/s", "flop_per_s", "", "") == 10.0 ** (3 * power)


@pytest.mark.parametrize(("prefix", "power"), [("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4)])
def test_binary_prefixes_are_powers_of_1024(prefix: str, power: int) -> None:
    assert parse_quantity(f"1 {prefix}B", "byte", "", "") == 1024.0**power


@pytest.mark.parametrize(
    ("devices", "layout", "message"),
    [
        (
            1,
            Layout(data=8),
            "1 device divided by tensor 1 × pipeline 1 is 1 replica. Leave data out, or use 8 devices.",
        ),
        (
            8,
            Layout(data=1),
            "8 devices divided by tensor 1 × pipeline 1 are 8 replicas. Leave data out, or use 1 device.",
        ),
        (
            1,
            Layout(expert=4),
            "1 replica on 1 device does not divide into groups of expert 4. Use a multiple of 4 devices.",
        ),
    ],
)
def test_words_agree_with_a_count_of_1(devices: int, layout: Layout, message: str) -> None:
    with pytest.raises(FomkitError) as refused:
        layout.replicas(devices)
    assert message in refused.value.what
    assert [agree(count, "has/have") for count in (0, 1, 1.0, np.float64(1), 2)] == [
        "have",
        "has",
        "has",
        "has",
        "have",
    ]


def test_bits_are_an_eighth_of_bytes() -> None:
    assert parse_quantity("100 Gb/s", "byte_per_s", "", "") == 12.5e9
    assert parse_quantity("100 Gbit/s", "byte_per_s", "", "") == 12.5e9
    assert parse_quantity("100 GB/s", "byte_per_s", "", "") == 100e9


def test_small_times_are_the_floats_that_a_reader_expects() -> None:
    assert parse_quantity("10 us", "time_s", "", "") == 1e-5
    assert parse_quantity("3 ms", "time_s", "", "") == 0.003
    assert parse_quantity("2 %", "share", "", "") == 0.02


@pytest.mark.parametrize(
    ("text", "dimension", "words"),
    [
        ("3.35", "byte_per_s", "has no unit"),
        (3.35, "byte_per_s", "has no unit"),
        ("900 GB", "byte_per_s", "not a unit of bandwidth"),
        ("900 gb/s", "byte_per_s", "not a unit"),
        ("fast", "byte_per_s", "not a number with a unit"),
        ("-1 GB/s", "byte_per_s", "0 or more"),
        ("1e999 GB/s", "byte_per_s", "finite"),
        (True, "byte_per_s", "not a number with a unit"),
        (None, "byte_per_s", "not a number with a unit"),
    ],
)
def test_wrong_quantities_are_told_with_an_example(text: object, dimension: str, words: str) -> None:
    with pytest.raises(FomkitError, match=words) as caught:
        parse_quantity(text, dimension, "x.yaml:7", "memory.bandwidth")
    assert str(caught.value).startswith("x.yaml:7: memory.bandwidth is ")
    assert "900 GB/s" in str(caught.value) or "0 or more" in str(caught.value)


@given(st.floats(min_value=1e-12, max_value=1e18), st.sampled_from(["byte", "byte_per_s", "flop_per_s", "time_s"]))
def test_exact_quantities_read_back(value: float, dimension: str) -> None:
    assert parse_quantity(exact_quantity(value, dimension), dimension, "", "") == value


@given(st.sampled_from(sorted(UNITS)), st.data())
def test_every_unit_is_read(dimension: str, data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(sorted(UNITS[dimension])))
    assert parse_quantity(f"2 {unit}", dimension, "", "") == pytest.approx(2 * UNITS[dimension][unit], rel=1e-15)


def test_numbers_for_people() -> None:
    assert format_number(12_345.678) == "12,346"
    assert format_number(math.nan) == "unknown"
    assert format_quantity(math.nan, "time_s") == "unknown"
    assert format_quantity(0.99999, "time_s") == "1.000 s"
    assert format_quantity(59.9999, "time_s") == "1.000 min"
