"""Content of a machine's view (``fomkit/show/1``) and of a step's memory (``fomkit/memory/1``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

import pandas as pd

from fomkit import __version__
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.core.measurement import verdict_on
from fomkit.core.model import BATCH, TO_SHORT, ModelProfile
from fomkit.ops.groups import column_texts
from fomkit.ops.precision import Formats, choose_formats, computes_in_16, formats_named
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops, sizes_used
from fomkit.ops.tables import ROLES, TIME_SOURCES, empty_table
from fomkit.plan.content import Part, Priced, Stated, as_content, evidence_of, price_content
from fomkit.plan.coverage import UNPRICED, library_notes
from fomkit.plan.job import Placed
from fomkit.plan.memory import BLOCK_BYTE, IN_SIZES, WORKSPACE, Use, how_to_follow
from fomkit.plan.memory_of import (
    fit_in,
    held_by_sizes,
    in_formats,
    largest_batch,
    reserve_of,
    room_byte,
    standing_in,
    step_memory,
)
from fomkit.plan.options import Options, choose_sizes
from fomkit.plan.scaling import smallest_layout
from fomkit.prediction.cascade import add_times
from fomkit.prediction.exact import row_major
from fomkit.prediction.families import FamilyName
from fomkit.prediction.rates import HELD, throttled
from fomkit.profiles.evidence import with_fits, without_implausible
from fomkit.profiles.locate import locate, profile_names
from fomkit.profiles.machines import load_machine
from fomkit.validation import shape_coverage
from fomkit.verbs.answer import parts
from fomkit.verbs.model_view import SCHEMA as MODEL_SCHEMA
from fomkit.verbs.model_view import census_content

Listed = TypedDict("Listed", {
    "name": str, "title": str, "year": int | None, "party": str, "evidence": str, "timings": int,
    "formats": list[str], "byte_per_s": Stated | None, "capacity_byte": Stated | None,
})  # fmt: skip
Machines = TypedDict("Machines", {"schema": str, "machines": list[Listed]})
Peak = TypedDict("Peak", {"dtype": str, "engine": str, "accumulate_dtype": str | None, "flop_per_s": Stated,
                          "ridge_point": float | None, "held_flop_per_s": Stated | None})  # fmt: skip
PerFlop = TypedDict("PerFlop", {"dtype": str, "engine": str | None, "joule_per_flop": Stated})
Average = TypedDict("Average", {"workload": str, "scope": str, "power_w": Stated, "batch": int | None,
                                "precision": str, "devices": int | None})  # fmt: skip
EnergyStated = TypedDict("EnergyStated", {
    "scope": str, "devices": int | None, "process_m": float | None, "idle_w": Stated | None,
    "per_flop": list[PerFlop], "joule_per_byte": Stated | None, "average": list[Average], "limit_w": Stated | None,
})  # fmt: skip
LinkFacts = TypedDict("LinkFacts", {
    "tier": str, "alpha_s": float, "byte_per_s": float, "direction": str, "source": str, "channel": str,
    "least_byte": float | None, "most_byte": float | None, "alpha_range_s": tuple[float, float] | None,
    "range_byte_per_s": tuple[float, float] | None, "basis": str, "serialise_byte_per_s": float | None,
    "joins": int | None, "lanes": int | None,
})  # fmt: skip
Charged = TypedDict("Charged", {"name": str, "per": str, "time_s": Stated | None, "share": Stated | None})
Facts = TypedDict("Facts", {
    "peaks": list[Peak], "byte_per_s": Stated | None, "capacity_byte": Stated | None, "launch_s": Stated | None,
    "fresh_byte_per_s": Stated | None, "fresh_above_byte": float | None, "host_byte_per_s": Stated | None,
    "host_op_s": Stated | None, "reserve_byte": Stated | None, "software": str,
    "node_devices": int | None, "system_nodes": int | None, "availability": float, "links": list[LinkFacts],
    "overheads": list[Charged], "energy": EnergyStated | None, "price": Priced | None,
})  # fmt: skip
Tables = TypedDict("Tables", {
    "rows": int, "sections": list[dict[str, object]], "rows_of_one_op": int, "libraries": list[dict[str, object]],
    "sources": list[dict[str, object]], "harnesses": list[dict[str, object]], "corrected": int,
})  # fmt: skip
OfKind = TypedDict("OfKind", {"kind": str, "errors": shape_coverage.CrossValidationErrors | None})
OfList = TypedDict("OfList", {"name": str, "ops": int, "sources": dict[str, int]})
Coverage = TypedDict("Coverage", {
    "reference_models": list[str], "families": list[shape_coverage.ShapeCoverage], "kinds": list[OfKind],
    "lists": list[OfList],
})  # fmt: skip
MachineView = TypedDict("MachineView", {
    "schema": str, "fomkit": str, "is": str, "name": str, "title": str, "party": str, "device_of": str | None,
    "scopes": list[str], "facts": Facts, "timings": Tables | None, "coverage": Coverage | None,
    "plausibility": list[str], "notes": list[str],
})  # fmt: skip


def _may_match(name: str, words: Sequence[str]) -> bool:
    """Return whether a machine's file has all words, or may have them from the machine that has its device.

    All timings of a machine that is loaded are read, which takes seconds until the user's cache has them.
    """
    text = f"{name} {locate(name, 'machine_profiles').read_text(encoding='utf-8', errors='replace')}".lower()
    return "peak:" not in text or all(word.removesuffix("_block") in text for word in words)


def machines_content(having: str | None = None) -> Machines:
    """List the machines that match all words (formats, parts of name, title or architecture), the newest first."""
    words = (having or "").lower().split()
    found, machines = list[Listed](), dict[str, Machine]()
    names = [name for name in profile_names("machine_profiles") if _may_match(name, words)]
    done = parts(len(names))
    for name in names:
        machines[name] = load_machine(name)
        done()
    for name, machine in sorted(machines.items(), key=lambda one: (-(one[1].year or 0), one[0])):
        device, timings = machine.device, machine.timings
        formats = list(dict.fromkeys(peak.dtype for peak in device.peaks))
        texts = f"{name} {machine.title} {device.architecture}".lower()
        if all(word in formats or word in texts for word in words):
            evidence = evidence_of(machine)
            found.append(as_content(Listed, machine, device, name=name, evidence=evidence, timings=len(timings),
                                    formats=formats))  # fmt: skip
    if not found:
        what = f"no machine matches {' and '.join(map(repr, words))}."
        raise FomkitError("having", f"{what} Give a number format, a maker or a part of a name.")
    return {"schema": MODEL_SCHEMA, "machines": found}


NO_LIMIT = 10**9
"""Number of excluded timings that are listed individually: all."""
_TABLE_KEYS = ["kind", "dtype", "engine", "pass_name"]


def _tally(timings: pd.DataFrame, *columns: str) -> list[dict[str, object]]:
    """Count rows by some text columns; rows that are empty in all of them are left out."""
    words = timings.assign(**{name: column_texts(timings, name) for name in columns})[list(columns)]
    counts = words.groupby(list(columns), sort=False).size()
    found = [(key if isinstance(key, tuple) else (key,), count) for key, count in counts.items()]
    return [{**dict(zip(columns, key, strict=True)), "rows": int(count)} for key, count in found if any(key)]


def tables_content(timings: pd.DataFrame) -> Tables:
    """Count the rows of a machine's timings by family, library, source and harness."""
    named = column_texts(timings, "op") != ""
    return {
        "rows": len(timings), "sections": _tally(timings, *_TABLE_KEYS), "rows_of_one_op": int(named.sum()),
        "libraries": _tally(timings, "library", "library_version"),
        "sources": _tally(timings, "source_file", "source_sheet"), "harnesses": _tally(timings, "harness"),
        "corrected": int((column_texts(timings, "note") != "").sum()),
    }  # fmt: skip


