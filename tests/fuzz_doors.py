"""The entry points (doors) for foreign files, each with valid files, their changes, and a function that uses one.

`attempt` uses a file, which is accepted, or refused by one `FomkitError`; any other error or warning is a failure.
`DOORS` is the registry; a new door is a line of it.
"""

from __future__ import annotations

import gzip
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import fuzz_seeds as seeds
from hostile_files import (
    Change,
    bytes_changed,
    cells_changed,
    columns_changed,
    database_changed,
    json_changed,
    numbers_changed,
    packed,
    part_changed,
    text_changed,
    wire_changed,
    yaml_changed,
)

import fomkit.verbs  # noqa: F401 - its views show what the doors give
from fomkit.bench.journal import Journal
from fomkit.core.errors import FomkitError
from fomkit.files.op_csv import format_as_given, read_numbered_table
from fomkit.merit.campaign import run_campaign
from fomkit.merit.footprint import Grid
from fomkit.merit.suites import run_suite
from fomkit.ops.resize import sizes_used
from fomkit.output.decisions import format_review
from fomkit.output.machines import format_memory
from fomkit.output.money import format_campaign
from fomkit.output.suites import format_suite
from fomkit.plan.estimate import estimate
from fomkit.plan.op_tables import predict_ops, timeline_content
from fomkit.plan.options import Options
from fomkit.plan.run import epochs_at
from fomkit.plan.scaling import ScalingSpec, scale, with_user_links
from fomkit.profiles.campaigns import load_campaign, load_epochs
from fomkit.profiles.declared import load_layout
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, load_recipe, save_model
from fomkit.profiles.suites import load_suite
from fomkit.readers.measurements import import_measurements, import_meter, read_measurements
from fomkit.readers.records import format_benchmarker
from fomkit.readers.registry import as_machine, choose_import, import_model, read_timings
from fomkit.verbs.machine_view import memory_content
from fomkit.verbs.scaling import scaling_content
from fomkit.verbs.suite_content import campaigns_content, suite_content
from fomkit.workbook.review import review, review_content

LIMIT_S = 60
"""Limit on the processor time of a file [s], far above the time of any valid file."""
WAIT_S = 900
"""Limit on the wall time of a file [s], for readers that wait for ever."""
ROOT = Path(__file__).resolve().parent.parent
known_machine, known_model = cache(load_machine), cache(load_model)


def use_machine(path: Path) -> None:
    machine = load_machine(path)
    again = load_machine(save_machine(machine, path.with_name("saved.yaml"))[0])
    assert (again.device, again.links, again.overheads) == (machine.device, machine.links, machine.overheads)
    assert (again.name, again.title, again.notes) == (machine.name, machine.title, machine.notes)
    assert again.price == machine.price
    estimate(known_model(path.with_name("digits.yaml")), machine, Options(allow_uncovered=True)).summary()


def use_fits(path: Path) -> None:
    path.rename(path.with_name("example-gpu.fits.json"))
    machine = load_machine(path.with_name("example-gpu.yaml"))
    estimate(known_model(path.with_name("digits.yaml")), machine, Options(allow_uncovered=True)).summary()


def use_model(path: Path) -> None:
    model = load_model(path)
    again = load_model(save_model(model, path.with_name("saved.yaml"))[0])
    assert (again.name, again.title, again.notes, again.data, again.run, again.unit) == (
        model.name, model.title, model.notes, model.data, model.run, model.unit,
    )  # fmt: skip
    machine = known_machine(path.with_name("example-gpu.yaml"))
    estimate(model, machine, Options(allow_uncovered=True)).summary()


def use_own_table(table: str) -> Callable[[Path], None]:
    """Return a function that uses a file as one of p1b2's tables: ops, order or layers."""

    def use(path: Path) -> None:
        where = path.with_name("own.yaml")
        document = seeds.shipped("candle/p1b2.yaml").decode()
        for name in ("ops", "order", "layers"):
            given = path.name if name == table else f"p1b2.{name}.csv"
            document = re.sub(rf"(?m)^{name}: .*", f"{name}: {given}", document)
        where.write_text(document, encoding="utf-8")
        model, machine = load_model(where), known_machine("titan")
        format_memory(memory_content(model, Options(allow_uncovered=True), machine))
        timeline_content(model, machine, Options(allow_uncovered=True))

    return use


