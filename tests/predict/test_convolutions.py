"""Features and terms of convolutions in a fit, by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from costs.op_tables import conv, table

from fomkit.ops.pricing import add_costs
from fomkit.prediction.calibration import fit_mean, fit_timings
from fomkit.prediction.families import FamilyName, conv_features, conv_output, conv_terms, log_sizes, training_rows

PASSES = ("forward", "backward_input", "backward_weight")


def costed(*shapes, word="forward"):
    return add_costs(table(*({**shape, "pass_name": word} for shape in shapes)))


def test_only_what_a_feature_names_moves_it():
    plain = conv(8.0, (64.0, 64.0), 28.0, 3.0)
    shapes = {"pad_h": 1.0, "width": 56.0, "kernel_w": 5.0, "batch": 16.0, "in_channels": 128.0}
    features = conv_features(costed(plain, *({**plain, name: value} for name, value in shapes.items())))
    moved = [int((row != features[0]).sum()) for row in features[1:]]
    assert all(moved)
    assert len({tuple(row) for row in features}) == len(features)
    assert np.isfinite(features).all()


def test_an_output_by_hand_and_none_of_a_size_that_nobody_states():
    """Of 28: 3 at stride 1 leave 26; 3, two apart, reach over 5 and from 30 at stride 2 leave 13."""
    row = pd.DataFrame({
        "height": [28.0, 28.0, 28.0, np.nan], "kernel_h": 3.0, "stride_h": [1.0, 2.0, 2.0, 1.0],
        "pad_h": [0.0, 1.0, 1.0, 0.0], "dilation_h": [1.0, 2.0, 2.0, 1.0],
        "transposed": [np.nan, 0.0, 1.0, np.nan],
    })  # fmt: skip
    assert conv_output(row, "height", "h").tolist() == pytest.approx([26.0, 13.0, 28.0, np.nan], nan_ok=True)
    assert [one.tolist() for one in log_sizes(row[2:], "height", "row")] == [[np.log2(28.0), 0.0], [0.0, 0.0]]


def test_a_tile_holds_the_channels_of_what_a_pass_computes():
    shape = conv(8.0, (16.0, 64.0), 28.0, 3.0, pad_h=1.0, pad_w=1.0)
    forward, back = (conv_features(costed(shape, word=word))[0] for word in PASSES[:2])
    # 16 channels fill a quarter of a tile of 64.
    assert (back - forward)[np.flatnonzero(back != forward)].tolist() == [-2.0]


@pytest.mark.parametrize(
    ("word", "kernel", "stride", "slow"),
    [
        ("forward", 5.0, 2.0, (False, False)),
        ("backward_weight", 3.0, 1.0, (False, False)),
        ("backward_weight", 3.0, 2.0, (True, False)),
        ("backward_input", 3.0, 1.0, (False, False)),
        ("backward_input", 1.0, 2.0, (True, False)),
        ("backward_input", 5.0, 2.0, (True, True)),
    ],
)
def test_gradients_without_a_fast_algorithm_have_rates_of_their_own(word, kernel, stride, slow):
    rows = costed(conv(4.0, (32.0, 32.0), 28.0, kernel, stride_h=stride, stride_w=stride), word=word)
    flop = rows["flop"].iloc[0]
    assert conv_terms(rows)[0, 3:].tolist() == [flop * one for one in slow]


def test_one_stride_of_two_under_a_kernel_of_two_is_enough_to_scatter():
    rows = costed(conv(4.0, (32.0, 32.0), 28.0, 1.0, kernel_h=2.0, stride_h=2.0), word="backward_input")
    assert conv_terms(rows)[0, 3:].tolist() == [rows["flop"].iloc[0]] * 2


def test_a_term_that_no_row_has_costs_nothing():
    sizes = np.geomspace(1e6, 1e9, 20)
    terms = np.column_stack([np.ones(20), sizes, np.zeros(20)])
    found = fit_mean(terms, 1e-6 + sizes / 1e12)
    assert found[2] == 0
    assert found[1] == pytest.approx(1e-12, rel=0.05)


def test_a_table_of_one_algorithm_prices_the_other(p100):
    """Without strided timings the term is not fitted: a strided op has a finite time by the others' rates."""
    from dataclasses import replace

    from fomkit.prediction import interpolate

    rows = training_rows(add_costs(p100.timings), FamilyName("conv", "fp32", "vector", "backward_input"))
    straight = rows["stride_h"] == 1
    known = rows[straight].reset_index(drop=True)
    times = interpolate.estimate(rows[~straight], replace(p100, timings=known, fits=fit_timings(known)), 0.8)
    ratio = pd.Series({index: timed.time_s for index, timed in times.items()}) / rows["_time_s"]
    assert ratio.dropna().between(0.05, 20).all()
    assert ratio.count() == (~straight).sum()
