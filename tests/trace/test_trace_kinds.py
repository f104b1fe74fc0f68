"""Special layers: cells, packed sequences, exchanged statistics, sparse gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from traced_work import flop, numbers, row_flop

from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_workload

BATCH, STEPS, WIDTH, HIDDEN = 6, 7, 5, 8


def notes(profile: ModelProfile) -> str:
    return "\n".join(profile.notes)


def test_single_cells(torch: Any) -> None:
    nn = torch.nn

    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.LSTMCell(WIDTH, HIDDEN), nn.GRUCell(HIDDEN, HIDDEN)
            self.three = nn.RNNCell(HIDDEN, HIDDEN)

        def forward(self, x: Any) -> Any:
            return self.three(self.two(self.one(x)[0]))

    rows = numbers(profile_workload(Workload(Cells(), lambda batch: torch.randn(batch, WIDTH), batch_size=BATCH)))
    # Gates times input and state; the first states are zeros, and are multiplied all the same.
    gates = 4 * (WIDTH + HIDDEN) + 3 * 2 * HIDDEN + 2 * HIDDEN
    assert flop(rows, "forward") == flop(rows, "backward_weight") == 2 * BATCH * HIDDEN * gates
    # Nobody wants the gradients of the data and of the zeros.
    assert flop(rows, "backward_input") == 2 * BATCH * HIDDEN * (3 * HIDDEN + HIDDEN)


# --- packed sequences ------------------------------------------------------------------------------------------


def packed(torch: Any, lengths_of: Any, cell: str = "LSTM") -> Workload:
    class Packed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(torch.nn, cell)(WIDTH, HIDDEN, batch_first=True)

        def forward(self, x: Any, lengths: Any) -> Any:
            from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

            given = pack_padded_sequence(x, lengths_of(lengths), batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(self.layer(given)[0], batch_first=True)[0]

    return Workload(
        Packed(),
        lambda batch: (torch.randn(batch, STEPS, WIDTH, requires_grad=True), torch.full((batch,), STEPS)),
        batch_size=BATCH,
    )


@pytest.mark.parametrize(("cell", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_packed_sequences_count_as_full(torch: Any, cell: str, gates: int, mode: Any) -> None:
    profile = profile_workload(packed(torch, lambda lengths: lengths, cell), mode=mode)
    rows = numbers(profile).query("kind == 'rnn'")
    passes = ["forward", "backward_input", "backward_weight"] if mode == "train" else ["forward"]
    assert rows["pass_name"].tolist() == passes
    by_hand = 2 * BATCH * STEPS * gates * HIDDEN * (WIDTH + HIDDEN)
    assert [row_flop(row) for _, row in rows.iterrows()] == [by_hand] * len(passes)
    assert "lengths are unknown without data; every sequence counts as full" in notes(profile)
    assert not profile.unsupported
    assert profile.ops.query("kind == 'rnn'")["batch"].iloc[0] == "batch"
    parts = numbers(profile, "parts")
    for place, row in rows.iterrows():
        assert flop(parts[parts["of"] == place], "forward", "backward") == row_flop(row)


def test_lengths_that_are_known_are_kept_and_unequal_ones_have_no_row(torch: Any) -> None:
    class Insists(torch.nn.Module):
        """Reads a constant back, which only works where small constants keep their values."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(WIDTH, HIDDEN)

        def forward(self, x: Any) -> Any:
            from torch.nn.utils.rnn import pack_padded_sequence

            lengths = torch.tensor([STEPS, 4, 2])
            assert lengths.max().item() == STEPS
            return self.layer(pack_padded_sequence(x, lengths))[1][0]

    profile = profile_workload(Workload(Insists(), torch.randn(STEPS, 3, WIDTH), batch_size=3), mode="infer")
    assert "LSTM with unequal sequences has no row of its own: its ops are counted one by one" in notes(profile)
    assert "counts as full" not in notes(profile)
    tokens = STEPS + 4 + 2
    assert flop(numbers(profile), "forward") == 2 * tokens * 4 * HIDDEN * (WIDTH + HIDDEN)


