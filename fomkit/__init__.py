"""fomkit answers how many of your training runs a day a machine will do, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "Conditions", "FomkitError", "Workload", "__version__", "advise", "compare_measured", "convolution_methods",
    "cost", "estimate", "machine", "model", "predict_ops", "profile", "rate_suite", "sensitivity", "solve", "sweep",
]  # fmt: skip

if TYPE_CHECKING:
    from fomkit.api import (
        advise,
        compare_measured,
        cost,
        estimate,
        machine,
        model,
        predict_ops,
        profile,
        rate_suite,
    )
    from fomkit.api_whatif import sweep
    from fomkit.decisions import sensitivity, solve
    from fomkit.errors import FomkitError
    from fomkit.study.convolution_methods import convolution_methods
    from fomkit.suite import Conditions
    from fomkit.workload import Workload

_ROOMS = {
    "Conditions": "fomkit.suite",
    "FomkitError": "fomkit.errors",
    "Workload": "fomkit.workload",
    "convolution_methods": "fomkit.study.convolution_methods",
    "sensitivity": "fomkit.decisions",
    "solve": "fomkit.decisions",
    "sweep": "fomkit.api_whatif",
}


def __getattr__(name: str) -> object:
    """Load what is asked for when it is asked for, so that ``import fomkit`` costs nothing."""
    import sys
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"fomkit has no {name!r}. It has: {', '.join(__all__)}.")
    value: object = getattr(import_module(_ROOMS.get(name, "fomkit.api")), name)
    setattr(sys.modules[__name__], name, value)
    return value
