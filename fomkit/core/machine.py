"""The machine noun: what is known of a device, its node and the whole system, each fact with its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.interval import DEFAULT_LEVEL, Span, at_level
from fomkit.core.units import REAL_OF, STATED, stated_facts, stated_note, stated_number, stated_on_top, stated_text

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.core.measurement import Plausibility, TypicalTables


Basis = Literal["measured", "simulated", "modelled", "estimated", "committed", "published", "assumed"]
Party = Literal["lab", "vendor", "published"]
Scope = Literal["device", "node", "system"]
Tier = Literal["device", "node", "system"]
EnergyScope = Literal["chip", "node", "wall"]
"""What a figure of energy counts: a chip with the memory on its board, a node, all behind a wall meter."""
PEAK = "flop_per_s"
RATES = ("byte_per_s", "launch_s")
"""Parameters of a device besides its peaks, each the name of a fact."""
_DIMENSIONS = {"byte_per_s": "byte_per_s", "launch_s": "time_s"}
_WORDS = {"bandwidth": "byte_per_s", "launch": "launch_s", "capacity": "capacity_byte"}
"""How a machine's file calls them."""
_AS_STATED = "-as-stated"
_COUNTS = {"nodes": "system_nodes", "node_devices": "node_devices"}


def nearest_parameter(name: str, known: Iterable[str]) -> str:
    """Name the parameter that is meant, as the end of an error message.

    >>> nearest_parameter("bandwidth", ["byte_per_s", "launch_s"])
    'It is called byte_per_s.'
    """
    return f"It is called {_WORDS[name]}." if _WORDS.get(name) in {*known} else nearest_names(name, known)


TIMED_OPS = "timed ops"
"""Workload of a power that was measured while ops were timed one by one: no training, but what busy means."""


@dataclass(frozen=True)
class Fact:
    """A value in SI units with its interval, its basis and where it comes from.

    ``low`` and ``high`` equal ``value`` where the source gives no spread.
    """

    value: float
    low: float
    high: float
    basis: Basis
    source: str

    @classmethod
    def exact(cls, value: float, basis: Basis, source: str) -> Fact:
        """Make one without a spread."""
        return cls(value, value, value, basis, source)

    def span(self, level: float = DEFAULT_LEVEL) -> Span:
        """Give it as a span; its own interval is one of 80 %."""
        return at_level(Span(self.value, self.low, self.high, DEFAULT_LEVEL), level)

    def scaled(self, factor: float) -> Fact:
        """Multiply by a number known without error."""
        return Fact(self.value * factor, self.low * factor, self.high * factor, self.basis, self.source)


def restated(old: Fact | None, value: float, source: str = "changed by the user") -> Fact:
    """Give a fact at another value, with the relative spread that it has."""
    ends = (1.0, 1.0) if old is None or old.value == 0 else (old.low / old.value, old.high / old.value)
    return Fact(value, value * ends[0], value * ends[1], "assumed", source)


def peak_name(dtype: str, engine: str) -> str:
    """Name the parameter that is a peak.

    >>> peak_name("fp32", "vector")
    'flop_per_s/fp32/vector'
    """
    return f"{PEAK}/{dtype}/{engine}"


@dataclass(frozen=True)
class Peak:
    """Dense arithmetic rate [flop/s] of one engine for one number format."""

    dtype: str
    engine: str
    rate: Fact
    accumulate_dtype: str = ""


@dataclass(frozen=True)
class Device:
    """One accelerator or processor; a fact that nobody stated is None.

    ``fresh_byte_per_s`` is how fast the system hands out pages of new memory, which each result of
    ``fresh_above_byte`` or more is made of; ``host_byte_per_s`` is the rate from the host's memory to a device's.
    ``units`` processors share ``cache_byte`` of cache, where both are stated.
    ``architecture`` is vendor, generation and chip as three words, or their beginning; "" is unknown.
    """

    peaks: tuple[Peak, ...] = ()
    capacity_byte: Fact | None = None
    byte_per_s: Fact | None = None
    launch_s: Fact | None = None
    fresh_byte_per_s: Fact | None = None
    fresh_above_byte: float | None = None
    host_byte_per_s: Fact | None = None
    units: Fact | None = None
    cache_byte: Fact | None = None
    architecture: str = ""

    def peak(self, dtype: str, engine: str) -> Peak | None:
        """Find the stated peak of one number format on one engine; None when nobody stated it.

        Complex numbers are multiplied by the arithmetic of their parts, whose peak is theirs where none is stated.
        """
        for one in (dtype, REAL_OF[dtype]) if dtype in REAL_OF else (dtype,):
            for peak in self.peaks:
                if peak.dtype == one and peak.engine == engine:
                    return peak
        return None


