"""The options of a study, checked, and hypothetical machines made from a profile (`change_machine`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.interval import DEFAULT_LEVEL, LEAST_LEVEL, MOST_LEVEL, Span
from fomkit.core.machine import HOST, Fact, Link, Machine, Overhead, Scope, change_fact, restated
from fomkit.core.model import OF_A_RUN, OF_SIZES, LastBatch, ModelProfile
from fomkit.core.units import Precision, count_text, format_quantity
from fomkit.ops.tables import HUGE
from fomkit.prediction.links import link_at


@dataclass(frozen=True)
class Options:
    """What the user chose for a study, besides the model and the machine.

    `batch`: samples in one step; None keeps the profile's.
    `sizes`: other named sizes of the profile, for example ``{"seq": 512}``.
    `precision`: fp32, tf32, mixed, bf16, fp8, fp8_block, mxfp8, nvfp4 or int8; None is the framework's default on
    the machine.
    `scope`: device, node or system; None selects the narrowest that all machines state.
    `last_batch`: drop or keep the partial last batch; None keeps the profile's choice.
    `allow_uncovered`: leave work without a time out instead of raising an error; times are then lower bounds.
    """

    batch: int | None = None
    interval: float = DEFAULT_LEVEL
    scope: Scope | None = None
    last_batch: LastBatch | None = None
    allow_uncovered: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    precision: Precision | None = None

    @property
    def wanted_sizes(self) -> dict[str, int]:
        """All named sizes that the user chose, including the batch."""
        return with_size(self.sizes, "batch", self.batch)


def with_size(sizes: Mapping[str, int], name: str, value: int | None) -> dict[str, int]:
    """Return `sizes` with the size `name`, if it has a value; raise where they have another value for it."""
    if value is None or sizes.get(name, value) == value:
        return {**sizes, **({} if value is None else {name: value})}
    raise FomkitError(name, f"is given as {value} and as {sizes[name]}. Give it once.")


def check_nodes(nodes: object, also: str = "") -> None:
    """Raise unless `nodes` is a valid number of nodes; `also`: text for the message on what else is accepted."""
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= HUGE:
        what = f"{nodes!r:.40} is not a number of nodes. Give a whole number, 1 to {HUGE:g}{also}."
        raise FomkitError("nodes", what)


def check_options(
    *, batch: object = None, sizes: object = None, interval: object = DEFAULT_LEVEL, scope: object = None
) -> None:
    """Raise unless the options of a study are of the right type.

    Raises FomkitError with the option's name, its value and what was expected.

    Examples
    --------
    >>> check_options(batch="8")
    Traceback (most recent call last):
    fomkit.core.errors.FomkitError: batch: is '8'. Give a whole number of 1 or more.
    """
    if not isinstance(sizes, Mapping | None):
        raise FomkitError("sizes", f"is {sizes!r}. Give a mapping, for example {{'seq': 512}}.")
    for name, value in {"batch": batch, **(sizes or {})}.items():
        if value is None:
            continue
        # numpy's integers are accepted too, True is not.
        if isinstance(value, bool) or not hasattr(value, "__index__") or int(value.__index__()) < 1:
            raise FomkitError(str(name), f"is {value!r}. Give a whole number of 1 or more.")
        if value.__index__() > HUGE:
            raise FomkitError(str(name), f"is {value!r:.40}. Give {HUGE:g} at most.")
    number = interval if isinstance(interval, int | float) and not isinstance(interval, bool) else 0.0
    if not LEAST_LEVEL <= number <= MOST_LEVEL:
        limits = f"{LEAST_LEVEL:g} to {MOST_LEVEL:g}"
        raise FomkitError("interval", f"is {interval!r}. Give a share from {limits}, for example 0.8.")
    if scope not in (None, "device", "node", "system"):
        raise FomkitError("scope", f"is {scope!r}. Give device, node or system.")


def check_counts(**stated: object) -> None:
    """Raise FomkitError unless each count is a whole number of 1 or more; None means not stated.

    More ``threads`` than this machine has processors raise an error too: they would wait for each other.
    """
    check_options(sizes={name: count for name, count in stated.items() if count is not None})
    threads, most = stated.get("threads"), os.cpu_count() or 1
    if isinstance(threads, int) and threads > most:
        raise FomkitError(
            "threads",
            f"is {threads:,}, and this machine has {count_text(most, 'processor')}. Give at most {most}.",
        )


def options_of(
    batch: int | None = None,
    interval: float = DEFAULT_LEVEL,
    scope: Scope | None = None,
    allow_uncovered: bool = False,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    last_batch: LastBatch | None = None,
) -> Options:
    """Return the options of a study, checked by `check_options`."""
    check_options(batch=batch, sizes=sizes, interval=interval, scope=scope)
    return Options(batch, interval, scope, last_batch, allow_uncovered, sizes or {}, precision)


def choose_sizes(model: ModelProfile, wanted: Mapping[str, int]) -> dict[str, int]:
    """Return the named sizes of a study; raise for a size that the profile cannot be resized to."""
    from fomkit.ops.columns import cached
    from fomkit.ops.resize import sizes_used  # imported here: they load pandas, which the help text does not need

    sizes = dict(model.sizes)
    for name, value in wanted.items():
        if value == sizes.get(name):
            continue
        option = f"--batch {value}" if name == "batch" else f"--set {name}={value}"
        if value < 1:
            raise FomkitError(model.name, f"{option} is not possible. Give 1 or more.")
        if name != "batch" and name not in sizes:
            raise FomkitError(
                model.name, f"{option}: {name!r} is not one of its sizes. {nearest_names(name, sizes)}"
            )
        if name not in cached(model.ops, None, "sizes", partial(sizes_used, model.ops)):
            known = f"{name} {sizes.get(name, 'unknown')}"
            raise FomkitError(
                model.name,
                f"its op table is fixed at {known}, so {value} needs a new trace. "
                f"Run 'fomkit profile' on its file with {option}.",
            )
        sizes[name] = value
    return sizes


def choose_scope(machines: list[Machine], wanted: Scope | None, devices: int = 1) -> Scope:
    """Select the narrowest scope that all machines state with `devices` devices, or check the wanted one."""
    for machine in machines:
        if wanted is not None and wanted not in machine.scopes:
            needed = "node.devices" if machine.node_devices is None else "system.nodes"
            raise FomkitError(
                machine.name,
                f"its profile does not state the scope {wanted!r}. Add {needed}, for a shipped machine in a file "
                f"of your own with 'device: {machine.name}', or choose another scope: "
                f"{' or '.join(machine.scopes)}.",
            )
    shared = [scope for scope in machines[0].scopes if all(scope in machine.scopes for machine in machines)]
    wide_enough = [scope for scope in shared if min(machine.devices(scope) for machine in machines) >= devices]
    return wanted or (wide_enough or shared[-1:])[0]


def change_overhead(overhead: Overhead, change: Callable[[Fact | None], Fact]) -> Overhead:
    """Return an overhead with its time changed, or its share if it has no time."""
    if overhead.time_s is not None:
        return replace(overhead, time_s=change(overhead.time_s))
    return replace(overhead, share=change(overhead.share))


_VTRAIN = "layers of Megatron-DeepSpeed that wait for the host of an A100 (vTrain)"
HOST_OP_S = Fact(51e-6, 44e-6, 67e-6, "assumed", _VTRAIN)
"""Default host time to start one op of a training step, eagerly, where a machine states none (docs/parallel.md).

