"""Methods of convolutions: formulas compared with counting implementations, golden numbers, limits, refusals."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import sympy
from costs.counted import (
    MATRICES,
    MIRRORED,
    PROGRAMS,
    Counted,
    by_program,
    counted,
    counting,
    direct,
    fft,
    matrix,
    plain,
    spectrum_points,
    winograd,
    winograd_weight,
)
from costs.op_tables import conv, gemm, table
from hypothesis import given, settings
from hypothesis import strategies as st

from fomkit.ops.conv_methods import (
    FORMULAS,
    METHODS,
    PARTS,
    PASSES,
    WINOGRAD,
    Transform,
    im2col_byte,
    method_costs,
)
from fomkit.ops.families import costs as conv_formulas
from fomkit.ops.families.formula import Row
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.profiles.models import load_model

MIB = 1024**2
FIGURES = ["multiply_adds", "additions", "multiplications", "flop", "work_depth", "fixed_byte", "sample_byte"]
RANDOM = np.random.default_rng(8)


def same(batch: float, channels: tuple[float, float], size: float, kernel: float, **more: object):
    pad = (kernel - 1) / 2
    return conv(batch, channels, size, kernel, pad_h=pad, pad_w=pad, **more)


def of(row: dict[str, object], method: str, pass_name: str = "forward") -> pd.Series:
    return method_costs(table({**row, "pass_name": pass_name})).set_index("method").loc[method]


def integers(*shape: int) -> np.ndarray:
    return RANDOM.integers(-5, 6, shape)


def reference(image: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """Correlate a padded image with filters, in floats."""
    windows = np.lib.stride_tricks.sliding_window_view(image, filters.shape[-2:], axis=(-2, -1))
    return np.einsum("nchwrs,kcrs->nkhw", windows, filters)


def padded(image: np.ndarray, pad: tuple[int, int]) -> np.ndarray:
    return np.pad(image, [(0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2])


def work(method: pd.Series) -> dict[str, float]:
    return method[["additions", "multiplications"]].to_dict()


def on_symbols(formulas: str, pass_name: str):
    """Return a method's formulas on symbols, and a function that puts a row's numbers in."""
    symbols = Row(lambda name: sympy.Symbol(name, positive=True), {**conv_formulas.PARTS, **PARTS})
    cost = symbols.give(FORMULAS[formulas], pass_name=pass_name)

    def put(value, row):
        known = {"item_byte": 4, "transposed": 0, "output_pad_d": 0, "output_pad_h": 0, "output_pad_w": 0, **row}
        value = sympy.sympify(value)
        return value.subs({one: sympy.nsimplify(known[one.name]) for one in value.free_symbols})

    return cost, put


@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize("formulas", FORMULAS)
def test_a_method_gives_on_symbols_what_the_table_gives(formulas, pass_name) -> None:
    row = same(2.0, (6.0, 9.0), 11.0, 3.0, groups=3.0)
    cost, put = on_symbols(formulas, pass_name)
    stated = of(row, formulas, pass_name)
    for name, value in cost._asdict().items():
        assert float(put(value, row)) == pytest.approx(stated[name], rel=1e-14), name


@pytest.mark.parametrize(("tile", "saved"), [(2, sympy.Rational(9, 4)), (4, 4)])
def test_with_many_samples_and_channels_winograds_transforms_cost_nothing(tile, saved) -> None:
    """In the limit only the products count: (3·m)² of the direct method for (m + 2)² of this one."""
    row = {**same(1.0, (1.0, 1.0), 8.0, 3.0), "many": sympy.Symbol("many", positive=True)}
    flop = {}
    for formulas in ("direct", f"winograd_{tile}"):
        cost, put = on_symbols(formulas, "forward")
        whole = sympy.sympify(2 * cost.multiply_adds + cost.additions + cost.multiplications)
        grow = {
            one: row["many"] for one in whole.free_symbols if one.name in ("batch", "in_channels", "out_channels")
        }
        flop[formulas] = put(whole.subs(grow), row)
    assert sympy.limit(flop["direct"] / flop[f"winograd_{tile}"], row["many"], sympy.oo) == saved


def test_all_arithmetic_of_a_method_is_its_flop() -> None:
    """One tile of F(4, 3) on a line of one channel, by the counts of `WINOGRAD`.

    6 multiply-adds are 12 flop; data, filter and result take 12 + 6 + 10 additions and 7 + 5 + 3 multiplications.
    The direct way takes 3·4 multiply-adds, 24 flop.
    """
    line = conv(1.0, (1.0, 1.0), 1.0, 1.0, width=4.0, kernel_w=3.0, pad_w=1.0)
    stated = of(line, "winograd_4")
    assert stated[["multiply_adds", "additions", "multiplications", "flop"]].tolist() == [6, 28, 15, 12 + 28 + 15]
    assert of(line, "direct")["flop"] == 24


def test_the_least_arithmetic_of_a_line_by_hand() -> None:
    """40 positions of 16 by 16 channels: ten tiles of F(4, 3).

    Products 2·6·16·16·10; data (12 + 7)·16·10, filters (6 + 5)·16·16, results (10 + 3)·16·10: 38,656 flop, where
    the direct way takes 2·3·16·16·40 = 61,440.
    """
    line = conv(1.0, (16.0, 16.0), 1.0, 1.0, width=40.0, kernel_w=3.0, pad_w=1.0)
    costed = add_costs(table(line)).iloc[0]
    assert (costed["flop"], costed["least_flop"]) == (61_440, 30_720 + 3_040 + 2_816 + 2_080)


@pytest.mark.parametrize("key", PROGRAMS, ids=str)
def test_a_program_is_its_matrix_and_takes_what_is_counted(key) -> None:
    for programs, mirrored in ((PROGRAMS, False), (MIRRORED, True)):
        if key not in programs:
            continue
        rows = matrix(*key, mirrored)
        values = counted(integers(len(rows[0])))
        found, took = counting(lambda program=programs[key], given=values: program(list(given)))
        expected = [sum(a * one.value for a, one in zip(row, values, strict=True)) for row in rows]
        assert [one.value for one in found] == expected
        stated: Transform = getattr(WINOGRAD[key[1]], key[0])
        if mirrored:
            stated = stated.mirrored(len(rows), len(rows[0]))
        assert (took["additions"], took["multiplications"]) == stated


def test_transforms_of_small_tiles_are_lavin_and_grays() -> None:
    """32 and 24 instructions for data and result of F(2×2, 3×3); a filter's 28 count a multiply-add as one."""
    for name, length, instructions in (("data", 4, 32), ("result", 4, 24), ("filter", 3, 28 + 7)):
        tile = counted(integers(length, length))
        _, took = counting(lambda name=name, tile=tile: by_program(PROGRAMS[name, 2], tile, (0, 1)))
        assert sum(took.values()) == instructions


