"""The machine noun: facts about a device, its node and the whole system, each fact with its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from fomkit.core import units
from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.interval import DEFAULT_LEVEL, Span, at_level

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.core.measurement import Plausibility, TypicalTables

Basis = Literal["measured", "simulated", "modelled", "estimated", "committed", "published", "assumed"]
Party = Literal["lab", "vendor", "published"]
Scope = Literal["device", "node", "system"]
Tier = Literal["device", "node", "system"]
EnergyScope = Literal["chip", "node", "wall"]
"""What a figure of energy includes: a chip with the memory on its board, a node, or all behind a wall meter."""
PEAK, HOST = "flop_per_s", "host_op_s"
RATES = ("byte_per_s", "launch_s")
"""Parameters of a device besides its peaks, each the name of a fact."""
_DIMENSIONS = {"byte_per_s": "byte_per_s", "launch_s": "time_s", HOST: "time_s", "capacity_byte": "byte",
               "reserve_byte": "byte", "availability": "share", "nodes": "", "node_devices": ""}  # fmt: skip
_WORDS = {"bandwidth": "byte_per_s", "launch": "launch_s", "host": HOST, "capacity": "capacity_byte",
          "reserve": "reserve_byte"}  # fmt: skip
"""Names of parameters in a machine's file."""
_AS_STATED, _TEXTS = "-as-stated", ("name", "title", "software")


def nearest_parameter(name: str, known: Iterable[str]) -> str:
    """Return the name of the intended parameter, as the end of an error message.

    >>> nearest_parameter("bandwidth", ["byte_per_s", "launch_s"])
    'It is called byte_per_s.'
    """
    return f"It is called {_WORDS[name]}." if _WORDS.get(name) in {*known} else nearest_names(name, known)


TIMED_OPS = "timed ops"
"""Workload of a power that was measured while ops were timed one by one: not training, but fully busy."""


@dataclass(frozen=True)
class Fact:
    """A value in SI units with its interval (both ends equal it if no spread is stated), basis and source."""

    value: float
    low: float
    high: float
    basis: Basis
    source: str

    @classmethod
    def exact(cls, value: float, basis: Basis, source: str) -> Fact:
        """Return a fact without a spread."""
        return cls(value, value, value, basis, source)

    def span(self, level: float = DEFAULT_LEVEL) -> Span:
        """Return the value with its interval; the fact's own interval is one of 80 %."""
        return at_level(Span(self.value, self.low, self.high, DEFAULT_LEVEL), level)

    def scaled(self, factor: float) -> Fact:
        """Multiply by a number known without error."""
        return Fact(self.value * factor, self.low * factor, self.high * factor, self.basis, self.source)


def restated(old: Fact | None, value: float, source: str = "changed by the user") -> Fact:
    """Return a fact with another value and the same relative spread; with the same value the fact itself."""
    if old is not None and old.value == value:
        return old
    ends = (1.0, 1.0) if old is None or old.value == 0 else (old.low / old.value, old.high / old.value)
    return Fact(value, value * ends[0], value * ends[1], "assumed", source)


def peak_name(dtype: str, engine: str) -> str:
    """Return the name of the parameter for a peak.

    >>> peak_name("fp32", "vector")
    'flop_per_s/fp32/vector'
    """
    return f"{PEAK}/{dtype}/{engine}"


@dataclass(frozen=True)
class Peak:
    """Dense rate [flop/s] of an engine for a number format; long products keep the share ``sustained`` at most."""

    dtype: str
    engine: str
    rate: Fact
    accumulate_dtype: str = ""
    sustained: float = 1.0


