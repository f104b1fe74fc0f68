"""Predict how many of your training runs a machine will complete per day, and how certain that is."""

from __future__ import annotations

TYPE_CHECKING = False  # that of `typing`, whose import takes longer than all else here
__version__ = "0.1.0"
__all__ = [
    "Conditions",
    "FomkitError",
    "Workload",
    "__version__",
    "accept",
    "advise",
    "campaign",
    "compare",
    "cost",
    "estimate",
    "estimate_all",
    "explain",
    "export",
    "fom",
    "import_file",
    "import_machine",
    "import_measurements",
    "import_model",
    "machine",
    "measure",
    "measure_input",
    "measure_machine",
    "measure_network",
    "memory",
    "model",
    "pack",
    "predict",
    "profile",
    "review",
    "save",
    "scaling",
    "scenarios",
    "schema",
    "sensitivity",
    "show",
    "solve",
    "sweep",
    "validate",
    "write_report",
    "write_workbook",
]

if TYPE_CHECKING:
    from fomkit.core.errors import FomkitError
    from fomkit.core.job import Conditions
    from fomkit.core.model import Workload
    from fomkit.verbs.decisions import cost, scenarios, sensitivity, solve, sweep
    from fomkit.verbs.estimates import advise, estimate, estimate_all, predict
    from fomkit.verbs.foreign import export, import_file, import_machine, import_measurements, import_model
    from fomkit.verbs.looks import explain, memory, show
    from fomkit.verbs.measuring import measure, measure_input, measure_machine, measure_network, validate
    from fomkit.verbs.profiles import machine, model, save
    from fomkit.verbs.profiling import profile
    from fomkit.verbs.report.write import write_report
    from fomkit.verbs.scaling import scaling
    from fomkit.verbs.suites import campaign, fom, write_workbook
    from fomkit.verbs.vendors import accept, compare, pack, review
    from fomkit.verbs.views import schema

_ROOMS = {
    "fomkit.core.job": "Conditions",
    "fomkit.core.errors": "FomkitError",
    "fomkit.core.model": "Workload",
    "fomkit.verbs.decisions": "cost scenarios sensitivity solve sweep",
    "fomkit.verbs.estimates": "advise estimate estimate_all predict",
    "fomkit.verbs.foreign": "export import_file import_machine import_measurements import_model",
    "fomkit.verbs.looks": "explain memory show",
    "fomkit.verbs.measuring": "measure measure_input measure_machine measure_network validate",
    "fomkit.verbs.profiles": "machine model save",
    "fomkit.verbs.profiling": "profile",
    "fomkit.verbs.report.write": "write_report",
    "fomkit.verbs.scaling": "scaling",
    "fomkit.verbs.suites": "campaign fom write_workbook",
    "fomkit.verbs.vendors": "accept compare pack review",
    "fomkit.verbs.views": "schema",
}
"""The module of each public name."""
_RENAMED = {
    "export_measurements": ("export", {}), "follow_memory": ("memory", {}), "predict_ops": ("predict", {}),
    "prove_here": ("validate", {"here": True}), "rate_suite": ("fom", {}),
    "validate_predictions": ("validate", {}),
}  # fmt: skip
"""Old names, kept for one release: the new name of each, and its arguments."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that ``import fomkit`` is fast."""
    import sys
    from importlib import import_module

    if name in _RENAMED:
        import warnings
        from functools import partial

        now, given = _RENAMED[name]
        said = f"fomkit.{name} is called fomkit.{now} now{', with here=True' * bool(given)}."
        warnings.warn(said, DeprecationWarning, stacklevel=2)
        function = getattr(sys.modules[__name__], now)
        if name == "rate_suite":  # its keyword was ``measured``
            return lambda *of, measured=None, **more: function(*of, **{"measurements": measured, **more})
        return partial(function, **given) if given else function
    room = next((room for room, names in _ROOMS.items() if name in names.split()), None)
    if room is None:
        raise AttributeError(f"fomkit has no {name!r}. It has: {', '.join(__all__)}.")
    value: object = getattr(import_module(room), name)
    setattr(sys.modules[__name__], name, value)
    return value
