"""The public comparisons: how far predictions are from measurements that nobody fitted."""

from fomkit.validate.validation import Validation, validate

__all__ = ["Validation", "validate"]
