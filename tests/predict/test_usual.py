"""Typical utilisation: predicted from other machines' surfaces by similarity, never from a chip left out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from costs.op_tables import attention, conv, gemm, optimizer, rnn, table, traffic
from predict.machines import device, fact, machine, typical_at
from scipy.special import ndtri, stdtrit

from fomkit.core.errors import FomkitError
from fomkit.core.interval import of_few
from fomkit.core.measurement import Surface
from fomkit.ops.pricing import add_costs
from fomkit.prediction import gp as surfaces_of
from fomkit.prediction.estimators import weighted_median
from fomkit.prediction.gp import side_by_side, surface_rows, surface_values, surfaces, weights_of
from fomkit.prediction.tiles import weighed_by_rows
from fomkit.prediction.typical import (
    AGREED_SPREAD,
    FEATURES,
    _work,
    median_and_spread,
    similarity,
    spread_at,
    typical_utilisation,
)
from fomkit.profiles.evidence import ENGINES, GENERATIONS, shipped_typical_tables

PRODUCT = gemm(4096, 4096, 4096)
LIMIT_BYTE, LIMIT_LINE = 1_200_000, 320
"""Nineteen machines tell, each 1,000 products to other boards of its chip."""


def known(architecture="", excluded=(), **peaks):
    of = device(None, fact(1e12), **(peaks or {"fp32_vector": 1.5e13, "fp16_matrix": 1e14}))
    return replace(machine(replace(of, architecture=architecture)), excluded=excluded)


def typical(row, of=None, interval=0.8):
    return typical_at(typical_utilisation(add_costs(table(row)), of or known(), interval))


@pytest.mark.parametrize(("draws", "off"), [(5, 2e-4), (10, 1e-5), (30, 1e-7)])
def test_an_interval_of_few_draws_is_wider_as_students_is(draws, off):
    """The error of the expansion falls with the fourth power of the number of draws."""
    assert of_few(draws) == pytest.approx(stdtrit(draws - 1, 0.9) / ndtri(0.9), rel=off)


def made_up(name, architecture, level, balance=4.0, dtype="fp32"):
    features = np.array([[0.0], [1.0]])
    return Surface(
        name, architecture, dtype, balance, np.log(level), (-1.0, 1.0), surface_rows(features, np.zeros(2))
    )


def test_a_surface_runs_through_what_was_timed():
    features = np.linspace(0, 5, 6)[:, None]
    reached = np.sin(features[:, 0])
    weight = weights_of(features, reached, np.array([2.0]))
    found = side_by_side(
        np.array([2.0]), [Surface("m", "A B C", "fp32", 4.0, 0.0, (), surface_rows(features, weight))]
    )
    assert surface_values(found, features)[0] == pytest.approx(reached, abs=0.1)
    # Far from every timed op the machine's mean remains.
    assert surface_values(found, np.array([[1e3]]))[0, 0] == pytest.approx(0.0, abs=1e-6)


def test_the_weighted_median_lies_with_the_heavier_half():
    said = np.array([[0.0, 5.0], [1.0, 1.0], [9.0, 0.0]])
    assert weighted_median(said, np.array([0.1, 0.8, 0.1])).tolist() == [1.0, 1.0]
    assert weighted_median(said, np.array([0.0, 0.0, 1.0])) == pytest.approx([9.0, 0.0])
    assert weighted_median(said[:1], np.array([1.0])).tolist() == [0.0, 5.0]


def test_like_machines_weigh_more():
    found = side_by_side(np.array([1.0]), [
        made_up("same chip", "X New C101", 0.9), made_up("same series", "X New C102", 0.9),
        made_up("same vendor", "X Old Three", 0.9), made_up("other vendor", "Y New Four", 0.9),
        made_up("other balance", "X Old Five", 0.9, balance=6.0),
        made_up("other width", "X Old Six", 0.9, dtype="fp16"),
    ])  # fmt: skip
    weight = similarity(found, "fp32", 4.0, "X New C101", {}, {})
    assert weight.sum() == pytest.approx(1.0)
    assert weight[0] > weight[1] > weight[2] > max(weight[3:])
    blind = similarity(found, "fp32", float("nan"), "", {}, {})
    assert blind[:5] == pytest.approx([blind[0]] * 5)


def test_a_chip_without_kin_in_its_generation_is_like_those_with_as_large_an_engine():
    """An RTX 5090 is a Blackwell like a B200, whose engine has 30 times the rate of its vector units, not 4."""
    boards = ["NVIDIA Blackwell GB100", "NVIDIA Ada AD102", "NVIDIA Hopper GH100", "NVIDIA Ampere GA100"]
    found = side_by_side(np.array([1.0]), [made_up(one, one, 0.9, dtype="bf16") for one in boards])
    engines = shipped_typical_tables().engines
    workstation = similarity(found, "bf16", float("nan"), "NVIDIA Blackwell GB202", {}, engines)
    assert workstation / workstation[0] == pytest.approx([1.0, 3.0, 1.0, 1.0])
    ultra = similarity(found, "bf16", float("nan"), "NVIDIA Blackwell Ultra GB110", {}, engines)
    assert ultra / ultra[1] == pytest.approx([3.0, 1.0, 1.0, 1.0])
    hopper = similarity(found, "bf16", float("nan"), "NVIDIA Hopper", {}, engines)  # its chip is not known
    assert hopper / hopper[0] == pytest.approx([1.0, 1.0, 3.0, 1.0])
    # A chip with kin in its generation keeps to these: a GA102's engine is as large as Ada's.
    ampere = similarity(found, "bf16", float("nan"), "NVIDIA Ampere GA102", {}, engines)
    assert ampere / ampere[0] == pytest.approx([1.0, 1.0, 1.0, 3.0])


def test_two_boards_of_a_chip_do_not_count_twice():
    boards = [made_up("a", "X O One", 0.9), made_up("b", "X O One", 0.9), made_up("c", "X O Two", 0.5)]
    weight = similarity(side_by_side(np.array([1.0]), boards), "fp32", 4.0, "", {}, {})
    assert weight[0] + weight[1] == pytest.approx(weight[2] * 2**0.5)


def test_machines_that_disagree_widen_the_interval():
    query, weight = np.array([[0.5]]), np.array([0.5, 0.5])
    agreeing = side_by_side(np.array([1.0]), [made_up("a", "X O One", 0.7), made_up("b", "X O Two", 0.7)])
    apart = side_by_side(np.array([1.0]), [made_up("a", "X O One", 0.9), made_up("b", "X O Two", 0.4)])
    assert median_and_spread(apart, query, weight)[1] > 1.5 * median_and_spread(agreeing, query, weight)[1]


def test_an_op_near_its_floor_is_surer_than_one_that_reaches_little_of_it():
    query, weight = np.array([[0.5]]), np.array([1.0])

    def spread(mean, **more):
        one = side_by_side(np.array([1.0]), [made_up("a", "X O One", np.exp(mean))])
        return median_and_spread(one, query, weight, **more)[1]

    assert spread(-1.0) > 1.5 * spread(-0.3) > spread(0.0)
    assert spread(0.3) == spread(0.0)
    # A form says itself why an op takes more.
    assert spread(-1.0, above=np.zeros((1, 1))) == spread(0.0)
    assert spread(-1.0) == pytest.approx(spread_at(np.array([-1.0])), rel=1e-2)


def test_of_two_machines_it_counts_little_how_far_they_lie_apart():
    query = np.array([[0.5]])
    for count, share in ((2, 1 / 5), (8, 7 / 11)):
        known = [made_up(f"{at}", f"X O {at}", 0.3 if at % 2 else 1.0) for at in range(count)]
        found, weight = side_by_side(np.array([1.0]), known), np.full(count, 1 / count)
        value, spread = median_and_spread(found, query, weight)
        apart = (weight[:, None] * (surface_values(found, query) - value) ** 2).sum(0)
        assert spread**2 - spread_at(value) ** 2 == pytest.approx(share * apart)


def timed_at(name, level, *places):
    features = np.array([[place, 0.0] for place in places])
    weight = weights_of(features, np.zeros(len(places)), np.array([1.0, 1.0]))
    return Surface(name, f"X O {name}", "fp32", 4.0, np.log(level), (-1.0, 1.0), surface_rows(features, weight))


def test_a_machine_that_was_timed_at_other_sizes_says_little_of_a_convolution():
    """One machine has rows at 0, one at 10: each predicts its own range, and both equally little in between."""
    found = side_by_side(
        np.array([1.0, 1.0]), [timed_at("small", 0.1, 0.0, 1.0), timed_at("large", 0.8, 10.0, 11.0)]
    )
    weight = weighed_by_rows(found, np.array([[0.0, 0.0], [5.5, 0.0], [11.0, 0.0]]), np.array([0.5, 0.5]))
    assert weight.sum(0) == pytest.approx([1.0] * 3)
    assert weight[:, 1] == pytest.approx([0.5, 0.5])
    assert weight[0, 0] == weight[1, 2] == pytest.approx(16 / (16 + (1 + 3 * 0.0625) ** 2), rel=1e-3)
    value, spread = median_and_spread(found, np.array([[0.0, 0.0], [5.5, 0.0]]), weight[:, :2])
    assert np.exp(value[0]) < 0.2 < np.exp(value[1])
    assert AGREED_SPREAD < spread[0] < spread[1]


def test_windows_of_one_are_told_by_machines_that_were_timed_at_them():
    """NeuSight's four tables have windows of 3 only; their means had halved the prediction for windows of 1."""
    h100 = known("NVIDIA Hopper GH100", fp32_vector=6.69e13)
    images = [conv(32, (64, 256), 56, 1), conv(32, (128, 512), 28, 1)]
    for row in images:
        found = typical(row, h100)
        assert found.value > 0.45
        assert found.high / found.low < 4