def change_fact(device: Device, name: str, change: Callable[[Fact | None], Fact]) -> Device:
    """Give a device with one of its facts changed (`Machine.parameters`)."""
    if name == "byte_per_s":
        return replace(device, byte_per_s=change(device.byte_per_s))
    if name == "launch_s":
        return replace(device, launch_s=change(device.launch_s))
    peaks = (
        replace(peak, rate=change(peak.rate)) if peak_name(peak.dtype, peak.engine) == name else peak
        for peak in device.peaks
    )
    return replace(device, peaks=tuple(peaks))


@dataclass(frozen=True)
class Link:
    """A connection of one tier: start-up time alpha [s], rate of one device [byte/s] per direction or for both.

    `channel`: transport (nccl, gloo, mpi, verbs, grpc) where several share the tier, each with its own figures; ""
      for the link itself.
    `least_byte`, `most_byte`: messages [byte] that it holds for; None where any.
    `alpha_range_s`, `range_byte_per_s` (low, high): 80 % intervals; None where the source gives none.
    `serialise_byte_per_s`: rate at which a host packs a message before it goes, where the transport does.
    `joins`: most devices that it joins, as of racks whose nodes share switches; None where any number.
    """

    tier: Tier
    alpha_s: float
    byte_per_s: float
    direction: Literal["each", "both"]
    source: str
    channel: str = ""
    least_byte: float | None = None
    most_byte: float | None = None
    alpha_range_s: tuple[float, float] | None = None
    range_byte_per_s: tuple[float, float] | None = None
    basis: Basis = "published"
    serialise_byte_per_s: float | None = None
    joins: int | None = None


@dataclass(frozen=True)
class Overhead:
    """Time outside the op table: seconds per run, epoch or step, or a share of the time it adds to.

    Exactly one of ``time_s`` and ``share`` is stated.
    """

    name: str
    per: Literal["run", "epoch", "step"]
    time_s: Fact | None
    share: Fact | None


@dataclass(frozen=True)
class FlopEnergy:
    """What one flop takes [J] in a number format on an engine; no engine is any."""

    dtype: str
    engine: str
    joule: Fact


@dataclass(frozen=True)
class AveragePower:
    """Mean power [W] that was measured while a workload ran.

    `workload`: a model's name, or `TIMED_OPS`.
    `batch`: none says nothing of it, as "" does of the precision: it then holds for any.
    `devices`: devices that the power covers, as in `Energy`.
    """

    workload: str
    power_w: Fact
    scope: EnergyScope
    batch: int | None = None
    precision: str = ""
    devices: int | None = None


@dataclass(frozen=True)
class Energy:
    """What is known of the energy that a machine takes; None and empty where nobody stated it.

    `scope`: what ``idle_w``, ``per_flop`` and ``byte_j`` count.
    `devices`: devices that ``idle_w`` covers: 1 of a chip, None where nobody said how many a node has.
    `process_m`: the process node [m] of the chip; every figure per flop and per byte needs it.
    `idle_w`: power [W] while nothing is computed.
    `byte_j`: what one byte of device memory's traffic takes [J].
    `limit_w`: most that one chip may take [W], its design power: an upper bound, no average.
    """

    scope: EnergyScope
    devices: int | None = 1
    process_m: float | None = None
    idle_w: Fact | None = None
    per_flop: tuple[FlopEnergy, ...] = ()
    byte_j: Fact | None = None
    average: tuple[AveragePower, ...] = ()
    limit_w: Fact | None = None

    def flop_j(self, dtype: str, engine: str) -> Fact | None:
        """Find what a flop takes [J], an engine's own figure before one for any; None when nobody stated it."""
        fitting = [one for one in self.per_flop if one.dtype == dtype and one.engine in (engine, "")]
        return max(fitting, key=lambda one: one.engine).joule if fitting else None


