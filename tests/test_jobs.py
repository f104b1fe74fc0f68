"""Runs on many devices: shares of parameters, waiting for hosts, and suites whose lines are jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.job import Job, Layout
from fomkit.core.machine import Fact, Machine, Overhead, Scope
from fomkit.core.transformer import Transformer
from fomkit.parallel.step import StageParameters, check_layout
from fomkit.parallel.traffic import Piece, Sharding, Unit, sharded_traffic
from fomkit.plan.estimate import estimate
from fomkit.plan.job import _runs_at_once, time_job
from fomkit.plan.options import HOST_OP_S, Options
from fomkit.plan.scaling import stepper_of, with_user_links
from fomkit.plan.transformer_plan import TransformerPlan, Work
from fomkit.plan.transformer_step import TransformerStep
from fomkit.prediction.exchange import Network
from fomkit.prediction.links import Group
from fomkit.profiles.campaigns import load_campaign
from fomkit.profiles.declared import parse_layout, parse_link
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, load_recipe, save_model, transformer_profile
from fomkit.profiles.suites import load_suite

LINKS = [parse_link("node, 5 us, 300 GB/s, each"), parse_link("system, 10 us, 25 GB/s, each")]


@pytest.fixture(scope="module")
def a100() -> Machine:
    return with_user_links(load_machine("a100-sxm"), LINKS, node_devices=8)


def stepper(machine: Machine, layout: Layout, **sizes: object) -> TransformerStep:
    shape = Transformer(**{"hidden": 2048, "heads": 16, "blocks": 24, "seq": 2048, "vocabulary": 51200, **sizes})
    found = stepper_of(transformer_profile(shape, "small"), machine, layout, Options())
    assert isinstance(found, TransformerStep)
    return found


def by_hand(layout: Layout, network: Network, of: Sharding, microbatches: int) -> float:
    """Compute a step's exposed time by the specification (Zhao et al. 2023; docs/parallel.md) [s]."""
    block, root = of.block.pieces[0], of.root.pieces[0]

    def taken(name: str, parameters: float, byte: float) -> float:
        return network.collective(name, parameters * byte, block.group).value

    gather, scatter = taken("all_gather", block.parameters, 2), taken("reduce_scatter", block.parameters, 4)
    root_gather, root_scatter = (
        taken("all_gather", root.parameters, 2),
        taken("reduce_scatter", root.parameters, 4),
    )
    forward = root_gather + gather + (of.blocks - 1) * max(of.forward_s, gather) + of.forward_s
    found = 0.0
    for microbatch in range(microbatches):
        last = layout.scatter == "each" or microbatch == microbatches - 1
        own, end = (scatter, root_scatter) if last else (0.0, 0.0)
        one = max(of.backward_s, gather + own) if layout.prefetch == "pre" else max(of.backward_s, own) + gather
        backward = gather + (of.blocks - 1) * one + of.backward_s + own + end
        if layout.zero == 2:
            backward = (of.blocks - 1) * max(of.backward_s, own) + of.backward_s + own + end
        found += forward + backward - of.blocks * (of.forward_s + of.backward_s)
    return found


@pytest.mark.parametrize("block_s", [1e-4, 3e-3, 0.1])
@pytest.mark.parametrize(
    "layout",
    [Layout(zero=3), Layout(zero=3, prefetch="pre"), Layout(zero=3, scatter="last"), Layout(zero=2)],
    ids=["post", "pre", "last", "zero 2"],
)
def test_what_waits_is_what_the_formulas_say(a100: Machine, layout: Layout, block_s: float) -> None:
    network, group = Network(a100), Group(8, 4)
    of = Sharding(Unit((Piece(2e8, group),)), Unit((Piece(4e8, group),)), 32, 2, 4, block_s, 2 * block_s)
    found = sharded_traffic(layout, network, of, 3)
    assert found.exposed.value == pytest.approx(by_hand(layout, network, of, 3), rel=1e-9)
    assert found.exposed.low <= found.exposed.value <= found.exposed.high <= found.busy.high
    assert found.exposed.value <= found.busy.value
    gathers = 3 * 2e8 * 32 * (2 if layout.zero == 3 else 1) + 3 * 4e8
    scatters = (1 if layout.scatter == "last" else 3) * (2e8 * 32 + 4e8)
    assert found.sent_byte == pytest.approx(31 / 32 * (2 * gathers + 4 * scatters))
    whole = sharded_traffic(replace(layout, overlap=False), network, of, 3)
    assert whole.exposed.value == pytest.approx(whole.busy.value)


def test_sharing_more_needs_less_memory_and_sends_more(a100: Machine) -> None:
    layout = Layout(microbatch=1, attention_peak_fraction=0.3)
    steps = {zero: stepper(a100, replace(layout, zero=zero), attention="fused").at(32, 128) for zero in range(4)}
    held = [steps[zero].memory_byte for zero in range(4)]
    assert held == sorted(held, reverse=True)
    assert steps[3].sent_byte["replicas"] > steps[1].sent_byte["replicas"]
    later = stepper(a100, replace(layout, zero=3, scatter="last"), attention="fused").at(32, 128)
    assert later.sent_byte["replicas"] < steps[3].sent_byte["replicas"]
    # A fused attention whose rate is stated is assumed, and nothing else of the step is.
    assert 0 < steps[3].coverage["assumed"] < 1
    half = stepper(a100, replace(layout, attention_peak_fraction=0.15), attention="fused").at(32, 128)
    assert half.compute_s.value > stepper(a100, layout, attention="fused").at(32, 128).compute_s.value


@pytest.mark.parametrize(
    ("devices", "scope", "runs"),
    [(3, "system", 4 * 2), (3, "node", 2), (1, "device", 1), (8, "system", 4), (16, "system", 2)],
)
def test_runs_stand_side_by_side_in_a_node_or_take_whole_ones(
    a100: Machine, devices: int, scope: Scope, runs: int
) -> None:
    assert _runs_at_once(replace(a100, system_nodes=4), devices, scope, "a job") == runs


def test_hours_out_of_service_are_lost_to_a_system_and_to_no_node(a100: Machine) -> None:
    machine, model = replace(a100, system_nodes=4, availability=0.5), load_model("candle/p1b3")
    one, four = (
        time_job(model, machine, Job(nodes=1), Options(batch=800, scope=scope)) for scope in ("node", "system")
    )
    assert (one.runs_at_once, four.runs_at_once) == (1, 4)
    assert four.unit_per_day.value == pytest.approx(4 * 0.5 * one.unit_per_day.value)


