"""Frozen numbers: stored tables of costs, predictions, plans and figures of merit, which detect every change.

``frozen/ops.csv`` has the cost of each op of `frozen_ops`, ``frozen/times/`` its time on each of `MACHINES`,
``frozen/figures/`` the answer to each question of `frozen_figures`. Numbers may differ by a billionth.

    python tests/golden/frozen.py            # compare, and print the rows that differ
    python tests/golden/frozen.py --write    # store the present numbers
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
"""Machines, each with the evidence that it has."""
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
"""Stride over the ops on machines that add little to the others: every second, third or fourth op."""
LEVEL: Mapping[str, float] = {"l4": 0.5, "mi25": 0.95}
"""Level of the intervals, if not the default."""
LOOSE: Mapping[str, float] = {"times/x86-lecture": 1e-3, "figures/fits": 1e-2}
"""Tolerance of refitted tables: the point where an optimizer stops depends on the processor's rounding."""
REWRITE = "python tests/golden/frozen.py --write"
MOST_SHOWN = 12
"""Largest number of rows in a message."""
MOST_PARTS, LONG = 8, 24
"""Number of parts of a list that are stored; length of a text from which repetitions are not stored."""
LEFT_OUT = {"fomkit", "interval_covers", "title", "schema", "party"}
"""Parts of answers that describe the answer and are not results."""
CONDITIONS, WITH_CONDITIONS = "conditions", ("estimate alexnet", "job alexnet")
"""The part of an answer that states its conditions, and the questions for which it is stored."""
Row = tuple[str, ...]
Table = list[Row]


def _number(value: object) -> str:
    return "" if value is None or value != value else f"{value:.10g}"


def costs() -> Table:
    """Return the table of the cost of each op."""
    from golden.frozen_ops import ops

    from fomkit.ops.pricing import add_costs

    table, said = ops()
    columns = ["flop", "byte", "launches", "least_flop"]
    cells = add_costs(table.reset_index(drop=True))[columns].to_numpy().tolist()
    head: Row = ("op", "what", "flop [flop]", "byte [byte]", "launches", "least flop [flop]")
    rows = zip(table.index, said, cells, strict=True)
    return [head, *((str(name), what, *map(_number, numbers)) for name, what, numbers in rows)]


def times(machine: str) -> Table:
    """Return the times of ops on a machine, with the evidence of the first op of each kind and time source."""
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
    """Return a value with its interval as one text; None for any other content."""
    if content.keys() != {"value", "low", "high"} or isinstance(content["value"], str):
        return None
    value, low, high = (_number(content[name]) for name in ("value", "low", "high"))
    return f"{value} ({low} … {high})"


def flat(content: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of plain content with their paths; a list of floats is one leaf, others are thinned."""
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
    """Return the figures of one question; each long text of its answer is listed once."""
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
    """Return rows as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def kept(name: str) -> Table:
    """Read the stored table of a name."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def differences(name: str, old: Table, new: Table) -> list[str]:
    """Return the rows of a table that differ, old and new."""
    from golden.corpus import TOLERANCE, same

    alike = partial(same, tolerance=LOOSE.get(name, TOLERANCE))
    return [
        f"- {','.join(before)}\n+ {','.join(now)}"
        for before, now in zip_longest(old, new, fillvalue=())
        if len(before) != len(now) or not all(map(alike, before, now))
    ]


def message(name: str, changed: Sequence[str]) -> str:
    """Return a message with the changed rows of a table, and the command that stores them."""
    more = [f"and {len(changed) - MOST_SHOWN:,} more"] * (len(changed) > MOST_SHOWN)
    head = f"{len(changed):,} rows of tests/golden/frozen/{name}.csv differ. If they are meant to: {REWRITE}"
    return "\n".join([head, *changed[:MOST_SHOWN], *more])


def tables() -> Iterator[tuple[str, Table]]:
    """Yield all tables with their names."""
    from golden.frozen_figures import QUESTIONS
    from read_once import profiles_are_read_once

    with profiles_are_read_once():
        yield OPS, costs()
        for machine in MACHINES:
            yield f"{TIMES}/{machine}", times(machine)
        for name in QUESTIONS:
            yield f"{FIGURES}/{name}", figures(name)


def write() -> None:
    """Replace all stored tables by the present ones."""
    made = list(tables())
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name, rows in made:
        path = FOLDER / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(written(rows), encoding="utf-8")


def main() -> int:
    """Compare or write; return 1 if something differs."""
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
