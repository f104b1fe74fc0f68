"""Whole models: predicted passes beside their labels and beside what published predictors said of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.rollup import USES, Uses
from fomkit.validate.labels import PEERS
from fomkit.validate.predicted import per_pass
from fomkit.validate.scores import Cases, Errors, Score, errors_of, make_cases, score

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.spans import Span

PASSES: Mapping[str, str | None] = {"step": None, "forward": "forward", "backward": "backward"}


class Outcome(NamedTuple):
    """One label and what was predicted of it.

    Attributes
    ----------
    label : dict
        A row of `fomkit.validate.labels.read_whole_models`.
    spans : mapping
        Predicted time [s] of step, forward and backward; None where work has no time or the pass is not there.
    """

    label: Mapping[str, object]
    spans: Mapping[str, Span | None]

    def seconds(self, pass_name: str, who: str = "") -> float:
        """Give the measured time [s] of a pass, or what a peer said; NaN where there is none."""
        prefix = f"{who} " if who else ""
        forward = float(str(self.label.get(f"{prefix}forward", np.nan)))
        backward = float(str(self.label.get(f"{prefix}backward", np.nan)))
        training = self.label["mode"] == "training"
        return {"forward": forward, "backward": backward, "step": forward + backward if training else forward}[
            pass_name
        ]


def outcomes(labels: pd.DataFrame, timed: pd.DataFrame, level: float, uses: Uses = USES) -> list[Outcome]:
    """Set labels of one device beside their predictions.

    Parameters
    ----------
    labels : DataFrame
        Rows of one device that are scored.
    timed : DataFrame
        What `fomkit.validate.predicted.predict_graphs` gives; it has every graph of ``labels``.
    level : float
    uses : mapping
        What use in a step adds to the error of single kernels.
    """
    found = []
    for row in labels.to_dict("records"):
        label = {str(name): value for name, value in row.items()}
        spans = {name: per_pass(timed, str(label["graph"]), word, level, uses) for name, word in PASSES.items()}
        found.append(Outcome(label, spans))
    return found


def chosen(found: list[Outcome], pass_name: str, mode: str | None) -> list[tuple[Outcome, Span]]:
    """Keep what was measured and predicted of a pass, in one mode or all."""
    kept = []
    for one in found:
        span = one.spans[pass_name]
        if span is not None and mode in (None, one.label["mode"]) and one.seconds(pass_name) > 0:
            kept.append((one, span))
    return kept


def cases_of(kept: list[tuple[Outcome, Span]], pass_name: str) -> Cases:
    """Give the times as arrays."""
    return make_cases(
        np.array([one.seconds(pass_name) for one, _ in kept]),
        np.array([span.value for _, span in kept]),
        np.array([span.low for _, span in kept]),
        np.array([span.high for _, span in kept]),
    )


def peer_errors(kept: list[tuple[Outcome, Span]], pass_name: str) -> dict[str, Errors]:
    """Give the errors of each published predictor that said something of every one of these cases."""
    truth = np.array([one.seconds(pass_name) for one, _ in kept])
    said = {peer: np.array([one.seconds(pass_name, peer) for one, _ in kept]) for peer in PEERS}
    return {peer: errors_of(truth, values) for peer, values in said.items() if np.isfinite(values).all()}


LINES: tuple[tuple[str, str, str | None], ...] = (
    ("all", "step", None),
    ("inference", "forward", "inference"),
    ("training", "step", "training"),
    ("training, forward", "forward", "training"),
    ("training, backward", "backward", "training"),
)
"""What a line is of: its name, the pass and the mode."""


def model_scores(found: list[Outcome], comparison: str, machine: str) -> Iterator[Score]:
    """Score whole models of one machine or of several, all together and by mode and pass."""
    for what, pass_name, mode in LINES:
        kept = chosen(found, pass_name, mode)
        if kept:
            peers = peer_errors(kept, pass_name)
            yield score(cases_of(kept, pass_name), comparison, "model", machine, what, peers)
