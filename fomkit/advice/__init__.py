"""What to change in a training, and what it would save: rules that re-estimate the changed step."""

from fomkit.advice.advise import Advice, advise

__all__ = ["Advice", "advise"]
