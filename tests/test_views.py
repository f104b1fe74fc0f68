"""Views of an op table: groups and sums, labels of shapes, trees, the lecture's cut, layers by type."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from costs.op_tables import conv
from hypothesis import given
from hypothesis import strategies as st

from fomkit.core.errors import FomkitError
from fomkit.ops.conv_methods import im2col_byte
from fomkit.ops.groups import GROUPINGS, add_up, fewest, group_labels, identities, shape_label
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.ops.tables import COSTS
from fomkit.ops.views import layer_census, split_by_line, tree_labels
from fomkit.profiles.models import load_model

AMOUNTS = st.lists(st.floats(0.001, 1e9), min_size=1, max_size=30)
PATHS = st.lists(st.lists(st.sampled_from("abc"), max_size=4).map(".".join), min_size=1, max_size=20)
MODELS = ("p1b3", "alexnet", "vgg16", "googlenet", "resnet50-caffe", "resnet50", "gpt2", "p1b3-lecture")


@pytest.fixture(scope="module")
def ops():
    def of(name: str, **sizes: int) -> pd.DataFrame:
        model = load_model(name)
        return add_costs(resize_ops(model.ops, {**model.sizes, **sizes}, name))

    return of


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("by", GROUPINGS)
def test_groups_add_up_to_the_step(ops, name, by):
    table = ops(name)
    table = table.reset_index(drop=True)
    total, distinct = add_up(table), identities(table)
    labels = group_labels(table, by)
    groups = [add_up(rows, distinct) for _, rows in table.groupby(labels)]
    for measure in ("count", "flop_missing", "byte_missing"):
        assert sum(getattr(one, measure) for one in groups) == getattr(total, measure), measure
    for measure in ("flop", "byte"):
        known = [value for one in groups if not math.isnan(value := getattr(one, measure))]
        assert math.fsum(known) == pytest.approx(getattr(total, measure), rel=1e-12)
    if by in ("kind", "op", "pass"):
        assert sum(one.distinct for one in groups) == total.distinct


def test_unpriced_work_is_missing_and_never_0(ops, unsized):
    table = ops(unsized)
    assign = add_up(table[table["op"] == "Assign"])
    assert math.isnan(assign.flop)
    assert math.isnan(assign.intensity)
    assert (assign.count, assign.flop_missing) == (1, 1)
    total = add_up(table)
    assert total.flop == 12_145_830_000
    assert total.flop_missing == 13
    assert add_up(table).time_missing == total.count


def test_intensity_is_of_ops_of_which_both_are_known():
    table = pd.DataFrame({"op": ["a", "b"], "count": [1.0, 1.0], "flop": [6.0, 100.0], "byte": [3.0, np.nan]})
    assert add_up(table).intensity == 2.0


LINES = st.sampled_from(["a.py:1 f", "a.py:2 f", "lib/b.py:7 C.g", "anything"])
CELLS = st.lists(st.tuples(LINES, st.integers(0, 9)), max_size=3)


@given(rows=st.lists(st.tuples(st.integers(0, 9), CELLS), min_size=1, max_size=6), told=st.booleans())
def test_executions_of_lines_add_up_to_their_rows(rows, told):
    cells = ["; ".join(f"{line} ×{times}" if told else line for line, times in cell) for _, cell in rows]
    counts = [float(count) for count, _ in rows]
    table = pd.DataFrame({"op": range(len(rows)), "count": counts, "code_line": cells})
    found = split_by_line(table)
    assert found.groupby("op")["count"].sum().tolist() == pytest.approx(table["count"].tolist())
    assert (found["count"] >= 0).all()
    assert set(found["code_line"]) <= {
        "", "a.py > f > line 1", "a.py > f > line 2", "lib/b.py > C.g > line 7", "anything",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("a.py:1 f", {"a.py > f > line 1": 6.0}),
        ("a.py:1", {"a.py > line 1": 6.0}),
        ("a.py:1 f ×4; a.py:9 g ×2", {"a.py > f > line 1": 4.0, "a.py > g > line 9": 2.0}),
        ("a.py:1 f; a.py:9 g", {"a.py > f > line 1": 3.0, "a.py > g > line 9": 3.0}),
        ("a.py:1 f ×4", {"a.py > f > line 1": 4.0, "": 2.0}),
        ("a.py:1 f ×9; a.py:9 g ×3", {"a.py > f > line 1": 4.5, "a.py > g > line 9": 1.5}),
        ("", {"": 6.0}),
    ],
)
def test_lines_share_the_executions_of_their_row(cell, expected):
    table = pd.DataFrame({"op": ["mm"], "count": [6.0], "code_line": [cell], "flop": [2.0]})
    found = split_by_line(table)
    assert dict(zip(found["code_line"], found["count"], strict=True)) == expected
    assert set(found["flop"]) == {2.0}


def test_scopes_are_modules_with_their_ops(ops):
    labels = group_labels(ops("gpt2"), "scope")
    assert labels.iloc[5] == "blocks/0/attention/query_key_value/aten::addmm"
    assert labels.iloc[-1] == "AdamW.step"


@pytest.mark.parametrize(
    ("row", "label"),
    [
        ({"kind": "gemm", "b": 12.0, "m": 4.0, "n": 5.0, "k": 6.0, "trans_a": 1.0}, "gemm 12·4×5×6 Aᵀ"),
        ({"kind": "sparse_gemm", "b": 1.0, "m": 4.0, "n": 5.0, "k": 6.0, "density": 0.1},
         "sparse_gemm 4×5×6 10% dense"),
        (conv(1.0, (3.0, 96.0), 27.0, 5.0, stride_w=2.0, pad_h=2.0), "conv 1× 3→96 27×27 k5 s1×2 p2×0"),
        ({"kind": "pool", "numel": 9.0, "read_byte": 4.0, "write_byte": 2.5},
         "pool 9 elements, 4 B read, 2.5 B written"),
        ({"kind": "norm", "numel": 96.0, "row": 12.0, "read_byte": 4.0, "write_byte": 2.0, "inputs": 7.0},
         "norm 96 elements, 12 a row, 4 B read, 2 B written, 7 inputs"),
        ({"kind": "copy", "numel": 205852672.0, "read_byte": 1646821376.0, "write_byte": 0.5},
         "copy 205,852,672 elements, 1,646,821,376 B read, 0.5 B written"),
        ({"kind": "other"}, "other no sizes"),
        (
            {"kind": "rnn", "cell": "lstm", "batch": 16.0, "steps": 20.0, "input_size": 32.0, "hidden_size": 64.0,
             "layers": 2.0, "directions": 2.0},
            "rnn lstm 16× 20 steps 32→64, 2 layers, both ways",
        ),
        (
            {"kind": "attention", "batch": 4.0, "heads": 12.0, "kv_heads": 3.0, "q_len": 7.0, "kv_len": 8.0,
             "head_dim": 64.0, "causal": 1.0},
            "attention 4× 12 heads (3 of keys) q7 kv8 d64 causal",
        ),
    ],
)  # fmt: skip
def test_shapes_read_at_a_glance(row, label):
    assert shape_label(row) == label


@pytest.mark.parametrize("name", MODELS)
def test_different_sizes_have_different_labels(ops, name):
    """Otherwise one row of a view could mix shapes."""
    table = ops(name).reset_index(drop=True)
    labels = group_labels(table, "shape")
    costs = [column.name for column in COSTS]
    places = ("op", "count", "module", "code_line", "traced_time_s", "pass_name", *costs)
    keys = [column for column in table.columns if column not in places]
    for _, rows in table.groupby(labels):
        assert not rows[keys].astype(str).drop_duplicates().iloc[1:].size


def test_convolutions_name_what_is_not_usual(ops):
    labels = set(group_labels(ops("alexnet", batch=1), "shape"))
    assert "conv 1× 3→96 227×227 k11 s4" in labels
    assert "conv 1× 96→256 27×27 k5 p2 g2" in labels


@given(amounts=AMOUNTS, share=st.floats(0.01, 1))
def test_the_cut_is_the_fewest_that_reach_the_share(amounts, share):
    named = {str(place): amount for place, amount in enumerate(amounts)}
    cut = fewest(named, share)
    taken = sorted(amounts, reverse=True)[: len(cut.groups)]
    total = math.fsum(amounts)
    assert cut.reached == pytest.approx(math.fsum(taken) / total)
    assert cut.reached >= share - 1e-9
    assert math.fsum(taken[:-1]) / total < share


def test_the_cut_leaves_unknown_amounts_out_and_refuses_none():
    assert fewest({"a": 1.0, "b": math.nan}, 0.5).groups == ("a",)
    with pytest.raises(FomkitError, match="no op has a value of this measure"):
        fewest({"a": math.nan}, 0.5)
    for share in (0.0, 1.5, -1.0):
        with pytest.raises(FomkitError, match="not a share of a total"):
            fewest({"a": 1.0}, share)


@given(paths=PATHS, depth=st.integers(1, 5))
def test_own_places_part_the_rows_and_inclusive_ones_hold_their_children(paths, depth):
    places = list(tree_labels(paths, ".", depth))
    assert sorted(label for place in places for label in place.own) == sorted(set(paths))
    assert len({place.path for place in places}) == len(places)
    by_path = {place.path: place for place in places}
    for place in places:
        assert place.own <= place.inclusive
        assert place.depth < depth
        above = by_path.get(place.path.rpartition(".")[0])
        if place.depth:
            assert above is not None
            assert place.inclusive <= above.inclusive
            assert places.index(above) < places.index(place)


# layers, multiply-adds, operations in all where known, parameters
CLASSIC = {
    "alexnet": (20, 724_406_816, 729_211_656, 60_965_224),
    "vgg16": (36, 15_470_264_320, 15_503_498_216, 138_357_544),
    "googlenet": (140, 1_582_671_872, None, 6_998_552),
    "resnet50-caffe": (227, 3_857_973_248, None, 25_557_032),
}


@pytest.fixture(scope="module")
def census(ops):
    def of(name: str):
        model = load_model(name)
        layers = resize_ops(model.layers, {**model.sizes, "batch": 1}, name)
        table = ops(name, batch=1)
        return layer_census(layers, table, im2col_byte(table, whole_batch=True))

    return of


@pytest.mark.parametrize("name", CLASSIC)
def test_layers_by_type_are_the_lectures(census, name):
    layers, multiply_adds, operations, parameters = CLASSIC[name]
    total = census(name).types.sum()
    assert (total["layers"], total["multiply_adds"], total["parameters"]) == (layers, multiply_adds, parameters)
    if operations is not None:
        assert total["multiply_adds"] + total["other_operations"] == operations


def test_a_layer_that_only_moves_data_does_no_operation(census):
    joined = census("googlenet").types.loc["concat", ["layers", "multiply_adds", "other_operations"]]
    assert joined.tolist() == [9.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("alexnet", {"conv": 5, "relu": 7, "lrn": 2, "pool": 3, "linear": 3}),
        ("vgg16", {"conv": 13, "relu": 15, "pool": 5, "linear": 3}),
        ("googlenet", {"conv": 57, "relu": 57, "pool": 14, "lrn": 2, "concat": 9, "linear": 1}),
        (
            "resnet50-caffe",
            {"conv": 53, "batch_norm": 53, "scale": 53, "relu": 49, "pool": 2, "add": 16, "linear": 1},
        ),
    ],
)
def test_counts_by_type(census, name, counts):
    found = census(name)
    assert found.types["layers"].to_dict() == counts
    assert found.elsewhere_flop == pytest.approx(5 * 1000, abs=1)  # softmax and loss of 1000 classes


def test_scaling_owns_what_batch_normalisation_learns(census):
    types = census("resnet50-caffe").types
    assert types.at["batch_norm", "parameters"] == 0
    assert types.at["scale", "parameters"] == 53_120
    assert (
        types.at["scale", "output_byte"]
        == types.at["batch_norm", "output_byte"]
        == types.at["conv", "output_byte"]
    )


def test_a_type_that_nobody_knows_goes_by_its_name(ops):
    """Layers of a user's own class, with one operation per output and no products."""
    layers = pd.DataFrame(
        {"layer": ["input", "Squash"], "module": ["", "x"], "op": ["", ""], "count": [1.0, 2.0],
         "acts": ["input", "always"], "parameters": [0.0, 3.0], "parameter_byte": [0.0, 12.0], "bias": [0.0, 0.0],
         "output_numel": [5.0, 7.0], "output_byte": [20.0, 28.0], "readers": [2.0, 0.0], "in_place": [0.0, 0.0]}
    )  # fmt: skip
    row = ops("alexnet", batch=1).query("op == 'aten::relu_'").iloc[:1].assign(module="x")
    found = layer_census(layers, row, pd.Series(0.0, row.index))
    assert found.types.loc["Squash", ["layers", "other_operations", "parameters", "output_byte"]].tolist() == [
        2, 14, 3, 56,
    ]  # fmt: skip
    assert (found.input_byte, found.copy_byte, found.in_place_byte) == (20, 40, 0)