def _of_list(machine: Machine, ops: ModelProfile) -> OfList:
    """Count the ops of a list by the source of their times on a machine with fits."""
    timed = add_times(add_costs(resize_ops(ops.ops, ops.sizes, ops.name)), machine)
    counts = column_texts(timed, "time_source").replace("", UNPRICED).value_counts()
    sources = {name: int(counts[name]) for name in (*TIME_SOURCES, UNPRICED) if name in counts.index}
    return {"name": ops.name, "ops": len(timed), "sources": sources}


def _coverage(machine: Machine, reference: list[ModelProfile], lists: Sequence[ModelProfile]) -> Coverage | None:
    if not len(machine.timings):
        return None
    machine = with_fits(machine)
    machine = replace(machine, timings=row_major(machine.timings))
    tables = [add_costs(resize_ops(model.ops, model.sizes, model.name)) for model in reference]
    ops = pd.concat(tables, ignore_index=True) if tables else add_costs(empty_table("OPS"))
    found = list(shape_coverage.coverage_by_family(machine, add_costs(machine.timings), ops))
    kinds = list[OfKind]()
    for kind in dict.fromkeys(family["kind"] for family in found):
        names = [FamilyName(kind, one["dtype"], one["engine"], one["pass_name"], one["part"]) for one in found
                 if one["kind"] == kind]  # fmt: skip
        stored = [machine.fits.get(str(name)) for name in names]
        fitted = [fit for fit in stored if isinstance(fit, Mapping)]
        kinds.append({"kind": kind, "errors": shape_coverage.cross_validation_errors(fitted)})
    return {
        "reference_models": [model.name for model in reference], "families": found, "kinds": kinds,
        "lists": [_of_list(machine, one) for one in lists],
    }  # fmt: skip


