"""The work of a step as formulas of its named sizes, printed by sympy (``fomkit/formulas/1``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import sympy

from fomkit import __version__
from fomkit.core.model import ModelProfile
from fomkit.ops.check import check_table
from fomkit.ops.formulas import symbolic_work
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import evaluate, resize_ops
from fomkit.plan.options import Options, choose_sizes

SCHEMA = "fomkit/formulas/1"
STEP = "step"
QUANTITIES = ("flop", "byte")
_NO_WORK = ("op", "count", "module", "code_line", "traced_time_s")
"""Columns that change nothing of an op's work."""


class _Sum:
    """The work of some ops in one quantity: what has a formula, and how many executions have none."""

    def __init__(self) -> None:
        self.terms: list[Any] = []
        self.missing = 0.0

    def add(self, work: Any, count: float) -> None:
        if work is sympy.nan:
            self.missing += count
        else:
            self.terms.append(sympy.Rational(repr(count)) * work)

    def formula(self) -> Any:
        """Give it expanded; None where nothing has a formula."""
        return sympy.expand(sympy.Add(*self.terms)) if self.terms else None


def _sums_on_symbols(model: ModelProfile, sizes: Mapping[str, Any]) -> dict[str, dict[str, _Sum]]:
    """Add up the work of distinct ops on symbols, by pass and for the step."""
    found: dict[str, dict[str, _Sum]] = defaultdict(lambda: {name: _Sum() for name in QUANTITIES})
    apart = [name for name in model.ops.columns if name not in _NO_WORK]
    for _, rows in model.ops.groupby(apart, sort=False, dropna=False):
        cells = {str(name): value for name, value in rows.iloc[0].items()}
        count = float(rows["count"].sum())
        for name, work in symbolic_work(cells, lambda text: evaluate(text, sizes, model.name)).items():
            for part in (_word_of_pass(str(cells["pass_name"])), STEP):
                found[part][name].add(work, count)
    return {**{name: found[name] for name in found if name != STEP}, STEP: found[STEP]}


def _word_of_pass(pass_name: str) -> str:
    return pass_name.partition("_")[0]


def _sums_at(model: ModelProfile, sizes: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Add up, in float64, what the costs stage gives at the sizes."""
    numeric = resize_ops(model.ops, sizes, model.name)
    check_table(numeric, "OPS", model.name)
    costed = add_costs(numeric, checked=True)
    work = costed[list(QUANTITIES)].mul(costed["count"], axis=0)
    groups = {
        **{str(name): rows for name, rows in work.groupby(costed["pass_name"].map(_word_of_pass))},
        STEP: work,
    }
    return {name: {key: float(rows[key].sum()) for key in QUANTITIES} for name, rows in groups.items()}


def formulas_content(model: ModelProfile, options: Options) -> dict[str, Any]:
    """Write the work of one step, by pass, as formulas of its named sizes.

    `options`: a batch, or another size, that is chosen is put in as a number. Gives a dict: ``fomkit/formulas/1``.
    Beside a formula stands its value at ``sizes``, a float64 sum over ops; both are None where no op has one.
    ``missing`` counts the executions without a formula, which neither has. Raises FomkitError when a size cannot
    be had, or a cell of the table is no expression.

    >>> from fomkit.profiles.models import load_model
    >>> formulas_content(load_model("candle/p1b3"), Options())["rows"][0]["flop"]["formula"]
    '60177401*batch'
    """
    chosen, wanted = choose_sizes(model, options.wanted_sizes), options.wanted_sizes
    sizes = {
        name: sympy.Integer(size) if name in wanted else sympy.Symbol(name, integer=True, positive=True)
        for name, size in chosen.items()
    }
    values = _sums_at(model, chosen)
    free: set[Any] = set()
    rows = []
    for name, sums in _sums_on_symbols(model, sizes).items():
        entry: dict[str, Any] = {"pass_name": name}
        for key, whole in sums.items():
            formula = whole.formula()
            known = formula is not None
            free |= formula.free_symbols if known else set()
            entry[key] = {"formula": str(formula), "value": values[name][key]} if known else None
        rows.append({**entry, "missing": {key: whole.missing for key, whole in sums.items()}})
    return {
        "schema": SCHEMA,
        "fomkit": __version__,
        "name": model.name,
        "title": model.title,
        "mode": model.traced_with.get("mode"),
        "sizes": chosen,
        "free": [name for name, size in sizes.items() if size in free],
        "rows": rows,
        "at_least": model.at_least,
        "unsupported": list(model.unsupported),
    }
