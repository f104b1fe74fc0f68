"""Pages of docs/ made from the program: ``python docs/generate.py api`` (or commands, glossary, metrics).

``python docs/generate.py schemas`` writes docs/schema/: JSON Schema of our YAML files, from the records that
check them, and of each verb's JSON, from the type of what makes it, else from its literal dicts; what a figure is
says the table of metrics. Other keys may come.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import VERBS, app
from fomkit.core.errors import Shown
from fomkit.files.write import write_whole
from fomkit.merit.measured_steps import Merit
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import TABLES
from fomkit.output.files import to_json
from fomkit.output.screen import Entry
from fomkit.plan.content import Ends
from fomkit.profiles.campaigns import CampaignFileRecord
from fomkit.profiles.declared import LayoutRecord, RecipeRecord
from fomkit.profiles.machine_record import MachineRecord
from fomkit.profiles.metrics import DEEP500, METRICS, Metric
from fomkit.profiles.records import ModelRecord, Record
from fomkit.profiles.suites import SuiteRecord
from fomkit.verbs.from_measurements import MeasuredWays

WIDTH = 110
RETURNED = (
    "fomkit.plan.estimate.Estimate", "fomkit.verbs.compare.Comparison", "fomkit.merit.suites.SuiteResult",
    "fomkit.merit.suites.SuiteResults",
    "fomkit.plan.op_tables.Prediction", "fomkit.whatif.advise.Advice", "fomkit.verbs.answer.Answer",
    "fomkit.workbook.review.Review", "fomkit.verbs.cost.Cost",
    "fomkit.readers.measurements.ImportedMeasurements", "fomkit.bench.run.Measured",
    "fomkit.bench.network.NetworkMeasured", "fomkit.bench.input_rate.InputMeasured", "fomkit.core.interval.Span",
    "fomkit.core.machine.Machine", "fomkit.core.model.ModelProfile", "fomkit.core.model.Workload",
    "fomkit.core.job.Conditions",
)  # fmt: skip
"""What functions give and take besides plain values."""


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], bar: str = "\\|") -> Iterator[str]:
    """Write a table; ``bar`` is how a bar inside a cell stands in it."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', bar) for cell in row)} |"


def fill_page(name: str, **parts: Iterable[str]) -> str:
    """Make a page of docs/ of its template and the lines of its parts."""
    template = Path(__file__).with_name("templates") / f"{name}.md"
    return template.read_text(encoding="utf-8").format(**{of: "\n".join(lines) for of, lines in parts.items()})


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def columns_by_name() -> Mapping[str, Mapping[tuple[str, str], list[str]]]:
    """Give each column's name with its units and meanings, and for each of them the tables that have it so."""
    found: dict[str, dict[tuple[str, str], list[str]]] = {}
    for table, columns in TABLES.items():
        for column in columns:
            found.setdefault(column.name, {}).setdefault((column.unit, column.doc), []).append(table)
    return dict(sorted(found.items()))


def glossary_page() -> str:
    """Give docs/glossary.md."""
    columns = (
        (f"`{name}`", unit or "–", doc, ", ".join(tables))
        for name, meanings in columns_by_name().items()
        for (unit, doc), tables in meanings.items()
    )
    kinds = ((f"`{name}`", _code(kind.dimensions), _code(kind.optional)) for name, kind in KINDS.items())
    headings = (
        (metric.title, f"`{metric.name}`", metric.unit, metric.doc)
        for metric in sorted(METRICS, key=lambda metric: (metric.title.lower(), metric.name))
    )
    return fill_page(
        "glossary", columns=_markdown_table(("column", "unit", "meaning", "tables"), columns),
        kinds=_markdown_table(("kind", "needs", "may have"), kinds),
        headings=_markdown_table(("heading", "figure", "unit", "meaning"), headings),
    )  # fmt: skip


