"""The batch as a name: lines through traces at several batches, and honest refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced_work import numbers

from fomkit.resize import resize_ops
from fomkit.resize.expressions import evaluate
from fomkit.trace import profile_workload
from fomkit.trace.calls import TracedOp
from fomkit.trace.op_table import count_rows
from fomkit.trace.symbolic import NotAffine, affine, name_batch
from fomkit.workload import Workload

WHOLE = st.integers(-1000, 1000)


@given(slope=WHOLE, intercept=WHOLE, batch=st.integers(1, 512), other=st.integers(1, 10_000))
def test_a_line_is_found_and_reads_back_everywhere(slope: int, intercept: int, batch: int, other: int) -> None:
    batches = [batch, 2 * batch, 3 * batch]
    found = affine([slope * one + intercept for one in batches], batches)
    value = evaluate(found, {"batch": other}, "test") if isinstance(found, str) else found
    assert value == slope * other + intercept


@given(values=st.lists(st.integers(0, 50), min_size=3, max_size=3), batch=st.integers(1, 9))
def test_what_is_found_meets_every_trace(values: list[int], batch: int) -> None:
    batches = [batch, 2 * batch, 3 * batch]
    found = affine(values, batches)
    if found is None:
        return
    for value, one in zip(values, batches, strict=True):
        assert value == (evaluate(found, {"batch": one}, "test") if isinstance(found, str) else found)


def op(m: int, name: str = "aten::mm", **more: Any) -> TracedOp:
    return TracedOp(name, "gemm", {"b": 1, "m": m, "n": 3, "k": 4, **more}, "fp32", "forward", "layer")


def test_equal_numbers_of_different_meaning_stay_apart() -> None:
    # 100 features and a batch of 100 are one row at this batch only.
    ops = name_batch([[op(100), op(size)] for size in (100, 200, 300)], [100, 200, 300])
    assert [row["m"] for row in count_rows(ops)[0]] == [100, "batch"]


def test_refusals_say_where() -> None:
    with pytest.raises(NotAffine, match="m of aten::mm in 'layer' is 1, 4, 9 at batches 1, 2, 3"):
        name_batch([[op(1)], [op(4)], [op(9)]], [1, 2, 3])
    with pytest.raises(NotAffine, match=r"number of ops depends on the batch \(1 at 1, 2 at 2"):
        name_batch([[op(1)], [op(1)] * 2, [op(1)] * 3], [1, 2, 3])
    with pytest.raises(NotAffine, match="aten::mm becomes aten::bmm"):
        name_batch([[op(1)], [op(1)], [op(1, "aten::bmm")]], [1, 2, 3])


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


@pytest.mark.parametrize("given_batch", [True, False])
def test_fixed_inputs_are_made_anew_at_other_batches(torch: Any, given_batch: bool) -> None:
    inputs = {"input": torch.randn(8, 5)}
    profile = profile_workload(Workload(torch.nn.Linear(5, 2), inputs, batch_size=8 if given_batch else None))
    assert profile.ops.loc[0, "m"] == "batch"
    assert profile.batch == 8
    assert numbers(profile_workload(Workload(torch.nn.Linear(5, 2), inputs), batch=3)).loc[0, "m"] == 3


def test_work_that_is_square_in_the_batch_is_kept_at_its_batch(torch: Any) -> None:
    def contrast(output: Any, _: Any) -> Any:
        return torch.nn.functional.cross_entropy(output @ output.t(), torch.arange(len(output)))

    workload = Workload(torch.nn.Linear(5, 4), lambda batch: torch.randn(batch, 5), contrast, batch_size=8)
    profile = profile_workload(workload)
    assert any(note.startswith("the sizes hold for batch 8 only: ") for note in profile.notes)
    assert not profile.ops.map(lambda cell: cell == "batch").to_numpy().any()
    assert profile.ops.loc[0, "m"] == 8


def test_a_step_that_fails_at_other_batches_is_kept_at_its_batch(torch: Any) -> None:
    target = torch.zeros(8, 4)
    workload = Workload(
        torch.nn.Linear(5, 4),
        lambda batch: torch.randn(batch, 5),
        lambda output, _: torch.nn.functional.l1_loss(output, target[: len(output)] + output),
        batch_size=8,
    )
    notes = profile_workload(workload).notes
    assert any("at another batch the step raises RuntimeError" in note for note in notes)


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
