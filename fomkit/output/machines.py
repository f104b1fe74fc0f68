"""Format a machine's facts, tables and coverage, and the memory of a step against a device's capacity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Literal

from fomkit.core.units import (
    agree,
    by_key,
    count_text,
    exact_quantity,
    format_mebibyte,
    format_number,
    format_quantity,
    memory_text,
)
from fomkit.output.money import energy_facts, price_rate
from fomkit.output.screen import PLAIN, Column, Entry, Header, Page, Screen, figure, named_sizes
from fomkit.output.values import format_interval, job_words, numbered, with_ends, word_of
from fomkit.plan.op_tables import ROLE_WORDS

if TYPE_CHECKING:
    from fomkit.plan.content import Range, Stated
    from fomkit.validation.shape_coverage import CrossValidationErrors, ShapeCoverage
    from fomkit.verbs import machine_view as view

WIDE = 140
"""Screen width from which the table has the least and largest work of each family."""

NARROW = 100
"""Screen width below which the table omits bytes and the ninth decile of the spacing."""

_Work = Literal["flop", "byte"]
_FAMILY = ("kind", "dtype", "engine", "pass")


def format_machines(content: view.Machines, screen: Screen = PLAIN) -> str:
    """Format a list of machines, the newest first, with their evidence, memory and number formats."""
    page = Page(screen)
    page.columns(
        [word_of("year"), word_of("name"), word_of("evidence", "known by"),
         Column("memory", "", lambda row: _fact_text(row["capacity_byte"], "byte")),
         Column("bandwidth", "", lambda row: _fact_text(row["byte_per_s"], "byte_per_s")),
         Column("formats", "", lambda row: " ".join(row["formats"]), 1), word_of("title", rank=2)],
        content["machines"],
    )  # fmt: skip
    page.line("fomkit show NAME: all facts with sources; fomkit estimate MODEL --target NAME: times of a model")
    return page.text()


def _family(entry: ShapeCoverage | Mapping[str, object]) -> list[str]:
    return [str(entry["kind"]), str(entry["dtype"]), str(entry["engine"]), str(entry["pass_name"] or "any")]


def _fact_rows(facts: view.Facts) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield each fact: its name, value with interval, ridge point, basis and source."""
    for peak in facts["peaks"]:
        sums = f", sums {peak['accumulate_dtype']}" if peak["accumulate_dtype"] else ""
        ridge = "unknown" if peak["ridge_point"] is None else format_number(peak["ridge_point"], 3)
        yield f"peak {peak['dtype']} {peak['engine']}{sums}", *_fact_cells(peak["flop_per_s"], "flop_per_s", ridge)
        if peak["held_flop_per_s"] is not None:
            yield f"peak, sustained, {peak['dtype']}", *_fact_cells(peak["held_flop_per_s"], "flop_per_s")
    if not facts["peaks"]:
        yield "peak", *_fact_cells(None, "flop_per_s")
    yield "memory bandwidth", *_fact_cells(facts["byte_per_s"], "byte_per_s")
    yield "memory", *_fact_cells(facts["capacity_byte"], "byte")
    if (reserve := facts["reserve_byte"]) is not None:
        yield "reserve of the framework", with_ends(reserve, memory_text, joint=" to "), "", *_origin(reserve)
    yield "launch of a kernel", *_fact_cells(facts["launch_s"], "time_s")
    if facts["host_op_s"] is not None:
        yield "host's start of an op", *_fact_cells(facts["host_op_s"], "time_s")
    if facts["software"]:
        yield "software of steps", facts["software"], "", "", ""
    for name, rate in (("fresh pages", facts["fresh_byte_per_s"]), ("from the host", facts["host_byte_per_s"])):
        if rate is not None:  # most profiles state neither
            yield name, *_fact_cells(rate, "byte_per_s")
    yield from map(_link_cells, facts["links"])
    for extra in facts["overheads"]:
        share = extra["share"]
        shown = (f"{share['value']:.1%}", "", *_origin(share)) if share else _fact_cells(extra["time_s"], "time_s")
        yield f"{extra['name']}, per {extra['per']}", *shown
    for name, fact, dimension in energy_facts(facts["energy"]):
        yield name, *_fact_cells(fact, dimension)
    if price := facts["price"]:
        yield f"price per {price['per']}, {price['date']}", price_rate(price), "", *_origin(price)


