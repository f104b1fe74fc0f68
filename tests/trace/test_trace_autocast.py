"""Autocast regions: number formats of the rows, casts of weights once, gradients cast back, for any device."""

from __future__ import annotations

from typing import Any

import pytest
from traced_work import flop, numbers

from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_workload
from fomkit.frontends.torch.modes import LOWER, WIDEST
from fomkit.ops.precision import FORMATS, Formats, restate_ops


def mixed(
    torch: Any, layer: Any, *shape: int, device: str = "cuda", dtype: Any = None, **more: Any
) -> ModelProfile:
    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            with torch.autocast(device, dtype=dtype):
                output = self.layer(x)
            return output[0] if isinstance(output, tuple) else output

    workload = Workload(
        Mixed(), lambda batch: torch.randn(batch, *shape), batch_size=6, optimizer=torch.optim.Adam
    )
    return profile_workload(workload, **more)


def dtypes(profile: ModelProfile, kind: str) -> set[str]:
    return set(profile.ops.loc[profile.ops["kind"] == kind, "dtype"])


@pytest.mark.parametrize(("device", "narrow"), [("cuda", "fp16"), ("cpu", "bf16"), ("cuda", "bf16")])
def test_products_are_narrow_and_the_rest_is_as_on_a_gpu(torch: Any, device: str, narrow: str) -> None:
    nn = torch.nn
    layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1))
    wanted = {"fp16": torch.float16, "bf16": torch.bfloat16}[narrow]
    profile = mixed(
        torch, layers, 5, 8, device=device, dtype=None if (device, narrow) == ("cuda", "fp16") else wanted
    )
    assert dtypes(profile, "gemm") == {narrow}
    assert set(profile.ops.query("kind == 'gemm'")["engine"]) == {"matrix"}
    assert dtypes(profile, "norm") == dtypes(profile, "softmax") == dtypes(profile, "optimizer") == {"fp32"}
    assert profile.ops.query("op == 'aten::gelu'")["dtype"].tolist() == [narrow]
    # Two weights, two biases and the data are cast down once; weights' and biases' gradients are cast up.
    casts = profile.ops.query("op == 'aten::_to_copy'")
    down = casts[(casts["pass_name"] == "forward") & (casts["dtype"] == narrow)]
    assert set(down["numel"]) >= {8 * 16, 16, 16 * 4, 4, "40*batch"}
    up = casts[(casts["pass_name"] == "backward") & (casts["dtype"] == "fp32")]
    assert set(up["numel"]) >= {8 * 16, 16, 16 * 4, 4}
    assert f"autocast for {device}: casts are those of a GPU" in profile.notes
    assert profile.ops.query("kind == 'gemm'")["m"].iloc[0] == "5*batch"


def test_the_work_is_the_same_and_no_other_profile_is_touched(torch: Any) -> None:
    layer = torch.nn.Linear(8, 16)
    narrow = numbers(mixed(torch, layer, 5, 8))
    workload = Workload(layer, lambda batch: torch.randn(batch, 5, 8), batch_size=6)
    plain = numbers(profile_workload(workload))
    for name in ("forward", "backward"):
        assert flop(narrow, name) == flop(plain, name) > 0
    assert set(plain["dtype"]) == {"fp32"}
    assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.randn(2, 8)).dtype == torch.bfloat16


def test_a_recurrent_layer_casts_its_weights_and_its_input(torch: Any) -> None:
    """Weights, biases and the input are cast down beside the layer's row, and gradients of weights back."""
    casts = mixed(torch, torch.nn.LSTM(8, 4), 5, 8).ops.query("op == 'aten::_to_copy' and module == 'layer'")
    sizes = sorted([16 * 8, 16 * 4, 16, 16])
    down = casts.query("pass_name == 'forward'")
    numels = [size for size, times in zip(down["numel"], down["count"], strict=True) for _ in range(int(times))]
    assert sorted(size for size in numels if not isinstance(size, str)) == sizes
    assert "40*batch" in numels
    back = casts.query("pass_name == 'backward'")
    assert (
        sorted(size for size, times in zip(back["numel"], back["count"], strict=True) for _ in range(int(times)))
        == sizes
    )


@pytest.mark.parametrize("kind", ["LSTM", "attention"])
def test_rows_found_at_the_call_and_their_parts(torch: Any, kind: str) -> None:
    nn = torch.nn
    layer = (
        nn.LSTM(8, 8, batch_first=True)
        if kind == "LSTM"
        else nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    )
    profile = mixed(torch, layer, 5, 8, dtype=torch.bfloat16)
    assert dtypes(profile, "rnn" if kind == "LSTM" else "attention") == {"bf16"}
    products = profile.parts.query("kind == 'gemm'")
    assert set(products["dtype"]) == {"bf16"}
    assert set(products["pass_name"]) >= {"forward"}