CASES = [((3, 3), (6, 6), (1, 1)), ((3, 3), (7, 5), (0, 0)), ((1, 3), (1, 9), (0, 1)), ((3, 1), (4, 3), (1, 0))]


def case(kernel, size, pad, batch=2, channels=(2, 3)):
    image, filters = integers(batch, channels[0], *size), integers(channels[1], channels[0], *kernel)
    row = conv(float(batch), (float(channels[0]), float(channels[1])), 0.0, 0.0, height=float(size[0]),
               width=float(size[1]), kernel_h=float(kernel[0]), kernel_w=float(kernel[1]),
               pad_h=float(pad[0]), pad_w=float(pad[1]))  # fmt: skip
    return image, filters, row


@pytest.mark.parametrize(("kernel", "size", "pad"), CASES)
def test_direct_and_im2col_multiply_as_often_as_stated(kernel, size, pad) -> None:
    image, filters, row = case(kernel, size, pad)
    seen = padded(image, pad)
    found, took = counting(lambda: direct(counted(seen), counted(filters)))
    assert (plain(found) == reference(seen, filters)).all()
    assert took["multiplications"] == of(row, "direct")["multiply_adds"]
    windows = np.lib.stride_tricks.sliding_window_view(seen, kernel, axis=(-2, -1))
    patches = windows.transpose(1, 4, 5, 0, 2, 3).reshape(filters[0].size, -1)
    assert (filters.reshape(len(filters), -1) @ patches == plain(found).transpose(1, 0, 2, 3).reshape(3, -1)).all()
    gathered = of(row, "im2col")
    assert (gathered["multiply_adds"], gathered["fixed_byte"]) == (took["multiplications"], 0)
    assert gathered["sample_byte"] * len(image) == 4 * patches.size
    # col2im adds every element of such a matrix into the image.
    assert of(row, "im2col", "backward_input")["additions"] == patches.size


@pytest.mark.parametrize("m", sorted(WINOGRAD))
@pytest.mark.parametrize(("kernel", "size", "pad"), CASES)
def test_winograd_equals_direct_and_takes_what_is_stated(kernel, size, pad, m) -> None:
    image, filters, row = case(kernel, size, pad)
    seen, transform = padded(image, pad), Counter()
    found, products = counting(lambda: winograd(counted(seen), counted(filters), m, transform))
    assert (plain(found) == reference(seen, filters)).all()
    stated = of(row, f"winograd_{m}")
    assert products["multiplications"] == stated["multiply_adds"]
    assert transform == work(stated)