@dataclass(frozen=True)
class Price:
    """What the use of a machine costs; without currency and date a figure of money means nothing.

    `per_s`: money for a second of one ``per``, in ``currency``.
    `currency`: code of ISO 4217: USD, EUR.
    `per`: what is paid for: one device, one node, or the whole system.
    `date`: when it was the price (ISO 8601).
    """

    per_s: Fact
    currency: str
    per: Scope
    date: str


@dataclass(frozen=True)
class Machine:
    """A machine profile: facts (from YAML) and measured op timings (from CSV).

    `node_devices`, `system_nodes`: None means unknown, which is why a scope may be refused.
    `host_op_s`: what its host needs to start one op of a training step, framework and all [s].
    `timings`: a TIMINGS table, empty for a machine known by facts only. Where ``origin`` is set, rows that name a
      party were stated for the machine as it is changed, the others hold for the origin.
    `fits`: estimator parameters shipped beside the timings, keyed by family; valid only for ``timings_key``.
    `timings_key`: hash of the timings that ``fits`` were made of; where ``timings`` are others, new fits are made.
    `excluded`: architectures and machines whose timings must not tell what is usual here, in a comparison.
    `origin`: the device that timings and utilisations are of, where ``device`` is a change of it that nobody built
      (`changed`); None for a machine that is.
    `device_of`: the machine whose file tells of the device and its timings, where this one only names it.
    `year`: in which it was announced; None where nobody says.
    `asked_as`: the short name that this board was chosen for, such as h100 for h100-sxm.
    `plausibility`: what came of checking timings and facts, before the first answer; None until then.
    `typical`: what other machines reached, for ops without a timing here; None until a prediction is prepared.
    `stated`: what was stated of it by `with_`, of which ``notes`` has one.
    """

    name: str
    title: str
    party: Party
    device: Device
    timings: pd.DataFrame
    node_devices: int | None = None
    system_nodes: int | None = None
    availability: float = 1.0
    host_op_s: Fact | None = None
    links: tuple[Link, ...] = ()
    overheads: tuple[Overhead, ...] = ()
    fits: Mapping[str, object] = field(default_factory=dict)
    timings_key: str = ""
    excluded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    origin: Device | None = None
    energy: Energy | None = None
    price: Price | None = None
    device_of: str = ""
    plausibility: Plausibility | None = None
    asked_as: str = ""
    year: int | None = None
    typical: TypicalTables | None = field(default=None, repr=False)
    stated: Mapping[str, tuple[str, object]] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<machine {self.name}: {self.title}; {len(self.timings):,} timings>"

    @property
    def caveats(self) -> tuple[str, ...]:
        """What every figure made of it must say: that a short name chose this board, and what was stated anew."""
        chosen = (
            (f"{self.asked_as!r} is taken for {self.name}, the only board of it here",) if self.asked_as else ()
        )
        return (*chosen, *(note for note in self.notes if note.startswith(STATED)))

    def stated_rows(self) -> pd.Series[bool]:
        """Tell which timings were stated for the changed machine; none of a machine that is as built."""
        import pandas as pd

        known = self.origin is not None and "party" in self.timings.columns
        return self.timings["party"].fillna("") != "" if known else pd.Series(False, self.timings.index)

    def as_built(self) -> Machine:
        """Give the machine that timings and utilisations are of."""
        if self.origin is None:
            return self
        stated = self.stated_rows()
        # The same table, not one like it: what was made of it is known by its identity.
        timings = self.timings[~stated].reset_index(drop=True) if stated.any() else self.timings
        return replace(self, device=self.origin, origin=None, timings=timings)

    def changed(self, device: Device) -> Machine:
        """Give the machine with other rates or launch cost of its device; each op keeps its utilisation."""
        return replace(self, device=device, origin=self.origin or self.device)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the rates and costs of its device that can be changed."""
        return (*RATES, *(peak_name(peak.dtype, peak.engine) for peak in self.device.peaks))

    def check_parameter(self, name: str, least: float) -> None:
        """Raise when it has no parameter of this name, or its least value is not a rate or a cost."""
        if name not in self.parameters:
            raise FomkitError(
                self.name, f"{name!r} is not a parameter of it. {nearest_names(name, self.parameters)}"
            )
        if not (least >= 0 if name == "launch_s" else least > 0):
            raise FomkitError(self.name, f"{name} is {least:g}. Give a finite number above 0.")

    def with_(self, stated: Mapping[str, str | float] | None = None, /, **more: str | float) -> Machine:
        """Give a copy with facts of your own, for example ``with_(bandwidth="1.2 TB/s")``.

        Names are those of `fomkit.sweep`: ``byte_per_s`` (or ``bandwidth``), ``launch_s`` (or ``launch``),
        ``flop_per_s/DTYPE/ENGINE``, ``nodes``, ``node_devices``, ``availability``; and ``capacity``, ``name``,
        ``title``. Values are text with units, or numbers in SI units. What is not named stays, price and energy
        too. Each fact keeps its relative spread and each op its utilisation, as in a sweep: what was timed on the
        machine as built is carried over, and every result says so. Unless you name it, it is called
        NAME-as-stated: what somebody measured of a whole run there is nothing of this machine's.

        `stated`: by name, where that is no word of Python: ``{"flop_per_s/fp16/matrix": "150 TFLOP/s"}``. Raises
        FomkitError when a name is none of these or one fact is stated twice, or a value cannot be one.

        >>> import fomkit
        >>> faster = fomkit.machine("v100").with_(bandwidth="1.2 TB/s")
        >>> faster.device.byte_per_s.value, faster.device.byte_per_s.source
        (1200000000000.0, "stated by you: with_(bandwidth='1.2 TB/s')")
        >>> faster.name
        'v100-as-stated'
        """
        given, device, others, rated = stated_facts(stated, more, _WORDS), self.device, dict[str, Any](), False
        for name, (word, value) in given.items():
            source = stated_note({name: (word, value)})
            if name in self.parameters:
                number = stated_number(value, _DIMENSIONS.get(name, PEAK), "with_", word)
                self.check_parameter(name, number)
                device = change_fact(device, name, partial(restated, value=number, source=source))
                rated = True
            elif name == "capacity_byte":
                byte = stated_number(value, "byte", "with_", word)
                device = replace(device, capacity_byte=restated(device.capacity_byte, byte, source))
            elif name == "availability":
                others[name] = stated_number(value, "share", "with_", word)
            elif name in _COUNTS:
                others[_COUNTS[name]] = round(stated_number(value, "", "with_", word))
            elif name in ("name", "title"):
                others[name] = stated_text(value, "with_", name)
            else:
                known = {*_WORDS, *_COUNTS, *self.parameters, "availability", "name", "title"}
                what = f"is no fact that can be stated. {nearest_names(word, known)}"
                raise FomkitError(f"with_({word}=…)", what)
        if not given:
            return self
        built = self.device_of or self.name
        if given.keys() - {"title"}:
            others.setdefault("name", f"{self.name.removesuffix(_AS_STATED)}{_AS_STATED}")
            others["device_of"] = built  # what it is like leaves the machine itself out
        found = self.changed(device) if rated else replace(self, device=device)
        is_carried = found.origin is not None and len(self.timings)
        carried = (
            f"; timings of {built} as built are carried over, each op at its utilisation" if is_carried else ""
        )
        others["stated"], others["notes"] = stated_on_top(self.notes, self.stated, given, carried)
        return replace(found, **others)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes this profile states, narrowest first.

        A system needs the devices of a node as well as the number of nodes.
        """
        stated: list[Scope] = ["device"]
        if self.node_devices is not None:
            stated.append("node")
            if self.system_nodes is not None:
                stated.append("system")
        return tuple(stated)

    def devices(self, scope: Scope) -> int:
        """Count the devices at a scope that `scopes` contains."""
        per_node = self.node_devices or 1
        return {"device": 1, "node": per_node, "system": per_node * (self.system_nodes or 1)}[scope]

    def nodes_of(self, devices: int) -> int:
        """Count the whole nodes that a run on so many devices takes; 0 where several runs share a node."""
        each = self.devices("node")
        return -(-devices // each) if devices > each // 2 else 0

    def up_share(self, scope: Scope) -> float:
        """Give the share of the time that a scope is up: a system's availability, 1 of less."""
        return self.availability if scope == "system" else 1.0

    def up_devices(self, scope: Scope) -> float:
        """Count the devices at a scope, by the share of the time that they are up."""
        return self.devices(scope) * self.up_share(scope)
