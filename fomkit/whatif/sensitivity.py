"""What a result hangs on (``fomkit/sensitivity/1``): elasticities, swings, and what to measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fomkit import __version__
from fomkit.errors import FomkitError
from fomkit.shown import Shown
from fomkit.study.content import INTERVAL_MEANING, span_content
from fomkit.whatif.elasticity import STEP, Effect, effect_of
from fomkit.whatif.parameters import PLAIN_RANGE, Parameter
from fomkit.whatif.subject import Figures, Subject, main_figure

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

SCHEMA = "fomkit/sensitivity/1"
ASSUMED = (
    "one parameter at a time; every op keeps its utilisation on a changed machine",
    "an elasticity is that of the estimate; how well utilisation carries over nobody has measured",
)


@dataclass(frozen=True)
class Sensitivity(Shown):
    """What a result hangs on.

    Attributes
    ----------
    title : mapping
        Model or suite, target and conditions.
    figure : str
        The main figure: fom, else unit_per_day, else sample_per_s, else step_s.
    figures : mapping
        All figures as they are.
    effects : tuple of Effect
        Those of the machine, then those of the work (sizes, samples, epochs), each the largest swing first.
    left_out : tuple of (str, str)
        Parameters that were not varied, each with the reason.
    to_measure : mapping
        ``measurements``, best first, and what else is said of them (`Subject.measurements`).
    """

    title: Mapping[str, Any]
    level: float
    figure: str
    figures: Figures
    effects: tuple[Effect, ...]
    left_out: tuple[tuple[str, str], ...]
    to_measure: Mapping[str, Any]

    @property
    def content(self) -> dict[str, Any]:
        """Everything in the form of ``fomkit/sensitivity/1``."""
        return {
            "schema": SCHEMA,
            "fomkit": __version__,
            **self.title,
            "interval": self.level,
            "interval_covers": INTERVAL_MEANING,
            "figure": self.figure,
            "figures": {name: span_content(span) for name, span in self.figures.items()},
            "step": STEP,
            "plain_range": PLAIN_RANGE,
            "parameters": [_effect(one) for one in self.effects],
            "not_varied": [{"parameter": name, "why": why} for name, why in self.left_out],
            **self.to_measure,
            "assumed": list(ASSUMED),
        }

    def table(self) -> pd.DataFrame:
        """Give one row for each parameter in the order of the effects, as the tornado is drawn from.

        Returns
        -------
        DataFrame
            parameter, of (machine or model), unit, value, low, high, has_interval, varied (in words), at_low,
            at_high (of the main figure), swing [share], elasticity, smooth, kink.
        """
        import pandas as pd

        rows = [
            {
                "parameter": one.parameter.name,
                "of": one.parameter.of,
                "unit": one.parameter.unit,
                "value": one.parameter.value,
                "low": one.low,
                "high": one.high,
                "has_interval": one.parameter.has_interval,
                "varied": one.parameter.varied,
                "at_low": None if one.at_low is None else one.at_low.value,
                "at_high": None if one.at_high is None else one.at_high.value,
                "swing": one.swing,
                "elasticity": one.elasticity[self.figure],
                "smooth": one.smooth,
                "kink": one.kink,
            }
            for one in self.effects
        ]
        return pd.DataFrame(rows)

    def chart(self) -> alt.LayerChart:
        """Draw the tornado, which a notebook shows and ``save`` writes; needs the extra ``report``."""
        chart: alt.LayerChart = self._view.figure(self)
        return chart

    def summary(self) -> str:
        """Write it as the text that the command line prints."""
        return self._view.text(self)


def _effect(one: Effect) -> dict[str, Any]:
    parameter = one.parameter
    return {
        **parameter.content,
        "basis": parameter.basis or None,
        "source": parameter.source or None,
        "elasticity": dict(one.elasticity),
        "at_half_step": one.at_half_step,
        "below": one.below,
        "above": one.above,
        "smooth": one.smooth,
        "kink": one.kink,
        "step": one.step,
        "varied": {
            "from": one.low,
            "to": one.high,
            "has_interval": parameter.has_interval,
            "said": parameter.varied,
        },
        "at_low": span_content(one.at_low),
        "at_high": span_content(one.at_high),
        "swing": one.swing,
        "why": one.why or None,
    }


def _why_left_out(one: Parameter, effect: Effect | None) -> str:
    if not one.value > 0:
        return "it is 0, which has no logarithm"
    return "no value beside it can be estimated" if effect is None else "no figure moves with it"


def _rank(one: Effect, figure: str) -> tuple[bool, float, float, str]:
    """Order what the machine does before what the work does: less work is no faster machine."""
    return one.parameter.of == "model", -one.swing, -abs(one.elasticity[figure]), one.parameter.name


def sensitivity(subject: Subject) -> Sensitivity:
    """Work out what a subject's figures hang on.

    Elasticities are central differences over 1 % of each parameter, held against half of it; whole numbers are
    taken at their neighbours. The swing is between the ends of a parameter's own interval, else 10 % either way.

    Parameters
    ----------
    subject : Subject
        `fomkit.whatif.one_model.OneModel`, `fomkit.whatif.of_suite.OfSuite` or `fomkit.whatif.on_nodes.OnNodes`.

    Raises
    ------
    FomkitError
        When there is no estimate to begin with, or no parameter is known.
    """
    here = subject.again({})
    figure = main_figure(here)
    effects, left_out = [], subject.left_out()
    for one in subject.parameters():
        effect = effect_of(subject, one, here, figure) if one.value > 0 else None
        if effect is not None and effect.moves:
            effects.append(effect)
        else:
            left_out.append((one.name, _why_left_out(one, effect)))
    if not effects:
        raise FomkitError("sensitivity", "no parameter moves a figure. State rates in the machine's profile.")
    ranked = sorted(effects, key=lambda one: _rank(one, figure))
    to_measure = subject.measurements()
    return Sensitivity(subject.title, subject.level, figure, here, tuple(ranked), tuple(left_out), to_measure)