@pytest.mark.parametrize("m", sorted(WINOGRAD))
@pytest.mark.parametrize(("kernel", "size", "pad"), CASES)
def test_winograds_gradients_equal_the_definition_and_take_what_is_stated(kernel, size, pad, m) -> None:
    image, filters, row = case(kernel, size, pad)
    seen = padded(image, pad)
    slope = integers(*reference(seen, filters).shape)
    # The input's gradient is the output's, padded to the input's positions, under mirrored filters.
    spread = padded(slope, tuple(length - 1 - part for length, part in zip(kernel, pad, strict=True)))
    turned, transform = filters.transpose(1, 0, 2, 3)[..., ::-1, ::-1], Counter()
    found, products = counting(lambda: winograd(counted(spread), counted(turned), m, transform))
    expected = np.zeros(image.shape)
    for place in np.ndindex(*image.shape):
        one = np.zeros(image.shape)
        one[place] = 1
        expected[place] = (reference(padded(one, pad), filters) * slope).sum()
    assert (plain(found) == expected).all()
    stated = of(row, f"winograd_{m}", "backward_input")
    assert (products["multiplications"], transform) == (stated["multiply_adds"], work(stated))

    transform = Counter()
    found, products = counting(lambda: winograd_weight(counted(seen), counted(slope), m, transform))
    windows = np.lib.stride_tricks.sliding_window_view(seen, slope.shape[-2:], axis=(-2, -1))
    assert (plain(found) == np.einsum("ncrshw,nkhw->kcrs", windows, slope)).all()
    stated = of(row, f"winograd_{m}", "backward_weight")
    assert (products["multiplications"], transform) == (stated["multiply_adds"], work(stated))


def test_a_cube_is_transformed_line_by_line_along_each_axis_in_turn() -> None:
    """F(2, 3) of 2×2×2 outputs from 4×4×4 points.

    Data take 3·16 lines of 4 additions; the filter 9 + 3·4 + 16 of 3 additions and 2 products; the result 16 +
    2·4 + 4 of 4 additions.
    """
    cube = conv(1.0, (1.0, 1.0), 4.0, 3.0, depth=4.0, kernel_d=3.0)
    stated = of(cube, "winograd_2")
    assert stated[["multiply_adds", "additions", "multiplications"]].tolist() == [
        64,
        192 + 37 * 3 + 28 * 4,
        37 * 2,
    ]


def test_winograds_workspace_is_what_its_three_arrays_hold() -> None:
    row = same(2.0, (3.0, 5.0), 8.0, 3.0)
    stated = of(row, "winograd_4")
    tiles, points = 2 * 2, 6 * 6
    assert (stated["fixed_byte"], stated["sample_byte"]) == (4 * points * 15, 4 * points * tiles * (3 + 5))
    fused = of(row, "winograd_4_fused")
    assert (fused["fixed_byte"], fused["sample_byte"]) == (stated["fixed_byte"], 0)
    assert fused["flop"] == stated["flop"]


@pytest.mark.parametrize("length", [2, 8, 32])
def test_a_radix_2_transform_takes_twice_what_a_real_tile_is_stated_to_take(length) -> None:
    line = [(Counted(place), Counted(0)) for place in range(length)]
    found, took = counting(lambda: fft(line))
    assert [complex(float(a.value), float(b.value)) for a, b in found] == pytest.approx(np.fft.fft(range(length)))
    butterflies = length // 2 * int(np.log2(length))
    assert (took["additions"], took["multiplications"]) == (6 * butterflies, 4 * butterflies)
    # One sample, one channel, one filter, one tile of so many points: three transforms of half as much.
    row = conv(1.0, (1.0, 1.0), 1.0, 1.0, width=float(length), kernel_w=2.0, pad_w=0.0)
    stated = of(row, "fft")
    assert work(stated) == {"additions": 1.5 * took["additions"], "multiplications": 1.5 * took["multiplications"]}