def test_what_is_left_out_is_not_heard(monkeypatch):
    included = []
    real = surfaces_of.surfaces

    def listening(tables, work, excluded=()):
        found = real(tables, work, excluded)
        included.extend(one.architecture for one in (found.known if found else ()))
        return found

    monkeypatch.setattr("fomkit.prediction.typical.surfaces", listening)
    chip = "NVIDIA Volta GV100"
    assert any(one.architecture == chip for one in shipped_typical_tables().of["gemm/vector"].known)
    full, without = typical(PRODUCT), typical(PRODUCT, known(excluded=(chip,)))
    assert chip in included
    included.clear()
    assert typical(PRODUCT, known(excluded=(chip,))) == without
    assert included
    assert chip not in included
    assert full.value != without.value


def test_every_kind_has_an_answer_whatever_chip_is_left_out():
    rows = [
        PRODUCT, gemm(4096, 4096, 4096, engine="matrix", dtype="fp16"), conv(4.0, (64.0, 64.0), 56.0, 3.0),
        rnn("lstm", 16.0, 25.0, 512.0), traffic("copy", 1e8), traffic("softmax", 1e8), traffic("norm", 1e8),
        traffic("embedding", 1e8), optimizer("adam", "per_tensor", 1000.0, 100.0),
    ]  # fmt: skip
    chips = {one.architecture for work in shipped_typical_tables().of.values() for one in work.known}
    for chip in sorted(chips):
        found = typical_utilisation(add_costs(table(*rows)), known(excluded=(chip,)), 0.8)
        assert len(found.value) == len(rows), chip
        ends = zip(found.low, found.value, found.high, strict=True)
        assert all(0.001 < low < value < high < 10 for low, value, high in ends), chip


