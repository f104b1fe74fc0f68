"""Pages of docs/ made from the program: ``python -m fomkit.cli.pages api`` (or commands, glossary, metrics).

``python -m fomkit.cli.pages schemas`` writes docs/schema/: JSON Schema of our YAML files, from the records that
check them, and of each verb's JSON, from the type of what makes it, else from its literal dicts; what a figure is
says the table of metrics. Other keys may come.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints, is_typeddict

from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import VERBS, app, verb_command
from fomkit.core.figure import Metric
from fomkit.core.figure_table import find_metric
from fomkit.files.write import write_whole
from fomkit.merit.measured_steps import Merit
from fomkit.output.files import to_json
from fomkit.output.glossary import glossary_page, metrics_page
from fomkit.output.screen import Entry
from fomkit.plan.content import Ends
from fomkit.plan.transformer_step import RecipeRecord
from fomkit.profiles.campaigns import CampaignFileRecord
from fomkit.profiles.declared import LayoutRecord
from fomkit.profiles.machine_record import MachineRecord
from fomkit.profiles.records import ModelRecord, Record
from fomkit.profiles.suites import SuiteRecord
from fomkit.verbs.from_measurements import MeasuredWays

_PAGE = """# Python

Written by `python -m fomkit.cli.pages api` from the functions themselves; a test compares, so that nothing public
changes unseen. `help(fomkit.estimate)` tells all of a function: arguments with units, errors, an example.

Where a profile is wanted, give its name (`"v100"`), its path, or a loaded one (`fomkit.machine("v100")`). Results
print with `.summary()`; in a notebook most show themselves. A mistake in what you give is a `FomkitError`: where,
what, what was expected, what to do. `import fomkit` loads nothing else; each name loads what it needs.
"""
WIDTH = 110
RETURNED = (
    "fomkit.plan.estimate.Estimate", "fomkit.verbs.compare.Comparison", "fomkit.merit.suites.SuiteResult",
    "fomkit.plan.op_tables.Prediction", "fomkit.whatif.advice.advise.Advice", "fomkit.verbs.answer.Answer",
    "fomkit.workbook.review.Review", "fomkit.verbs.cost.Cost",
    "fomkit.readers.measurements.ImportedMeasurements", "fomkit.bench.run.Measured",
    "fomkit.bench.network.NetworkMeasured", "fomkit.bench.input_rate.InputMeasured", "fomkit.core.interval.Span",
    "fomkit.core.machine.Machine", "fomkit.core.model.ModelProfile", "fomkit.core.model.Workload",
    "fomkit.core.suite.Conditions",
)  # fmt: skip
"""What functions give and take besides plain values."""


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
            parts.append(_parameter(parameter))
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
    """Give the fields of a dataclass, then its properties and methods."""
    for field in fields(kind):
        yield f"{field.name}: {field.type}"
    for name, value in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(value, property) and value.fget is not None:
            yield f"{name}: {inspect.signature(value.fget).return_annotation}  # {first_line(value)}"
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
    listed = ", ".join(f"`{name}`" for name in fomkit.__all__)
    head = f"Public names: {listed}."
    return "\n".join([_PAGE, head, *_functions(), "\n## What comes back", *_classes()]) + "\n"


_INTRODUCTION = """# Commands

Written by `python -m fomkit.cli.pages commands` from the commands themselves; a test compares.

To find a command by the question that it answers: [questions.md](questions.md).

