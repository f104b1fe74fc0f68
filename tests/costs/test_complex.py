"""Products of complex numbers: four real products, elements twice as long, at the rate of their parts."""

from __future__ import annotations

import pandas as pd
import pytest
from costs.op_tables import gemm, table
from predict.machines import device, fact, machine

from fomkit.ops.pricing import add_costs, work_out
from fomkit.prediction.cascade import add_times


def costed(dtype: str, **more: object) -> pd.Series:
    return add_costs(table(gemm(32, 64, 128, dtype=dtype, **more))).iloc[0]


@pytest.mark.parametrize(("dtype", "real"), [("complex64", "fp32"), ("complex128", "fp64")])
def test_a_complex_product_is_four_real_ones_of_twice_the_bytes(dtype: str, real: str) -> None:
    found, part = costed(dtype), costed(real)
    assert found["flop"] == found["least_flop"] == 8 * 32 * 64 * 128
    assert found["flop"] == 4 * part["flop"]
    assert found["byte"] == 2 * part["byte"]


def test_what_is_no_product_counts_as_before() -> None:
    row = {"op": "add", "kind": "pointwise", "engine": "vector", "pass_name": "forward", "count": 1.0}
    sizes = {"numel": 10.0, "read_byte": 160.0, "write_byte": 80.0, "dtype": "complex64"}
    assert add_costs(pd.DataFrame([{**row, **sizes}]))["flop"].tolist() == [10.0]


def test_it_runs_at_the_rate_of_its_parts_unless_its_own_is_stated() -> None:
    known = machine(device(bandwidth=fact(1e15), fp32_vector=1e12))
    rows = add_costs(table(gemm(512, 512, 512, dtype="complex64"), gemm(512, 512, 512, b=4.0)))
    found = add_times(rows, known)
    assert found["time_s"].notna().all()
    assert found["time_s"].iloc[0] == pytest.approx(found["time_s"].iloc[1], rel=0.3)
    peak = known.device.peak("complex64", "vector")
    assert peak is not None
    assert peak.dtype == "fp32"
    assert known.device.peak("complex128", "vector") is None
    own = device(bandwidth=fact(1e15), fp32_vector=1e12, complex64_vector=3e12).peak("complex64", "vector")
    assert own is not None
    assert own.rate.value == 3e12


def test_the_worked_formula_says_the_four() -> None:
    row = {"kind": "gemm", "dtype": "complex64", "b": 1.0, "m": 2.0, "n": 3.0, "k": 5.0}
    assert work_out(row)["flop"].formula == "4*(2*b*k*m*n)"
    assert work_out(row)["flop"].numbers == "4*(2*1*5*2*3)"


def test_a_traced_complex_layer_counts_eight_flop_a_multiply_add() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import fomkit

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(64, 16, dtype=torch.complex64))

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return values @ self.weight

    found = fomkit.profile(
        fomkit.Workload(Layer(), lambda batch: torch.zeros(batch, 64, dtype=torch.complex64), None, batch_size=32),
        mode="infer",
    )
    estimate = fomkit.estimate(found, "v100", allow_uncovered=True)
    product = estimate.ops[estimate.ops["kind"] == "gemm"]
    assert product["flop"].tolist() == [8.0 * 32 * 64 * 16]
    assert product["time_s"].notna().all()
    assert estimate.precision == "complex64"