def _link_cells(link: view.LinkFacts) -> tuple[str, str, str, str, str]:
    parts = []
    for value, ends, dimension in (
        (link["byte_per_s"], link["range_byte_per_s"], "byte_per_s"),
        (link["alpha_s"], link["alpha_range_s"], "time_s"),
    ):
        span: Range | None = {"low": ends[0], "high": ends[1]} if ends else None
        shown = f" ({format_interval(span, dimension)})" if span else ""
        parts.append(f"{format_quantity(value, dimension)}{shown}")
    sizes = [format_quantity(one, "byte") for one in (link["least_byte"], link["most_byte"]) if one is not None]
    joined = f"up to {count_text(link['joins'], 'device')}" if link["joins"] else ""
    lanes = f" over {link['lanes']} lanes" if link["lanes"] else ""
    name = ", ".join(filter(None, ("link", link["tier"], link["channel"], " to ".join(sizes), joined)))
    basis = link["basis"] if link["channel"] else ""
    return name, f"{parts[0]} {link['direction']}{lanes}, {parts[1]}", "", basis, link["source"]


def _origin(fact: Stated) -> tuple[str, str]:
    return fact["basis"], fact["source"]


def capacity_text(byte: float) -> str:
    """Write a memory's capacity exactly, in the unit of its profile; one that a system counted in bytes, as MiB.

    >>> capacity_text(24e9), capacity_text(25_276_502_016.0)
    ('24 GB', '24,106 MiB')
    """
    exact = exact_quantity(byte, "byte")
    return memory_text(byte) if exact.endswith(" B") else exact


def _fact_text(fact: Stated | None, dimension: str) -> str:
    if fact is None:
        return ""
    return capacity_text(fact["value"]) if dimension == "byte" else format_quantity(fact["value"], dimension)


def _fact_cells(fact: Stated | None, dimension: str, ridge: str = "") -> tuple[str, str, str, str]:
    if fact is None:
        return "unknown", ridge, "", ""
    text = _fact_text(fact, dimension)
    if fact["low"] != fact["high"]:
        text += f" ({format_interval(fact, dimension)})"
    return text, ridge, *_origin(fact)


def add_facts(page: Page, facts: view.Facts, scopes: Sequence[str]) -> None:
    """Add the table of a machine's facts and their numbered sources; ``scopes``: those that it has."""
    rows = list(_fact_rows(facts))
    sources = numbered(row[-1] for row in rows)
    page.rows(
        ["fact", "value", figure("ridge_point"), "basis", ("source", "right")],
        ((*cells, f"[{sources[source]}]" if source else "") for *cells, source in rows),
    )
    page.lines(f"[{place}] {source}" for source, place in sources.items())
    page.line("ridge: flop/byte above which the peak, not the memory, is the bound")
    if any(peak["held_flop_per_s"] is not None for peak in facts["peaks"]):
        page.line("sustained: what the board's power leaves of the peak in long products, as its maker measured; "
                  "products predicted from facts alone are no faster")  # fmt: skip
    devices, nodes = facts["node_devices"], facts["system_nodes"]
    up = f"{nodes or 0:,}, available {facts['availability']:.0%} of the time"
    page.line(
        f"devices in a node: {'unknown' if devices is None else devices}; "
        f"nodes: {'unknown' if nodes is None else up}; "
        f"links: {len(facts['links']) or 'none stated'}; scopes: {', '.join(scopes)}"
    )


def _counted_names(entries: Sequence[Mapping[str, object]]) -> str:
    words = [
        f"{' '.join(str(word) for name, word in entry.items() if name != 'rows' and word)} ({entry['rows']:,})"
        for entry in entries
    ]
    return ", ".join(words) or "not stated"


