"""Frozen numbers: what costs, predictions, plans and figures of merit are now, in tables that a change must name.

``frozen/ops.csv`` holds what each op of `frozen_ops` costs, ``frozen/times/`` what it takes on each of `MACHINES`,
``frozen/figures/`` what is answered to each question of `frozen_figures`. Numbers may differ by a billionth.

    python tests/golden/frozen.py            # compare, and print the rows that differ
    python tests/golden/frozen.py --write    # keep what is so now
"""

from __future__ import annotations

import csv
import io
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDER = HERE / "frozen"
OPS, TIMES, FIGURES = "ops", "times", "figures"
MACHINES: Mapping[str, str] = {
    "v100": "products, convolutions and recurrent layers in two formats",
    "p4": "thousands of products, convolutions and ops of memory, in fp32",
    "h100-sxm": "attention, mixtures, narrow formats, collectives",
    "mi25": "AMD; products, convolutions and recurrent layers in fp32",
    "x86-lecture": "a processor with 27 timings",
    "raspberry-pi-3": "a processor with 37 timings, of whole and sparse numbers",
    "knl-7250": "a many-core processor with its exchanges",
    "l4": "facts only; NVIDIA",
    "mi300x": "facts only; AMD",
    "tpu-v5e": "facts only; no vector rate",
    "epyc-9755": "facts only; a processor",
    "v100 changed": "v100 with other rates, as nobody built it",
}
"""Machines, each with what is known of it."""
CHANGED = {"bandwidth": "1.2 TB/s", "launch": "2 us", "flop_per_s/fp32/vector": "30 TFLOP/s"}
EVERY: Mapping[str, int] = {
    "x86-lecture": 2,
    "p4": 2,
    "l4": 3,
    "mi300x": 3,
    "raspberry-pi-3": 2,
    "mi25": 2,
    "knl-7250": 2,
    "tpu-v5e": 2,
    "epyc-9755": 4,
    "v100 changed": 4,
}
"""Which of the ops are asked for where others show most already: every second, third, fourth."""
LEVEL: Mapping[str, float] = {"l4": 0.5, "mi25": 0.95}
"""Of the intervals, where it is not the usual one."""
LOOSE: Mapping[str, float] = {"times/x86-lecture": 1e-3, "figures/fits": 1e-2}
"""Tolerance of what is fitted anew: where an optimizer stops, hangs on the rounding of the processor."""
REWRITE = "python tests/golden/frozen.py --write"
MOST_SHOWN = 12
"""Rows that a message names."""
MOST_PARTS, LONG = 8, 24
"""Parts of a list that are kept; length of a text that is kept once."""
LEFT_OUT = {"fomkit", "interval_covers", "title", "schema", "party"}
"""Parts of answers that say what they are rather than what comes out."""
CONDITIONS, WITH_CONDITIONS = "conditions", ("estimate alexnet", "job alexnet")
"""The part of an answer that says what it varies with, and the questions where that is kept."""
Row = tuple[str, ...]
Table = list[Row]


def _number(value: object) -> str:
    return "" if value is None or value != value else f"{value:.10g}"


def costs() -> Table:
    """Give what each op costs."""
    from golden.frozen_ops import ops

    from fomkit.ops.pricing import add_costs

    table, said = ops()
    columns = ["flop", "byte", "launches", "least_flop"]
    cells = add_costs(table.reset_index(drop=True))[columns].to_numpy().tolist()
    head: Row = ("op", "what", "flop [flop]", "byte [byte]", "launches", "least flop [flop]")
    rows = zip(table.index, said, cells, strict=True)
    return [head, *((str(name), what, *map(_number, numbers)) for name, what, numbers in rows)]


def times(machine: str) -> Table:
    """Give what each op that has a time takes on a machine, and of the first of each sort what that rests on."""
    from golden.frozen_ops import ops

    from fomkit.plan.op_tables import predict_ops
    from fomkit.profiles.evidence import with_fits
    from fomkit.profiles.machines import load_machine

    table = ops()[0].iloc[int(machine == "mi300x") :: EVERY.get(machine, 1)]
    name, _, changed = machine.partition(" ")
    known = load_machine(name).with_(CHANGED) if changed else load_machine(name)
    level = LEVEL.get(machine, 0.8)
    found = predict_ops(table.reset_index(drop=True), with_fits(known), interval=level).ops
    names = ["time_s", "low_s", "high_s"]
    texts = found[["time_source", "bound", "evidence"]].fillna("").astype(str).to_numpy().tolist()
    seen, rows = set[tuple[str, ...]](), []
    for name, numbers, (source, bound, evidence) in zip(
        table.index, found[names].to_numpy().tolist(), texts, strict=True
    ):
        if not source:
            continue
        sort = (name.partition(" ")[0], source)
        rows.append((name, *map(_number, numbers), source, bound, "" if sort in seen else evidence))
        seen.add(sort)
    return [("op", "time [s]", "low [s]", "high [s]", "source", "bound", "evidence"), *rows]