@pytest.mark.parametrize(
    ("row", "source"),
    [
        (PRODUCT, "gemm/vector"),
        (gemm(4096, 4096, 4096, engine="matrix", dtype="fp16"), "gemm/matrix"),
        (conv(4.0, (64.0, 64.0), 56.0, 3.0, pass_name="backward_weight"), "conv/vector/backward_weight"),
        (rnn("lstm", 16.0, 25.0, 512.0, pass_name="backward"), "rnn/vector/backward_input"),
        (optimizer("adam", "per_tensor", 1000.0, 100.0), "pointwise/vector"),
        (traffic("embedding", 1e8), "traffic/vector"),
        (traffic("softmax", 1e8), "softmax/vector"),
    ],
)
def test_the_closest_table_serves(row, source):
    assert typical(row).source.startswith(f"typical of {source} on ")


@pytest.mark.parametrize(
    ("chip", "excluded", "series"),
    [
        ("NVIDIA Blackwell Ultra GB110", (), True),
        ("NVIDIA Blackwell GB100", (), True),
        ("NVIDIA Blackwell GB202", (), False),  # a board for workstations, which these libraries do not run on
        ("NVIDIA Hopper GH100", (), False),
        ("NVIDIA Blackwell Ultra GB110", ("NVIDIA Blackwell GB100",), False),
    ],
)
def test_libraries_of_one_series_of_chips_tell_about_these_alone(chip, excluded, series):
    of = replace(device(None, fact(8e12), bf16_matrix=2.25e15, nvfp4_matrix=9e15), architecture=chip)
    experts = {"b": 8.0, "m": 4096.0, "n": 2048.0, "k": 4096.0, "experts": 64.0, "top_k": 8.0}
    for row in (
        attention(8.0, 32.0, 4096.0, 128.0, dtype="bf16", engine="matrix"),
        {**gemm(1, 1, 1, dtype="bf16", engine="matrix"), "op": "experts", "kind": "experts", **experts},
    ):
        source = typical(row, replace(machine(of), excluded=excluded)).source
        assert (" on NVIDIA Blackwell GB1/matrix" in source) is series, source


def test_short_ops_reach_less_and_wider_intervals_are_wider():
    assert typical(gemm(64, 64, 64)).value < typical(PRODUCT).value
    narrow, wide = typical(PRODUCT, interval=0.5), typical(PRODUCT, interval=0.9)
    assert wide.low < narrow.low < narrow.value == wide.value < narrow.high < wide.high


