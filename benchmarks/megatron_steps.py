"""Print the published steps and activations of Megatron-LM beside the projected ones.

``python benchmarks/megatron_steps.py``. No constant is fitted to them; docs/parallel.md lists all constants.
"""

from __future__ import annotations

from pathlib import Path

from fomkit.validate.megatron import Compared, megatron_activations, megatron_steps

FOLDER = Path(__file__).parent.parent / "validation" / "megatron"


def line(one: Compared, scale: float = 1.0) -> str:
    """Write one line of the table."""
    span = one.projected
    return (
        f"{one.model:9} {one.technique:10} {one.published / scale:10.4g} {span.value / scale:10.4g} "
        f"{span.low / scale:8.4g} to {span.high / scale:<8.4g} {one.error:+8.2%}"
    )


if __name__ == "__main__":
    print("step [s]              published  projected  interval               error")
    for one in megatron_steps(FOLDER):
        print(line(one))
    print("activations [byte, or share of those without a technique]")
    for one in megatron_activations(FOLDER):
        print(line(one))
