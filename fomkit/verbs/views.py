"""How results are shown: as text, JSON, rows, HTML or charts.

`answer_of` converts a result to an `Answer`; `VIEWS` has the texts and figures of the results' Python classes.
``estimate.plot`` draws the figures of the report one at a time, for notebooks. Heavy modules are imported on use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from fomkit.core.errors import FomkitError, View, nearest_names
from fomkit.output.money import format_cost, format_terms
from fomkit.output.screen import PAGE, PLAIN, Page, Screen
from fomkit.output.suites import format_suite, format_suites
from fomkit.output.sweeps import format_scaling, format_sweep
from fomkit.output.terminal import format_estimates
from fomkit.output.values import format_interval
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.metrics import title_of
from fomkit.verbs.answer import Answer, command
from fomkit.verbs.compare import Comparison, Study, estimates_content, unfit_named

if TYPE_CHECKING:
    import altair as alt

    from fomkit.plan.estimate import Estimate
    from fomkit.plan.op_tables import Prediction
    from fomkit.verbs.cost import Cost
    from fomkit.whatif.advise import Advice
    from fomkit.whatif.sensitivity import Sensitivity
    from fomkit.workbook.review import Review

Part = Literal["kind", "time_source", "bound"]
PARTS: dict[str, str] = {"kind": "kind of op", "time_source": "time is", "bound": "bound by"}


@dataclass(frozen=True)
class Plots:
    """Figures of one estimate as Altair charts; the extra ``report`` installs Altair.

    Examples
    --------
    >>> import fomkit
    >>> chart = fomkit.estimate("alexnet", "v100").plot.roofline()
    >>> chart.to_dict()["width"]
    640
    """

    estimate: Estimate

    def roofline(self) -> alt.LayerChart:
        """Draw the rate of every op over its arithmetic intensity, below the limits of the machine."""
        from fomkit.output.charts import roofline as draw_roofline
        from fomkit.plan.evidence import op_frame, roof_frame

        ops = op_frame(self.estimate)
        shown, roofs = ops[(ops["intensity"] > 0) & (ops["flop_per_s"] > 0)], roof_frame(self.estimate, ops)
        if shown.empty or roofs.empty:
            what = "no op has arithmetic, traffic, a time and known rates, so there is no roofline to draw."
            raise FomkitError(f"{self.estimate.model.name} on {self.estimate.machine.name}", what)
        return draw_roofline(shown, roofs)

    def pareto(self, top: int = 15) -> alt.LayerChart:
        """Draw the ``top`` longest ops, with the cumulative share of the step."""
        from fomkit.output.charts import pareto as draw_pareto
        from fomkit.plan.evidence import op_frame
        from fomkit.plan.op_tables import pareto_table

        return draw_pareto(pareto_table(op_frame(self.estimate), top))

    def composition(self, by: Part = "kind") -> alt.Chart:
        """Draw each pass by parts: by kind of op, by time source, or by what bounds the op."""
        from fomkit.output.charts import composition as draw_composition
        from fomkit.plan.op_tables import composition_table

        if by not in PARTS:
            raise FomkitError("composition", f"by is {by!r}. Give one of: {', '.join(PARTS)}.")
        return draw_composition(composition_table(self.estimate, by), PARTS[by])

    def memory(self) -> alt.LayerChart:
        """Draw the memory in use by role over the step, beside the device's capacity."""
        from fomkit.output.charts import memory as draw_memory
        from fomkit.plan.op_tables import memory_table

        capacity = self.estimate.machine.device.capacity_byte
        return draw_memory(memory_table(self.estimate), None if capacity is None else capacity.value)


def _advice(found: Advice) -> Answer:
    from fomkit.output.advice import format_advice, lines_of_findings

    return Answer(found.content, lines_of_findings(found.content), format_advice)


def _cost(found: Cost) -> Answer:
    from fomkit.verbs.cost import figures_of

    content = found.content
    return Answer(content, figures_of(content), format_cost, unfit_named([("", found.estimate)]))


def _profiled(found: Any) -> Answer:
    from fomkit.verbs.profiling import profile_summary

    return profile_summary(found)


def _reviewed(found: Review) -> Answer:
    from fomkit.output.decisions import format_review
    from fomkit.verbs.profiles import own_profile
    from fomkit.workbook.review import not_recorded, review_content

    content = review_content(found)
    return Answer(content, content["changes"], format_review, said=not_recorded(found, own_profile(found)))


def _decision(found: Any) -> Answer:
    from fomkit.output.decisions import format_sensitivity, format_solution

    content = found.content
    rows, write = ("changes", format_solution) if "changes" in content else ("parameters", format_sensitivity)
    return Answer(content, content[rows], write, [content["does_not_fit"] or ""])


def _twelve_steps(found: Comparison, content: Study, screen: Screen) -> str:
    """Format each estimate on a target as the lecture's twelve steps, with the terms of its energy."""
    from fomkit.merit.content import method_steps
    from fomkit.readers.measurements import all_measured

    merits, text = {merit.target.machine: merit for merit in found.merits}, ""
    baseline, rows = {one.model.name: one for one in found.baseline}, (*all_measured()[0].rows, *found.rows)
    for one, block in zip(found.estimates, content["models"][len(found.baseline) :], strict=True):
        over, name = baseline.get(one.model.name), one.machine.name
        steps = method_steps(one, over, merits.get(name), rows, format_interval)
        machines, page = [*([over.machine.name] if over else []), name], Page(screen)
        page.heading(f"{one.model.name} on {name}, in twelve steps")
        numbered = ((str(place), *step) for place, step in enumerate(steps, start=1))
        page.rows([("", "right"), "step", *machines], numbered, first_out=machines)
        text += page.text()
        text += format_terms(block)
    return text