def _coverage_cells(family: ShapeCoverage, works: Sequence[_Work], wide: bool, spacings: int) -> Iterator[str]:
    yield from (*_family(family), f"{family['ops']:,}")
    for name in works if wide else ():
        ends = family[name]
        yield "unknown" if ends is None else " … ".join(format_quantity(end, name, 2) for end in ends)
    for name in works:
        ends = family[name]
        yield "unknown" if ends is None or ends[0] <= 0 else f"{math.log10(ends[1] / ends[0]):.1f}"
    yield ", ".join(f"{distance:.2f}" for distance in (family["spacing"] or ())[:spacings]) or "no fit"
    share = family["near_flop_share"]
    yield f"{family['near']} of {family['reference']}" if family["reference"] else "no such op"
    yield f"{share:.0%}" if family["reference"] and share is not None else ""


def _add_coverage(page: Page, coverage: view.Coverage) -> None:
    page.heading("shape coverage, by family of timings with a common fit", "")
    wide, narrow = page.screen.width >= WIDE, page.screen.width < NARROW
    works: Sequence[_Work] = ("flop",) if narrow else ("flop", "byte")
    families = coverage["families"]
    page.rows(
        [*_FAMILY, figure("ops"), *(works if wide else ()), *((f"decades\nof {name}", "right") for name in works),
         figure("spacing"), figure("near"), figure("near_flop_share")],
        (_coverage_cells(family, works, wide, 1 if narrow else 2) for family in families),
    )  # fmt: skip
    page.line("decades: powers of ten between the smallest and the largest op")
    deciles = "median" if narrow else "median and 90th percentile"
    page.line(f"spacing: distance to the nearest other timed op in lengths of the fit, {deciles}")
    models = ", ".join(coverage["reference_models"])
    page.line(f"near: distinct ops of {models} within interpolation distance, and their share of the flop")
    for kind in dict.fromkeys(family["kind"] for family in families):
        page.line(f"{kind}: {_size_ranges([family for family in families if family['kind'] == kind])}")
    for one in coverage["lists"]:
        sources = ", ".join(f"{name} {many:,}" for name, many in one["sources"].items())
        if not sources.startswith("unpriced"):
            page.line(f"ops of the list {one['name']}: {sources.replace('unpriced', 'without a time')}")


def _size_ranges(families: Sequence[ShapeCoverage]) -> str:
    """Format the range of each size over the families of a kind, and the number of reference ops outside it."""
    sizes = by_key((name, end) for family in families for name, ends in family["sizes"].items() for end in ends)
    beyond = by_key(counted for family in families for counted in family["outside"].items())
    ranges = {name: (min(values), max(values)) for name, values in sizes.items()}
    varied = ", ".join(f"{name} {low:g}…{high:g}" for name, (low, high) in ranges.items() if low < high)
    same = ", ".join(f"{name} {low:g}" for name, (low, high) in ranges.items() if low == high)
    listed = ", ".join(f"{name} {max(counts)}" for name, counts in beyond.items())
    most = max(family["reference"] for family in families)
    outside = f"; of up to {most} reference ops beyond: {listed}" if listed else ""
    return f"{varied}{f'; always {same}' if same else ''}{outside}"


def _error_cells(errors: CrossValidationErrors | None) -> list[str]:
    if errors is None:
        return ["", "not fitted", "", ""]
    rates = [f"{format_number(100 * errors[name], 3)} %" for name in ("median", "mean")]
    return [f"{errors['ops']:,}", *rates, f"{errors['hit_rate']:.0%}"]


def add_tables(page: Page, tables: view.Tables | None) -> None:
    """Add the number of a machine's timings by family, and where they are from."""
    if tables is None:
        page.line("timings: none; facts only")
        return
    page.heading(f"timings: {count_text(tables['rows'], 'row')}", "")
    sections = ([*_family(section), f"{section['rows']:,}"] for section in tables["sections"])
    page.rows([*_FAMILY, figure("rows")], sections)
    if own := tables["rows_of_one_op"]:
        only = agree(own, "is for the op that it names only/are for the op that they name only")
        page.line(f"of these, {count_text(own, 'row')} {only}")
    for name in ("libraries", "sources", "harnesses"):
        page.line(f"{name} (rows): {_counted_names(tables[name])}")
    if tables["corrected"]:
        page.line(f"corrected or explained in a note: {count_text(tables['corrected'], 'row')}")


