"""Pages of docs/ made from the program: ``python -m fomkit.cli.pages api`` (or commands, glossary, metrics)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import VERBS, app, verb_command
from fomkit.output.glossary import glossary_page, metrics_page

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

- Exit codes: 0 done; 1 a check failed, or some work has no time; 2 a mistake in the input.
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


PAGES: Mapping[str, Callable[[], str]] = {
    "api": api_page, "commands": command_reference, "glossary": glossary_page, "metrics": metrics_page
}  # fmt: skip


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(PAGES[name](), end="")
