"""Names that are code, which a page would run if it did not escape them."""

from __future__ import annotations

from dataclasses import replace

import fomkit
from fomkit.plan.estimate import Estimate

HOSTILE = "<script>document.title='gone'</script>\"'><img src=x onerror=\"document.title='gone'\">"
ENDING = "</script><script>document.title='gone'</script>"


def hostile_estimate() -> Estimate:
    """Estimate a model with such names everywhere."""
    model = fomkit.model("p1b3")
    ops = model.ops.assign(op=HOSTILE, module=ENDING)
    named = replace(model, name=HOSTILE, title=ENDING, ops=ops, notes=(HOSTILE,))
    machine = fomkit.machine("v100")
    return fomkit.estimate(named, replace(machine, name=ENDING, title=HOSTILE, notes=(ENDING,)))