def show_machine(
    machine: Machine, reference: list[ModelProfile], lists: Sequence[ModelProfile] = ()
) -> MachineView:
    """Return a machine's facts and timings (``fomkit/show/1``), and how these cover ops of models and lists."""
    machine = without_implausible(machine)
    return as_content(
        MachineView, machine, schema=MODEL_SCHEMA, fomkit=__version__, **{"is": "machine"},
        facts=facts_content(machine), timings=tables_content(machine.timings) if len(machine.timings) else None,
        coverage=_coverage(machine, reference, lists), plausibility=verdict_on(machine, NO_LIMIT),
        notes=[*machine.notes, *library_notes(machine)],
    )  # fmt: skip


def facts_content(machine: Machine) -> Facts:
    """Return the stated facts of a machine."""
    memory, lower = machine.device.byte_per_s, throttled(machine).device.peaks
    peaks = [  # each peak, and the rate that long products sustain: stated, or computed from a power limit
        as_content(
            Peak, peak, flop_per_s=peak.rate, ridge_point=memory and peak.rate.value / memory.value,
            held_flop_per_s=limited.rate if limited.rate.source.startswith(HELD) else
            peak.rate.scaled(peak.sustained) if peak.sustained < 1 else None,
        )
        for peak, limited in zip(machine.device.peaks, lower, strict=True)
    ]  # fmt: skip
    energy, stated = machine.energy, None
    if energy is not None:
        per_flop = [as_content(PerFlop, one, joule_per_flop=one.joule) for one in energy.per_flop]
        stated = as_content(EnergyStated, energy, per_flop=per_flop, joule_per_byte=energy.byte_j)
    return as_content(
        Facts, machine.device, machine, peaks=peaks, energy=stated, reserve_byte=reserve_of(machine),
        price=None if machine.price is None else price_content(machine.price),
    )  # fmt: skip


SCHEMA = "fomkit/memory/1"
PASS_NAMES = ("forward", "backward", "update")