def _comparison(found: Comparison) -> Answer:
    from fomkit.output.explained import format_from_measurements, with_ways

    def write(content: Study, screen: Screen = PLAIN, *, explain: bool = False) -> str:
        measured = content.get("from_measurements")
        aside = "" if measured is None else format_from_measurements(measured, screen)
        return (
            format_estimates(content, screen) + aside + (_twelve_steps(found, content, screen) if explain else "")
        )

    content = estimates_content(found)
    return Answer(content, with_ways(content), write, found.unfit)


def _predicted(found: Prediction) -> Answer:
    from pathlib import Path

    from fomkit.output.explained import format_prediction
    from fomkit.plan.op_tables import PredictionContent

    content: PredictionContent = {"schema": "fomkit/predict/1", **found.totals}
    name = Path(found.where).name
    messages = [f"{found.where}: {line}" for line in found.said]
    return Answer(content, (), lambda whole, _=None: format_prediction(whole, name), said=messages)


def _suite(found: Any) -> Answer:
    from fomkit.merit.rated_lines import as_fields
    from fomkit.verbs.suite_content import suite_content

    content, unread = suite_content(found), [f"fomkit: {line}" for line in found.unread]
    sides = zip(found.machines, (found.baseline, found.target), strict=True)
    every = ((f"{one.line.name} on {machine.name} ", one.estimate) for machine, side in sides for one in side)
    return Answer(content, content["lines"], format_suite, [as_fields(one) for one in unfit_named(every)], unread)


def _suites(found: Any) -> Answer:
    from fomkit.verbs.suite_content import suite_rows, suites_content

    each = [_suite(one) for one in found.results]
    rows = [row for one in each for row in suite_rows(one.content)]
    rows += [{"target": name, "refused": why} for name, why in found.refused.items()]
    unfit = dict.fromkeys(line for one in each for line in one.unfit)
    said = dict.fromkeys(line for one in each for line in one.said)
    return Answer(suites_content(found), rows, format_suites, [*unfit], [*said])


def _swept(found: Any) -> Answer:
    content = found.content
    none = f"{content['model']} on {content['target']}: no point of the sweep fits the device's memory"
    return Answer(content, (), format_sweep, [none] * (content["too_large"] == content["points"]))


ANSWERS: Mapping[str, Callable[[Any], Answer]] = {
    "Advice": _advice, "Comparison": _comparison, "Cost": _cost, "ModelProfile": _profiled,
    "Prediction": _predicted, "Review": _reviewed, "Sensitivity": _decision,
    "ScalingResult": lambda of: Answer(of.content, of.content["points"], format_scaling,
                                       of.content["does_not_fit"]),
    "Solution": _decision, "SuiteResult": _suite, "SuiteResults": _suites, "Swept": _swept,
}  # fmt: skip
"""By the name of its class, the function that converts a verb's result to an `Answer`."""


def answer_of(result: object) -> Answer:
    """Return the content, rows and text of a verb's result."""
    return result if isinstance(result, Answer) else ANSWERS[type(result).__name__](result)


def _comparison_page(found: Comparison) -> str:
    return format_estimates(estimates_content(found), PAGE)


def tornado_of(found: Sensitivity) -> alt.LayerChart:
    """Draw the tornado of a sensitivity."""
    from fomkit.output.charts import tornado
    from fomkit.output.decisions import title_line

    middle = found.figures[found.figure].value
    return tornado(found.bars(), middle, title_line(found.content), title_of(found.figure))


def _with_messages(found: Prediction) -> Answer:
    """Return the answer whose text begins with the messages that the command line prints separately."""
    answer = answer_of(found)
    said = "".join(f"{line}\n" for line in found.said)
    return replace(answer, write=lambda *of, **shows: said + answer.write(*of, **shows))


VIEWS: Mapping[str, View] = {
    **{name: View(answer) for name, answer in ANSWERS.items() if name != "ModelProfile"},
    "Comparison": View(_comparison, html=_comparison_page),
    "Estimate": View(
        lambda one: _comparison(Comparison((one,), (), ())),
        html=lambda one: _comparison_page(Comparison((one,), (), ())),
        figure=Plots,
    ),
    "Prediction": View(_with_messages),
    "Sensitivity": View(_decision, figure=tornado_of),
}
"""By the name of a class that derives from `fomkit.core.errors.Shown`; a test checks that none is missing."""


@command("reading", arguments={"name": "NAME"})
def schema(name: str) -> Answer:
    """Print the JSON Schema of a verb's --json output, or of a YAML file, for validation by programs and editors.

    Keys that are always present are required; other keys are allowed. docs/schema/ has the same files.

    Parameters
    ----------
    name : str
        A command (estimate, fom, …), or a file: machine, model, suite, campaign, layout, transformer. The output
        of the command campaign is campaign-cost.

    Returns
    -------
    Answer
        ``content`` is the schema; the table has its top-level properties.

    Raises
    ------
    FomkitError
        When there is no such schema.

    Examples
    --------
    >>> schema("machine").content["required"]
    ['schema', 'name']
    """
    from fomkit.files.documents import parse_json, read_json_text
    from fomkit.output.files import to_json

    paths = {path.stem: path for path in shipped_folder("docs/schema").glob("*.json")}
    if name not in paths:
        raise FomkitError(name, f"is not the name of a schema. {nearest_names(name, paths)}")
    content = parse_json(read_json_text(paths[name]), str(paths[name]))
    rows = [
        {"name": key, "required": key in part["required"], "description": one.get("description")}
        for part in content.get("anyOf", [content])
        for key, one in part["properties"].items()
    ]
    return Answer(content, rows, lambda whole, *_: to_json(whole, sys.stdout))
