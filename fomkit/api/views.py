"""How each class of results is shown. What few ask for, and what is heavy, is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fomkit.report.advise import format_advice
from fomkit.report.cost import format_cost
from fomkit.report.page import estimates_html
from fomkit.report.prediction import format_prediction
from fomkit.report.sensitivity import format_sensitivity, title_line
from fomkit.report.solve import format_solution
from fomkit.report.suite import format_suite
from fomkit.report.sweep import format_sweep
from fomkit.report.terminal import format_estimates
from fomkit.shown import View
from fomkit.study import Comparison, estimates_content, suite_content
from fomkit.study.plots import Plots

if TYPE_CHECKING:
    import altair as alt

    from fomkit.study.cost import Cost
    from fomkit.study.rounds import Review
    from fomkit.whatif.sensitivity import Sensitivity


def _cost_content(found: Cost) -> dict[str, Any]:
    from fomkit.study.cost_content import cost_content

    return cost_content(found)


def _review_text(found: Review) -> str:
    from fomkit.report.review import format_review
    from fomkit.study.review import review_content

    return format_review(review_content(found))


def tornado_of(found: Sensitivity) -> alt.LayerChart:
    """Draw the tornado of a sensitivity."""
    from fomkit.metrics import title_of
    from fomkit.report.plots.tornado import tornado

    middle = found.figures[found.figure].value
    return tornado(found.table(), middle, title_line(found.content), title_of(found.figure))


VIEWS: Mapping[str, View] = {
    "Advice": View(lambda found, *, tried: format_advice(found.content, tried=tried)),
    "Comparison": View(
        lambda found: format_estimates(estimates_content(found)),
        content=estimates_content,
        html=lambda found: estimates_html(estimates_content(found)),
    ),
    "Cost": View(lambda found: format_cost(found.content), content=_cost_content),
    "Estimate": View(
        lambda one: Comparison((one,), (), ()).summary(),
        html=lambda one: Comparison((one,), (), ())._repr_html_(),
        figure=Plots,
    ),
    "Prediction": View(
        lambda found: "".join(f"{line}\n" for line in found.said) + format_prediction(found.content(), "table")
    ),
    "Review": View(_review_text),
    "Sensitivity": View(lambda found: format_sensitivity(found.content), figure=tornado_of),
    "Solution": View(lambda found: format_solution(found.content)),
    "SuiteResult": View(lambda result: format_suite(suite_content(result))),
    "Swept": View(lambda swept: format_sweep(swept.content)),
}
"""By the name of a class that derives from `fomkit.shown.Shown`; a test finds one that is missing."""
