"""From what a person asks for to what is asked of: a model, a model on nodes, or a suite."""

from __future__ import annotations

from functools import cache

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.parallel import Layout, check_layout
from fomkit.study.explained import NOTHING_MEASURED, MeasuredRuns
from fomkit.study.options import Options
from fomkit.study.rated_lines import Load
from fomkit.suite import Suite
from fomkit.whatif.of_suite import OfSuite
from fomkit.whatif.on_nodes import OnNodes
from fomkit.whatif.one_model import OneModel
from fomkit.whatif.subject import Subject
from fomkit.workload import ModelProfile


def subject_of_model(
    model: ModelProfile, target: Machine, options: Options, nodes: int | None = None, layout: Layout | None = None
) -> Subject:
    """Choose a model on the scope of the options, or its training spread over nodes.

    Raises
    ------
    FomkitError
        When nodes are no number, a layout has no nodes, or both nodes and a scope are given.
    """
    if nodes is None:
        if layout is not None:
            raise FomkitError("layout", "says how a training is spread over nodes. Add --nodes.")
        return OneModel(model, target, options)
    given: object = nodes  # a notebook may give anything
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise FomkitError("nodes", f"{nodes!r} is no number of nodes. Give a whole number, 1 or more.")
    if options.scope is not None:
        raise FomkitError("scope", "and nodes say two things. Nodes are those of one job; leave the scope out.")
    return OnNodes(model, target, options, check_layout(layout or Layout()), nodes)


def subject_of_suite(
    suite: Suite,
    baseline: Machine,
    target: Machine,
    options: Options,
    load: Load,
    measured: MeasuredRuns = NOTHING_MEASURED,
) -> Subject:
    """Choose a suite, whose lines fix batch, sizes, precision and scope; ``measured`` runs are held against them.

    Raises
    ------
    FomkitError
        When the options would change what the lines fix.
    """
    if options.wanted_sizes or options.precision is not None or options.scope is not None:
        raise FomkitError(suite.name, "fixes batch, sizes, precision and scope by its lines. Leave them out.")
    return OfSuite(suite, baseline, target, options, cache(load), measured)