- Exit codes: 0 done; 1 a check failed, or rows of a table have no time; 2 a mistake in the input.
- A file that is there is replaced with `--force` only, and never one that the answer was made of.
- Results go to standard output, messages about them to standard error.
- Colour and progress appear on a terminal only; `NO_COLOR` and `--quiet` turn them off.
- `fomkit --install-completion` lets the shell complete commands, options and names of profiles.
- `fomkit --debug VERB …` shows the traceback of a mistake.
"""


def verbs() -> dict[str, Any]:
    """Give the commands by name."""
    return {name: verb_command(name) for name in VERBS}


def help_of(*verb: str) -> str:
    """Give the text of ``--help``, as wide as a page."""
    result = CliRunner(env={"COLUMNS": "110", "TERMINAL_WIDTH": "110"}).invoke(
        app, [*verb, "--help"], prog_name="fomkit"
    )
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


def command_reference() -> str:
    """Write what every verb says of itself."""
    sections = [f"## `fomkit {name}`\n\n```text\n{help_of(name)}\n```\n" for name in sorted(verbs())]
    return "\n".join([_INTRODUCTION, f"```text\n{help_of()}\n```\n", *sections])


DRAFT = "https://json-schema.org/draft/2020-12/schema"
FILES: Mapping[str, type[Record]] = {
    "machine": MachineRecord, "model": ModelRecord, "suite": SuiteRecord, "campaign": CampaignFileRecord,
    "layout": LayoutRecord, "transformer": RecipeRecord,
}  # fmt: skip
"""What checks each of our files, by the word of its schema."""
OF_VERB = {"campaign-cost": "campaign", "here": "validate", "grid": "compare", "measured": "measure",
           "formulas": "show", "convolutions": "show"}  # fmt: skip
"""The verb whose figures they are, where the JSON has another name."""
_NUMBER: Entry = {"type": ["number", "null"]}
_ENDS: Entry = {"type": "object", "properties": dict.fromkeys(("value", "low", "high"), _NUMBER)}
_FIGURE: Entry = {
    "description": "A number in SI units, null where unknown; with its ends; or several, by name or in a list.",
    "anyOf": [_NUMBER, _ENDS, {"type": "array"}],
}


def _shared_quantities(part: Any, shared: dict[str, Any]) -> Any:
    """Replace what says how a quantity is written by a reference to one place that does."""
    if isinstance(part, list):
        return [_shared_quantities(one, shared) for one in part]
    if not isinstance(part, dict):
        return part
    if "pattern" in part:
        shared[part["title"]] = {name: part[name] for name in ("type", "pattern", "description")}
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


Made: TypeAlias = tuple[str, ast.expr]
"""An expression in the code that makes a part of some JSON, after its module."""


@cache
def _parsed_package() -> Mapping[str, ast.Module]:
    folder = Path(fomkit.__file__).parent
    paths = [path for path in sorted(folder.rglob("*.py")) if "shipped" not in path.parts]
    names = [".".join(path.relative_to(folder.parent).with_suffix("").parts) for path in paths]
    return {name: ast.parse(path.read_text("utf-8")) for name, path in zip(names, paths, strict=True)}


def _typed(module: str, node: ast.expr) -> Any:
    """Give the TypedDict that an expression names; None where it is something else."""
    kind = vars(import_module(module)).get(node.id) if isinstance(node, ast.Name) else None
    return kind if is_typeddict(kind) else None


def _returned_by(module: str, name: str) -> list[Made]:
    """Give what a function may return; nothing where it is none of ours, or it is open which."""
    known = [(where, node) for where, tree in _parsed_package().items() for node in tree.body
             if isinstance(node, ast.FunctionDef) and node.name == name]  # fmt: skip
    here = [one for one in known if one[0] == module] or known
    if len(here) == 1 and here[0][1].returns is not None and _typed(here[0][0], here[0][1].returns):
        return [(here[0][0], here[0][1].returns)]
    inside = list(ast.walk(here[0][1])) if len(here) == 1 else []
    named = {ast.unparse(one.target): one.value for one in inside if isinstance(one, ast.AnnAssign)}
    named |= {ast.unparse(one.targets[0]): one.value for one in inside if isinstance(one, ast.Assign)}
    values = [one.value for one in inside if isinstance(one, ast.Return)]
    return [(here[0][0], named.get(ast.unparse(one)) or one) for one in values if one is not None]


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


def _schema_of(made: Made, path: tuple[str, ...], verb: str) -> Entry:
    """Give the schema of what an expression makes at a place of a verb's JSON; {} is anything."""
    module, node = made

    def inner(*nodes: ast.expr) -> list[Entry]:
        return [_schema_of((module, one), path, verb) for one in nodes]

    if kind := _typed(module, node):
        return _schema_of_type(kind, path, verb)
    if isinstance(node, ast.Dict):
        properties = dict[str, Entry]()
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                place = (*path, str(key.value))
                metric, found = find_metric(place, verb), _schema_of((module, value), place, verb)
                properties[place[-1]] = found if metric is None else _schema_of_figure(metric, found)
        return {"type": "object", "properties": properties, "required": list(properties)}
    if isinstance(node, ast.IfExp):
        return _any_of(inner(node.body, node.orelse))
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return {"type": "array", "items": inner(node.elt)[0]}
    if isinstance(node, ast.List):
        parts = [one.value if isinstance(one, ast.Starred) else one for one in node.elts]
        items = [one.get("items", {}) if isinstance(part, ast.GeneratorExp) else one
                 for part, one in zip(parts, inner(*parts), strict=True)]  # fmt: skip
        return {"type": "array", "items": _any_of(items)}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "list":
            return {"type": "array"}
        return _any_of([_schema_of(one, path, verb) for one in _returned_by(module, node.func.id)])
    return {"type": "null"} if isinstance(node, ast.Constant) and node.value is None else {}


@cache
def _literal_contents() -> Mapping[str, Sequence[Made]]:
    """Give the literal dicts of the code that begin with a schema of ours, by its word."""
    found: dict[str, list[Made]] = {}
    functions = [(module, one) for module, tree in _parsed_package().items() for one in ast.walk(tree)
                 if isinstance(one, ast.FunctionDef)]  # fmt: skip
    for module, function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Dict) and node.keys and ast.unparse(node.keys[0] or node) == "'schema'":
                said, kind = node.values[0], function.returns
                name = (
                    vars(import_module(module))[said.id] if isinstance(said, ast.Name) else ast.literal_eval(said)
                )
                made = kind if kind is not None and _typed(module, kind) else node
                found.setdefault(name.split("/")[1], []).append((module, made))
    return found


def content_schema(name: str) -> Entry:
    """Give the JSON Schema of what a verb prints by ``--json``."""
    found = [_schema_of(one, (), OF_VERB.get(name, name)) for one in _literal_contents()[name]]
    for one in found:
        one["properties"]["schema"] = {"const": f"fomkit/{name}/1"}
    return {
        "$schema": DRAFT,
        "title": f"fomkit/{name}/1",
        **_any_of(found),
        "$defs": {"figure": _FIGURE, "ends": _ENDS},
    }


def schemas() -> Mapping[str, Entry]:
    """Give docs/schema/, by the word of each schema."""
    verbs = sorted(name for name in _literal_contents() if OF_VERB.get(name, name) in VERBS and name not in FILES)
    return {**{name: file_schema(name) for name in FILES}, **{name: content_schema(name) for name in verbs}}


PAGES: Mapping[str, Callable[[], str]] = {
    "api": api_page, "commands": command_reference, "glossary": glossary_page, "metrics": metrics_page
}  # fmt: skip


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if name == "schemas":
            for word, content in schemas().items():
                write_whole(Path("docs", "schema", f"{word}.json"), to_json(content))
        else:
            print(PAGES[name](), end="")