@pytest.mark.parametrize(
    ("kernel", "size", "pad"), [((5, 5), (12, 9), (2, 2)), ((3, 3), (40, 35), (1, 1)), ((1, 20), (1, 90), (0, 0))]
)
def test_products_of_spectra_give_the_convolution_in_as_many_multiply_adds(kernel, size, pad) -> None:
    image, filters, row = case(kernel, size, pad)
    seen = padded(image, pad)
    out = tuple(length - part + 1 for length, part in zip(seen.shape[-2:], kernel, strict=True))
    for method in ("fft", "fft_tiled"):
        whole = [2 ** int(np.ceil(np.log2(length + part - 1))) for length, part in zip(out, kernel, strict=True)]
        spans = [1 if part == 1 else 32 if method == "fft_tiled" else length
                 for part, length in zip(kernel, whole, strict=True)]  # fmt: skip
        tile = [span - part + 1 for span, part in zip(spans, kernel, strict=True)]
        counts = [-(-length // part) for length, part in zip(out, tile, strict=True)]
        filled = [count * part + span - part for count, part, span in zip(counts, tile, spans, strict=True)]
        room = np.zeros((*seen.shape[:2], *np.maximum(filled, seen.shape[-2:])))
        room[..., : seen.shape[-2], : seen.shape[-1]] = seen
        spread, products = np.conj(np.fft.fft2(filters, spans)), 0
        found = np.zeros((2, 3, counts[0] * tile[0], counts[1] * tile[1]))
        for y, x in np.ndindex(*counts):
            top, left = y * tile[0], x * tile[1]
            part = np.fft.fft2(room[..., top : top + spans[0], left : left + spans[1]])
            term = np.einsum("nchw,kchw->nkhw", part, spread)
            products += spectrum_points([span for span in spans if span > 1]) * 2 * 2 * 3
            block = np.fft.ifft2(term).real[..., : tile[0], : tile[1]]
            found[..., top : top + tile[0], left : left + tile[1]] = block
        assert found[..., : out[0], : out[1]] == pytest.approx(reference(seen, filters), abs=1e-9)
        assert of(row, method)["multiply_adds"] == 4 * products


def test_a_line_takes_the_same_along_each_axis() -> None:
    """A line of 40 under a kernel of 3 and padding of 1, whichever axis it lies along."""
    found = []
    for size, axis in (("depth", "d"), ("height", "h"), ("width", "w")):
        line = {size: 40.0, f"kernel_{axis}": 3.0, f"pad_{axis}": 1.0}
        row = {**conv(2.0, (6.0, 9.0), 1.0, 1.0), **line}
        found.append(method_costs(table(row)).set_index("method")[FIGURES])
    # The FFT of the whole line is of 64 points: 33 frequencies of 4 multiply-adds; in tiles two of 32.
    assert found[2]["multiply_adds"][["fft", "fft_tiled"]].tolist() == [4 * 33 * 108, 2 * 4 * 17 * 108]
    for other in found[:2]:
        pd.testing.assert_frame_equal(other, found[2])


def test_the_lectures_work_and_depth() -> None:
    row = same(1.0, (512.0, 512.0), 28.0, 3.0)
    found = method_costs(table(row)).set_index("method")
    assert found.loc["direct", ["multiply_adds", "work_depth"]].tolist() == [1_849_688_064, 13]
    assert found.at["direct", "multiply_adds"] / found.at["winograd_2", "multiply_adds"] == 2.25
    assert found.at["direct", "multiply_adds"] / found.at["winograd_4", "multiply_adds"] == 4
    # Its depths: 2⌈log2 r⌉ + 4⌈log2 α⌉ + ⌈log2 C⌉ for Winograd and 2⌈log2 HW⌉ + ⌈log2 C⌉ for FFT.
    assert found.loc[["winograd_2", "winograd_4", "fft_tiled"], "work_depth"].tolist() == [21, 25, 29]


@pytest.mark.parametrize(("name", "mib"), [("alexnet", 11.24), ("googlenet", 46.19), ("resnet50-caffe", 79.19)])
def test_im2col_workspace_of_one_sample_is_the_lectures(name, mib) -> None:
    model = load_model(name)
    ops = resize_ops(model.ops, {**model.sizes, "batch": 1}, name)
    forward = ops[ops["pass_name"] == "forward"]
    byte = im2col_byte(forward, whole_batch=False)
    assert (byte * forward["count"]).sum() / MIB == pytest.approx(mib, abs=0.005)
    many = im2col_byte(forward.assign(batch=forward["batch"] * 7), whole_batch=True)
    assert many.tolist() == pytest.approx((byte * 7).tolist())
    assert (byte[forward["kind"] != "conv"] == 0).all()


def test_a_transposed_convolution_gathers_its_outputs_channels() -> None:
    row = conv(1.0, (4.0, 6.0), 5.0, 3.0, stride_h=2.0, stride_w=2.0, transposed=1.0)
    assert of(row, "im2col")["sample_byte"] == 4 * 6 * 9 * 25
    assert of(row, "im2col")["additions"] == 6 * 9 * 25
    assert of(row, "im2col", "backward_input")["additions"] == 0


EIGHT, QUICK = (8.0, 8.0), "fft fft_tiled winograd_2 winograd_4 winograd_4_fused"


@pytest.mark.parametrize(
    ("row", "methods", "why"),
    [
        (same(1.0, EIGHT, 8.0, 3.0, stride_h=2.0), QUICK, "stride above 1"),
        (same(1.0, EIGHT, 9.0, 3.0, dilation_w=2.0), QUICK, "dilation above 1"),
        (same(1.0, EIGHT, 8.0, 1.0), QUICK, "kernel of 1"),
        (same(1.0, EIGHT, 8.0, 3.0, transposed=1.0), QUICK, "transposed"),
        (same(1.0, EIGHT, 8.0, 5.0), "winograd_2 winograd_2_fused", "no transforms for this kernel"),
        (same(1.0, EIGHT, 80.0, 33.0), "fft_tiled", "kernel longer than the tile of 32"),
    ],
)
def test_what_a_method_cannot_compute_is_absent_with_the_reason(row, methods, why) -> None:
    found = method_costs(table(row)).set_index("method")
    for method in methods.split():
        assert found.at[method, "absent"].startswith(why)
        assert found.loc[method, FIGURES].isna().all()
    assert (found.loc[["direct", "implicit_gemm", "im2col"], "absent"] == "").all()


def test_a_row_of_both_gradients_has_no_methods_but_a_least_arithmetic() -> None:
    row = same(4.0, (64.0, 64.0), 28.0, 3.0)
    assert (method_costs(table({**row, "pass_name": "backward"}))["absent"] != "").all()
    whole, *halves = add_costs(table(*({**row, "pass_name": name} for name in ("backward", *PASSES[1:]))))[
        "least_flop"
    ]
    assert whole == sum(halves)


lengths = st.integers(1, 40).map(float)
few = st.integers(1, 5).map(float)
rows = st.builds(
    lambda batch, channels, groups, size, kernel, stride, pad, dilation, transposed: conv(
        batch, (channels[0] * groups, channels[1] * groups), size + dilation * kernel, kernel, groups=groups,
        stride_h=stride, stride_w=stride, pad_h=pad, pad_w=pad, dilation_h=dilation, dilation_w=dilation,
        transposed=transposed,
    ),
    few, st.tuples(few, few), few, lengths, few, st.sampled_from([1.0, 1.0, 2.0]), st.sampled_from([0.0, 1.0]),
    st.sampled_from([1.0, 1.0, 2.0]), st.sampled_from([0.0, 0.0, 1.0]),
)  # fmt: skip


@given(row=rows, pass_name=st.sampled_from(PASSES))
@settings(max_examples=80, deadline=None)
def test_a_method_has_figures_or_a_reason_and_the_least_is_the_least(row, pass_name) -> None:
    ops = table(gemm(2, 2, 2), {**row, "pass_name": pass_name})
    ops.index = pd.Index([7, 9])
    found, costed = method_costs(ops), add_costs(ops)
    assert found["method"].tolist() == [method.name for method in METHODS]
    assert (found["of"] == 9).all()
    absent = found["absent"] != ""
    assert found.loc[absent, FIGURES].isna().all(axis=None)
    assert (found.loc[~absent, FIGURES] >= 0).all(axis=None)
    known = found[~absent].set_index("method")
    assert (known.loc[["direct", "implicit_gemm"], "flop"] == costed.at[9, "flop"]).all()
    assert costed.at[9, "least_flop"] == known["flop"].min()
    assert costed.at[7, "least_flop"] == costed.at[7, "flop"]
    # Twice the samples: twice the products, the same filters, the same for each sample.
    twice = method_costs(ops.assign(batch=2 * ops["batch"]))
    assert twice["multiply_adds"].equals(2 * found["multiply_adds"])
    assert twice[["fixed_byte", "sample_byte"]].equals(found[["fixed_byte", "sample_byte"]])


def test_a_table_without_convolutions_has_no_methods() -> None:
    assert method_costs(table(gemm(2, 2, 2))).empty
    assert {"of", "method", "flop", "absent"} <= set(method_costs(table(gemm(2, 2, 2))).columns)


def test_matrices_are_lavin_and_grays() -> None:
    """Aᵀ[(G g) ⊙ (Bᵀ d)] is the correlation, whatever the values."""
    for m in WINOGRAD:
        d, g = integers(m + 2), integers(3)
        data, filters, result = (np.array(MATRICES[name, m], object) for name in ("data", "filter", "result"))
        found = result @ ((filters @ g) * (data @ d))
        assert [float(one) for one in found] == np.correlate(d, g, "valid").tolist()
