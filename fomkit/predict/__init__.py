"""How long an op takes on a machine: estimators that do not know each other, asked in the order of `ladder`."""

from fomkit.predict.ladder import add_times

__all__ = ["add_times"]