It is longer than a kernel's launch: it includes Python, autograd and the framework's checks of the op [s]."""
HOST_OP_WRITTEN_OUT_S = replace(
    HOST_OP_S, low=18e-6, source=f"{_VTRAIN}; its low end counts an op that is written out in parts as one"
)
"""The same where a model's code writes out its norms, gates and positions: a block of Llama's then has 80 ops for
33. No data shows what a part costs the host: from its share of one op, 44 µs · 33/80, to as much as a whole op."""


def waits_by_block(model: ModelProfile) -> bool:
    """Return whether each block of a step waits for its host alone: an eager training whose ops a rule made."""
    made = model.traced_with
    eager = made.get("mode") != "infer" and made.get("fusion") != "compiled"
    return made.get("device") == OF_SIZES and eager


def with_host(machine: Machine, model: ModelProfile) -> Machine:
    """Return the machine with the `host_op_s` that applies to a model.

    A training whose ops a rule made has a default. Its compiled ops, and those of its inference, need no Python:
    they start at the launch cost. The ops of a traced network do so too, unless the machine states its host.
    """
    if waits_by_block(model):
        written_out = model.traced_with.get("fusion") == "eager"
        default = HOST_OP_WRITTEN_OUT_S if written_out else HOST_OP_S
        return machine if machine.host_op_s is not None else replace(machine, host_op_s=default)
    if model.traced_with.get("device") == OF_SIZES and machine.host_op_s is not None:
        return replace(machine, host_op_s=None)
    return machine


def check_host(model: ModelProfile, where: str, launch: str = "eager") -> None:
    """Raise where steps of a model never wait for a host, so that varying its time would change nothing."""
    if model.traced_with.get("device") != OF_SIZES:
        return
    if not waits_by_block(model):
        why = "without Python in between, as in compiled steps and in inference"
    elif launch == "graphs":
        why = "from graphs, as its layout says"
    else:
        return
    raise FomkitError(
        where, f"{HOST} has no effect: the ops of {model.name} are launched {why}. Leave it out, or vary launch_s."
    )


def host_waited(host: Fact) -> str:
    """Say that a step's device waits for its host, and how long that needs to start an op."""
    each = format_quantity(host.value, "time_s")
    return f"the device waits for its host, which needs {each} per op ({host.source})"


