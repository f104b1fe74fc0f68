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
    "compare_measured",
    "compare_rates",
    "convolution_methods",
    "cost",
    "estimate",
    "estimate_all",
    "explain",
    "export_measurements",
    "follow_memory",
    "import_machine",
    "import_measurements",
    "import_model",
    "machine",
    "measure_input",
    "measure_machine",
    "measure_network",
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
    from fomkit.api.decisions import sensitivity, solve
    from fomkit.api.estimates import advise, estimate, estimate_all
    from fomkit.api.imports import import_machine, import_model
    from fomkit.api.looks import explain, follow_memory, show, work_formulas
    from fomkit.api.measurements import (
        compare_measured,
        compare_rates,
        export_measurements,
        import_measurements,
        project_measured,
    )
    from fomkit.api.measuring import (
        measure_input,
        measure_machine,
        measure_network,
        prove_here,
        validate_predictions,
    )
    from fomkit.api.money import cost
    from fomkit.api.ops import predict_ops
    from fomkit.api.profiles import machine, model, profile, save
    from fomkit.api.scaling import scaling
    from fomkit.api.suites import accept, pack, rate_suite, review, write_workbook
    from fomkit.api.sweeps import sweep
    from fomkit.dossier import write_report
    from fomkit.errors import FomkitError
    from fomkit.study.convolution_methods import convolution_methods
    from fomkit.suite import Conditions
    from fomkit.workload import Workload

_ROOMS = {
    "fomkit.suite": "Conditions",
    "fomkit.errors": "FomkitError",
    "fomkit.workload": "Workload",
    "fomkit.study.convolution_methods": "convolution_methods",
    "fomkit.dossier": "write_report",
    "fomkit.api.estimates": "advise estimate estimate_all",
    "fomkit.api.imports": "import_machine import_model",
    "fomkit.api.looks": "explain follow_memory show work_formulas",
    "fomkit.api.measurements": "compare_measured compare_rates export_measurements import_measurements "
    "project_measured",
    "fomkit.api.measuring": "measure_input measure_machine measure_network prove_here validate_predictions",
    "fomkit.api.money": "cost",
    "fomkit.api.ops": "predict_ops",
    "fomkit.api.profiles": "machine model profile save",
    "fomkit.api.scaling": "scaling",
    "fomkit.api.decisions": "sensitivity solve",
    "fomkit.api.sweeps": "sweep",
    "fomkit.api.suites": "accept pack rate_suite review write_workbook",
}
"""Where the public names are."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Load what is asked for when it is asked for, so that ``import fomkit`` costs nothing."""
    import sys
    from importlib import import_module

    room = next((room for room, names in _ROOMS.items() if name in names.split()), None)
    if room is None:
        raise AttributeError(f"fomkit has no {name!r}. It has: {', '.join(__all__)}.")
    value: object = getattr(import_module(room), name)
    setattr(sys.modules[__name__], name, value)
    return value
