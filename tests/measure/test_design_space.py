"""The ops of a plan fill the space of sizes: no choice is correlated with a size."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from fomkit.bench.design import design, shuffled

RATES = {("fp32", "vector"): 1e12}
CHOICES = {
    "gemm": (("trans_a", "trans_b"), ("m", "n", "k")),
    "conv": (("kernel_h", "stride_h"), ("batch", "height")),
    "rnn": (("cell",), ("batch", "steps", "hidden_size")),
    "attention": (("causal",), ("batch", "heads", "q_len")),
}


@pytest.mark.parametrize("kind", CHOICES)
def test_each_choice_meets_small_and_large_sizes(kind: str) -> None:
    choices, sizes = CHOICES[kind]
    cells = [one.cells for one in design([("fp32", "vector")], 48, 1e9, RATES, 1e12) if one.cells["kind"] == kind]
    cells = [one for one in cells if one.get("b", "1") == "1" and one.get("pass_name", "forward") == "forward"]
    by_choice = defaultdict(list)
    for one in cells:
        by_choice[tuple(one[name] for name in choices)].append(one)
    for name in sizes:
        middle = np.median([float(one[name]) for one in cells])
        for choice, ops in by_choice.items():
            if len(ops) >= 8:
                above = np.mean([float(one[name]) > middle for one in ops])
                assert 0.1 < above < 0.9, (choice, name)


def test_choices_come_equally_often_and_not_in_turn() -> None:
    found = shuffled("abc", 48)
    assert set(Counter(found).values()) == {16}
    assert found == shuffled("abc", 48)
    assert found != list("abc") * 16