def test_a_job_may_take_all_nodes_and_no_more(a100: Machine) -> None:
    machine, model = replace(a100, system_nodes=2), load_model("candle/p1b3")
    every = time_job(model, machine, Job(nodes=2), Options(batch=1600))
    assert every.job is not None
    assert (every.runs_at_once, every.job.devices) == (1, 16)
    with pytest.raises(FomkitError, match="a run uses 3 nodes, but a100-sxm has 2"):
        time_job(model, machine, Job(nodes=3), Options(batch=1600))


def test_a_small_layer_waits_for_its_host_and_a_stated_host_counts(a100: Machine) -> None:
    layout = Layout(tensor=8, microbatch=1, recompute="full")
    eager, graphs = (stepper(a100, replace(layout, launch=how)).at(8, 8) for how in ("eager", "graphs"))
    rows = 63  # of one block as run: 15 forward, 15 made again, 33 backward
    host = 8 * 24 * rows * HOST_OP_S.value
    assert host < eager.compute_s.value < 1.2 * host
    assert graphs.compute_s.value < eager.compute_s.value
    assert any("waits for its host" in note for note in eager.notes)
    assert not any("host" in note for note in graphs.notes)
    quick = replace(a100, host_op_s=Fact(1e-6, 1e-6, 1e-6, "measured", "here"))
    assert stepper(quick, layout).at(8, 8).compute_s.value == pytest.approx(graphs.compute_s.value)
    # A large layer never waits.
    large = {"hidden": 12288, "heads": 96, "blocks": 96}
    wide = [stepper(a100, replace(layout, launch=how), **large).at(8, 1) for how in ("eager", "graphs")]
    assert wide[0].wall_s == wide[1].wall_s


def test_a_device_shares_the_gradients_of_what_it_holds(a100: Machine) -> None:
    # 12·h² and 13·h of each of 24 blocks, the words and positions, and the last norm; four bytes each, or two.
    parameters = 24 * (12 * 2048**2 + 13 * 2048) + (51200 + 2048) * 2048 + 2 * 2048
    assert stepper(a100, Layout()).gradient_byte() == pytest.approx(4 * parameters, rel=1e-5)
    halves = stepper(a100, Layout(tensor=2, gradient_byte=2))
    assert halves.gradient_byte() == pytest.approx(parameters, rel=1e-5)