@pytest.mark.parametrize("kind", ["pointwise", "softmax", "copy"])
def test_numbers_narrower_than_any_that_were_timed_may_take_as_long_as_the_wide_ones(kind):
    byte = {"read_byte": 1e8, "write_byte": 1e8}
    wide, narrow, fp8 = (typical(traffic(kind, 1e8, dtype=one, **byte)) for one in ("fp32", "bf16", "fp8"))
    assert (wide.value, wide.high) == (narrow.value, narrow.high) == (fp8.value, fp8.high)
    for one, ratio in ((narrow, 2), (fp8, 4)):
        slower = math.hypot(math.log(wide.value / wide.low), math.log(ratio))
        assert math.log(one.value / one.low) == pytest.approx(slower, rel=1e-3)


@pytest.mark.parametrize(("kind", "known"), [("pointwise", True), ("copy", True), ("softmax", False)])
def test_element_by_element_a_framework_loads_vectors(kind, known):
    byte = {"read_byte": 1e8, "write_byte": 1e8, "op": "aten::mul"}
    wide, narrow = (typical(traffic(kind, 1e8, dtype=one, **byte)) for one in ("fp32", "bf16"))
    assert bool(narrow.low == wide.low) is known
    assert (narrow.value, narrow.high) == (wide.value, wide.high)


def test_the_likest_machine_is_named():
    of = device(None, fact(3.35e12), bf16_matrix=9.89e14)
    like = machine(replace(of, architecture="NVIDIA Hopper GH100"))
    source = typical(gemm(4096, 4096, 4096, engine="matrix", dtype="bf16"), like).source
    assert any(board in source for board in ("h100-sxm", "h200-sxm")), source


def test_the_tables_are_what_their_script_makes(typical_script):
    made = typical_script.texts()
    written = set(typical_script.TARGET.iterdir()) - {
        typical_script.TARGET / name for name in (GENERATIONS, ENGINES)
    }
    kept = {path.name: path.read_bytes().decode() for path in written}
    assert kept == made
    assert sum(len(text.encode()) for text in made.values()) < LIMIT_BYTE
    assert max(map(len, "".join(made.values()).splitlines())) < LIMIT_LINE


def test_work_that_nobody_timed_has_no_surfaces():
    assert surfaces(shipped_typical_tables(), "no such work") is None
    assert surfaces(shipped_typical_tables(), "sparse_gemm/vector", ("NVIDIA Pascal GP102",)) is None


def test_a_machine_that_was_not_told_of_others_is_refused():
    with pytest.raises(FomkitError, match=r"test: has no typical utilisations\. Call"):
        typical(PRODUCT, replace(known(), typical=None))


def test_work_is_its_floor_and_how_far_arithmetic_lies_above_traffic():
    rows = add_costs(table(*(gemm(n, n, n) for n in (1, 64, 1024))))
    floor, above = _work(rows, np.full(3, 2.0**35), 2.0**30)
    # 2·n³ flop at 2³⁵ a second, and 12·n² byte at 2³⁰; apart by six powers of two at most.
    compute, memory = 1 + 3 * np.array([0, 6, 10]) - 35, np.log2(12) + 2 * np.array([0, 6, 10]) - 30
    assert floor == pytest.approx([memory[0], memory[1], compute[2]])
    assert above == pytest.approx([-6.0, compute[1] - memory[1], compute[2] - memory[2]])


def test_a_stride_of_two_over_twice_the_image_gives_as_many_outputs() -> None:
    rows = add_costs(
        table(conv(4.0, (64.0, 64.0), 56.0, 3.0), conv(4.0, (64.0, 64.0), 112.0, 3.0, stride_h=2.0, stride_w=2.0))
    )
    *_, positions, _, stride, _, _ = FEATURES["conv"](rows, np.full(2, 2.0**30), 2.0**30).T
    # 4 images of 56 × 56 outputs, to a peak of 2³⁰ flop/s.
    assert positions == pytest.approx([math.log2(4 * 56 * 56) - 30] * 2)
    assert stride.tolist() == [0, 2]


@pytest.mark.parametrize("width", [32.0, 96.0, 128.0, 256.0])
def test_attention_without_a_mask_of_heads_that_nobody_timed_is_as_quick_as_of_the_nearest(width):
    """Encoders were timed with heads of 64 to 80; before, heads of 128 were predicted five times as long."""
    of = known("NVIDIA Ampere", bf16_matrix=3e14)
    reached = [
        typical(attention(2.0, 16.0, 8192.0, one, dtype="bf16", engine="matrix", causal=0.0), of).value
        for one in (min(max(width, 64.0), 80.0), width)
    ]
    assert reached[1] == pytest.approx(reached[0], rel=0.1)
    assert reached[1] > 0.2