def overhead_span(overhead: Overhead, of: Span) -> Span:
    """Return the time [s] of one overhead on top of ``of``."""
    if overhead.time_s is not None:
        return overhead.time_s.span(of.level)
    if overhead.share is None:
        raise FomkitError(f"overhead {overhead.name}", "states neither a time nor a share. Give one of them.")
    return of.scaled(overhead.share.value)


def overheads(machine: Machine, per: str, of: Span) -> dict[str, Span]:
    """Return the machine's overheads per run, epoch or step, by name."""
    return {overhead.name: overhead_span(overhead, of) for overhead in machine.overheads if overhead.per == per}


NODES, LINK_RATE, LINK_ALPHA = "nodes", "link_byte_per_s", "link_alpha_s"
OF_A_SCOPE = (NODES, "node_devices", "availability")
"""Parameters of a machine that belong neither to its devices nor to its links."""

LINKS = (LINK_RATE, LINK_ALPHA, f"node_{LINK_RATE}", f"node_{LINK_ALPHA}")
"""Parameters of the links between nodes, then of the links inside nodes."""


def overhead_name(overhead: Overhead) -> str:
    """Return the parameter name of an overhead of a machine."""
    return f"overhead/{overhead.per}/{overhead.name}"


def link_names(link: Link) -> tuple[str, str]:
    """Return the parameter names of a link's rate and of its start-up time."""
    return LINKS[:2] if link.tier == "system" else LINKS[2:]


def terms(machine: Machine) -> frozenset[str]:
    """Return the names of parameters that change no op's time, only step or run: overheads, host, scope, run."""
    return frozenset((*map(overhead_name, machine.overheads), HOST, *OF_A_SCOPE, *OF_A_RUN))


def _changed_link(link: Link, values: Mapping[str, float]) -> Link:
    if link.tier == "device":
        return link
    rate, alpha = (values.get(name) for name in link_names(link))
    if rate is not None:
        link = link_at(link, rate)
    if alpha is not None:
        factor = alpha / link.alpha_s if link.alpha_s else 1.0
        ends = link.alpha_range_s and (link.alpha_range_s[0] * factor, link.alpha_range_s[1] * factor)
        link = replace(link, alpha_s=alpha, alpha_range_s=ends)
    return link


def change_machine(machine: Machine, values: Mapping[str, float], channel: str = "") -> Machine:
    """Return a machine with other parameter values, each of which keeps its relative spread.

    Every op keeps its utilisation on the machine as built: the time of its launches changes with the launch cost,
    the rest with its roofline (`fomkit.prediction.cascade.time_ratio`). Measured times become transferred times.

    `values`: parameter to its new value: byte_per_s [byte/s], launch_s [s], flop_per_s/DTYPE/ENGINE [flop/s]
    (`Machine.parameters`), host_op_s [s], overhead/PER/NAME [s, or share], those of `OF_A_SCOPE`, and of links
    (`link_names`);
    `channel`: the transport whose links change.
    """
    own = [link for link in machine.links if link.channel == channel and link.tier != "device"]
    others = {
        *map(overhead_name, machine.overheads),
        HOST,
        *OF_A_SCOPE,
        *(name for link in own for name in link_names(link)),
    }
    device = machine.device
    for name, value in sorted(values.items()):  # a peak before the one that follows it (`followers`)
        if name not in others:
            machine.check_parameter(name, value)
            device = change_fact(device, name, partial(restated, value=value))
    changed = machine.changed(device)
    if others.isdisjoint(values):
        return changed
    links = tuple(_changed_link(link, values) if link.channel == channel else link for link in machine.links)
    if links != machine.links and machine.timed_links is None:
        changed = replace(changed, timed_links=machine.links)
    return replace(
        changed,
        overheads=tuple(
            change_overhead(overhead, partial(restated, value=values[name])) if name in values else overhead
            for name, overhead in zip(map(overhead_name, machine.overheads), machine.overheads, strict=True)
        ),
        host_op_s=restated(machine.host_op_s or HOST_OP_S, values[HOST]) if HOST in values else machine.host_op_s,
        links=links,
        availability=values.get("availability", machine.availability),
        system_nodes=round(values[NODES]) if NODES in values else machine.system_nodes,
        node_devices=round(values["node_devices"]) if "node_devices" in values else machine.node_devices,
    )