@dataclass(frozen=True)
class Device:
    """One accelerator or processor; facts that are not stated are None.

    ``fresh_byte_per_s`` is the rate at which the system provides pages of new memory, for results of
    ``fresh_above_byte`` or more; ``host_byte_per_s`` is the rate from the host's memory to a device's.
    ``units`` processors share ``cache_byte`` of cache, where both are stated.
    ``architecture`` is vendor, generation and chip, or the first of them (`chip_words`); "" is unknown.
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
        """Return the stated peak of one number format on one engine; None if there is none.

        Complex products are computed by real arithmetic, so the fallback is the peak of the parts' number format.
        """
        for one in (dtype, units.REAL_OF[dtype]) if dtype in units.REAL_OF else (dtype,):
            for peak in self.peaks:
                if peak.dtype == one and peak.engine == engine:
                    return peak
        return None


def followers(device: Device) -> dict[str, str]:
    """Return the peaks of fp8 by blocks that are those of fp8, each with the peak that it follows, by name."""
    of_blocks = (peak for peak in device.peaks if peak.rate.source == units.BLOCKS_AS_FP8)
    return {peak_name(peak.dtype, peak.engine): peak_name("fp8", peak.engine) for peak in of_blocks}


def change_fact(device: Device, name: str, change: Callable[[Fact | None], Fact]) -> Device:
    """Return a device with one of its facts changed (`Machine.parameters`), and the peak that follows it."""
    if name in RATES:
        changed: Mapping[str, Any] = {name: change(getattr(device, name))}
        return replace(device, **changed)
    peaks, follows = list[Peak](), followers(device)
    for peak in device.peaks:
        own, rate = peak_name(peak.dtype, peak.engine), peak.rate
        if name in (own, follows.get(own)):
            rate = change(rate) if own == name else replace(change(rate), basis="assumed", source=rate.source)
        peaks.append(replace(peak, rate=rate))
    return replace(device, peaks=tuple(peaks))


@dataclass(frozen=True)
class Link:
    """A connection of one tier: start-up time alpha [s], rate of one device [byte/s] per direction or for both.

    `channel`: transport (nccl, gloo, mpi, verbs, grpc) where several share the tier, each with its own figures; ""
      for the link itself.
    `least_byte`, `most_byte`: message sizes [byte] for which it is valid; None means any.
    `alpha_range_s`, `range_byte_per_s` (low, high): 80 % intervals; None if the source states none.
    `serialise_byte_per_s`: rate at which a host packs a message before sending it, where the transport does.
    `joins`: most devices that it joins, as in racks whose nodes share switches; None means any number.
    `lanes`: direct links to as many other devices, whose rates it adds up; None if a message has the whole rate.
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
    lanes: int | None = None


@dataclass(frozen=True)
class Overhead:
    """Time outside the op table: either seconds per run, epoch or step, or a share of the time it adds to."""

    name: str
    per: Literal["run", "epoch", "step"]
    time_s: Fact | None
    share: Fact | None


@dataclass(frozen=True)
class FlopEnergy:
    """Energy of one flop [J] in a number format on an engine; engine "" means any."""

    dtype: str
    engine: str
    joule: Fact


@dataclass(frozen=True)
class AveragePower:
    """Mean power [W], measured while a workload ran.

    `workload`: a model's name, or `TIMED_OPS`.
    `batch`, `precision`: None and "" are not stated; the figure then applies to any.
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
    """The energy facts of a machine; None and empty where they are not stated.

    `scope`: what ``idle_w``, ``per_flop`` and ``byte_j`` include.
    `devices`: devices that ``idle_w`` covers: 1 for a chip, None if the number per node is unknown.
    `process_m`: the process node [m] of the chip; every figure per flop and per byte requires it.
    `idle_w`: power [W] while nothing is computed.
    `byte_j`: energy of one byte of device memory traffic [J].
    `limit_w`: power limit of one chip [W], its design power: an upper bound, no average.
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
        """Return the energy of a flop [J], preferably the engine's own figure; None if none is stated."""
        fitting = [one for one in self.per_flop if one.dtype == dtype and one.engine in (engine, "")]
        return max(fitting, key=lambda one: one.engine).joule if fitting else None


@dataclass(frozen=True)
class Price:
    """The price of using a machine; a figure of money needs its currency and date.

    `per_s`: money for a second of one ``per``, in ``currency``.
    `currency`: ISO 4217 code: USD, EUR.
    `per`: what is paid for: one device, one node, or the whole system.
    `date`: when the price was valid (ISO 8601).
    """

    per_s: Fact
    currency: str
    per: Scope
    date: str