def test_a_weight_used_twice_is_cast_once_and_a_disabled_region_is_wide(torch: Any) -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8, bias=False)

        def forward(self, x: Any) -> Any:
            x = self.layer(self.layer(x))
            with torch.autocast("cuda", enabled=False):
                return self.layer(x.float())

    profile = mixed(torch, Twice(), 8)
    rows = numbers(profile)
    assert rows.query("kind == 'gemm' and pass_name == 'forward'")[["dtype", "count"]].to_numpy().tolist() == [
        ["fp16", 2],
        ["fp32", 1],
    ]
    weight_casts = rows.query("op == 'aten::_to_copy' and pass_name == 'forward' and numel == 64")
    assert weight_casts["count"].sum() == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_work_is_narrow_both_times(torch: Any, reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return checkpoint(self.second, self.first(x), use_reentrant=reentrant)

    profile = mixed(torch, Checkpointed(), 8)
    assert dtypes(profile, "gemm") == {"fp16"}
    assert any("run again" in note for note in profile.notes)


def test_a_region_for_the_device_of_a_tensor_is_one_for_a_gpu(torch: Any) -> None:
    class Inside(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            with torch.autocast(x.device.type, enabled=False):
                wide = super().forward(x)
            with torch.autocast(x.device.type):
                return super().forward(wide)

    profile = profile_workload(Workload(Inside(8, 8), torch.empty(2, 8)), mode="infer")
    assert profile.traced_with["device"] == "meta"
    assert profile.ops.query("kind == 'gemm'")["dtype"].tolist() == ["fp32", "fp16"]
    assert "autocast for cuda: casts are those of a GPU" in profile.notes


def test_fake_tensors_follow_a_cpus_autocast(torch: Any) -> None:
    class Insists(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            if x.is_meta:
                raise NotImplementedError("only for real devices")
            return super().forward(x)

    profile = mixed(torch, Insists(8, 8), 8, dtype=torch.bfloat16)
    assert profile.traced_with["device"] == "fake"
    assert dtypes(profile, "gemm") == {"bf16"}
    assert any("those of a CPU, which casts fewer ops up" in note for note in profile.notes)


def test_the_lists_name_ops_that_pytorchs_own_autocast_casts(torch: Any) -> None:
    listed = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    assert {one.partition("::")[2] for one in listed} >= LOWER | WIDEST


def test_a_number_format_given_by_its_place_is_heard(torch: Any) -> None:
    class Loss(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.cross_entropy(x, torch.zeros(len(x), dtype=torch.int64, device=x.device))

    profile = mixed(torch, torch.nn.Sequential(torch.nn.Linear(8, 4), Loss()), 8)
    assert set(profile.ops.query("op == 'aten::nll_loss_forward'")["dtype"]) == {"fp32"}
    assert "autocast for cuda: casts are those of a GPU" in profile.notes


@pytest.mark.parametrize(("narrow", "casts", "read"), [("float16", 1, 2), ("bfloat16", 2, 4)])
def test_a_softmax_reads_fp16_itself_and_bf16_by_a_cast(torch: Any, narrow: str, casts: int, read: int) -> None:
    """On a GPU one kernel reads fp16 and writes fp32, and its gradient is one kernel, too; bf16 is cast."""
    layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Softmax(-1), torch.nn.Linear(16, 4))
    found = numbers(mixed(torch, layers, 5, 8, dtype=getattr(torch, narrow)))
    rows, numel = found[found["kind"] == "softmax"].set_index("pass_name"), 6 * 5 * 16
    assert set(rows["dtype"]) == {"fp32"}
    assert rows["read_byte"].to_dict() == {"forward": read * numel, "backward": 8 * numel}
    assert rows["write_byte"].to_dict() == {"forward": 4 * numel, "backward": read * numel}
    # One cast each way is that of the product that reads the result.
    copies = found[(found["op"] == "aten::_to_copy") & (found["numel"] == numel)]
    assert copies.groupby("pass_name")["count"].sum().to_dict() == {"forward": casts, "backward": casts}


@pytest.mark.parametrize(("precision", "narrow"), [("mixed", "float16"), ("bf16", "bfloat16")])
def test_a_softmax_moves_the_same_bytes_restated_and_traced(torch: Any, precision: str, narrow: str) -> None:
    """`--precision` of an fp32 trace has the softmax of the step under autocast, and the casts around it."""

    def moved(profile: ModelProfile, formats: Formats | None = None) -> dict[tuple[str, ...], list[float]]:
        ops = numbers(profile) if formats is None else restate_ops(numbers(profile), formats)
        own = ops[ops["kind"].isin(["softmax", "copy"]) & ops["numel"].eq(6 * 5 * 16)]
        names = own["op"].replace({"aten::_to_copy": "cast", "activation cast": "cast"})
        keys = [names, own["pass_name"], own["read_byte"].lt(own["write_byte"])]
        total = own[["read_byte", "write_byte"]].mul(own["count"], axis=0).groupby(keys).sum()
        return {key: row.tolist() for key, row in total.iterrows()}

    def layers() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Softmax(-1), torch.nn.Linear(16, 4))

    wide = profile_workload(
        Workload(layers(), lambda batch: torch.randn(batch, 5, 8), batch_size=6, optimizer=torch.optim.Adam)
    )
    traced = moved(mixed(torch, layers(), 5, 8, dtype=getattr(torch, narrow)))
    assert moved(wide, FORMATS[precision]) == traced
    assert len(traced) == {"mixed": 4, "bf16": 6}[precision]


def test_a_softmax_copies_a_tensor_in_another_order(torch: Any) -> None:
    """Heads in the last axis, as talking heads store them, are turned before the softmax and its gradient."""

    class Heads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            turned = torch.softmax(self.before(x).permute(0, 2, 1), -1)
            return self.after(turned.permute(0, 2, 1))

    found = numbers(mixed(torch, Heads(), 5, 4))
    rows, numel = found[found["op"].str.contains("_softmax")], 6 * 5 * 4
    copies = rows[rows["kind"] == "copy"].set_index("pass_name")
    assert rows["kind"].value_counts().to_dict() == {"softmax": 2, "copy": 2}
    assert copies["read_byte"].to_dict() == copies["write_byte"].to_dict() == {
        "forward": 2 * numel, "backward": 4 * numel,
    }  # fmt: skip