def test_a_projection_is_told(torch: Any) -> None:
    model = torch.nn.LSTM(WIDTH, HIDDEN, proj_size=3)
    profile = profile_workload(Workload(model, torch.randn(STEPS, BATCH, WIDTH), batch_size=BATCH))
    assert "LSTM with projections has no row of its own" in notes(profile)


# --- batch norm over devices -----------------------------------------------------------------------------------


def synced(torch: Any, **more: Any) -> ModelProfile:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.SyncBatchNorm(4))
    return profile_workload(Workload(model, lambda batch: torch.randn(batch, 3, 8, 8), batch_size=BATCH), **more)


@pytest.fixture
def eight_ranks(torch: Any) -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def test_a_synchronised_norm_without_ranks_is_a_norm_and_says_so(torch: Any) -> None:
    profile = synced(torch)
    plain = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    other = profile_workload(Workload(plain, lambda batch: torch.randn(batch, 3, 8, 8), batch_size=BATCH))
    assert profile.ops.equals(other.ops)
    assert (
        "without a process group the ranks are not known, so its exchange of statistics is not counted"
        in notes(profile)
    )
    assert "SyncBatchNorm" not in notes(synced(torch, mode="infer"))


@pytest.mark.usefixtures("eight_ranks")
@pytest.mark.parametrize(("local", "link"), [("8", "node"), ("4", "system"), (None, "node")])
def test_a_synchronised_norm_exchanges_its_statistics(
    torch: Any, monkeypatch: pytest.MonkeyPatch, local: str | None, link: str
) -> None:
    if local is None:
        monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    else:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    profile = synced(torch)
    rows = profile.ops.query("kind == 'collective'").set_index("pass_name")
    # Mean, inverse deviation of 4 channels and the count; back, two sums of each channel; in fp32.
    assert rows["collective"].to_dict() == {"forward": "all_gather", "backward": "all_reduce"}
    assert rows["message_byte"].to_dict() == {"forward": 4 * 9, "backward": 4 * 8}
    assert set(rows["ranks"]) == {8}
    assert set(rows["link"]) == {link}
    assert set(rows["module"]) == {"1"}
    assert ("LOCAL_WORLD_SIZE is not set" in notes(profile)) is (local is None)
    assert not len(synced(torch, mode="infer").ops.query("kind == 'collective'"))
    assert torch.distributed.is_initialized()


# --- sparse gradients, compiled parts --------------------------------------------------------------------------


def test_a_sparse_gradient_is_the_rows_looked_up(torch: Any) -> None:
    model = torch.nn.EmbeddingBag(1000, 16, mode="sum", sparse=True)
    workload = Workload(
        model, lambda batch: torch.zeros(batch, 5, dtype=torch.long), None, torch.optim.SGD, batch_size=4
    )
    profile = profile_workload(workload)
    assert not profile.unsupported
    back = numbers(profile).query("kind == 'embedding' and pass_name == 'backward'").iloc[0]
    assert back["write_byte"] == 4 * 5 * 16 * 4
    assert "sparse gradients are priced as if every row of their tables were updated" in notes(profile)
    embedding = torch.nn.Embedding(1000, 16, sparse=True)
    assert not profile_workload(Workload(embedding, torch.zeros(4, 5, dtype=torch.long))).unsupported


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of the compiler's own code
def test_compiled_parts_are_traced_and_keep_their_names(torch: Any) -> None:
    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(5, 5)
            self.second = torch.compile(torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU()))

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x))

    profile = profile_workload(Workload(Half(), lambda batch: torch.randn(batch, 5), batch_size=BATCH))
    assert flop(numbers(profile), "forward") == 2 * BATCH * (25 + 35)
    assert {"first", "second.0", "second.1"} <= set(profile.ops["module"])
    assert "parts of the model are compiled; their eager ops are traced" in notes(profile)
