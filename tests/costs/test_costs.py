"""The costs stage: its laws, golden numbers, and its formulas on symbols, with equal numbers and limits."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sympy
from costs.op_tables import attention, conv, gemm, optimizer, rnn, rows, table, tables, traffic
from hypothesis import given, settings

from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.ops.check import check_table
from fomkit.ops.families import costs
from fomkit.ops.families.costs import mixture
from fomkit.ops.families.formula import DEFAULTS, Row, Variant, arguments, ceil, floor, log2
from fomkit.ops.kinds import KINDS
from fomkit.ops.pricing import FORMULAS, add_costs, print_cost
from fomkit.ops.tables import COSTS, PASSES

NAMES = [column.name for column in COSTS]
P1B3_PARAMETERS = 30_088_701.0
STATES = {"sgd": 0, "momentum": 1, "nesterov": 1, "adagrad": 1, "adam": 2, "adamw": 2, "adam_amsgrad": 3,
          "adamw_amsgrad": 3}  # fmt: skip
"""Numbers that an optimizer keeps of each parameter."""


@pytest.mark.parametrize("rule", STATES)
def test_a_fused_update_reads_and_writes_each_number_once(rule: str) -> None:
    costed = add_costs(table(optimizer(rule, "fused", 1000.0, 10)))
    # The parameter, its gradient and the states are read; all but the gradient are written.
    assert costed["byte"].iat[0] == 4 * 1000 * (2 + STATES[rule] + 1 + STATES[rule])


def test_what_a_transposed_convolution_adds_at_the_far_end_may_be_nothing() -> None:
    """From 5×5 with 4 channels by 3×3 at stride 2 to 11×11 with 6, or 12×12 with one more: bytes of all three."""
    row = conv(1.0, (4.0, 6.0), 5.0, 3.0, stride_h=2.0, stride_w=2.0, transposed=1.0)
    grown = [add_costs(table({**row, "output_pad_h": more, "output_pad_w": more})) for more in (0.0, 1.0)]
    byte = [4 * (4 * 5**2 + 4 * 6 * 3**2 + 6 * size**2) for size in (11, 12)]
    assert [costed["byte"].iat[0] for costed in (add_costs(table(row)), *grown)] == [byte[0], *byte]
    with pytest.raises(FomkitError, match="output_pad_h is -1"):
        add_costs(table({**row, "output_pad_h": -1.0}))


def test_what_an_optimizer_adds_to_another_is_arithmetic_of_its_own() -> None:
    named = {rule: add_costs(table(optimizer(rule, "fused", 1.0, 1)))["flop"].iat[0] for rule in STATES}
    assert named["sgd"] == 2  # times the rate, less it
    assert named["nesterov"] - named["momentum"] == 2  # the gradient and the momentum again, times its factor
    assert named["adamw"] - named["adam"] == 1  # the decay of the parameter
    assert named["adam_amsgrad"] - named["adam"] == named["adamw_amsgrad"] - named["adamw"] == 1  # the greater


@given(tables)
@settings(max_examples=40, deadline=None)
def test_the_stage_obeys_the_laws(ops: pd.DataFrame) -> None:
    ops.index = pd.Index(range(100, 100 + len(ops)))
    before = ops.copy(deep=True)
    costed = add_costs(ops)
    pd.testing.assert_frame_equal(ops, before)
    assert costed.index.equals(ops.index)
    assert list(costed.columns) == [*ops.columns, *NAMES]
    pd.testing.assert_frame_equal(costed[ops.columns], ops)
    pd.testing.assert_frame_equal(add_costs(costed), costed)
    assert all(costed[name].dtype == np.float64 for name in NAMES)
    check_table(costed, "COSTED", "test")


@given(rows)
@settings(max_examples=60, deadline=None)
def test_a_cost_is_unpriced_or_finite_and_not_negative(row: dict[str, object]) -> None:
    costed = add_costs(table(row)).iloc[0]
    values = [costed[name] for name in NAMES]
    unpriced = row["kind"] == "input" or row.get("cell") == "mgu" or row.get("rule") == "lion"
    assert all(np.isnan(value) for value in values) if unpriced else all(value >= 0 for value in values)


@pytest.mark.parametrize("kind", FORMULAS)
def test_a_formulas_arguments_are_the_columns_of_its_kind_and_its_parts(kind: str) -> None:
    formula = FORMULAS[kind]
    traffic = {"numel", "read_byte", "write_byte"}
    known = {*(KINDS[kind].dimensions or traffic), *DEFAULTS, *formula.parts, *formula.chosen_by, "item_byte"}
    for function in (formula.cost, *formula.parts.values()):
        assert set(arguments(function)) <= known
    assert arguments(formula.cost)[: len(formula.chosen_by)] == formula.chosen_by
    for variant in formula.variants:
        assert len(variant) == len(formula.chosen_by)
        assert "pass_name" not in formula.chosen_by or variant[-1] in PASSES


ODD = {"pad": 1.0, "kernel": 3.0, "dilation": 2.0, "stride": 2.0, "groups": 3.0, "density": 0.25, "causal": 1.0}


@pytest.mark.parametrize("transposed", [0.0, 1.0])
@pytest.mark.parametrize(
    ("kind", "variant"), [(kind, one) for kind in FORMULAS for one in FORMULAS[kind].variants]
)
def test_a_formula_gives_on_symbols_what_the_stage_gives(kind: str, variant: Variant, transposed: float) -> None:
    """The sympy form of each formula with exact numbers equals the float64 of a table."""
    formula = FORMULAS[kind]
    words = dict(zip(formula.chosen_by, variant, strict=True))
    columns = [*dict.fromkeys([*KINDS[kind].dimensions, *KINDS["copy"].dimensions])]
    sizes = {name: ODD.get(name.partition("_")[0], 10.0 + place) for place, name in enumerate(columns)}
    sizes |= {"in_channels": 6.0, "out_channels": 9.0, "transposed": transposed}
    base = {"op": "op", "dtype": "fp16", "engine": "vector", "pass_name": "forward", "count": 1.0, "layout": ""}
    costed = add_costs(table({**sizes, **base, **words, "kind": kind})).iloc[0]
    exact = {name: sympy.Rational(size) for name, size in {**DEFAULTS, **sizes, "item_byte": 2.0}.items()}
    on_symbols = formula.of(variant, Row(lambda name: sympy.Symbol(name, nonnegative=True), formula.parts))
    for name, value in on_symbols._asdict().items():
        value = sympy.sympify(value)
        found = value.subs({symbol: exact[symbol.name] for symbol in value.free_symbols})
        assert found.is_number
        assert float(found) == pytest.approx(costed[name], rel=1e-14), name


def test_the_words_of_formulas_round_down_and_up_on_whatever_they_get() -> None:
    x = sympy.Symbol("x", positive=True)
    for function, value, expected in ((floor, 2.5, 2), (ceil, 2.5, 3), (log2, 32.0, 5)):
        assert function(value) == expected
        assert function(np.array([value, value])).tolist() == [expected] * 2
        assert function(x).subs(x, sympy.Rational(value)) == expected


def test_a_part_of_a_row_is_worked_out_once() -> None:
    calls = []

    def area(height: float, width: float) -> float:
        calls.append((height, width))
        return height * width

    row = Row({"height": 3.0, "width": 5.0}.__getitem__, {"area": area})
    assert row.give(lambda area, pass_name: (pass_name, area), pass_name="forward") == ("forward", 15)
    assert row["area"] == 15
    assert calls == [(3.0, 5.0)]


def test_pricing_needs_no_sympy_and_printing_does() -> None:
    code = (
        "import sys, pandas\nfrom fomkit.ops import pricing\n"
        "op = {'op': 'mm', 'kind': 'gemm', 'dtype': 'fp32', 'engine': 'vector', 'pass_name': 'forward'}\n"
        "op['count'] = 1.0\n"
        "op |= dict.fromkeys('bmnk', 2.0)\n"
        "pricing.add_costs(pandas.DataFrame([op]))\n"
        "print('sympy' in sys.modules)\n"
        "pricing.work_out(op)\n"
        "print('sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]


def test_counts_do_not_overflow() -> None:
    flop = add_costs(table(gemm(8_400_000, 131_072, 131_072, b=96))).at[0, "flop"]
    assert flop == pytest.approx(2 * 96 * 8_400_000 * 131_072**2)


def test_p1b3_step_at_batch_100() -> None:
    widths = [29_532, 1_000, 500, 100, 50, 1]
    layers = list(itertools.pairwise(widths))
    forward = [gemm(100, wide, deep) for deep, wide in layers]
    weight = [gemm(deep, wide, 100) for deep, wide in layers]
    data = [gemm(100, deep, wide) for deep, wide in layers[1:]]
    assert add_costs(table(*forward))["flop"].sum() == 6_017_410_000
    assert add_costs(table(*forward, *weight, *data))["flop"].sum() == 12_145_830_000


@pytest.mark.parametrize(
    ("row", "mac"),
    [
        (conv(1, (256, 512), 28, 3, pad_h=1.0, pad_w=1.0), 256 * 512 * 9 * 28 * 28),
        (conv(1, (512, 512), 28, 3, pad_h=1.0, pad_w=1.0), 1_849_688_064),
        (conv(1, (96, 256), 27, 5, pad_h=2.0, pad_w=2.0, groups=2.0), 223_948_800),
        (conv(1, (3, 96), 227, 11, stride_h=4.0, stride_w=4.0), 105_415_200),
        (conv(8, (512, 512), 14, 3, pad_h=1.0, pad_w=1.0, groups=512.0), 8 * 512 * 9 * 14 * 14),
    ],
    ids=["vgg conv4_1", "vgg conv4_2", "alexnet conv2", "alexnet conv1", "depthwise"],
)
def test_convolution_work_is_the_same_in_each_pass(row: dict[str, object], mac: float) -> None:
    passes = [{**row, "pass_name": name} for name in ("forward", "backward_input", "backward_weight", "backward")]
    assert add_costs(table(*passes))["flop"].tolist() == [2 * mac, 2 * mac, 2 * mac, 4 * mac]


def test_a_transposed_convolution_mirrors_the_direct_one() -> None:
    direct = conv(4, (3, 8), 33, 3, stride_h=2.0, stride_w=2.0, pad_h=1.0, pad_w=1.0)
    mirrored = conv(4, (8, 3), 17, 3, stride_h=2.0, stride_w=2.0, pad_h=1.0, pad_w=1.0, transposed=1.0)
    first, second = add_costs(table(direct, mirrored))[NAMES].to_numpy()
    assert first.tolist() == second.tolist()


def test_a_one_dimensional_convolution_has_height_one() -> None:
    row = conv(20, (1, 128), 1, 1, width=60_483.0, kernel_w=20.0)
    costed = add_costs(table(row)).iloc[0]
    assert costed["flop"] == 2 * 20 * 128 * 20 * 60_464
    assert costed["byte"] == 4 * (20 * 60_483 + 128 * 20 + 20 * 128 * 60_464)


@pytest.mark.parametrize(
    ("row", "time_ms", "teraflops"),
    [
        (rnn("lstm", 16, 25, 512), 1.095, 0.7660829223744292),
        (rnn("vanilla", 16, 50, 1760), 4.201, 1.180092358962152),
        (rnn("gru", 32, 1500, 2816), 223.343, 10.22552096103303),
    ],
    ids=["lstm", "vanilla", "gru"],
)
def test_recurrent_work_is_what_deepbench_prints(row: dict[str, object], time_ms: float, teraflops: float) -> None:
    # DeepBench adds one operation per state of the vanilla cell, 0.03 % here.
    assert add_costs(table(row)).at[0, "flop"] == pytest.approx(time_ms * 1e-3 * teraflops * 1e12, rel=3e-4)


def test_a_recurrent_layer_multiplies_input_and_state_and_stacks() -> None:
    one = rnn("lstm", 32, 35, 650, input_size=200.0)
    two = rnn("lstm", 32, 35, 650, input_size=200.0, layers=2.0, directions=2.0)
    flop = add_costs(table(one, two))["flop"].tolist()
    assert flop == [2 * 32 * 35 * 4 * 650 * 850, 2 * 2 * 32 * 35 * 4 * 650 * (850 + 1300 + 650)]


def test_a_recurrent_layer_moves_weights_inputs_and_states_and_backward_its_gates() -> None:
    weights = 4 * 650 * (200 + 650)
    forward, backward = add_costs(
        table(*(rnn("lstm", 32, 35, 650, input_size=200.0, pass_name=name) for name in ("forward", "backward")))
    )["byte"]
    assert forward == 4 * (weights + 32 * 35 * (200 + 650))
    assert backward == 2 * 4 * (weights + 32 * 35 * (200 + 650 * (1 + 4)))


def test_attention_works_as_much_as_its_two_products() -> None:
    products = table(gemm(1024, 1024, 64, b=48), gemm(1024, 64, 1024, b=48))
    both = table(attention(4, 12, 1024, 64), attention(4, 12, 1024, 64, pass_name="backward"))
    forward, backward = add_costs(both)["flop"]
    assert forward == add_costs(products)["flop"].sum()
    assert backward == 2 * forward
    assert add_costs(both).at[0, "byte"] == 4 * 4 * (4 * 12 * 1024 * 64)


def test_optimizer_traffic_on_p1b3() -> None:
    costed = add_costs(
        table(
            optimizer("adam", "fused", P1B3_PARAMETERS, 10),
            optimizer("adam", "per_tensor", P1B3_PARAMETERS, 10),
            optimizer("adam", "foreach", P1B3_PARAMETERS, 10),
            optimizer("sgd", "per_tensor", P1B3_PARAMETERS, 10),
        )
    )
    assert costed["byte"].tolist() == [factor * 4 * P1B3_PARAMETERS for factor in (7, 18, 18, 3)]
    assert costed.at[0, "byte"] == 842_483_628
    assert costed["launches"].tolist() == [2, 70, 14, 10]
    # What a trace of the first step adds: the squared gradient named twice, and two states made from nothing.
    traced = (18 + 1 + 4) * 4 * P1B3_PARAMETERS
    assert traced == pytest.approx(2.77e9, rel=2e-3)


def test_what_moves_data_has_no_flop_but_traffic() -> None:
    costed = add_costs(table(traffic("copy", 10.0), traffic("softmax", 10.0), traffic("norm", 10.0)))
    assert costed["flop"].tolist() == [0, 50, 80]
    assert costed["byte"].tolist() == [120, 120, 120]


def test_half_precision_moves_half_the_bytes_and_unknown_formats_are_refused() -> None:
    costed = add_costs(table(*(gemm(8, 8, 8, dtype=dtype) for dtype in ("fp32", "bf16", "tf32"))))
    assert costed["byte"].tolist() == [768, 384, 768]
    with pytest.raises(ManyFomkitError, match="dtype is 'posit'"):
        add_costs(table(gemm(8, 8, 8, dtype="posit")))


def test_intensity_of_a_deep_product_is_limited_by_its_faces() -> None:
    b, m, n, k, item_byte = sympy.symbols("b m n k item_byte", positive=True)
    cost = costs.gemm(b, m, n, k, item_byte)
    limit = sympy.limit(cost.flop / cost.byte, k, sympy.oo)
    assert sympy.simplify(limit - 2 * m * n / (item_byte * (m + n))) == 0


def test_a_sparse_product_without_zeros_does_the_work_of_a_dense_one() -> None:
    b, m, n, k, density, item_byte = sympy.symbols("b m n k density item_byte", positive=True)
    sparse = costs.sparse_gemm(b, m, n, k, density, item_byte)
    dense = costs.gemm(b, m, n, k, item_byte)
    assert sympy.simplify(sparse.flop.subs(density, 1) - dense.flop) == 0
    assert sympy.simplify(sparse.byte.subs(density, 1) - dense.byte - 4 * b * (m * k + m + 1)) == 0


def test_intensity_of_attention_on_long_keys_is_limited_by_the_queries() -> None:
    """A key and its value meet every query of their heads: 4·q·heads flop for 2·kv_heads items."""
    names = "batch heads kv_heads q_len kv_len head_dim item_byte"
    batch, heads, kv_heads, q_len, kv_len, head_dim, item_byte = sympy.symbols(names, positive=True)
    cost = costs.attention("forward", batch, heads, kv_heads, q_len, kv_len, head_dim, item_byte)
    limit = sympy.limit(cost.flop / cost.byte, kv_len, sympy.oo)
    assert sympy.simplify(limit - 2 * heads * q_len / (item_byte * kv_heads)) == 0


def test_formulas_print_in_the_columns_names() -> None:
    assert print_cost("gemm", ()) == ("2*b*k*m*n", "b*item_byte*(k*m + k*n + m*n)", "1")
    launches = print_cost("optimizer", ("adam", "foreach")).launches
    assert launches == "7*ceiling(numel/20971520 + tensors/48)"


def test_a_missing_dimension_is_named() -> None:
    with pytest.raises(ManyFomkitError, match="'k' is missing"):
        add_costs(table(gemm(2, 2, 2)).drop(columns="k"))


def test_a_mixture_whose_tokens_choose_two_experts_each_by_hand() -> None:
    """With half of 8 experts: half of 3 tokens · 2 choices arrive, and 4 · (1 − (7/8)⁶) experts are read."""
    found = mixture(b=4, m=3, n=10, k=100, experts=8, top_k=2, item_byte=2)
    sent, chosen = 3.0, 4 * (1 - (7 / 8) ** 6)
    assert found.flop == pytest.approx(2 * 3 * sent * 10 * 100)
    assert found.byte == pytest.approx(2 * (3 * chosen * 10 * 100 + 2 * sent * 100))
