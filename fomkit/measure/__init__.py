"""A machine at hand becomes a machine profile: facts that it tells, and ops timed on it.

Above `fomkit.study`, whose predictions choose what to time next, and below what asks how good they are. What times
runs in a process of its own (`fomkit.timings.measure_worker`); here is what is asked of it and what becomes of the
answers: `design` and `wanted` list the ops, `choose` takes the next, `session` has them timed, `journal` keeps
what was, `record` makes the profile.
"""

from fomkit.measure.plans import PLANS, Plan
from fomkit.measure.run import Asked, measure

__all__ = ["PLANS", "Asked", "Plan", "measure"]
