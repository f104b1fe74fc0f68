"""Synthetic CUDA and ROCm traces: kernels are joined to their calls, copies and collectives become rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from kineto_traces import HALF, Recording, linear_step

from fomkit.core.errors import FomkitError
from fomkit.ops.check import check_table
from fomkit.readers.profilers.kineto import TraceRows, read_trace, trace_table
from fomkit.readers.profilers.kineto_device import collective_word
from fomkit.readers.profilers.kineto_rows import trace_timings


def read(folder: Path, recording: Recording, **head: Any) -> TraceRows:
    path = folder / "trace.json"
    path.write_text(recording.text(**head))
    return read_trace(path)


def table_of(trace: TraceRows) -> pd.DataFrame:
    table = trace_table(trace.rows)
    check_table(table, "OPS", "trace")
    return table


def microseconds(table: pd.DataFrame) -> dict[str, float]:
    return {str(op): round(time * 1e6, 6) for op, time in zip(table["op"], table["traced_time_s"], strict=True)}


@pytest.mark.parametrize(
    ("runtime", "category"),
    [("cudaLaunchKernel", "cuda_runtime"), ("cuLaunchKernel", "cuda_driver"), ("hipExtModuleLaunchKernel",
     "cuda_runtime"), ("hipLaunchKernel", "hip_runtime"), ("cudaLaunchKernel", "Runtime")],
)  # fmt: skip
def test_kernels_are_joined_by_correlation(tmp_path: Path, runtime: str, category: str) -> None:
    recording = Recording(runtime, category)
    for number in range(3):
        linear_step(recording, number)
    trace = read(tmp_path, recording)
    times = microseconds(table_of(trace))
    assert times == {
        "aten::addmm": 22.0, "aten::mm": 30.0, "SGD.step": 4.0, "Memcpy HtoD (Pageable -> Device)": 5.0,
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL": 40.0,
    }  # fmt: skip
    assert trace.device == "Synthetic GPU"
    assert trace.notes[0] == "3 of 3 steps are alike and were used, as the profiler marks them"


def test_without_launches_the_number_of_the_call_joins(tmp_path: Path) -> None:
    recording = Recording()
    recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", 7.0)])
    call, launch, kernel = recording.events
    kernel["args"]["External id"] = call["args"]["External id"]
    recording.events.remove(launch)
    assert microseconds(table_of(read(tmp_path, recording))) == {"aten::mm": 7.0}


def test_rows_of_the_step(tmp_path: Path) -> None:
    recording = Recording()
    linear_step(recording, 0)
    table = table_of(read(tmp_path, recording)).set_index("op")
    product = table.loc["aten::mm"]
    assert (product["kind"], product["pass_name"]) == ("gemm", "backward")
    assert [product[name] for name in ("b", "m", "n", "k", "trans_a", "trans_b")] == [1, 4, 16, 8, 1, 0]
    copy = table.loc["Memcpy HtoD (Pageable -> Device)"]
    assert (copy["kind"], copy["read_byte"], copy["write_byte"]) == ("copy", 512, 512)
    exchange = table.loc["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]
    assert [exchange[name] for name in ("kind", "collective", "message_byte", "ranks", "link", "dtype")] == [
        "collective", "all_reduce", 272, 16, "system", "fp32"]  # fmt: skip
    update = table.loc["SGD.step"]
    assert [update[name] for name in ("rule", "impl", "numel", "tensors")] == ["sgd", "per_tensor", 68, 2]


def test_an_old_collective_takes_its_ranks_from_the_file_and_needs_a_message(tmp_path: Path) -> None:
    recording = Recording()
    linear_step(recording, 0)
    for event in recording.events:
        if event["name"] == "record_param_comms":
            del event["args"]["Group size"]
    assert table_of(read(tmp_path, recording, distributedInfo={"world_size": 4}))["ranks"].max() == 4
    trace = read(tmp_path, recording)
    assert any("its message or ranks are not in the trace" in one for one in trace.unsupported)
    assert trace.notes[-1].startswith("partial: 1 of 5 executions a step")
    assert "other" in set(table_of(trace)["kind"])


@pytest.mark.parametrize(
    ("name", "word"),
    [("ncclKernel_ReduceScatter_RING_LL_Sum_half(x)", "reduce_scatter"), ("_allgather_base", "all_gather"),
     ("ncclDevKernel_SendRecv(x)", "send_recv"), ("all_to_allv", "all_to_all"), ("ncclDevKernel_Generic", ""),
     ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", "broadcast"), ("all_reduce", "all_reduce")],
)  # fmt: skip
def test_words_of_collectives(name: str, word: str) -> None:
    assert collective_word(name) == word


def test_occupancy_is_weighted_by_time(tmp_path: Path) -> None:
    recording = Recording()
    with recording.range("aten::mm", **{"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]}):
        recording.launch("a", 30.0, **{"est. achieved occupancy %": 80})
        recording.launch("b", 10.0, **{"est. achieved occupancy %": 40})
        recording.launch("c", 10.0, **{"est. achieved occupancy %": 0})
    notes = read(tmp_path, recording).notes
    assert "achieved occupancy 70.0%, weighted by the time of kernels (80% of that time has one)" in notes


def test_steps_that_differ_are_told_and_the_most_alike_are_taken(tmp_path: Path) -> None:
    recording = Recording()
    for number in range(4):
        linear_step(recording, number)
    with recording.step(4):
        recording.op("aten::relu", [(8,)], [("vectorized", 1.0)])
    trace = read(tmp_path, recording)
    assert trace.notes[0] == "4 of 5 steps are alike and were used, as the profiler marks them"
    assert "aten::relu" not in set(table_of(trace)["op"])


def test_products_in_steps_of_another_length_count_per_step(tmp_path: Path) -> None:
    recording = Recording()
    for number in range(2):
        with recording.step(number):
            for time in (2.0, 4.0):
                recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", time + number)])
    (row,) = table_of(read(tmp_path, recording)).to_dict("records")
    assert row["count"] == 2
    assert row["traced_time_s"] == pytest.approx(3.5e-6)


def convolution_backward(recording: Recording, kernels: list[tuple[str, float]]) -> None:
    with recording.backward("ConvolutionBackward0", 3):
        values = ("[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]")
        recording.op("aten::convolution_backward", [(2, 8, 6, 6), (2, 4, 6, 6), (8, 4, 3, 3)], kernels,
                     dtype=HALF, values=values)  # fmt: skip


def test_gradients_of_a_convolution_are_parted_by_the_kernels_names(tmp_path: Path) -> None:
    recording = Recording()
    convolution_backward(recording, [("xmma_dgrad_implicit_gemm", 30.0), ("xmma_wgrad_implicit_gemm", 10.0)])
    trace = read(tmp_path, recording)
    table = table_of(trace).set_index("pass_name")
    assert set(table["engine"]) == {"matrix"}
    assert table["traced_time_s"].mul(1e6).round(6).to_dict() == {"backward_input": 30.0, "backward_weight": 10.0}
    timings, dropped = trace_timings(trace.rows)
    assert sorted(timings["time_s"].mul(1e6).round(6)) == [10.0, 30.0]
    assert not dropped


def test_gradients_of_a_convolution_that_nothing_parts_are_halves_and_no_timing(tmp_path: Path) -> None:
    recording = Recording()
    convolution_backward(recording, [("cudnn_bwd", 40.0)])
    trace = read(tmp_path, recording)
    assert table_of(trace)["traced_time_s"].mul(1e6).round(6).tolist() == [20.0, 20.0]
    assert any(
        "1 convolutions or recurrent layers a step was divided equally between" in note for note in trace.notes
    )
    timings, dropped = trace_timings(trace.rows)
    assert timings.empty
    assert dropped == {("conv", "one time for ops of different work"): 2}


@pytest.mark.parametrize(
    ("kernel", "dtype", "engine"),
    [("ampere_sgemm_128x64_tn", "fp32", "vector"), ("cutlass_80_tensorop_s1688gemm_128x128", "tf32", "matrix"),
     ("Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN", "fp32", "matrix")],
)  # fmt: skip
def test_timings_say_what_multiplied(tmp_path: Path, kernel: str, dtype: str, engine: str) -> None:
    recording = Recording()
    for time in (3.0, 5.0, 4.0):
        recording.op("aten::mm", [(8, 16), (16, 4)], [(kernel, time)])
    (row,) = trace_timings(read(tmp_path, recording).rows)[0].to_dict("records")
    assert (row["dtype"], row["engine"], row["pass_name"], row["op"]) == (dtype, engine, "", "")
    assert [round(row[name] * 1e6, 6) for name in ("p25_s", "time_s", "p75_s")] == [3.5, 4.0, 4.5]
    assert row["repeats"] == 3


def test_attention_and_its_backward_pass_are_one_row_each(tmp_path: Path) -> None:
    recording = Recording()
    shape = (2, 4, 32, 16)
    values = ("", "0.", "True")
    with recording.step(0):
        dims = {"Input Dims": [shape] * 3 + [[]] * 3, "Input type": [HALF] * 3 + ["", "Scalar", "Scalar"],
                "Concrete Inputs": ["", "", "", *values]}  # fmt: skip
        numbers = {"Sequence number": 7, "Fwd thread id": 0}
        with recording.range("aten::scaled_dot_product_attention", **dims, **numbers):
            recording.op("aten::_scaled_dot_product_flash_attention", [shape] * 3, [("flash_fwd_kernel", 9.0)],
                         dtype=HALF, **numbers)  # fmt: skip
        recording.op("aten::relu", [shape], [("vectorized", 1.0)], **{"Sequence number": 8, "Fwd thread id": 0})
        recording.thread = 99
        with recording.backward("ReluBackward0", 8):
            recording.op("aten::threshold_backward", [shape, shape], [("vectorized", 2.0)], values=("0",))
        with recording.backward("ScaledDotProductFlashAttentionBackward0", 7):
            recording.op("aten::_scaled_dot_product_flash_attention_backward", [shape] * 4,
                         [("flash_bwd_kernel", 20.0), ("flash_bwd_convert", 1.0)], dtype=HALF)  # fmt: skip
    trace = read(tmp_path, recording)
    assert not trace.unsupported
    table = table_of(trace)
    rows = table[table["kind"] == "attention"].set_index("pass_name")
    assert rows["traced_time_s"].mul(1e6).round(6).to_dict() == {"forward": 9.0, "backward": 21.0}
    assert rows.loc["forward", ["batch", "heads", "q_len", "head_dim", "causal"]].tolist() == [2, 4, 32, 16, 1]
    assert set(table["op"]) == {"aten::scaled_dot_product_attention", "aten::relu", "aten::threshold_backward"}


def test_custom_kernels_are_named_and_keep_their_time(tmp_path: Path) -> None:
    recording = Recording()
    recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", 1.0)])
    recording.op("flash_attn::forward", [(8, 16)], [("flash_fwd", 6.0)])
    with recording.range("triton_poi_fused_add_0"):
        recording.launch("triton_poi_fused_add_0", 2.0)
    trace = read(tmp_path, recording)
    table = table_of(trace)
    assert table.loc[table["kind"] == "other", "traced_time_s"].mul(1e6).round(6).tolist() == [6.0, 2.0]
    assert any(one.startswith("flash_attn::forward (no rule)") for one in trace.unsupported)
    assert any(one.startswith("triton_poi_fused_add_0 (a kernel that no call") for one in trace.unsupported)


def test_a_call_without_kernels_has_no_time_on_a_device(tmp_path: Path) -> None:
    recording = Recording()
    recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", 1.0)])
    recording.op("aten::add", [(4,), (4,)], values=("1",))
    times = table_of(read(tmp_path, recording)).set_index("op")["traced_time_s"]
    assert math.isnan(times["aten::add"])


def test_data_loading_is_left_out(tmp_path: Path) -> None:
    recording = Recording()
    recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", 1.0)])
    with recording.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation"):
        recording.op("aten::add", [(4,), (4,)], values=("1",))
    trace = read(tmp_path, recording)
    assert [row.op.op for row in trace.rows] == ["aten::mm"]
    assert "1 op of the data loader was left out" in trace.notes


@pytest.mark.parametrize("name", ["_fused_adam_", "_foreach_addcdiv_"])
@pytest.mark.parametrize("optimizer", ["Adam", "AdamW"])
def test_updates_of_many_tensors_are_one_row(tmp_path: Path, name: str, optimizer: str) -> None:
    recording = Recording()
    fused = name == "_fused_adam_"
    name = "_fused_adamw_" if fused and optimizer == "AdamW" else name
    lists = {"Input Dims": [[[4, 16], [4]]] * 3, "Input type": ["TensorList"] * 3}
    recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", 1.0)])
    with (
        recording.range(f"Optimizer.step#{optimizer}.step", "user_annotation"),
        recording.range(f"aten::{name}", **lists),
    ):
        recording.launch("multi_tensor_apply_kernel", 5.0)
    update = table_of(read(tmp_path, recording)).set_index("kind").loc["optimizer"]
    assert [update[one] for one in ("op", "rule", "impl", "numel", "tensors")] == [
        f"{optimizer}.step", optimizer.lower(), "fused" if fused else "foreach", 68, 2]  # fmt: skip
    assert update["traced_time_s"] == pytest.approx(5e-6)


def test_kernels_without_calls_say_what_to_record(tmp_path: Path) -> None:
    recording = Recording()
    recording.launch("sgemm", 1.0)
    with pytest.raises(FomkitError, match=r"has 1 kernels and no op of PyTorch .* Record it with shapes"):
        read(tmp_path, recording)


def test_achieved_occupancy_is_kept_by_row(tmp_path: Path) -> None:
    """A row has the mean of its kernels, weighted by time: addmm has 20 µs at 40 % and 2 µs at 80 %."""
    recording = Recording()
    for number in range(2):
        linear_step(recording, number)
    for event in recording.events:
        if event["cat"] == "kernel":
            share = 40 if "sgemm" in event["name"] else 80
            event["args"]["est. achieved occupancy %"] = 0 if "nccl" in event["name"] else share
    table = table_of(read(tmp_path, recording)).set_index("op")
    assert table["traced_occupancy"]["aten::addmm"] == pytest.approx((20 * 0.4 + 2 * 0.8) / 22)
    assert table["traced_occupancy"]["aten::mm"] == pytest.approx(0.4)
    assert table["traced_occupancy"]["SGD.step"] == pytest.approx(0.8)
    assert table["traced_occupancy"].isna().sum() == 2


def _twice(recording: Recording, *, process: bool) -> None:
    """Repeat all events at the same time on another device, or in another process, with 2 µs more per kernel."""
    for event in [*recording.events]:
        args = dict(event["args"])
        if "correlation" in args:
            args["correlation"] += 1000
        kernel = event["cat"] in ("kernel", "gpu_memcpy")
        if kernel:
            args["device"] = 1
        else:
            args["External id"] = args.get("External id", 0) + 1000
        other = {"pid": 1} if kernel else {"pid": 2 if process else 1, "tid": event["tid"] + 5000}
        if not (event["cat"] == "user_annotation" and not process):
            recording.events.append({**event, **other, "args": args, "dur": event["dur"] + 2 * kernel})


def test_of_several_devices_the_busiest_is_taken_and_the_others_named(tmp_path: Path) -> None:
    recording = Recording()
    recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", 7.0)])
    recording.op("aten::relu", [(8, 4)], [("vectorized", 1.0)])
    _twice(recording, process=False)
    properties = [{"id": 0, "name": "First GPU"}, {"id": 1, "name": "Second GPU"}]
    trace = read(tmp_path, recording, deviceProperties=properties)
    table = table_of(trace)
    assert microseconds(table) == {"aten::mm": 9.0, "aten::relu": 3.0}
    assert table["count"].tolist() == [1, 1]
    assert trace.device == "Second GPU"
    assert (
        "partial: the trace is of 2 devices; the busiest is used, device 1 (12.0 µs), and left out: device 0 "
        "(8.00 µs)" in trace.notes
    )


def test_ops_of_several_processes_are_refused_and_listed(tmp_path: Path) -> None:
    recording = Recording()
    recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", 7.0)])
    _twice(recording, process=True)
    with pytest.raises(FomkitError, match=r"ops of 2 processes: 1 \(1 ops\), 2 \(1 ops\), and does not state"):
        read(tmp_path, recording)


def _steps(recording: Recording, times: list[float]) -> None:
    for number, time in enumerate(times):
        with recording.step(number):
            recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", time)])
            recording.op("aten::relu", [(8, 4)], [("vectorized", 10.0)])


def test_a_cold_first_step_is_left_out_by_name_and_the_median_stands(tmp_path: Path) -> None:
    recording = Recording()
    _steps(recording, [552.0, 104.0, 45.0, 50.0])
    trace = read(tmp_path, recording)
    table = table_of(trace)
    assert microseconds(table) == {"aten::mm": 50.0, "aten::relu": 10.0}
    assert trace.notes[:4] == (
        "4 of 4 steps are alike and 3 of these were used, as the profiler marks them",
        "step 1 of 4 was left out as a cold start: its ops took 562 µs, those of the others 60.0 µs (a first step "
        "of more than 1.5 times the median of two or more others is excluded)",
        "traced_time_s: median over 3 steps of the mean time of kernels on Synthetic GPU in a step, under the "
        "profiler",
        "ops of a step took 60.0 µs (median; 55.0 µs to 114 µs over 3 steps)",
    )  # fmt: skip
    timings, _ = trace_timings(trace.rows)
    assert timings.set_index("kind").loc["gemm", ["time_s", "repeats"]].tolist() == pytest.approx([50e-6, 3])


def test_a_slow_step_moves_the_median_little_and_is_told(tmp_path: Path) -> None:
    recording = Recording()
    _steps(recording, [50.0, 900.0, 52.0])
    trace = read(tmp_path, recording)
    assert microseconds(table_of(trace))["aten::mm"] == 52.0
    assert "3 of 3 steps are alike and were used, as the profiler marks them" in trace.notes
    assert any("60.0 µs to 910 µs over 3 steps" in note for note in trace.notes)


def test_equal_executions_of_a_step_count_together(tmp_path: Path) -> None:
    """Twice a step, 10 and 30 µs in one and 20 and 60 µs in the next: 20 µs and 40 µs each, the median 30 µs."""
    recording = Recording()
    for number, times in enumerate([(10.0, 30.0), (20.0, 60.0)]):
        with recording.step(number):
            for time in times:
                recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", time)])
    (row,) = table_of(read(tmp_path, recording)).to_dict("records")
    assert (row["count"], round(row["traced_time_s"] * 1e6, 6)) == (2, 30.0)


def contended(tmp_path: Path, longer: Sequence[float], pause: float = 0.0) -> list[str]:
    """Return the notes on steps with products of 20 µs, some of them longer, and pauses of the host in between."""
    recording = Recording()
    for number, more in enumerate(longer):
        with recording.step(number):
            for extra in (0.0, more, 0.0):
                recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", 20.0 + extra)])
            recording.clock += pause
    return [one for one in read(tmp_path, recording).notes if one.startswith(("busy", "contended"))]


def test_a_trace_of_a_shared_machine_says_so(tmp_path: Path) -> None:
    (busy,) = contended(tmp_path, [0.0] * 4)
    assert busy.startswith("busy share: traced ops took 100% of the wall time")
    busy, shared = contended(tmp_path, [0.0, 100.0, 0.0, 100.0])
    # 200 of 440 µs are beyond the median of twelve equal products.
    assert shared.startswith("contended: 45% of the traced time is beyond the median")


def test_a_device_that_waits_most_of_the_time_says_so(tmp_path: Path) -> None:
    (busy,) = contended(tmp_path, [0.0] * 4, pause=400.0)
    share = int(busy.partition("took ")[2].partition("%")[0])
    assert 10 < share < 20
    assert busy.endswith("; in the rest it waited for the host, for input or for other work")