def use_suite(path: Path) -> None:
    ran = run_suite(load_suite(path), known_machine("a"), known_machine("titan"), Options(), known_model)
    format_suite(suite_content(ran))


def use_campaign(path: Path) -> None:
    found = run_campaign(load_campaign(path), known_machine("titan"), Options(), None, known_model, load_suite)
    format_campaign(campaigns_content([found], Grid()))


def use_epochs(path: Path) -> None:
    curve = load_epochs(path)
    assert list(curve.epochs) == sorted(curve.epochs)
    first, last = min(curve.epochs), max(curve.epochs)
    assert epochs_at(curve, (first + last) // 2, 0.8).value > 0


def use_layout(path: Path) -> None:
    layout, links = load_layout(path)
    machine = with_user_links(known_machine(path.with_name("matrix.yaml")), links, 4)
    split = layout.fewest_devices > 1
    model = load_recipe(path.with_name("small.yaml")) if split else known_model("p1b2")
    scaling_content(scale(model, machine, ScalingSpec([1, 2, 4], layout, options=Options(allow_uncovered=True))))


def use_recipe(path: Path) -> None:
    estimate(
        load_recipe(path), known_machine(path.with_name("matrix.yaml")), Options(allow_uncovered=True)
    ).summary()


def use_measured(path: Path) -> None:
    for row in read_measurements(path):
        assert row.value > 0


def use_journal(path: Path) -> None:
    Journal(path, seeds.ABOUT).resume()


def use_ops(path: Path) -> None:
    table = read_numbered_table(path, "TIMED", keep=())
    machine = known_machine(path.with_name("example-gpu.yaml"))
    found = predict_ops(table, with_fits(machine), sizes=dict.fromkeys(sizes_used(table), 8), where=str(path))
    found.summary()
    again = path.with_name("again.csv")
    again.write_text(format_as_given(found.ops, "TIMED"), encoding="utf-8")
    second = predict_ops(read_numbered_table(again, "TIMED", keep=tuple(table.columns)), with_fits(machine))
    assert format_as_given(second.ops, "TIMED") == again.read_text(encoding="utf-8")


def use_import(path: Path) -> None:
    path.with_name("log.tsv").write_text(seeds.ENTRY_AND_LOG[1], encoding="utf-8")
    chosen, product = choose_import(path, None, None)
    saved = path.with_name("saved.yaml")
    if product == "measurements":
        what = {"model": "m", "machine": "x"}
        found: Any = import_meter(path, **what) if chosen == "meter" else import_measurements(path, chosen, **what)
        assert len(found.table)
    elif product == "model":
        use_import_of_onnx(path) if chosen == "onnx" else load_model(save_model(_model_of(path, chosen), saved)[0])
    else:
        machine = as_machine(read_timings(path, chosen), "m")
        again = load_machine(save_machine(machine, saved)[0])
        assert again.timings["time_s"].tolist() == machine.timings["time_s"].tolist()
        ops = read_numbered_table(path.with_name("digits.ops.csv"), "OPS")
        predict_ops(ops, with_fits(again), sizes={"batch": 8}).summary()


def _model_of(path: Path, chosen: str) -> Any:
    return import_model(path, file_format=chosen, sizes={"batch": 8})[0]


def use_import_of_onnx(path: Path) -> None:
    """Run the child process's work in this process, because the child would hide unexpected errors."""
    from fomkit.frontends.drafting import Request
    from fomkit.frontends.onnx.profile import draft_profile

    request = Request("m", str(path), "train", {"batch": 8})
    draft_profile(path, request, None, {"train_samples": None, "epochs": None})


def use_exported_record(path: Path) -> None:
    """Import a record and write it back in its own format."""
    use_import(path)
    table = import_measurements(path, choose_import(path, None, None)[0]).table
    rows = path.with_name("rows.csv")
    rows.write_text(format_as_given(table, "MEASUREMENTS"), encoding="utf-8")
    format_benchmarker(read_measurements(rows))


def use_review(path: Path) -> None:
    content = review_content(review(path, path.with_name("issued.xlsx")))
    assert format_review(content)
    if content["together"]:
        assert content["changes"]


def furnish(folder: Path) -> None:
    """Write the files that the doors' files refer to into a folder."""
    for name, text in {"example-gpu.yaml": seeds.MACHINE, "digits.yaml": seeds.MODEL, "digits.ops.csv": seeds.OPS,
                       "example-gpu.timings.csv": seeds.TIMINGS, "small.yaml": seeds.RECIPE,
                       "matrix.yaml": seeds.MATRIX}.items():  # fmt: skip
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("ops", "order", "layers"):
        packed_too = ".gz" if name == "order" else ""
        (folder / f"p1b2.{name}.csv").write_bytes(seeds.shipped(f"candle/p1b2.{name}.csv{packed_too}"))
    seeds.issued(folder)


Seed = bytes | str | Callable[[Path], bytes]


@dataclass(frozen=True)
class Door:
    """An entry point: its valid files, their changes, the name of the file, and the function that uses it.

    Attributes
    ----------
    share : int
        Relative frequency of the door: its share over the sum of all shares.
    """

    seeds: tuple[Seed, ...]
    changes: tuple[Change, ...]
    name: str
    use: Callable[[Path], object]
    share: int = 10

    def contents(self, folder: Path) -> tuple[bytes, ...]:
        """Return the contents of the valid files."""
        made = (seed(folder) if callable(seed) else seed for seed in self.seeds)
        return tuple(one.encode() if isinstance(one, str) else one for one in made)


YAML = (text_changed(":,{}"), numbers_changed, yaml_changed)
CSV = (text_changed(","), numbers_changed, columns_changed)
TEXT = (text_changed(" \t,|:"), numbers_changed)
JSON = (json_changed, text_changed(":,{}"), bytes_changed)


def _trace_changed(rng: Random, content: bytes) -> bytes:
    return packed(json_changed)(rng, content) if content[:2] == b"\x1f\x8b" else rng.choice(JSON)(rng, content)


DOORS: dict[str, Door] = {
    "machine": Door((seeds.MACHINE, seeds.PRICED, seeds.MATRIX), YAML, "machine.yaml", use_machine, 20),
    "model": Door((seeds.MODEL,), YAML, "model.yaml", use_model, 15),
    "suite": Door(seeds.SUITES, YAML, "x.suite.yaml", use_suite, 20),
    "campaign": Door((seeds.CAMPAIGN,), YAML, "x.campaign.yaml", use_campaign),
    "layout": Door((seeds.LAYOUT, seeds.SPLIT), YAML, "layout.yaml", use_layout),
    "recipe": Door((seeds.RECIPE,), YAML, "recipe.yaml", use_recipe),
    "fits": Door((seeds.fits,), JSON, "x.fits.json", use_fits),
    "epochs": Door((seeds.EPOCHS,), CSV, "epochs.csv", use_epochs, 5),
    "measurements": Door((seeds.MEASURED,), CSV, "measured.csv", use_measured),
    "ops": Door((seeds.OPS, seeds.CONV), CSV, "x.csv", use_ops, 20),
    "ops of a model": Door((seeds.shipped("candle/p1b2.ops.csv"),), CSV, "x.ops.csv", use_own_table("ops")),
    "order": Door((seeds.shipped("candle/p1b2.order.csv.gz"),), CSV, "x.order.csv", use_own_table("order")),
    "layers": Door((seeds.shipped("candle/p1b2.layers.csv"),), CSV, "x.layers.csv", use_own_table("layers")),
    "imported tables": Door((seeds.TIMINGS, seeds.KERNELS, seeds.OPS), CSV, "x.csv", use_import, 20),
    "packed tables": Door(
        tuple(gzip.compress(one.encode(), mtime=0) for one in (seeds.TIMINGS, seeds.OPS)), tuple(map(packed, CSV)),
        "x.csv.gz", use_import, 5,
    ),
    "bytes of text": Door((seeds.TIMINGS, seeds.OPS), (bytes_changed,), "x.any", use_import, 5),
    "bytes of profiles": Door((seeds.MACHINE, seeds.PRICED), (bytes_changed,), "x.yaml", use_machine, 5),
    "DeepBench": Door((seeds.BOOK,), (cells_changed, part_changed, bytes_changed), "x.xlsx", use_import, 20),
    "network logs": Door(seeds.NETWORK, TEXT, "x.log", use_import, 20),
    "NeuSight": Door((seeds.NEUSIGHT,), CSV, "kernels.csv", use_import),
    "aiconfigurator": Door(seeds.AICONFIGURATOR, CSV, "x.csv", use_import),
    "Kineto": Door((seeds.TRACE, gzip.compress(seeds.TRACE)), (_trace_changed,), "trace.json", use_import),
    "xplane": Door((seeds.planes,), (wire_changed, wire_changed, bytes_changed), "x.xplane.pb", use_import),
    "Nsight": Door((seeds.exported,), (database_changed, database_changed, bytes_changed), "x.sqlite", use_import),
    "tfprof": Door((seeds.TFPROF,), TEXT, "printed.txt", use_import),
    "ONNX": Door((seeds.ONNX,), (wire_changed, wire_changed, bytes_changed), "x.onnx", use_import_of_onnx, 15),
    "benchmarker": Door(seeds.RECORDS, JSON, "record.json", use_exported_record),
    "DAWNBench": Door((seeds.ENTRY_AND_LOG[0],), JSON, "log.json", use_import, 5),
    "MLPerf": Door((seeds.MLPERF,), (text_changed(':,{}"'),), "x.log", use_import),
    "meter": Door(seeds.METERS, CSV, "meter.csv", use_import),
    "journal": Door((seeds.MEASURING,), (text_changed(":,{}"),), "x.measuring.jsonl", use_journal, 5),
    "workbook": Door((seeds.issued,), (cells_changed, part_changed, part_changed), "returned.xlsx", use_review, 8),
}  # fmt: skip


class TookTooLongError(Exception):
    """A file exceeded the time limit of its reader."""


@contextmanager
def limited() -> Iterator[None]:
    """Limit the processor time of the block, which other programs do not lengthen, and its wall time."""

    def stop(*_: object) -> None:
        raise TookTooLongError(f"more than {LIMIT_S} s of work, or {WAIT_S} s of waiting")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, LIMIT_S), signal.SIGALRM: (signal.ITIMER_REAL, WAIT_S)}
    before = {number: signal.signal(number, stop) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def check_error_text(error: FomkitError) -> None:
    """Check that each line of a message is printable, names a place, ends as a sentence, and is not too long."""
    for line in str(error).split("\n"):
        assert line.isprintable(), repr(line)
        assert ": " in line, line
        assert line.rstrip("'").endswith((".", ")", ",…")), line
        assert len(line) < 1500, line


def attempt(path: Path, content: bytes, use: Callable[[Path], object]) -> bool:
    """Write ``content`` to ``path`` and use it; return whether it was accepted."""
    path.write_bytes(content)
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("error")
            use(path)
    except FomkitError as error:
        check_error_text(error)
        return False
    return True


class Case:
    """One changed file of a door, always the same for a number."""

    def __init__(self, door: str, number: int, folder: Path) -> None:
        self.door, self.number = door, number
        rng, kind = Random(f"{door} {number}"), DOORS[door]
        self.content = rng.choice(_contents(door, folder))
        self.content = rng.choice(kind.changes)(rng, self.content)
        if rng.random() < 0.25:
            # After one change the file may no longer be of its format, so errors of the second one are ignored.
            with suppress(Exception), warnings.catch_warnings(action="ignore"):
                self.content = rng.choice(kind.changes)(rng, self.content)
        self.path = folder / kind.name

    def run(self) -> bool:
        """Use the file; return whether it was accepted."""
        return attempt(self.path, self.content, DOORS[self.door].use)


@cache
def _contents(door: str, folder: Path) -> tuple[bytes, ...]:
    return DOORS[door].contents(folder)


def shares(total: int) -> dict[str, int]:
    """Return how many of ``total`` files each door gets, at least one."""
    every = sum(door.share for door in DOORS.values())
    return {name: max(1, round(total * door.share / every)) for name, door in DOORS.items()}
