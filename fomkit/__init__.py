"""fomkit answers how many of your training runs a day a machine will do, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "Conditions",
    "FomkitError",
    "Workload",
    "__version__",
    "accept",
    "advise",
    "campaign",
    "compare_measured",
    "compare_rates",
    "convolution_methods",
    "cost",
    "estimate",
    "estimate_all",
    "explain",
    "export_measurements",
    "import_machine",
    "import_measurements",
    "import_model",
    "machine",
    "measure_input",
    "measure_machine",
    "measure_network",
    "memory",
    "model",
    "pack",
    "predict_ops",
    "profile",
    "project_measured",
    "prove_here",
    "rate_suite",
    "review",
    "save",
    "scaling",
    "scenarios",
    "schema",
    "sensitivity",
    "show",
    "solve",
    "sweep",
    "validate_predictions",
    "work_formulas",
    "write_report",
    "write_workbook",
]

if TYPE_CHECKING:
    from fomkit.core.errors import FomkitError
    from fomkit.core.model import Workload
    from fomkit.core.suite import Conditions
    from fomkit.verbs.decisions import cost, scenarios, sensitivity, solve, sweep
    from fomkit.verbs.estimates import advise, estimate, estimate_all, predict_ops
    from fomkit.verbs.looks import convolution_methods, explain, memory, show, work_formulas
    from fomkit.verbs.measurements import (
        compare_measured,
        compare_rates,
        export_measurements,
        import_measurements,
        project_measured,
    )
    from fomkit.verbs.measuring import (
        measure_input,
        measure_machine,
        measure_network,
        prove_here,
        validate_predictions,
    )
    from fomkit.verbs.profiles import import_machine, import_model, machine, model, profile, save
    from fomkit.verbs.report.write import write_report
    from fomkit.verbs.scaling import scaling
    from fomkit.verbs.suites import accept, campaign, pack, rate_suite, review, write_workbook
    from fomkit.verbs.views import schema

_ROOMS = {
    "fomkit.core.suite": "Conditions",
    "fomkit.core.errors": "FomkitError",
    "fomkit.core.model": "Workload",
    "fomkit.verbs.decisions": "cost scenarios sensitivity solve sweep",
    "fomkit.verbs.estimates": "advise estimate estimate_all predict_ops",
    "fomkit.verbs.looks": "convolution_methods explain memory show work_formulas",
    "fomkit.verbs.measurements": "compare_measured compare_rates export_measurements import_measurements "
    "project_measured",
    "fomkit.verbs.measuring": "measure_input measure_machine measure_network prove_here validate_predictions",
    "fomkit.verbs.profiles": "import_machine import_model machine model profile save",
    "fomkit.verbs.report.write": "write_report",
    "fomkit.verbs.scaling": "scaling",
    "fomkit.verbs.suites": "accept campaign pack rate_suite review write_workbook",
    "fomkit.verbs.views": "schema",
}
"""Where the public names are."""
_RENAMED = {"follow_memory": "memory"}
"""Names of before, which stay for one release."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Load what is asked for when it is asked for, so that ``import fomkit`` costs nothing."""
    import sys
    from importlib import import_module

    if name in _RENAMED:
        import warnings

        warnings.warn(f"fomkit.{name} is called fomkit.{_RENAMED[name]} now.", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    room = next((room for room, names in _ROOMS.items() if name in names.split()), None)
    if room is None:
        raise AttributeError(f"fomkit has no {name!r}. It has: {', '.join(__all__)}.")
    value: object = getattr(import_module(room), name)
    setattr(sys.modules[__name__], name, value)
    return value