def metrics_page() -> str:
    """Give docs/metrics.md."""
    header = ("figure", "unit", "level", "better", "mean", "by", "keys", "what")
    metrics = (
        (f"`{one.name}`", one.unit, one.level, one.better, one.mean, _code(one.by.split()), one.keyed, one.doc)
        for one in METRICS
    )
    peers = ((one.column, one.what, _code(one.ours) or f"absent: {one.absent}") for one in DEEP500)
    tables = _markdown_table(header, metrics, bar="|"), _markdown_table(("column", "what", "here"), peers)
    return fill_page("metrics", metrics=tables[0], compared=tables[1])


def first_line(of: object) -> str:
    """Give the first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(of) or "").partition("\n\n")[0].split())


def _parameter(parameter: inspect.Parameter) -> str:
    text = (
        parameter.name if parameter.annotation is parameter.empty else f"{parameter.name}: {parameter.annotation}"
    )
    if parameter.default is parameter.empty:
        return text
    shown = (
        parameter.default.__name__ if callable(parameter.default) else repr(parameter.default).replace("'", '"')
    )
    return f"{text} = {shown}"


def signature_text(name: str, function: Callable[..., Any]) -> str:
    """Write a signature on one line where it fits, else one parameter a line."""
    found = inspect.signature(function)
    parts: list[str] = []
    for parameter in found.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        if parameter.name != "self":
            parts.append("**" * (parameter.kind is parameter.VAR_KEYWORD) + _parameter(parameter))
    whole = f"{name}({', '.join(parts)}) -> {found.return_annotation}"
    if len(whole) <= WIDTH:
        return whole
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{name}(\n{lines}) -> {found.return_annotation}"


def _functions() -> Iterator[str]:
    modules = dict.fromkeys(
        value.__module__ for name in fomkit.__all__ if inspect.isfunction(value := getattr(fomkit, name))
    )
    for module in sorted(modules):
        yield f"\n## {first_line(import_module(module))}"
        for name in fomkit.__all__:
            value = getattr(fomkit, name)
            if inspect.isfunction(value) and value.__module__ == module:
                yield f"\n{first_line(value)}\n\n```python\n{signature_text(f'fomkit.{name}', value)}\n```"


def _members(kind: type) -> Iterator[str]:
    """Give the fields of a dataclass, then its properties and methods, how it is shown last."""
    for field in fields(kind):
        yield f"{field.name}: {field.type}"
    for name, value in {**vars(kind), **(vars(Shown) if issubclass(kind, Shown) else {}), **vars(kind)}.items():
        if name.startswith("_"):
            continue
        get = value.func if isinstance(value, cached_property) else getattr(value, "fget", None)
        if get is not None:
            yield f"{name}: {inspect.signature(get).return_annotation}  # {first_line(value)}"
        elif inspect.isfunction(value):
            yield f"{signature_text(name, value)}  # {first_line(value)}"


def _classes() -> Iterator[str]:
    for path in RETURNED:
        module, _, name = path.rpartition(".")
        kind = getattr(import_module(module), name)
        members = "\n".join(_members(kind))
        yield f"\n### {name}\n\n{first_line(kind)}\n\n```text\n{members}\n```"


def api_page() -> str:
    """Give docs/api.md."""
    listed = [", ".join(f"`{name}`" for name in fomkit.__all__)]
    return fill_page("api", names=listed, functions=_functions(), classes=_classes())


def help_of(*verb: str) -> str:
    """Give the text of ``--help``, as wide as a page."""
    result = CliRunner(env={"COLUMNS": "110", "TERMINAL_WIDTH": "110"}).invoke(
        app, [*verb, "--help"], prog_name="fomkit"
    )
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


def command_reference() -> str:
    """Write what every verb says of itself."""
    sections = [f"## `fomkit {name}`\n\n```text\n{help_of(name)}\n```\n" for name in sorted(VERBS)]
    return fill_page("commands", help=[f"```text\n{help_of()}\n```\n"], verbs=sections)


def find_metric(path: Sequence[str], verb: str) -> Metric | None:
    """Find what a figure of a verb's JSON is: the metric with the longest name that fits; None where it is none.

    `path`: its place, lists and the ends of a span left out.

    >>> find_metric(["models", "terms", "passes_s", "forward"], "estimate").unit
    's'
    >>> find_metric(["models", "lucky_number"], "estimate")
    """
    fitting = [metric for metric in METRICS if verb in metric.by.split() and _names_place(metric, path)]
    return max(fitting, key=lambda one: one.name.count("."), default=None)


def _names_place(metric: Metric, path: Sequence[str]) -> bool:
    names = metric.name.split(".")
    keys = len(metric.keyed.split(", ")) if metric.keyed else 0
    for depth in range(keys + 1):
        end = list(path[: len(path) - depth])[-len(names) :]
        if len(end) == len(names) and all(a in ("*", b) for a, b in zip(names, end, strict=True)):
            return True
    return False


DRAFT = "https://json-schema.org/draft/2020-12/schema"
FILES: Mapping[str, type[Record]] = {
    "machine": MachineRecord, "model": ModelRecord, "suite": SuiteRecord, "campaign": CampaignFileRecord,
    "layout": LayoutRecord, "transformer": RecipeRecord,
}  # fmt: skip
"""What checks each of our files, by the word of its schema."""
OF_VERB = {"campaign-cost": "campaign", "here": "validate", "grid": "compare", "measured": "measure",
           "formulas": "show", "convolutions": "show", "profiled": "profile", "foms": "fom"}  # fmt: skip
"""The verb whose figures they are, where the JSON has another name."""
CONTENTS: Mapping[str, str] = {
    "accept": "verbs.suite_content:AcceptContent",
    "advise": "whatif.advise:AdviceContent",
    "campaign-cost": "verbs.suite_content:CampaignsContent",
    "compare": "validation.grid:ComparedContent",
    "convolutions": "verbs.convolutions:Convolutions",
    "cost": "verbs.cost:CostContent",
    "estimate": "verbs.compare:Study",
    "explain": "plan.evidence:Explanation",
    "fom": "verbs.suite_content:SuiteContent",
    "foms": "verbs.suite_content:SuitesContent",
    "formulas": "verbs.model_view:Formulas",
    "grid": "validation.grid:GridContent",
    "here": "validation.here:HereContent",
    "measured": "bench.journal:MeasuredContent",
    "memory": "verbs.machine_view:Memory",
    "predict": "plan.op_tables:PredictionContent",
    "profiled": "verbs.profiling:Profiled",
    "review": "workbook.review:ReviewContent",
    "scaling": "verbs.scaling:ScalingContent",
    "sensitivity": "whatif.sensitivity:SensitivityContent",
    "show": "verbs.model_view:ModelContent verbs.machine_view:MachineView verbs.machine_view:Machines "
    "verbs.looks:NamedProfiles output.docs:MetricsContent",
    "solve": "whatif.solve:SolveContent",
    "sweep": "whatif.sweep_result:SweepContent",
    "validate": "validation.validate:ValidationContent",
}
"""What each JSON is, by the word of its schema: the types of its content, after their modules."""
_NUMBER: Entry = {"type": ["number", "null"]}
_ENDS: Entry = {"type": "object", "properties": dict.fromkeys(("value", "low", "high"), _NUMBER)}
_FIGURE: Entry = {
    "description": "A number in SI units, null where unknown; with its ends; or several, by name or in a list.",
    "anyOf": [_NUMBER, _ENDS, {"type": "array"}],
}


_WRITTEN = ("type", "pattern", "minimum", "maximum", "description")


def _shared_quantities(part: Any, shared: dict[str, Any]) -> Any:
    """Replace what says how a quantity is written by a reference to one place that does."""
    if isinstance(part, list):
        return [_shared_quantities(one, shared) for one in part]
    if not isinstance(part, dict):
        return part
    if "pattern" in part:
        shared[part["title"]] = {name: part[name] for name in _WRITTEN if name in part}
        return {"$ref": f"#/$defs/{part['title']}"}
    found = {name: _shared_quantities(one, shared) for name, one in part.items()}
    # pydantic's titles say the name again; a property may be called title too.
    return {name: one for name, one in found.items() if name != "title" or not isinstance(one, str)}


def file_schema(name: str) -> Entry:
    """Give the JSON Schema of one of our YAML files."""
    shared = dict[str, Any]()
    found = _shared_quantities(FILES[name].model_json_schema(), shared)
    found["properties"]["schema"] = {"const": f"fomkit/{name}/1"}
    found["$defs"] = {**found.get("$defs", {}), **shared}
    return {"$schema": DRAFT, "title": f"fomkit/{name}/1", **found}


def _any_of(parts: Sequence[Entry]) -> Entry:
    """Give the schema of what is one of several; {} is anything."""
    distinct = [one for place, one in enumerate(parts) if one not in parts[:place]]
    return {} if not distinct or {} in distinct else distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


def _schema_of_figure(metric: Metric, made: Entry) -> Entry:
    """Say what a figure is; what has the unit of another may be text."""
    if "properties" in made.get("items", {}):  # a list of entries is no figure
        return made
    better = "" if metric.better == "none" else f" {metric.better.capitalize()} is better."
    keyed = f" By {metric.keyed}." if metric.keyed else ""
    mean = "" if metric.mean == "none" else f" The mean over several is {metric.mean}."
    said = f"{metric.doc[:1].upper()}{metric.doc[1:]}.{keyed}{better}{mean}"
    numbers = made if "properties" in made else {} if metric.unit == "mixed" else {"$ref": "#/$defs/figure"}
    return {"title": f"{metric.title} [{metric.unit}]", "description": said, **numbers}


_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_LATER = {"Merit": Merit, "MeasuredWays": MeasuredWays}
"""Types that a module does not import before it needs them."""


def _schema_of_type(kind: Any, path: tuple[str, ...], verb: str) -> Entry:
    """Give the schema of the values of a type at a place of a verb's JSON; {} is anything."""
    if kind is Ends:
        return {"$ref": "#/$defs/ends"}
    of, inner = get_origin(kind), [_schema_of_type(one, path, verb) for one in get_args(kind)]
    if is_typeddict(kind):
        properties = dict[str, Entry]()
        for key, one in get_type_hints(kind, localns=_LATER).items():
            metric, found = find_metric((*path, key), verb), _schema_of_type(one, (*path, key), verb)
            properties[key] = found if metric is None or one is str else _schema_of_figure(metric, found)
        required = [key for key in properties if key in kind.__required_keys__]
        return {"type": "object", "properties": properties, "required": required}
    if of is Literal:
        return {"enum": list(get_args(kind))}
    if of in (Union, UnionType):
        return _any_of(inner)
    if of in (list, tuple):
        return {"type": "array", "items": inner[0]}
    if of in (dict, Mapping):
        return {"type": "object", "additionalProperties": inner[1]}
    return {"type": _PLAIN[kind]} if kind in _PLAIN else {}


def content_schema(name: str) -> Entry:
    """Give the JSON Schema of what a verb prints by ``--json``."""
    verb = OF_VERB.get(name, name)
    found = []
    for place in CONTENTS[name].split():
        room, _, kind = place.partition(":")
        found.append(_schema_of_type(vars(import_module(f"fomkit.{room}"))[kind], (), verb))
        found[-1]["properties"]["schema"] = {"const": f"fomkit/{name}/1"}
    return {
        "$schema": DRAFT,
        "title": f"fomkit/{name}/1",
        **_any_of(found),
        "$defs": {"figure": _FIGURE, "ends": _ENDS},
    }


def schemas() -> Mapping[str, Entry]:
    """Give docs/schema/, by the word of each schema."""
    return {**{name: file_schema(name) for name in FILES}, **{name: content_schema(name) for name in CONTENTS}}


PAGES: Mapping[str, Callable[[], str]] = {
    "api": api_page, "commands": command_reference, "glossary": glossary_page, "metrics": metrics_page
}  # fmt: skip


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if name == "schemas":
            for word, content in schemas().items():
                write_whole(Path(__file__).parent / "schema" / f"{word}.json", to_json(content))
        else:
            print(PAGES[name](), end="")
