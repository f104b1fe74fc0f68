"""Print the published steps and activations of Megatron-LM beside the projected ones, as `fomkit validate` does.

``python benchmarks/megatron_steps.py``. No constant is fitted to them; docs/parallel.md lists all constants.
"""

from __future__ import annotations

from fomkit.report.validation import format_published
from fomkit.validate.megatron import megatron_figures

if __name__ == "__main__":
    print(format_published(one.content() for one in megatron_figures()), end="")
