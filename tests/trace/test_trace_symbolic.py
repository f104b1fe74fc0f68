"""The batch as a named size: linear fits to traces at several batches, and refusals."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced_work import numbers

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.drafting import trace_sizes
from fomkit.frontends.lowering.calls import TracedOp
from fomkit.frontends.profile import profile_workload
from fomkit.frontends.sizes import Candidates, NoExpression, Sizes, name_sizes, write_sum
from fomkit.frontends.step import Step, count_rows, places_of
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import evaluate, resize_ops

WHOLE = st.integers(-1000, 1000)


def written(values: list[int], points: list[tuple[int, ...]], names: list[str]) -> str | None:
    factors = Candidates(points).fit(values)
    return None if factors is None else write_sum(factors, names)


@given(slope=WHOLE, intercept=WHOLE, batch=st.integers(1, 512), other=st.integers(1, 10_000))
def test_a_line_is_found_and_reads_back_everywhere(slope: int, intercept: int, batch: int, other: int) -> None:
    batches = [batch, 2 * batch, 3 * batch]
    found = written([slope * one + intercept for one in batches], [(one,) for one in batches], ["batch"])
    assert found is not None
    assert evaluate(found, {"batch": other}, "test") == slope * other + intercept


@given(values=st.lists(st.integers(0, 50), min_size=3, max_size=3), batch=st.integers(1, 9))
def test_what_is_found_meets_every_trace(values: list[int], batch: int) -> None:
    batches = [batch, 2 * batch, 3 * batch]
    found = written(values, [(one,) for one in batches], ["batch"])
    if found is not None:
        assert [evaluate(found, {"batch": one}, "test") for one in batches] == values


# Those of a transformer's step: tokens, words of a table, squares of attention, statistics beside a tensor.
FACTORS = st.integers(1, 10**9)
SUMS = st.sampled_from(
    [
        "{0}*batch*seq",
        "{0}*batch*seq*seq",
        "{0}*batch*seq*seq + {1}*batch*seq",
        "{0}*batch*seq*seq + {1}*batch*seq + {2}*batch",
        "{0}*batch*seq + {1}*seq",
        "{0}*batch*seq + {1}",
        "{0}*batch*seq - {1}*batch",
        "{0}*seq*seq + {1}",
        "{0}*batch*batch + {1}*batch",
        "{0}*batch*batch*batch + {1}*batch",  # triples of a batch
        "{0}*batch*seq*seq*seq + {1}*batch*seq*seq",  # attention of all pairs of a sequence
    ]
)


@given(SUMS, st.tuples(FACTORS, FACTORS, FACTORS), st.integers(1, 64), st.integers(8, 4096), st.integers(1, 9999))
def test_sums_of_products_of_two_sizes_are_found(
    form: str, factors: tuple[int, ...], batch: int, seq: int, other: int
) -> None:
    text = form.format(*factors)
    points = [(batch, seq), (2 * batch, seq), (3 * batch, seq), (2 * batch, seq - 1), (3 * batch, seq // 2 + 1)]
    values = [evaluate(text, {"batch": one, "seq": two}, "test") for one, two in points]
    found = written(values, points, ["batch", "seq"])
    assert found is not None
    sizes = {"batch": other, "seq": other + 3}
    assert evaluate(found, sizes, "test") == evaluate(text, sizes, "test")


def test_what_rounds_or_doubles_is_no_sum_of_products() -> None:
    points = [(4, 64), (8, 64), (12, 64), (8, 63), (12, 33)]
    assert written([one * (two // 2) for one, two in points], points, ["batch", "seq"]) is None
    assert written([one * two.bit_length() for one, two in points], points, ["batch", "seq"]) is None


def op(m: int, name: str = "aten::mm", **more: Any) -> TracedOp:
    return TracedOp(name, "gemm", {"b": 1, "m": m, "n": 3, "k": 4, **more}, "fp32", "forward", "layer")


def name_batch(steps: list[list[TracedOp]], batches: list[int]) -> list[TracedOp]:
    return name_sizes(steps, [{"batch": batch} for batch in batches], ["batch"])


def test_equal_numbers_of_different_meaning_stay_apart() -> None:
    # 100 features and a batch of 100 are one row at this batch only.
    ops = name_batch([[op(100), op(size)] for size in (100, 200, 300)], [100, 200, 300])
    assert [row["m"] for row in count_rows(ops)[0]] == [100, "batch"]


def test_refusals_say_where() -> None:
    with pytest.raises(NoExpression, match="m of aten::mm in 'layer' is 1, 5, 8 at batch 1, 2, 3"):
        name_batch([[op(1)], [op(5)], [op(8)]], [1, 2, 3])
    with pytest.raises(NoExpression, match="the number of ops is 1, 2, 3 at batch 1, 2, 3"):
        name_batch([[op(1)], [op(1), op(2)], [op(1), op(2), op(3)]], [1, 2, 3])
    with pytest.raises(NoExpression, match="aten::mm in 'layer' runs 1, 3, 1 times at batch 1, 2, 3"):
        name_batch([[op(1)], [op(1)] * 3, [op(1)]], [1, 2, 3])
    with pytest.raises(NoExpression, match="aten::mm in 'layer' becomes aten::bmm"):
        name_batch([[op(1)], [op(1)], [op(1, "aten::bmm")]], [1, 2, 3])


def test_a_loop_is_counted_in_the_size_it_runs_over() -> None:
    steps = [[op(7), *[op(one)] * (2 * one - 1)] for one in (2, 3, 4)]
    rows, _ = count_rows(name_batch(steps, [2, 3, 4]))
    assert [(row["m"], row["count"]) for row in rows] == [(7, 1), ("batch", "2*batch - 1")]


def test_ops_that_are_equal_by_chance_stay_apart_beside_a_loop() -> None:
    """A loop over samples, and two products that at batch 2 have equal sizes."""
    steps = [[*[op(7, "aten::bmm")] * one, op(4), op(2 * one)] for one in (2, 4, 6)]
    named = name_batch(steps, [2, 4, 6])
    rows, _ = count_rows(named)
    assert [(row["m"], row["count"]) for row in rows] == [(7, "batch"), (4, 1), ("2*batch", 1)]
    assert places_of(steps[0], named) == [0, 0, 1, 2]


def test_an_axis_of_length_one_does_not_decide_the_storage() -> None:
    steps = [[op(1, trans_a=0)], [op(2, trans_a=1)], [op(3, trans_a=1)]]
    assert name_batch(steps, [1, 2, 3])[0].dimensions["trans_a"] == 1


def test_a_resized_profile_is_the_profile_traced_there(torch: Any) -> None:
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    workload = Workload(model, lambda batch: torch.randn(batch, 3, 8, 8), batch_size=4)
    small, large = profile_workload(workload), profile_workload(workload, batch=28)
    assert small.sizes == {"batch": 4}
    assert resize_ops(small.ops, {"batch": 28}, "test").equals(numbers(large))


def test_inputs_may_be_an_object_that_holds_tensors(torch: Any) -> None:
    """As the graphs of PyTorch Geometric are: 3 nodes of 5 numbers for each sample, and a reference to itself."""

    class Graph:
        def __init__(self, batch: int) -> None:
            self.store, self.kind, self.own = {"x": torch.randn(3 * batch, 5)}, "graph", self

    class Reads(torch.nn.Linear):
        def forward(self, graph: Graph) -> Graph:
            graph.store["x"] = super().forward(graph.store["x"])
            return graph

    given = Graph(2)
    made, fixed = (
        profile_workload(Workload(Reads(5, 4), one, batch_size=size)) for one, size in ((Graph, 2), (given, 6))
    )
    assert made.traced_with["device"] == "meta"
    products = [one.ops.query("kind == 'gemm' and pass_name == 'forward'")["m"].iloc[0] for one in (made, fixed)]
    assert products == ["3*batch", "batch"]
    assert given.store["x"].shape == (6, 5)
    with pytest.raises(FomkitError, match="gave no tensor"):
        profile_workload(Workload(Reads(5, 4), lambda _: object()), batch=2)


@pytest.mark.parametrize("given_batch", [True, False])
def test_fixed_inputs_are_made_anew_at_other_batches(torch: Any, given_batch: bool) -> None:
    inputs = {"input": torch.randn(8, 5)}
    profile = profile_workload(Workload(torch.nn.Linear(5, 2), inputs, batch_size=8 if given_batch else None))
    assert profile.ops.loc[0, "m"] == "batch"
    assert profile.batch == 8
    assert numbers(profile_workload(Workload(torch.nn.Linear(5, 2), inputs), batch=3)).loc[0, "m"] == 3


def test_work_may_be_square_in_the_batch(torch: Any) -> None:
    def contrast(output: Any, _: Any) -> Any:
        return torch.nn.functional.cross_entropy(output @ output.t(), torch.arange(len(output)))

    workload = Workload(torch.nn.Linear(5, 4), lambda batch: torch.randn(batch, 5), contrast, batch_size=8)
    small, large = profile_workload(workload), profile_workload(workload, batch=30)
    assert "batch*batch" in set(small.ops["numel"])
    assert resize_ops(small.ops, {"batch": 30}, "test").equals(numbers(large))


def test_what_rounds_in_the_batch_is_kept_at_its_batch(torch: Any) -> None:
    def loss(output: Any, _: Any) -> Any:
        return output[: len(output) // 3].sum()

    workload = Workload(torch.nn.Linear(5, 4), lambda batch: torch.randn(batch, 5), loss, batch_size=8)
    profile = profile_workload(workload)
    assert any(
        note.startswith(
            "the sizes hold for batch 8 only: numel of aten::sum in 'loss' is 8, 20, 32 at batch 8, 16, 24"
        )
        for note in profile.notes
    )
    assert not profile.ops.map(lambda cell: cell == "batch").to_numpy().any()
    assert profile.ops.loc[0, "m"] == 8


def test_steps_of_different_ops_are_not_traced_at_still_larger_batches() -> None:
    """A step at 3, 5 or 7 times the batch may be dear, and cannot bring together what differs at 2 times."""
    batches: list[int] = []

    def trace(sizes: Sizes) -> Step:
        batches.append(sizes["batch"])
        return Step([op(one) for one in range(1, 1 + sizes["batch"])], Counter(), Counter(), {}, [])

    found = trace_sizes(trace, {"batch": 4})
    assert found.fixed == ["the sizes hold for batch 4 only: the number of ops is 4, 8 at batch 4, 8"]
    assert batches == [4, 8, 4]


def test_no_step_at_other_sizes_begins_after_its_time() -> None:
    """A step that runs with data may take minutes, and one at 5 times the batch more than the limit allows."""
    batches: list[int] = []

    def trace(sizes: Sizes) -> Step:
        batches.append(sizes["batch"])
        return Step([op(sizes["batch"])], Counter(), Counter(), {}, [])

    found = trace_sizes(trace, {"batch": 4}, most_s=-1.0)
    assert batches == [4, 4]
    assert found.fixed == [
        "the sizes hold for batch 4 only: the steps so far took too long to try others within the time limit"
    ]


def test_a_batch_of_one_is_named_from_larger_ones(torch: Any) -> None:
    class Reordered(torch.nn.Module):  # a copy, but for a batch of 1, whose axes lie in memory as they are wanted
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.layer(self.layer(x).transpose(0, 1).reshape(-1, 4))

    def profile(batch: int) -> ModelProfile:
        workload = fomkit.Workload(
            Reordered(), lambda batch=batch: torch.randn(batch, 3, 4), loss=lambda y, _: y.sum()
        )
        return profile_workload(workload)

    one, three = profile(1), profile(3)
    assert (one.batch, three.batch) == (1, 3)
    assert not any("the sizes hold for" in note for note in one.notes)
    assert any(note.startswith("batch 1 has the ops of larger batches here") for note in one.notes)
    for batch in (2, 3, 8):
        assert numbers(one, "ops", batch).equals(numbers(three, "ops", batch))
    assert one.order is not None
    assert numbers(one, "order", 5).equals(numbers(three, "order", 5))


def test_a_step_that_fails_at_other_batches_is_kept_at_its_batch(torch: Any) -> None:
    target = torch.zeros(8, 4)
    workload = Workload(
        torch.nn.Linear(5, 4),
        lambda batch: torch.randn(batch, 5),
        lambda output, _: torch.nn.functional.l1_loss(output, target[: len(output)] + output),
        batch_size=8,
    )
    notes = profile_workload(workload).notes
    assert any("at batch 16 the step raises RuntimeError" in note for note in notes)


def test_what_only_the_first_step_does_is_left_out(torch: Any) -> None:
    class Cached(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LazyLinear(4)
            self.mask: Any = None

        def forward(self, x: Any) -> Any:
            if self.mask is None:
                self.mask = torch.ones(4).cumsum(0)
            return self.layer(x) * self.mask

    profile = profile_workload(Workload(Cached(), lambda batch: torch.randn(batch, 5), batch_size=8))
    assert "aten::cumsum" not in set(profile.ops["op"])
    assert profile.ops.loc[0, "m"] == "batch"
    assert profile.parameters_total == 24


# --- further named sizes ---------------------------------------------------------------------------------------


class Decoder:
    """Makes a small decoder: tokens and positions in, attention and a recurrent layer inside, words out."""

    def __new__(cls, torch: Any, positions: int = 24) -> Any:
        nn = torch.nn

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.words, self.positions = nn.Embedding(50, 12), nn.Parameter(torch.zeros(positions, 12))
                self.block = nn.TransformerEncoderLayer(12, 2, 24, batch_first=True)
                self.state, self.head = nn.LSTM(12, 10, batch_first=True), nn.Linear(10, 50)

            def forward(self, tokens: Any) -> Any:
                x = self.words(tokens) + self.positions[: tokens.shape[1]]
                return self.head(self.state(self.block(x))[0])

        return Model()


def decode(torch: Any, **more: Any) -> ModelProfile:
    def inputs(batch: int, seq: int = 24) -> Any:
        return torch.zeros(batch, seq, dtype=torch.long)

    def loss(output: Any, tokens: Any) -> Any:
        return torch.nn.functional.cross_entropy(output[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return profile_workload(Workload(Decoder(torch), inputs, loss, torch.optim.Adam, batch_size=4), **more)


@pytest.fixture(scope="module")
def decoder(torch: Any) -> ModelProfile:
    return decode(torch)


def test_a_sequence_has_a_name_and_the_table_holds_at_any_length(torch: Any, decoder: ModelProfile) -> None:
    profile = decoder
    assert profile.sizes == {"batch": 4, "seq": 24}
    assert not any("hold for" in note for note in profile.notes)
    assert {"batch*seq", "batch*seq - batch"} <= set(profile.ops["m"]) | set(profile.ops["numel"])
    other = {"batch": 7, "seq": 17}
    again = decode(torch, batch=7, sizes={"seq": 17})
    resized = add_costs(resize_ops(profile.ops, other, "test")), add_costs(numbers(again))
    assert resized[0].equals(resized[1])
    parts = [resize_ops(table, other, "test") for table in (profile.parts, again.parts)]
    wanted = ["of", "op", "count", "m", "n", "k", "numel", "read_byte", "write_byte"]
    assert parts[0][wanted].equals(parts[1][wanted])
    assert {"seq", "seq - 1"} <= set(profile.parts["count"])


@pytest.mark.parametrize("asked", [{"seq": 0}, {"seq": 2.5}, {"seq": True}])
def test_a_size_is_a_whole_number(torch: Any, asked: Any) -> None:
    with pytest.raises(FomkitError, match=r"the seq is .* A whole number from 1 to 2,147,483,647 was expected"):
        decode(torch, sizes=asked)


def test_an_unknown_size_is_refused_with_the_known_ones(torch: Any) -> None:
    with pytest.raises(FomkitError, match=r"inputs has no size 'sep'\. The nearest name is 'seq'"):
        decode(torch, sizes={"sep": 3})


def image(torch: Any, inputs: Any, *layers: Any) -> ModelProfile:
    workload = Workload(torch.nn.Sequential(*layers), inputs, batch_size=4)
    return profile_workload(workload)


def test_a_size_that_rounds_is_fixed_and_the_others_keep_their_names(torch: Any) -> None:
    def inputs(batch: int, width: int = 20, channels: int = 8) -> Any:
        return torch.randn(batch, channels, width)

    nn = torch.nn
    profile = image(torch, inputs, nn.Flatten(0, 1), nn.Unflatten(0, (-1, 1)), nn.Conv1d(1, 6, 3, stride=2))
    assert profile.sizes == {"batch": 4, "width": 20, "channels": 8}
    (note,) = (note for note in profile.notes if "hold for" in note)
    assert note.startswith("the sizes hold for width 20 only: numel of aten::sum in 'loss' is ")
    assert profile.ops.loc[0, ["batch", "width"]].tolist() == ["batch*channels", 20]


def test_a_size_that_the_code_takes_only_in_halves(torch: Any) -> None:
    def inputs(batch: int, length: int = 64) -> Any:
        return torch.randn(batch, length)

    nn = torch.nn
    profile = image(torch, inputs, nn.Unflatten(1, (-1, 16)), nn.Linear(16, 3, bias=False))
    # Tokens of 16 numbers: a sixteenth of the length has no whole factor, so the length stays.
    assert any(note.startswith("the sizes hold for length 64 only: ") for note in profile.notes)

    def pairs(batch: int, tokens: int = 64) -> Any:
        if tokens % 16:
            raise ValueError("only whole blocks")
        return torch.randn(batch, tokens, 5)

    profile = image(torch, pairs, nn.Linear(5, 3))
    assert profile.ops.loc[0, "m"] == "batch*tokens"
    assert not any("hold for" in note for note in profile.notes)


def test_defaults_that_are_no_sizes(torch: Any) -> None:
    def inputs(batch: int, scale: float = 2.0, shifted: bool = True, *, seq: int = 9) -> Any:
        return torch.randn(batch, seq, 5) * scale + shifted

    assert image(torch, inputs, torch.nn.Linear(5, 3)).sizes == {"batch": 4, "seq": 9}

    def none(batch: int, seq: int = 0) -> Any:
        return torch.randn(batch, seq, 5)

    with pytest.raises(FomkitError, match="inputs has seq=0"):
        image(torch, none, torch.nn.Linear(5, 3))


def test_a_size_of_a_file(file_of: Any) -> None:
    from fomkit.frontends.profile import profile_file

    path = file_of(
        "import torch\nmodel, batch_size = torch.nn.Linear(8, 3), 2\n"
        "def inputs(batch, seq=16):\n    return torch.randn(batch, seq, 8)\n"
    )
    profile = profile_file(path, sizes={"seq": 12})
    assert profile.sizes == {"batch": 2, "seq": 12}
    assert profile.ops.loc[0, "m"] == "batch*seq"


def test_a_single_step_of_a_recurrent_layer_can_be_estimated(decoder: ModelProfile) -> None:
    """A layer of one step has no work between steps: parts with a count of seq - 1 are left out."""
    one, many = (fomkit.estimate(decoder, "v100", sizes={"seq": seq}).step.value for seq in (1, 64))
    assert 0 < one < many


UNUSED_BATCH = """
import torch
model = torch.nn.Linear(4, 2)
def inputs(batch):
    return torch.randn(8, 4)
batch_size = 8
"""


def test_inputs_that_do_not_hear_the_batch_are_told_of(tmp_path):
    """Otherwise '--batch 16' would count 16 samples for the work of 8."""
    path = tmp_path / "deaf.py"
    path.write_text(UNUSED_BATCH)
    told = fomkit.profile(path)
    assert any(
        "no op depends on the batch: the work is assumed to be that of 8 samples" in note for note in told.notes
    )
    path.write_text(UNUSED_BATCH.replace("8", "1"))
    assert any(note.endswith("that of 1 sample") for note in fomkit.profile(path).notes)
    with pytest.raises(FomkitError, match=r"so 16 samples cannot be profiled\. Let inputs\(batch\) use its batch"):
        fomkit.profile(path, batch=16)