ASSUMED = (
    f"every piece of memory is rounded up to blocks of {BLOCK_BYTE} byte, as in PyTorch's allocator for GPUs",
    "a convolution uses one sample's im2col as workspace; cuDNN's choice is unknown",
    "an attention runs as one kernel that keeps only its inputs and its result",
    "the model's output is kept until the end of the backward pass; gradients are freed after the update",
    "number formats are those of the trace",
)
AS_AUTOCAST = (
    "tensors are in the formats in which PyTorch's autocast keeps them in training, or all in 16 bits in "
    "inference, derived from the trace; the peaks of 41 trainings were 0.88 to 1.16 times those of traces under "
    "autocast, 35 of them within 3%"
)
OF_FORMATS = (*ASSUMED[:-1], AS_AUTOCAST)
"""What is assumed where the memory is derived from the trace in other formats."""
AT_ONCE = "each variable is updated, and its gradient freed, as soon as the gradient is computed, as in graphs"
GAPS = "gaps between pieces (fragmentation)"
EXCLUDED = ("the framework's context and libraries on the device", GAPS)

GATHERED = "layers that zero gathers, and gradients that it has not scattered yet"
OTHER_PRECISION = f"is counted by its sizes in {IN_SIZES} only"
OF_16_BITS = (
    "2 bytes of each parameter, 4 of its gradient, and 12 of Adam's state, of which 4 are the parameter in fp32"
)
BY_SIZES = (
    f"memory is counted by the transformer's sizes, as with --layout data=1: {OF_16_BITS}; and the activations of "
    "the whole batch"
)


def _memory_assumed(use: Use, assumed: Sequence[str]) -> list[str]:
    """Return the assumptions; the order of the ops decides whether gradients wait for one update of all."""
    gradients = use.pieces[use.pieces["role"] == "gradient"]
    at_once = bool((gradients["last"] < len(use.live_byte) - 1).any())
    return [AT_ONCE if at_once and "gradients" in text else text for text in assumed]


def assumed_of(model: ModelProfile, sizes: Mapping[str, int], formats: Formats) -> tuple[str, ...]:
    """Return what is assumed of a step that was followed in these formats."""
    if in_formats(model, sizes, formats) in (None, model):
        return ASSUMED
    return (*ASSUMED, f"except the weights of linear layers, in {formats.low}") if formats.low else OF_FORMATS


Moment = TypedDict("Moment", {"id": int, "op": str | None, "module": str | None, "pass_name": str | None,
                              "byte": float, "roles": dict[str, float]})  # fmt: skip
OfModule = TypedDict("OfModule", {"module": str, "byte": float, "roles": dict[str, float]})
Live = TypedDict("Live", {"id": int, "op": str, "module": str, "pass_name": str, "byte": float})
Followed = TypedDict("Followed", {
    "totals": Mapping[str, float | None], "peak": Moment | None, "passes": dict[str, Moment],
    "modules": list[OfModule], "live": list[Live],
})  # fmt: skip
Layers = TypedDict("Layers", {
    "samples": int | None, "parameter_byte": float, "input_byte": float, "feature_maps_byte": float,
    "feature_maps_in_place_byte": float, "copies_byte": float, "with_copies_byte": float, "im2col_byte": float,
    "largest_im2col_byte": float,
})  # fmt: skip
Room = TypedDict("Room", {"name": str, "capacity_byte": float, "source": str | None, "reserve_byte": Stated,
                          "fits": bool | None, "tight": bool | None, "share": float | None,
                          "largest_batch": int | None, "smallest_layout": str,
                          "largest_microbatch": int | None})  # fmt: skip
Memory = TypedDict("Memory", {
    "schema": str, "fomkit": str, "name": str, "title": str, "mode": str | None, "sizes": dict[str, int],
    "totals": Mapping[str, float | None], "peak": Moment | None, "passes": dict[str, Moment],
    "modules": list[OfModule], "live": list[Live], "layers": Layers | None, "target": Room | None,
    "batch_is_fixed": bool, "assumed": list[str], "excludes": list[str], "deviations": list[str],
    "part": Part | None,
})  # fmt: skip