@dataclass(frozen=True, eq=False)
class Machine:
    """A machine profile: facts (from YAML) and measured op timings (from CSV).

    `node_devices`, `system_nodes`, `year` of announcement: None is unknown; scopes that need them are refused.
    `host_op_s`: time of its host, framework included, to launch one op of a training step [s].
    `reserve_byte`: memory of a device that a program holds besides its tensors; None: `memory_of.reserve_of`.
    `software`: library and version that its steps run, if known, in the words of its timings; "" if not stated.
    `timings`: a TIMINGS table, empty for a machine known by facts only. Where ``origin`` is set, rows with a party
      were stated for the changed machine; the others are of the origin.
    `fits`: estimator parameters shipped with the timings, by family; valid for timings of hash ``timings_key``.
    `timed_links`: links over which the collectives of ``timings`` ran; None: ``links``. A timed collective keeps
      its time relative to the formula of its link, and tells nothing of a link that is not here.
    `excluded`: architectures and machines whose timings must not be used for predictions here, in a comparison.
    `origin`: the device that timings and utilisations belong to, where ``device`` is a hypothetical change of it
      (`changed`); None for an existing machine.
    `device_of`: the machine whose file describes the device and its timings, if this one only refers to it.
    `asked_as`: the short name by which the user chose this board, such as b200 for b200-sxm.
    `plausibility`: result of the check of timings and facts, before the first answer; None until then.
    `typical`: utilisations of other machines, for ops without a timing here; None until a prediction is prepared.
    `stated`: facts that were stated by `with_`; ``notes`` contains a note on them.
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
    reserve_byte: Fact | None = None
    software: str = ""
    links: tuple[Link, ...] = ()
    timed_links: tuple[Link, ...] | None = None
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

    def __eq__(self, other: object) -> bool:
        return units.equal_fields(self, other)

    def __repr__(self) -> str:
        return f"<machine {self.name}: {self.title}; {units.count_text(len(self.timings), 'timing')}>"

    @property
    def caveats(self) -> tuple[str, ...]:
        """Notes for every figure of it: that a short name selected this board, and facts stated by the user."""
        chosen = [f"{self.asked_as!r} is taken for {self.name}, the only board of it here"] * bool(self.asked_as)
        return (*chosen, *(note for note in self.notes if note.startswith(units.STATED)))

    def stated_rows(self) -> pd.Series[bool]:
        """Return which timings were stated for the changed machine; none of a machine that is as built."""
        import pandas as pd

        known = self.origin is not None and "party" in self.timings.columns
        return self.timings["party"].fillna("") != "" if known else pd.Series(False, self.timings.index)

    def as_built(self) -> Machine:
        """Return the machine that timings and utilisations belong to."""
        if self.origin is None:
            return self
        stated = self.stated_rows()
        # The same table object, because cached results are keyed by its identity.
        timings = self.timings[~stated].reset_index(drop=True) if stated.any() else self.timings
        return replace(self, device=self.origin, origin=None, timings=timings)

    def with_timings(self, timings: pd.DataFrame) -> Machine:
        """Return the machine with other timings, which have no fits yet."""
        return replace(self, timings=timings, fits={}, timings_key="")

    def changed(self, device: Device) -> Machine:
        """Return the machine with other rates or launch cost of its device; each op keeps its utilisation."""
        return self if device == self.device else replace(self, device=device, origin=self.origin or self.device)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the rates and costs of its device that can be changed."""
        return (*RATES, *(peak_name(peak.dtype, peak.engine) for peak in self.device.peaks))

    def check_parameter(self, name: str, least: float) -> None:
        """Raise FomkitError if there is no parameter of this name, or its least value is not a rate or a cost."""
        if name not in self.parameters:
            raise FomkitError(self.name, f"{name!r} is not a parameter. {nearest_names(name, self.parameters)}")
        if not least > 0:
            raise FomkitError(self.name, f"{name} is {least:g}. Give a finite number above 0.")

    def with_(self, stated: Mapping[str, str | float] | None = None, /, **more: str | float) -> Machine:
        """Return a copy with facts of your own, for example ``with_(bandwidth="1.2 TB/s")``.

        Names are those of `fomkit.sweep`: ``byte_per_s`` (or ``bandwidth``), ``launch_s`` (or ``launch``),
        ``host_op_s`` (or ``host``), ``flop_per_s/DTYPE/ENGINE``, ``nodes``, ``node_devices``, ``availability``;
        ``capacity``, ``reserve``, ``software``, ``name``, ``title``. Values are text with units, or numbers in SI
        units; a fact's own value changes nothing. Facts keep their spread, ops their utilisation: timings of the
        machine as built are rescaled, and results say so. Measurements of whole runs do not apply to the copy,
        NAME-as-stated. `stated`: for names that are not Python identifiers, as
        ``{"flop_per_s/fp16/matrix": "150 TFLOP/s"}``. Raises FomkitError for a fact that is unknown or invalid.

        >>> import fomkit
        >>> faster = fomkit.machine("v100").with_(bandwidth="1.2 TB/s")
        >>> faster.name, faster.device.byte_per_s.value, faster.device.byte_per_s.source
        ('v100-as-stated', 1200000000000.0, "stated by you: with_(bandwidth='1.2 TB/s')")
        """
        given, found = dict(units.stated_facts(stated, more, _WORDS)), self
        # Rates first: what they change is the origin, which has no other stated facts.
        for name, (word, value) in sorted(given.items(), key=lambda one: (one[0] not in self.parameters, one[0])):
            before, found = found, found._with_fact(name, word, value)
            if found == before:
                del given[name]
        if not given:
            return self
        built = self.device_of or self.name
        if given.keys() - {"title"}:
            name = found.name if "name" in given else f"{self.name.removesuffix(_AS_STATED)}{_AS_STATED}"
            found = replace(found, name=name, device_of=built)  # not to count as another machine
        rescaled = found.origin is not None and len(self.timings) > 0
        carried = f"; timings of {built} as built are rescaled, each op at the same utilisation" * rescaled
        every, notes = units.stated_on_top(self.notes, self.stated, given, carried)
        return with_room(replace(found, stated=every, notes=notes), "with_")

    def _with_fact(self, name: str, word: str, value: object) -> Machine:
        """Return a copy with the fact ``name``, stated as ``word``."""
        known = {*_DIMENSIONS, *_TEXTS, *self.parameters}
        if name not in known:
            what = f"is not a fact that can be stated. {nearest_names(word, {*_WORDS, *known})}"
            raise FomkitError(f"with_({word}=…)", what)
        if name in _TEXTS:
            text: dict[str, Any] = {name: units.stated_text(value, name)}
            return replace(self, **text)
        number = units.stated_number(value, _DIMENSIONS.get(name, PEAK), word, int(name != "reserve_byte"))
        state = partial(restated, value=number, source=units.stated_note({name: (word, value)}))
        if name in self.parameters:
            return self.changed(change_fact(self.device, name, state))
        if name == "capacity_byte":
            return replace(self, device=replace(self.device, capacity_byte=state(self.device.capacity_byte)))
        figures: dict[str, Any] = {
            HOST: state(self.host_op_s), "reserve_byte": state(self.reserve_byte), "availability": number,
            "nodes": round(number), "node_devices": round(number),
        }  # fmt: skip
        return replace(self, **{"system_nodes" if name == "nodes" else name: figures[name]})

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that this profile states, narrowest first.

        A system requires the devices of a node and the number of nodes.
        """
        if self.node_devices is None:
            return ("device",)
        return ("device", "node") if self.system_nodes is None else ("device", "node", "system")

    def devices(self, scope: Scope) -> int:
        """Return the number of devices at a scope that `scopes` contains."""
        node = self.node_devices or 1
        return {"device": 1, "node": node, "system": node * (self.system_nodes or 1)}[scope]

    def nodes_of(self, devices: int) -> int:
        """Return the whole nodes that a run on ``devices`` devices occupies; 0 where several runs share a node."""
        each = self.devices("node")
        return -(-devices // each) if devices > each // 2 else 0

    def up_share(self, scope: Scope) -> float:
        """Return the share of the time that a scope is up: the availability of a system, 1 for smaller scopes."""
        return self.availability if scope == "system" else 1.0

    def up_devices(self, scope: Scope) -> float:
        """Return the number of devices at a scope, times the share of the time that they are up."""
        return self.devices(scope) * self.up_share(scope)


def with_room(machine: Machine, where: str) -> Machine:
    """Return the machine; raise FomkitError if its reserve is not below its device's memory; 0 is no reserve."""
    capacity, reserve = machine.device.capacity_byte, machine.reserve_byte
    if capacity is not None and reserve is not None:
        units.check_reserve(reserve.value, capacity.value, machine.name, where)
    return machine
