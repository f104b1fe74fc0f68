"""The page docs/api.md, written from the Python interface itself: ``python -m fomkit.cli.api_page``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from typing import Any

import fomkit

_PAGE = """# Python

Written by `python -m fomkit.cli.api_page` from the functions themselves; a test compares, so that nothing public
changes unseen. `help(fomkit.estimate)` tells all of a function: arguments with units, errors, an example.

`import fomkit` loads nothing else; each name loads what it needs. Profiles are named (`"v100"`), given by path, or
loaded (`fomkit.machine("v100")`). Every mistake in what is given is a `FomkitError` that says where, what, what
was expected and what to do. Results print with `.summary()`; in a notebook most show themselves.
"""
WIDTH = 110
RETURNED = (
    "fomkit.study.Estimate", "fomkit.study.Comparison", "fomkit.study.SuiteResult", "fomkit.study.Prediction",
    "fomkit.advice.Advice", "fomkit.api.answer.Answer", "fomkit.study.rounds.Review", "fomkit.study.cost.Cost",
    "fomkit.measurements.ImportedMeasurements", "fomkit.measure.run.Measured",
    "fomkit.measure.network.NetworkMeasured", "fomkit.measure.input_rate.InputMeasured", "fomkit.spans.Span",
    "fomkit.hardware.Machine", "fomkit.workload.ModelProfile", "fomkit.workload.Workload",
    "fomkit.suite.Conditions",
)  # fmt: skip
"""What functions give and take besides plain values."""


def first_line(of: object) -> str:
    """Give the first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(of) or "").partition("\n\n")[0].split())


def _parameter(one: inspect.Parameter) -> str:
    text = one.name if one.annotation is one.empty else f"{one.name}: {one.annotation}"
    if one.default is one.empty:
        return text
    told = one.default.__name__ if callable(one.default) else repr(one.default).replace("'", '"')
    return f"{text} = {told}"


def signature_text(name: str, function: Callable[..., Any]) -> str:
    """Write a signature on one line where it fits, else one parameter a line."""
    found = inspect.signature(function)
    parts: list[str] = []
    for one in found.parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        if one.name != "self":
            parts.append(_parameter(one))
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


if __name__ == "__main__":
    print(api_page(), end="")