def _moment(use: Use, moment: int) -> Moment:
    place = use.moments.iloc[moment].to_dict()
    return as_content(Moment, place, id=moment, byte=float(use.live_byte[moment]), roles=use.by_role(moment))


def _followed(use: Use) -> Followed:
    peaks, moments = {name: use.peak_of(name) for name in PASS_NAMES}, use.moments.assign(byte=use.live_byte)
    sums = use.standing(use.peak_id).pivot_table(
        index="module", columns="role", values="byte", aggfunc="sum", fill_value=0.0, observed=True
    )
    sums = sums.assign(byte=sums.sum(axis="columns")).sort_values("byte", ascending=False, kind="stable")
    return {
        "totals": {role: use.total(role) for role in ROLES if role != "temporary"},
        "peak": _moment(use, use.peak_id),
        "passes": {name: _moment(use, moment) for name, moment in peaks.items() if moment is not None},
        "modules": [
            {"module": str(module), "byte": float(row["byte"]),
             "roles": {str(role): float(byte) for role, byte in row.items() if role != "byte" and byte}}
            for module, row in sums.iterrows()
        ],
        "live": [as_content(Live, row, id=place) for place, row in enumerate(moments.to_dict("records"))],
    }  # fmt: skip


def _standing(model: ModelProfile, sizes: Mapping[str, int], formats: Formats) -> Mapping[str, float | None]:
    standing = standing_in(model, sizes, formats)
    if standing is None:
        raise FomkitError(
            model.name,
            "has no data on memory: no order of its ops, no update and no parameters in one format: "
            f"{how_to_follow(model, by_sizes=False)}.",
        )
    return standing._asdict()


def _how_to_follow(model: ModelProfile, sizes: Mapping[str, int]) -> str:
    by_sizes = in_formats(model, sizes, formats_named("bf16")) is not None
    return f"unknown: activations and the peak, because {how_to_follow(model, by_sizes=by_sizes)}"


def _room_content(
    model: ModelProfile, machine: Machine, options: Options, needed: float, *, whole: bool = True,
    largest_batch: int | None = None, largest_microbatch: int | None = None,
) -> Room:  # fmt: skip
    """Say whether a step fits a device, and the largest batch, or microbatch of a job, that does."""
    fact, reserve = machine.device.capacity_byte, reserve_of(machine)
    if fact is None or reserve is None:
        raise FomkitError(machine.name, "states no capacity. Add device.memory.capacity to its profile.")
    fit = fit_in(machine, needed, whole=whole)
    return as_content(
        Room, machine, fact, capacity_byte=fact.value, largest_batch=largest_batch, reserve_byte=reserve,
        largest_microbatch=largest_microbatch, fits=fit.fits, share=needed / fact.value if whole else None,
        tight=bool(fit.warning) if whole or fit.warning else None,
        smallest_layout=smallest_layout(model, machine, options) if fit.notes else "",
    )  # fmt: skip


def _check_standing(model: ModelProfile, precision: str, derived: bool) -> None:
    """Raise unless what every step in other number formats holds is known where its activations are not.

    `derived`: whether a rule gives the parameters, gradients and optimizer state in these formats.
    """
    if model.order is None and not model.trains_by_sizes and (derived or not computes_in_16(model.ops)):
        return
    traced = "was traced in other formats, from which no rule derives what such a step keeps"
    why = OTHER_PRECISION if model.trains_by_sizes else traced
    raise FomkitError(model.name, f"{why}, so its memory in {precision} is unknown. Leave `precision` out.")