def test_a_stage_updates_the_tensors_of_its_own_blocks(a100: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stepper(a100, Layout(pipeline=2))
    asked: list[float] = []
    update = TransformerPlan.update

    def asked_for(plan: TransformerPlan, parameters: float, tensors: float, **more: Any) -> Work:
        asked.append(tensors)
        assert 0 < more["of_blocks"] < parameters
        return update(plan, parameters, tensors, **more)

    monkeypatch.setattr(TransformerPlan, "update", asked_for)
    found.at(2, 2)
    # Of a block the weights and biases of four products, queries, keys and values in one, and of two norms.
    assert asked == [12 * 24 / 2 + 4]


def test_blocks_that_are_left_over_go_to_inner_stages(a100: Machine) -> None:
    """26 blocks in 4 stages are 6, 7, 7, 6; of 27 the first has 7 too, and of two stages it has the odd one."""
    layout = Layout(pipeline=4, microbatch=1)
    even, uneven, more = (stepper(a100, layout, blocks=blocks) for blocks in (24, 26, 28))
    counts = [[many for _, many in one._stages(1)] for one in (even, uneven, more)]
    assert counts == [[1, 2, 1], [1, 2, 1], [1, 2, 1]]
    of_even, of_uneven, of_more = (
        [stage.work_s.value for stage, _ in one._stages(1)] for one in (even, uneven, more)
    )
    assert of_uneven == [of_even[0], of_more[1], of_even[2]]
    five = stepper(a100, replace(layout, pipeline=5), blocks=26)  # 5, 6, 5, 5, 5
    assert [many for _, many in five._stages(1)] == [1, 1, 2, 1]
    steps = [one.at(4, 8) for one in (even, uneven, more)]
    assert steps[0].wall_s.value < steps[1].wall_s.value < steps[2].wall_s.value
    assert steps[0].memory_byte <= steps[1].memory_byte < steps[2].memory_byte
    assert steps[1].sent_byte == pytest.approx(steps[2].sent_byte)
    assert [Layout(pipeline=of).stage_blocks(27) for of in (1, 2, 4)] == [[27], [14, 13], [7, 7, 7, 6]]


def test_words_are_on_the_stages_that_use_them(a100: Machine) -> None:
    """An own output layer shares no gradients; the first stage is fullest if words outweigh a device's block."""
    words, sizes = 51200 * 2048, {"attention": "fused", "style": "llama", "kv_heads": 4}
    tied, apart = (stepper(a100, Layout(pipeline=2), tied=one, **sizes) for one in (True, False))
    assert tied.gradient_byte() == apart.gradient_byte() == 4 * (12 * tied.shape.block_parameters() + words)
    assert tied._tied_words(1).time.value > apart._tied_words(1).time.value == 0
    mixed = {**sizes, "experts": 8, "feed_forward": 2048, "blocks": 26}
    held = [stepper(a100, Layout(pipeline=4, expert=of), **mixed)._fullest for of in (1, 8)]
    assert [(blocks, of.words, of.table) for blocks, of in held] == [((7,), 0, 0), ((6,), words, 0)]


def test_the_output_layer_counts_on_the_stage_that_has_it(a100: Machine) -> None:
    """One dense block, then one with experts and the output's own table: the last stage is updated and summed."""
    shape = {"attention": "fused", "style": "llama", "kv_heads": 4, "tied": False, "blocks": 2, "experts": 8,
             "feed_forward": 1024, "dense_blocks": 1, "dense_feed_forward": 1024}  # fmt: skip
    found = stepper(a100, Layout(pipeline=2, zero=1, microbatch=1), **shape)
    table, last = 51200 * 2048, found.shape.kinds[1][1].block_parameters()
    blocks, held = found._fullest
    assert (blocks, held) == ((0, 1), StageParameters(last, 0, 0, table))
    assert found.gradient_byte() == 4 * (last + table)
    # Its gradients are there before those of any block.
    _, buckets, _, _ = found._sums(4, found._passes(1))
    assert [(bucket.byte, bucket.ready_s == 0) for bucket in buckets] == [(4 * table, True), (4 * last, False)]
    # What is updated is what is held: 2 and 4 bytes of each parameter, 12 over the four replicas.
    memory = found.held(8, 8)
    assert [memory[role] for role in ("parameter", "gradient", "state")] == pytest.approx(
        [each * (last + table) for each in (2, 4, 3)]
    )


def test_devices_of_a_context_group_share_all_work_of_a_sequence(a100: Machine) -> None:
    """Half of the tokens and of attention each; keys and values go round unless attention takes longer."""
    wide = {"attention": "fused", "style": "llama", "kv_heads": 4, "seq": 8192}
    alone, shared = (stepper(a100, Layout(context=many, microbatch=1, zero=1), **wide) for many in (1, 2))
    flop = [one.one_device(4, 4)[0].query("pass_name != 'update'")["flop"].sum() for one in (alone, shared)]
    assert flop[1] == pytest.approx(flop[0] / 2, rel=1e-4)  # sums of whole weights are not shared
    one, two = alone.at(4, 8), shared.at(4, 8)
    assert (one.replicas, one.microbatches, two.replicas, two.microbatches) == (4, 2, 2, 4)
    assert two.sent_byte["replicas"] == one.sent_byte["replicas"]  # four devices share gradients either way
    states = 9 * shared.shape.parameters  # a quarter of 12 bytes, and 6
    assert one.memory_byte is not None
    assert two.memory_byte == pytest.approx(states + (one.memory_byte - states) / 2, rel=1e-3)
    # Three rounds in 24 blocks and 4 microbatches, of half the keys and values: 4 heads of 128 in 2 bytes.
    assert (one.sent_byte.get("context"), two.sent_byte["context"]) == (None, 3 * 24 * 4 * 8192 * 4 * 128 * 2)
    exposed = [two.exposed_s.value, two.replicas_s.value]  # a fast link
    assert exposed == pytest.approx([one.exposed_s.value] * 2)
    slow = stepper(with_user_links(a100, [parse_link("system, 5 us, 1 GB/s, each")], node_devices=1),
                   Layout(context=2, microbatch=1, zero=1), **wide)  # fmt: skip
    block = slow.plan.pieces(slow.layout, 0.5).blocks[0].table
    forward_s, backward_s = block.loc[block["kind"] == "attention", "time_s"]
    passed_s = slow.network.exchange("all_gather", 2 * 2 * 8192 * 4 * 128, Group(1, 2)).time.value
    exposed_s = 24 * 4 * (passed_s - forward_s + 2 * (passed_s - backward_s / 2))
    found = slow.at(4, 8)
    assert found.exposed_s.value - found.replicas_s.value == pytest.approx(exposed_s)
    with pytest.raises(FomkitError, match=r"12 devices cannot be divided into copies of tensor 1 × context 8"):
        Layout(context=8).replicas(12)
    with pytest.raises(
        FomkitError, match=r"1 device cannot be divided .* multiple of 2 devices, by nodes or by data"
    ):
        Layout(context=2).replicas(1)
    with pytest.raises(FomkitError, match=r"seq 2,048 is not divisible by 2 × context 3"):
        stepper(a100, Layout(context=3), attention="fused")
    with pytest.raises(FomkitError, match="context needs fused attention"):
        stepper(a100, Layout(context=2))
    with pytest.raises(FomkitError, match="context with expert parallelism"):
        parse_layout(["context=2,expert=2"])


def test_whole_experts_are_shared_by_the_devices_of_a_tensor_group_too(a100: Machine) -> None:
    """Four devices hold two whole experts each, instead of halves of four; each sends its half of the tokens."""
    mixed = {"attention": "fused", "style": "llama", "kv_heads": 4, "experts": 8, "top_k": 2, "feed_forward": 1024}
    of = {"tensor": 2, "sequence": True, "microbatch": 1, "zero": 1}
    split, whole = (stepper(a100, Layout(**of, **more), **mixed)
                    for more in ({"expert": 2}, {"expert": 4, "whole_experts": True}))  # fmt: skip
    products = "kind == 'gemm' and op.str.startswith('feed-forward')"
    tables = [one.one_device(4, 4)[0] for one in (split, whole)]
    flop = [table.query(products)["flop"].sum() for table in tables]
    assert flop[0] == pytest.approx(flop[1])
    routed = [table.loc[table["op"] == "router", "m"].item() for table in tables]
    assert routed == [2048, 1024]
    assert split.gradient_byte() == pytest.approx(whole.gradient_byte())
    sent = [one.at(4, 4).sent_byte for one in (split, whole)]
    assert sent[1]["tensor"] == pytest.approx(sent[0]["tensor"] / 2)  # those of attention
    assert sent[1]["experts"] == pytest.approx(sent[0]["experts"] / 2 * (3 / 4) / (1 / 2))
    assert whole.layout.fewest_devices == split.layout.fewest_devices == 4
    assert whole.at(4, 4).memory_byte == pytest.approx(split.at(4, 4).memory_byte, rel=0.1)
    with pytest.raises(
        FomkitError, match=r"3 replicas .* groups of expert 4 / tensor 2. Use a multiple of 4 devices"
    ):
        whole.layout.replicas(6)
    for words in ("tensor=2,expert=4,whole_experts", "tensor=2,sequence,expert=3,whole_experts"):
        with pytest.raises(FomkitError, match="whole_experts needs sequence, and an expert that is a multiple"):
            parse_layout([words])


def test_stated_replicas_are_the_devices_of_a_job_or_are_checked(a100: Machine) -> None:
    layout = Layout(data=2, tensor=2, microbatch=1)
    shape = Transformer(hidden=2048, heads=16, blocks=24, seq=2048, vocabulary=51200)
    model, many = transformer_profile(shape, "small"), replace(layout, data=8)
    inside = time_job(model, a100, Job(None, layout), Options(batch=4))
    assert inside.job is not None
    assert (inside.job.devices, inside.job.replicas, inside.scope) == (4, 2, "node")
    alone, with_nodes = (time_job(model, a100, Job(nodes, many), Options(batch=8)) for nodes in (None, 2))
    assert alone.job is not None
    assert alone.job.devices == 16
    assert (alone.step, alone.scope) == (with_nodes.step, "system")
    with pytest.raises(FomkitError, match=r"data is 8, but 8 devices divided by tensor 2 × pipeline 1 are 4"):
        time_job(model, a100, Job(1, many), Options(batch=8))
    with pytest.raises(FomkitError, match=r"data is 4, but 8 devices divided by .* are 8 replicas"):
        time_job(load_model("alexnet"), a100, Job(1, Layout(data=4)), Options(batch=64))
    with pytest.raises(
        FomkitError, match=r"uses 12 devices, .* Choose a wider scope, a multiple of 8, or fewer dev"
    ):
        time_job(load_model("alexnet"), a100, Job(None, Layout(data=12)), Options(batch=48))
    with pytest.raises(FomkitError, match="data states the replicas, whose number changes with the nodes"):
        fomkit.scaling("alexnet", a100, nodes=[1, 2], layout="data=8")


def test_each_part_of_a_stage_sends_the_stream_forth_and_its_gradient_back(a100: Machine) -> None:
    stream = 2 * 2048 * 2048  # bf16, of one sample
    for parts in (1, 2):
        layout = Layout(pipeline=2, interleave=parts, microbatch=1)
        found = stepper(a100, layout).at(4, 16)  # eight microbatches of each of two replicas
        assert found.sent_byte["pipeline"] == pytest.approx(8 * 2 * parts * stream)


def test_gradients_that_stay_whole_are_held_whole(a100: Machine) -> None:
    large = {"hidden": 4096, "heads": 32, "blocks": 32}
    layout = Layout(zero=3, microbatch=1, recompute="full")
    each, last = (stepper(a100, replace(layout, scatter=how), **large) for how in ("each", "last"))
    gradients = 4 * 31 * each.shape.block_parameters()  # of one block more or less nobody waits
    assert last.at(64, 128).memory_byte - each.at(64, 128).memory_byte == pytest.approx(gradients)
    assert last.at(64, 64).memory_byte == each.at(64, 64).memory_byte  # one microbatch is the last


def test_two_that_share_gradients_hold_a_half_and_what_waits(a100: Machine) -> None:
    block, ends = 12 * 2048**2 + 13 * 2048, (51200 + 2048) * 2048 + 2 * 2048
    whole, half = (stepper(a100, Layout(zero=zero)).at(2, 2).memory_byte for zero in (1, 2))
    # Of four bytes each a half less; the gradients of one block, of the words and positions wait to be scattered.
    assert whole - half == pytest.approx(4 * (24 * block + ends) / 2 - 4 * (block + ends), rel=1e-4)


def test_what_a_machine_takes_beside_a_step_is_in_the_step(a100: Machine) -> None:
    plain = stepper(a100, Layout()).at(8, 8)
    assert plain.excludes == ("input",)
    stated = (Overhead("logging", "step", Fact(5.0, 5.0, 5.0, "measured", "here"), None),
              Overhead("input", "step", Fact(100.0, 90.0, 110.0, "measured", "here"), None))  # fmt: skip
    found = stepper(replace(a100, overheads=stated), Layout()).at(8, 8)
    assert found.wall_s.value == pytest.approx(105.0)
    assert found.excludes == ()


def test_a_stated_rate_has_an_interval_of_the_level_that_is_asked_for(a100: Machine) -> None:
    shape = Transformer(hidden=2048, heads=16, blocks=24, seq=65536, vocabulary=51200, attention="fused")
    model, layout = transformer_profile(shape, "long"), Layout(attention_peak_fraction=0.3)
    half, usual, wide = (
        stepper_of(model, a100, layout, Options(interval=level)).at(1, 1).wall_s for level in (0.5, 0.8, 0.99)
    )
    assert wide.high / wide.value > 1.15 > usual.high / usual.value > half.high / half.value


def test_what_a_host_is_waited_for_is_assumed_and_hides_what_is_sent(a100: Machine) -> None:
    layout = Layout(microbatch=1)
    sizes = {"hidden": 512, "heads": 8, "seq": 512}
    eager, graphs = (stepper(a100, replace(layout, launch=how), **sizes).at(8, 8) for how in ("eager", "graphs"))
    assert eager.coverage["assumed"] > 0.5
    assert graphs.coverage["assumed"] == 0
    # Of four microbatches each waits as long as one does.
    four = stepper(a100, replace(layout, launch="eager"), **sizes).at(8, 32)
    waited = [step.coverage["assumed"] * step.wall_s.value for step in (eager, four)]
    assert waited[1] == pytest.approx(4 * waited[0])
    slow = with_user_links(a100, [parse_link("system, 10 us, 3 GB/s, each"), *LINKS], node_devices=8)
    pre, post = (
        stepper(slow, Layout(zero=3, microbatch=1, prefetch=how), **sizes).at(64, 64) for how in ("pre", "post")
    )
    assert pre.wall_s.value < 0.9 * post.wall_s.value


def test_without_an_order_of_its_ops_a_step_sends_its_gradients_at_its_end(a100: Machine) -> None:
    model = load_model("resnet50")
    told, untold = (stepper_of(one, a100, Layout(), Options()) for one in (model, replace(model, order=None)))
    assert told.gradient_byte() == untold.gradient_byte()
    hidden, whole = (one.at(16, 16 * 32).exposed_s.value for one in (told, untold))
    assert 0 < hidden <= whole


def test_a_forward_pass_that_runs_again_counts_twice_in_what_a_step_rests_on() -> None:
    machine = load_machine("v100")
    step = stepper_of(load_model("resnet50"), machine, Layout(recompute="full"), Options()).at(1, 32)
    ops = estimate(load_model("resnet50"), machine, Options(batch=32)).ops
    spent = ops["time_s"] * ops["count"] * (1 + ops["pass_name"].eq("forward"))
    shares = spent.groupby(ops["time_source"]).sum() / spent.sum()
    assert len(shares) > 1
    assert {name: share for name, share in step.coverage.items() if share} == pytest.approx(shares.to_dict())


def test_words_about_fused_attention_need_it(a100: Machine) -> None:
    with pytest.raises(FomkitError, match="small: has unfused attention, which attention_peak_fraction does"):
        stepper(a100, Layout(attention_peak_fraction=0.3))


def test_a_machine_file_states_the_software_of_its_steps(tmp_path: Path) -> None:
    path, again = tmp_path / "mine.yaml", tmp_path / "again.yaml"
    head = "schema: fomkit/machine/1\nname: mine\nparty: lab\ndevice: v100-pcie-32gb\n"
    path.write_text(f"{head}software: PyTorch 2.1\n")
    mine, shipped = load_machine(path), load_machine("v100-pcie-32gb")
    save_machine(mine, again)
    assert mine.software == load_machine(again).software == shipped.with_(software="PyTorch 2.1").software
    ours, other = (fomkit.estimate("alexnet", one, precision="fp32") for one in (mine, shipped))
    assert other.step.low < ours.step.low < ours.step.value == other.step.value < ours.step.high < other.step.high
    effects = [
        one.content["models"][0]["conditions"]["versions"]["what"].rpartition("; ")[2] for one in (ours, other)
    ]
    assert effects == ["steps run the same, as the machine states", "the interval includes 4% for other versions"]
    path.write_text(f"{head}software: PyTorch\n")
    for load in (lambda: load_machine(path), lambda: shipped.with_(software="PyTorch")):
        with pytest.raises(FomkitError, match=r"software 'PyTorch' states no version\. Write, for example"):
            load()


def test_a_machine_file_states_its_host(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "schema: fomkit/machine/1\nname: mine\nparty: lab\ndevice: a100-sxm\n"
        "host: {per_op: 20 us, low: 15 us, high: 30 us, basis: measured, source: own loop}\n"
    )
    assert load_machine(path).host_op_s == Fact(2e-5, 1.5e-5, 3e-5, "measured", "own loop")
    path.write_text(path.read_text().replace("low: 15 us", "low: 25 us"))
    with pytest.raises(FomkitError, match=r"mine\.yaml:5: host\.per_op must be above 0 with low ≤ value ≤ high"):
        load_machine(path)


@pytest.mark.parametrize(
    ("words", "why"),
    [("zero=1,prefetch=pre", "prefetch requires zero 3"), ("scatter=last", "scatter requires zero 2 or 3"),
     ("zero=3,prefetch=before", "'before' is not a value of prefetch"), ("gradient_byte=0", "gradient_byte is 0"),
     ("attention_peak_fraction=130%", "attention_peak_fraction is 1.3"),
     ("launch=lazy", "'lazy' is not a value of launch")],
)  # fmt: skip
def test_words_of_a_layout_that_cannot_be(words: str, why: str) -> None:
    with pytest.raises(FomkitError, match=why):
        parse_layout([words])


def test_words_of_a_layout() -> None:
    found = parse_layout(["zero=3,prefetch=pre,scatter=last,gradient_byte=2,attention_peak_fraction=30%"])
    assert found == check_layout(
        Layout(zero=3, prefetch="pre", scatter="last", gradient_byte=2, attention_peak_fraction=0.3)
    )


MACHINE = """schema: fomkit/machine/1
name: {name}
party: lab
device: {device}
node: {{devices: 8}}
system: {{nodes: {nodes}}}
links:
  - {{tier: node, alpha: 5 us, bandwidth: 150 GB/s, direction: each, source: example}}
  - {{tier: system, alpha: 10 us, bandwidth: 200 Gb/s, direction: each, source: example}}
"""
LINES = """schema: fomkit/suite/1
name: own
version: 1
baseline: {folder}/old.yaml
scope: {scope}
mean: ratio_of_harmonic_means
threshold: 2
lines:
  - {{name: PICTURES, basis: modelled, party: lab, model: resnet50, epochs: 10, samples: 1281167}}
  - {{name: LARGE, basis: modelled, party: lab, model: megatron/gpt-175b, precision: mixed, batch: 1536, epochs: 1,
     samples: 100000, nodes: {nodes},
     layout: {{tensor: 8, pipeline: 8, microbatch: 1, sequence: true, recompute: full}}}}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for name, device, nodes in (("old", "v100", 96), ("new", "a100-sxm", 128)):
        text = MACHINE.format(name=name, device=device, nodes=nodes)
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    path = tmp_path / "own.suite.yaml"
    path.write_text(LINES.format(folder=tmp_path, scope="system", nodes=64), encoding="utf-8")
    return path


def run(*words: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, [str(word) for word in words])
    return found.exit_code, found.stdout


def test_a_suite_rates_small_runs_and_one_on_64_nodes(own: Path) -> None:
    arguments = ["fom", own, "--target", own.with_name("new.yaml"), "--baseline", own.with_name("old.yaml")]
    code, text = run(*arguments, "--allow-oversize", "--json")
    assert code == 0, text
    content = json.loads(text)
    line = content["lines"][1]["machines"]["new"]
    assert line["job"]["devices"] == 512
    assert line["job"]["runs_at_once"] == 2
    assert line["excludes"]
    # The rate is made of the step that 'scaling' gives.
    steps = 100000 // 1536
    assert line["unit_per_day"]["value"] == pytest.approx(2 * 86400 / (steps * line["job"]["step_s"]["value"]))
    assert content["fom"]["low"] < content["fom"]["value"] < content["fom"]["high"]
    assert 0 < content["threshold"]["probability"] < 1
    assert "LARGE on old does not fit" in " ".join(content["fom"]["does_not_fit"])


def test_a_suites_workbook_says_what_a_job_leaves_out_and_that_no_device_holds_it(own: Path) -> None:
    from openpyxl import load_workbook

    path = own.with_name("own.xlsx")
    new, old = (own.with_name(f"{name}.yaml") for name in ("new", "old"))
    assert run("fom", own, "-t", new, "--baseline", old, "--allow-oversize", "-o", path)[0] == 0
    rows = [[cell.value for cell in row] for row in load_workbook(path)["Summary"].iter_rows()]
    said = {(row[0], row[1]): str(row[12]) for row in rows if row[0] == "LARGE" and row[2] == "given"}
    assert said["LARGE", "old"].startswith("does not fit the memory, ")
    assert "start_up" in said["LARGE", "new"]
    assert any("this rate is not possible: LARGE does not fit" in str(row[0]) for row in rows)


def test_a_suites_workbook_rates_a_job_by_the_terms_of_its_step(own: Path) -> None:
    from fomkit.workbook.read import read_book
    from fomkit.workbook.read_sheet_model import sheet_model_from
    from fomkit.workbook.records import evaluate

    path = own.with_name("own.xlsx")
    new, old = (own.with_name(f"{name}.yaml") for name in ("new", "old"))
    words = ("fom", own, "-t", new, "--baseline", old, "--allow-oversize", "-o", path, "--json")
    code, text = run(*words)
    assert code == 0, text
    line, sheet_model = json.loads(text)["lines"][1], sheet_model_from(read_book(path))
    assert any("LARGE: stated terms" in text and "nodes of Machines" in text for _, text in sheet_model.caveats)
    for machine in ("new", "old"):
        said = line["machines"][machine]
        terms, step = sheet_model.workload("LARGE").jobs[machine], said["job"]
        found = [terms.calculation_s, terms.exposed_s, terms.bubble_s, terms.step_s]
        assert found == pytest.approx(
            [step[f"{of}_s"]["value"] for of in ("compute", "exposed", "bubble", "step")]
        )
        rate = evaluate(sheet_model).unit_per_day["LARGE", machine]
        assert rate.ends == pytest.approx([said["unit_per_day"][end] for end in ("value", "low", "high")])
        assert "tensor 8, pipeline 8" in terms.source


@pytest.mark.parametrize(("scope", "devices", "at_once"), [("node", 4, 2), ("system", 4, 256), ("system", 16, 64)])
def test_a_models_own_number_of_devices_is_a_job(own: Path, scope: str, devices: int, at_once: int) -> None:
    model = load_model("resnet50")
    saved = own.with_name("many.yaml")
    save_model(replace(model, name="many", run=replace(model.run, devices_per_run=devices, epochs=1),
                       data=replace(model.data, train_samples=64_000)), saved)  # fmt: skip
    line = f"  - {{name: MANY, basis: modelled, party: lab, model: {saved}, batch: 256}}\n"
    head = LINES.format(folder=own.parent, scope=scope, nodes=64).split("  - ")[0]
    own.write_text(head + line, encoding="utf-8")
    new, old = (own.with_name(f"{name}.yaml") for name in ("new", "old"))
    code, text = run("fom", own, "-t", new, "--baseline", old, "--json")
    assert code == 0, text
    job = json.loads(text)["lines"][0]["machines"]["new"]["job"]
    assert (job["devices"], job["replicas"], job["runs_at_once"]) == (devices, devices, at_once)
    assert job["exposed_s"]["value"] > 0
    # One device does a quarter or less of the batch, and the sums of gradients are in the step.
    alone = estimate(model, load_machine(new), Options(batch=256 // devices)).step.value
    assert alone < job["step_s"]["value"] < 2 * alone


def test_a_job_fills_what_the_machine_says_it_has(own: Path) -> None:
    own.write_text(LINES.format(folder=own.parent, scope="system", nodes="fill"), encoding="utf-8")
    new, old = (own.with_name(f"{name}.yaml") for name in ("new", "old"))
    content = json.loads(run("fom", own, "-t", new, "--baseline", old, "--json", "--allow-oversize")[1])
    jobs = [content["lines"][1]["machines"][name]["job"] for name in ("old", "new")]
    assert [(job["nodes"], job["runs_at_once"]) for job in jobs] == [(96, 1), (128, 1)]


def test_a_campaign_marks_a_job_that_no_device_holds(own: Path) -> None:
    own.write_text(LINES.format(folder=own.parent, scope="system", nodes=1).replace("pipeline: 8, ", ""))
    campaign = own.with_name("c.campaign.yaml")
    phase = f"{{name: one, suite: {own}, line: LARGE, runs: 9, basis: assumed, source: made up}}"
    campaign.write_text(f"schema: fomkit/campaign/1\nname: c\nphases:\n  - {phase}\n")
    code, text = run("campaign", campaign, "-t", own.with_name("new.yaml"), "--json")
    assert code == 1
    (phase,) = json.loads(text)["machines"][0]["phases"]
    assert phase["fits"] is False


CAMPAIGN = """schema: fomkit/campaign/1
name: c
phases:
  - {{name: line, suite: {suite}, line: LARGE, runs: 9, basis: assumed, source: made up}}
  - {{name: model, model: megatron/gpt-175b, precision: mixed, batch: 1536, epochs: 1, samples: 100000, nodes: 64,
     layout: {layout}, mode: {mode}, runs: 9, basis: assumed, source: made up}}
"""


def test_a_phase_is_spread_over_nodes_as_a_line_is(own: Path) -> None:
    campaign = own.with_name("c.campaign.yaml")
    layout = "{tensor: 8, pipeline: 8, microbatch: 1, sequence: true, recompute: full}"
    campaign.write_text(CAMPAIGN.format(suite=own, layout=layout, mode="train"))
    code, text = run("campaign", campaign, "-t", own.with_name("new.yaml"), "--json")
    assert code == 0, text
    line, model = json.loads(text)["machines"][0]["phases"]
    assert line["days"] == model["days"]
    assert model["run_s"] == line["run_s"]
    assert model["excludes"] == line["excludes"]
    assert "neither idle power nor energy per flop or byte is stated" in model["energy_missing"]


def test_mistakes_in_a_phases_job_are_told_with_their_line(own: Path) -> None:
    campaign = own.with_name("c.campaign.yaml")
    campaign.write_text(CAMPAIGN.format(suite=own, layout='"tensors=8"', mode="train"))
    with pytest.raises(FomkitError, match=r":5, layout: 'tensors' is not part of a layout"):
        load_campaign(campaign)
    text = CAMPAIGN.format(suite=own, layout="{tensor: 8}", mode="infer").replace("epochs: 1, ", "")
    campaign.write_text(text)
    code, text = run("campaign", campaign, "-t", own.with_name("new.yaml"), "--json")
    model = json.loads(text)["machines"][0]["phases"][1]
    assert (code, model["days"]) == (1, None)
    assert "gpt-175b: is a training, whose forward pass is predicted on one device alone" in model["missing"]


def test_a_job_on_one_device_is_rated_at_its_scope(own: Path) -> None:
    head = LINES.format(folder=own.parent, scope="device", nodes=1).split("  - ")[0]
    line = "  - {name: ONE, basis: modelled, party: lab, model: resnet50, epochs: 1, samples: 64000%s}\n"
    new, old = (own.with_name(f"{name}.yaml") for name in ("new", "old"))
    rates = []
    for more in ("", ", layout: {microbatch: 64}, batch: 64"):
        own.write_text(head + line % more, encoding="utf-8")
        content = json.loads(run("fom", own, "-t", new, "--baseline", old, "--json")[1])
        rates.append(content["lines"][0]["machines"]["new"])
    assert rates[1]["job"]["devices"] == 1
    assert rates[0]["precision"] == rates[1]["precision"] == "fp32/tf32"


def test_nodes_that_reach_a_figure_of_merit(own: Path) -> None:
    arguments = ["solve", "--suite", own, "-t", own.with_name("new.yaml"), "--baseline", own.with_name("old.yaml")]
    code, text = run(*arguments, "--fom", 6, "--change", "nodes", "--json")
    assert code == 1, text  # the old machine does not hold the large line
    content = json.loads(text)
    (answer,) = content["changes"]
    assert content["figures"]["fom"]["value"] < 6
    assert answer["then"]["value"] >= 6
    assert answer["needed"] > 128
    assert answer["needed"] % 64 == 0  # jobs of 64 nodes fill whole multiples of them


def test_what_moves_a_suite_of_jobs_is_what_rating_it_again_says(own: Path) -> None:
    from fomkit.whatif.subjects import OfSuite

    old, new = (load_machine(own.with_name(f"{name}.yaml")) for name in ("old", "new"))
    subject = OfSuite(load_suite(own), old, new, Options(), load_model)
    names = {parameter.name for parameter in subject.parameters()}
    assert {"nodes", "link_byte_per_s", "LARGE.batch", "PICTURES.batch", "byte_per_s"} <= names
    for point in ({"nodes": 256}, {"link_byte_per_s": 5e10}, {"LARGE.batch": 3072}, {"PICTURES.batch": 64}):
        (quick,), whole = subject.at([point]), subject.figures_at(point)
        assert not isinstance(quick, FomkitError)
        assert quick["fom"].ends == pytest.approx(whole["fom"].ends, rel=1e-9)


def test_a_rate_of_links_is_that_of_each_jobs_own_transport(own: Path) -> None:
    from fomkit.whatif.subjects import OfSuite

    machines = [load_machine(own.with_name(f"{name}.yaml")) for name in ("old", "new")]
    old, new = (with_user_links(one, [replace(link, channel="nccl") for link in one.links]) for one in machines)
    suite = load_suite(own)
    pictures, large = suite.lines
    conditions = replace(pictures.conditions, batch=1024)
    more = replace(pictures, name="MORE", job=Job(2, Layout(channel="nccl")), conditions=conditions)
    subject = OfSuite(replace(suite, lines=(large, more)), old, new, Options(), load_model)
    now, then = subject.result.target, subject.result_at({"link_byte_per_s": 5e10}).target
    for before, after in zip(now, then, strict=True):
        assert before.unit_per_day is not None
        assert after.unit_per_day is not None
        assert after.unit_per_day.value > before.unit_per_day.value, before.line.name


@pytest.mark.parametrize(
    ("scope", "nodes", "why"),
    [("system", "200", "a run uses 200 nodes, but new has 128"), ("node", "64", "Choose a wider scope"),
     ("system", "12", "96 devices cannot be divided into copies of tensor 8 × pipeline 8")],
)  # fmt: skip
def test_a_job_that_cannot_be_is_a_missing_line(own: Path, scope: str, nodes: str, why: str) -> None:
    own.write_text(LINES.format(folder=own.parent, scope=scope, nodes=nodes), encoding="utf-8")
    code, text = run(
        "fom", own, "-t", own.with_name("new.yaml"), "--baseline", own.with_name("old.yaml"), "--json"
    )
    assert code == 1
    assert why in " ".join(one["why"] for one in json.loads(text)["missing"])


def test_mistakes_in_a_lines_job_are_told_with_their_line(own: Path) -> None:
    for nodes in ("0", "lots"):
        path = own.with_name("nodes.suite.yaml")
        path.write_text(own.read_text().replace("nodes: 64", f"nodes: {nodes}"), encoding="utf-8")
        with pytest.raises(FomkitError, match=r"nodes is .*Expected: a whole number of 1 or more, or fill"):
            load_suite(path)
    own.write_text(own.read_text().replace("tensor: 8", "tensors: 8"), encoding="utf-8")
    with pytest.raises(FomkitError, match=r"own\.suite\.yaml:\d+, layout: 'tensors' is not part of a layout"):
        load_suite(own)
    own.write_text(own.read_text().replace("model: megatron/gpt-175b", "given: {new: 5 h}"), encoding="utf-8")
    with pytest.raises(FomkitError, match="line 'LARGE' has nodes or a layout, but no model"):
        load_suite(own)


def refused(*words: object) -> str:
    """Return the message of a mistake, which the command line prints with exit code 2."""
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(found.exception, FomkitError), found.output
    return str(found.exception)


SMALL = """schema: fomkit/transformer/1
name: small
batch: 64
train_samples: 6400
epochs: 2
transformer: {hidden: 2048, heads: 16, blocks: 24, seq: 2048, vocabulary: 51200}
"""
SPREAD = ["-t", "a100-sxm", "--node-devices", "8", "--link", "node, 5 us, 300 GB/s, each",
          "--link", "system, 10 us, 25 GB/s, each"]  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> Path:
    recipe, path = tmp_path / "small.transformer.yaml", tmp_path / "small.yaml"
    recipe.write_text(SMALL, encoding="utf-8")
    save_model(load_recipe(recipe), path)
    return path


@pytest.mark.parametrize("name", ["small", "resnet50"])
def test_a_job_has_one_price_wherever_it_is_asked(a100: Machine, small: Path, name: str) -> None:
    from fomkit.plan.job import time_job

    model = small if name == "small" else name
    words = [model, *SPREAD, "--nodes", "2", "--layout", "microbatch=2", "--batch", "64"]
    (code, text), (paid, bill) = (run(verb, *words, "--json") for verb in ("estimate", "cost"))
    assert (code, paid) == (0, 0), text + bill
    (one,), cost = json.loads(text)["models"], json.loads(bill)
    step = stepper_of(load_model(model), a100, Layout(microbatch=2), Options()).at(16, 64)
    assert one["step_s"]["value"] == cost["step_s"]["value"] == pytest.approx(step.wall_s.value)
    assert one["job"] == cost["job"]
    job = one["job"]
    assert (job["devices"], job["nodes"], job["replicas"], job["microbatches"]) == (16, 2, 16, 2)
    assert job["exposed_s"]["value"] == pytest.approx(step.exposed_s.value)
    assert job["exposed_s"]["value"] <= job["busy_s"]["value"]
    assert one["excludes"] == cost["excludes"]
    assert set(step.excludes) <= set(one["excludes"])
    spread = {"nodes": 2, "layout": "microbatch=2", "links": LINKS, "node_devices": 8, "batch": 64}
    found = fomkit.estimate(model, "a100-sxm", **spread)
    assert (
        found.unit_per_day
        == time_job(load_model(model), a100, Job(2, Layout(microbatch=2)), Options(64)).unit_per_day
    )
    assert fomkit.cost(model, "a100-sxm", **spread).estimate.step == found.step
    assert "16 devices (2 nodes), microbatch 2" in found.summary()
    assert "exposed communication" in run("cost", *words)[1]


def test_a_model_whose_run_takes_several_devices_is_priced_with_what_they_send(tmp_path: Path) -> None:
    model = load_model("resnet50")
    save_model(replace(model, name="eight", run=replace(model.run, devices_per_run=8)), tmp_path / "eight.yaml")
    code, text = run("estimate", tmp_path / "eight.yaml", "--batch", "256", *SPREAD, "--json")
    assert code == 0, text
    content = json.loads(text)
    assert content["scope"] == "node"
    job = content["models"][0]["job"]
    assert (job["devices"], job["runs_at_once"]) == (8, 1)
    assert job["busy_s"]["value"] > 0
    for more in (["--explain"], ["-o", tmp_path / "a.xlsx"]):
        text = refused("estimate", tmp_path / "eight.yaml", "--batch", "256", *SPREAD, *more)
        assert "its run uses 8 devices" in text


def test_a_file_of_sizes_is_a_model(tmp_path: Path) -> None:
    """Whatever its name; each of its 2,048 positions is a token."""
    recipe = tmp_path / "small.yaml"
    recipe.write_text(SMALL)
    assert fomkit.model(recipe).ops.equals(load_recipe(recipe).ops)
    assert fomkit.show(recipe).content["name"] == load_recipe(recipe).name
    code, text = run("estimate", recipe, *SPREAD, "--nodes", "2", "--allow-oversize", "--json")
    (one,) = json.loads(text)["models"]
    assert code == 0
    assert one["token_per_s"]["value"] * one["step_s"]["value"] == pytest.approx(64 * 2048 / 16)


def test_what_is_declared_stands_beside_a_job_and_a_node_is_paid_whole(small: Path) -> None:
    words = ["cost", small, *SPREAD, "--nodes", "2", "--price", "3600 USD/h per node, 2024-01-01", "--json"]
    content = json.loads(run(*words)[1])
    assert content["money"]["paid_units"] == 2
    assert content["money"]["run"]["value"] == pytest.approx(2 * content["run_s"]["value"])
    assert content["inference"] is None
    later = json.loads(run(*words, "--once", "compile=40 s")[1])
    assert later["run_s"]["value"] == pytest.approx(content["run_s"]["value"] + 40)


@pytest.mark.parametrize(
    ("more", "why"),
    [(["--nodes", "2", "--layout", "tensor=3"], "heads 16 is not divisible by tensor 3. Choose a divisor of 16"),
     (["--nodes", "2", "--layout", "tensor=16,pipeline=1,sequence", "--node-devices", "12"], "24 devices cannot"),
     (["--nodes", "4", "--layout", "pipeline=32"], "24 blocks are fewer than pipeline 32"),
     (["--nodes", "1", "--layout", "microbatch=3"], "does not divide into 8 replicas of microbatches of 3"),
     (["--nodes", "lots"], "nodes: 'lots' is not a number of nodes. Give a whole number, 1 to 1e+15, or fill"),
     (["--nodes", "1,000"], "has fewer samples than the 8,000 replicas"),
     (["--nodes", "0"], "nodes: 0 is not a number of nodes"),
     (["--nodes", "fill"], "the number of nodes is not stated"),
     ([], "--link: are for runs on several devices, and a run of small uses one. Add --nodes"),
     (["--nodes", "2", "--infer-batch", "1"], "is for inference, which is priced on one device")],
)  # fmt: skip
def test_a_job_that_cannot_be_is_one_message(small: Path, more: list[str], why: str) -> None:
    spread = SPREAD[:2] + SPREAD[4:] if "--node-devices" in more else SPREAD
    assert why in refused("cost" if "--infer-batch" in more else "estimate", small, *spread, *more)


def test_a_link_and_nodes_that_a_machine_does_not_have_are_told(small: Path, own: Path) -> None:
    alone = ("--nodes", "2", "--node-devices", "1")
    assert "v100: states no link of tier 'system'" in refused(
        "estimate", "resnet50", "-t", "v100", "--batch", 64, *alone
    )
    assert "200 nodes, but new has 128" in refused(
        "estimate", small, "-t", own.with_name("new.yaml"), "--nodes", 200
    )


def test_a_run_of_many_devices_is_rolled_up_as_one_of_one(a100: Machine) -> None:
    """On one device both ways give the same run, with validation and a last batch that is kept."""
    from fomkit.plan.job import time_job

    model = load_model("resnet50")
    model = replace(model, data=replace(model.data, train_samples=1000, validation_samples=100, last_batch="keep"),
                    run=replace(model.run, epochs=3))  # fmt: skip
    stated = Overhead("save", "epoch", Fact(5.0, 5.0, 5.0, "measured", "here"), None)
    machine, options = (
        replace(a100, overheads=(stated,), system_nodes=2, availability=0.9),
        Options(64, scope="system"),
    )
    alone, job = estimate(model, machine, options), time_job(model, machine, Job(None, Layout()), options)
    for name in vars(alone.run_time):
        ours, theirs = getattr(job.run_time, name), getattr(alone.run_time, name)
        assert getattr(ours, "ends", ours) == pytest.approx(getattr(theirs, "ends", theirs)), name
    assert job.unit_per_day.ends == pytest.approx(alone.unit_per_day.ends)
    assert set(job.excludes) == set(alone.excludes)
    # Parameters that are gathered for the pass leave its own time unknown.
    shared = time_job(model, machine, Job(1, Layout(zero=3)), options)
    assert shared.run_time.validation_s is None
    assert "validation" in shared.excludes


def test_a_pipeline_that_mostly_waits_is_told_of_smaller_microbatches() -> None:
    """Without a stated microbatch it is the whole share, and seven of eight stages wait."""
    words = ["estimate", "gpt-22b", "-t", "a100-sxm", "--nodes", "1", "--batch", "16", "--allow-oversize"]
    for layout, is_told in (("pipeline=8", True), ("pipeline=8,microbatch=1", False)):
        found = CliRunner().invoke(app, [*words, "--layout", layout])
        assert found.exit_code == 0
        assert ("microbatch=1 in the layout makes 16 microbatches" in " ".join(found.output.split())) == is_told


def test_more_nodes_than_the_machine_has_are_told(own: Path) -> None:
    told = "note: new has 128 nodes: more have no units/day"
    for nodes, is_told in (("1,128", False), ("1,129", True)):
        code, text = run("scaling", "p1b3", "-t", own.with_name("new.yaml"), "--nodes", nodes)
        assert (code, told in text) == (0, is_told)