def format_machine_view(content: view.MachineView, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/show/1`` of a machine as text."""
    page = Page(screen)
    page.line(f"{content['name']}: {content['title']}; figures: {content['party']}")
    if content["device_of"]:
        page.line(f"device: {content['device_of']}; facts, timings and fits come from that profile")
    add_facts(page, content["facts"], content["scopes"])
    add_tables(page, content["timings"])
    coverage = content["coverage"]
    if coverage is not None and coverage["families"]:
        _add_coverage(page, coverage)
        page.heading("errors of ops whose whole shape group was removed from the table", "")
        columns = [figure("ops"), figure("median"), figure("mean"), figure("hit_rate", "80 % hits")]
        rows = list[list[str]]()
        for kind in coverage["kinds"]:
            alike = (family for family in coverage["families"] if family["kind"] == kind["kind"])
            rows += [[*_family(family), *_error_cells(family["errors"])] for family in alike]
            rows += [[kind["kind"], "all", "", "", *_error_cells(kind["errors"])], []]
        styles = ("bold" if row[1:2] == ["all"] else "" for row in rows)
        page.rows([*_FAMILY, *columns], rows[:-1], styles=styles)
        page.line("hits: of intervals derived only from the errors of the other folds")
    elif coverage is not None:
        page.line("shape coverage: none, because no row is for all ops of its kind and sizes")
    page.lines(f"implausible: {text}" for text in content["plausibility"])
    page.notes(content["notes"])
    return page.text()


MODULES = 12
"""Largest number of modules that are listed; the others share one line."""


def _mebibyte_cell(byte: float | None) -> str:
    return format_mebibyte(byte) if byte else ""


def _role_table(page: Page, content: view.Memory) -> None:
    passes, totals = content["passes"], content["totals"]
    roles = [*dict.fromkeys([*totals, *(role for one in passes.values() for role in one["roles"])])]
    by_role = {role: [totals.get(role), *(one["roles"].get(role) for one in passes.values())] for role in roles}
    rows = [
        [ROLE_WORDS.get(role, role), *map(_mebibyte_cell, cells)] for role, cells in by_role.items() if any(cells)
    ]
    together = ["", *(_mebibyte_cell(one["byte"]) for one in passes.values())]
    if not passes and (content["part"] is not None or "activation" in totals):
        together = [_mebibyte_cell(sum(byte or 0.0 for byte in totals.values()))]
    rows += [[], ["together", *together]] if any(together) else []
    styles = ("bold" if row[:1] == ["together"] else "" for row in rows)
    heads: list[Header] = ["MiB", figure("totals"), *((f"peak of {name}", "right") for name in passes)]
    page.rows(heads, rows, styles=styles)


def _room_line(room: view.Room, samples: int | None) -> str:
    verdict = {True: "fits", False: "does not fit", None: "may fit"}[room["fits"]]
    at = "" if samples is None else f" at batch {samples}"
    tight = " only without the reserve" if room["tight"] else ""
    line = f"{room['name']}: the step{at} {verdict}{tight} in {memory_text(room['capacity_byte'])}"
    layout = f"; {room['smallest_layout']}" if room["smallest_layout"] else ""
    if room["share"] is None:
        stands = "fits" if room["fits"] is None else "alone does not fit"
        return f"{line}; memory independent of the batch {stands}{tight}, the peak is unknown{layout}"
    line = f"{line} ({room['share']:.0%})"
    if room["largest_microbatch"] is not None:
        most = f"largest microbatch that fits: {count_text(room['largest_microbatch'], 'sample')}"
        return f"{line}; {most}, with the reserve{layout}"
    if room["largest_batch"] is not None:
        return f"{line}; largest batch that fits: {room['largest_batch']:,}, with the reserve{layout}"
    return f"{line}; the largest batch is unknown, because the order does not name the batch{layout}"


def format_memory(content: view.Memory, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/memory/1`` as text."""
    page = Page(screen)
    part, of = content["part"], "one step" if content["part"] is None else "a device in one step"
    page.line(f"{content['name']}: {content['title']}; memory of {of} at {named_sizes(content, '')}", "bold")
    _role_table(page, content)
    if part is not None:
        page.line(job_words(part))
    elif (peak := content["peak"]) is not None:
        module_text = f" of {peak['module']}" if peak["module"] else ""
        at = f"{peak['op'] or 'an op without a row'}{module_text} in {peak['pass_name']}"
        page.line(f"peak {format_mebibyte(peak['byte'])} MiB, at {at}")
        cells = []
        for row in content["modules"][:MODULES]:
            role = max(row["roles"], key=row["roles"].__getitem__)
            name, mostly = row["module"] or "(the model itself)", ROLE_WORDS.get(role, role)
            cells.append((name, _mebibyte_cell(row["byte"]), mostly))
        if rest := content["modules"][MODULES:]:
            cells.append((count_text(len(rest), "other"), _mebibyte_cell(sum(row["byte"] for row in rest)), ""))
        page.rows(["module at the peak", figure("modules.byte", "MiB"), "mostly"], cells)
    if content["layers"] is not None:
        layers = content["layers"]
        gathered, largest = format_mebibyte(layers["im2col_byte"]), format_mebibyte(layers["largest_im2col_byte"])
        maps, less = (format_mebibyte(layers[key]) for key in ("feature_maps_byte", "feature_maps_in_place_byte"))
        samples = "one sample" if layers["samples"] == 1 else f"{layers['samples']} samples"
        line = f"outputs of all layers for {samples}, freed or not: {maps} MiB"
        im2col = f"; im2col {gathered} in all, {largest} for the largest" if layers["im2col_byte"] else ""
        page.line(f"{line}, {less} without layers that work in place{im2col}")
    if content["target"] is not None:
        page.line(_room_line(content["target"], content["sizes"].get("batch")))
        reserve = content["target"]["reserve_byte"]
        size, origin = with_ends(reserve, memory_text, joint=" to "), f"{reserve['basis']}: {reserve['source']}"
        page.line(f"reserve for the framework and its libraries: {size}, {origin}")
    page.line(f"not counted: {'; '.join(content['excludes'])}")
    if content["assumed"]:
        page.line(f"assumed: {'; '.join(content['assumed'])}")
    page.notes(content["deviations"], "yellow")
    return page.text()


_NOISE = "noise: "


def format_measured(verdict: Sequence[str], models: Sequence[str], content: Entry, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/measured/1``: what was measured, its uncertainty, the files, and the next command."""
    page, sure = Page(screen), [note for note in content["notes"] if note.startswith(_NOISE)]
    page.lines(note for note in content["notes"] if note not in (*verdict, *sure))
    page.heading(f"measured: {verdict[0]}", "")
    page.lines(f"how sure: {note[len(_NOISE) :]}" for note in sure)
    enough = content["enough_share"]
    for one in content["shares"]:
        rests = f"{one['timed_share']:.1%} of the predicted step of {one['of']} is based on timings"
        if one["of"] not in models:
            rests = f"{one['timed_share']:.1%} of the {one['of']} are timed, or between timed ones"
        page.line(rests if one["timed_share"] >= enough else f"{rests}: too little, {enough:.0%} is required")
    if not models:
        page.line("--for MODEL times the ops of a model")
    page.line(f"Written: {', '.join(content['files'])}")
    interrupted = content["ended"] == "interrupted"
    if content["resume"] and (interrupted or not content["sufficient"]):
        page.line(f"{'interrupted; ' * interrupted}to continue: {content['resume']}")
    else:
        model = models[0] if models else "resnet50"
        page.line(f"Next: fomkit estimate {quote(model)} --target {quote(content['files'][0])}")
    return page.text()