def memory_content(model: ModelProfile, options: Options, machine: Machine | None = None) -> Memory:
    """Return the memory of a step by moment, role and module, and whether it fits (``fomkit/memory/1``)."""
    sizes = choose_sizes(model, options.wanted_sizes)
    formats = Formats("") if options.precision is None else formats_named(options.precision)
    followed = in_formats(model, sizes, formats)
    copies = bool(model.ops["op"].eq(TO_SHORT).any())
    if followed is None and options.precision is not None:
        _check_standing(model, options.precision, copies or formats.stream != "fp32")
    assumed = assumed_of(model, sizes, formats)
    model = followed or model
    use = step_memory(model, sizes)
    held = None if followed is None else held_by_sizes(model, sizes)
    if use is not None:
        found = _followed(use)
    else:
        totals = (
            _standing(model, sizes, formats)
            if held is None
            else {role: held[role] for role in ROLES if role in held}
        )
        found = as_content(Followed, totals=totals, peak=None, passes={}, modules=[], live=[])
    needed = use.peak_byte if use is not None else sum(byte or 0.0 for byte in found["totals"].values())
    fixed = model.order is not None and BATCH in sizes and BATCH not in sizes_used(model.order)
    of_sizes = [OF_16_BITS] * (copies and formats.stream != "fp32") if held is None else [BY_SIZES]
    room, whole = None, use is not None or held is not None
    if machine is not None:
        left = room_byte(machine) if whole else None
        most = None if left is None else largest_batch(model, sizes, left)
        room = _room_content(model, machine, options, needed, whole=whole, largest_batch=most)
    excludes = [GAPS] if room is not None else EXCLUDED
    # The memory that the layers of one sample fill, freed or not, as in tables of classic networks.
    census = census_content(model, sizes)
    layers = None if census is None else as_content(Layers, census["activations"], census, census["total"])
    return as_content(
        Memory, found, model, schema=SCHEMA, fomkit=__version__, mode=model.traced_with.get("mode"), sizes=sizes,
        layers=layers, target=room, batch_is_fixed=fixed,
        assumed=of_sizes if use is None else _memory_assumed(use, assumed),
        deviations=model.caveats if whole else (*model.caveats, _how_to_follow(model, sizes)),
        excludes=excludes if whole else ["activations and everything else that needs the order"],
        part=None,
    )  # fmt: skip


def bounds_of_part(placed: Placed, options: Options) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what is assumed of the memory of a device of a job, and what is not counted."""
    model = placed.model
    if model.order is None or model.trains_by_sizes:
        return (), (GAPS,)
    framework = model.traced_with.get("framework", "")
    formats = choose_formats(options.precision, framework, placed.machine, model.ops)
    sizes = choose_sizes(model, {**placed.wanted, BATCH: placed.schedule[0]})
    return assumed_of(model, sizes, formats), (GAPS, *[GATHERED] * (placed.layout.zero > 1))


def memory_of_job(placed: Placed, options: Options) -> Memory:
    """Return the memory of the fullest device of a job by role (``fomkit/memory/1``)."""
    model, held = placed.model, placed.stepper.held(placed.devices, placed.batch)
    if held is None:
        why = "it was traced in other formats, or at other sizes. Leave precision and sizes out."
        why = why if model.order is not None else f"{how_to_follow(model, by_sizes=False)}."
        why = why if placed.layout.recompute == "none" else "its activations are recomputed. Leave recompute out."
        raise FomkitError(model.name, f"the memory of a device's part is unknown: {why}")
    totals = {role: held[role] for role in (*ROLES, WORKSPACE) if role in held}
    assumed, excludes = bounds_of_part(placed, options)
    room = _room_content(model, placed.machine, options, sum(held.values()),
                         largest_microbatch=placed.largest_microbatch())  # fmt: skip
    return as_content(
        Memory, model, schema=SCHEMA, fomkit=__version__, mode=model.traced_with.get("mode"), sizes=placed.sizes,
        totals=totals, peak=None, passes={}, modules=[], live=[], layers=None, target=room, batch_is_fixed=False,
        assumed=assumed, deviations=model.caveats, excludes=excludes, part=placed.content,
    )  # fmt: skip