def _one(content: Mapping[str, object]) -> str | None:
    """Write a number with its ends, or with what else is said beside it, as one; None of anything else."""
    if content.keys() != {"value", "low", "high"} or isinstance(content["value"], str):
        return None
    value, low, high = (_number(content[name]) for name in ("value", "low", "high"))
    return f"{value} ({low} … {high})"


def flat(content: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Walk over the leaves of plain content, each with its path; of a long list but one of numbers over some."""
    if isinstance(content, Mapping):
        if (whole := _one(content)) is not None:
            yield path, whole
            return
        for name, one in content.items():
            yield from flat(one, f"{path}.{name}" if path else str(name))
    elif isinstance(content, list) and all(type(one) is float for one in content):
        yield path, " ".join(map(_number, content))
    elif isinstance(content, Sequence) and not isinstance(content, str):
        for place in range(0, len(content), -(-len(content) // MOST_PARTS) or 1):
            yield from flat(content[place], f"{path}[{place}]")
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield path, _number(content)
    else:
        yield path, "" if content is None else str(content)


def figures(name: str) -> Table:
    """Give the figures of one question, and of the texts in its answer each once."""
    from golden.corpus import masked
    from golden.frozen_figures import QUESTIONS

    left_out = LEFT_OUT if name in WITH_CONDITIONS else {*LEFT_OUT, CONDITIONS}
    found, seen = list[Row](), set[str]()
    for path, value in flat(QUESTIONS[name]()):
        if value not in seen and not (left_out & set(path.split("."))):
            found.append((path, masked(value, ROOT)))
        if len(value) > LONG:
            seen.add(value)
    return [("figure", "value"), *found]


def written(rows: Table) -> str:
    """Write rows as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def kept(name: str) -> Table:
    """Read what is kept of a table."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def differences(name: str, old: Table, new: Table) -> list[str]:
    """List the rows of a table that differ, as they were and as they are."""
    from golden.corpus import TOLERANCE, same

    alike = partial(same, tolerance=LOOSE.get(name, TOLERANCE))
    return [
        f"- {','.join(before)}\n+ {','.join(now)}"
        for before, now in zip_longest(old, new, fillvalue=())
        if len(before) != len(now) or not all(map(alike, before, now))
    ]


def message(name: str, changed: Sequence[str]) -> str:
    """Say which rows of a table changed, and what keeps them."""
    more = [f"and {len(changed) - MOST_SHOWN:,} more"] * (len(changed) > MOST_SHOWN)
    head = f"{len(changed):,} rows of tests/golden/frozen/{name}.csv differ. If they are meant to: {REWRITE}"
    return "\n".join([head, *changed[:MOST_SHOWN], *more])


def tables() -> Iterator[tuple[str, Table]]:
    """Make all tables, each by its name."""
    from golden.frozen_figures import QUESTIONS
    from read_once import profiles_are_read_once

    with profiles_are_read_once():
        yield OPS, costs()
        for machine in MACHINES:
            yield f"{TIMES}/{machine}", times(machine)
        for name in QUESTIONS:
            yield f"{FIGURES}/{name}", figures(name)


def write() -> None:
    """Keep what is so now, and nothing else."""
    made = list(tables())
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name, rows in made:
        path = FOLDER / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(written(rows), encoding="utf-8")


def main() -> int:
    """Compare or write; 1 where something differs."""
    if "--write" in sys.argv:
        write()
        return 0
    changed = {name: differences(name, kept(name), rows) for name, rows in tables()}
    told = [message(name, rows) for name, rows in changed.items() if rows]
    sys.stdout.write("".join(f"{one}\n" for one in told))
    return int(bool(told))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(HERE.parent)]
    sys.exit(main())
