"""Print published and projected steps and activations of Megatron-LM, as `fomkit validate` does.

``python benchmarks/megatron_steps.py``. No constant is fitted to them; docs/parallel.md lists all constants.
"""

from __future__ import annotations

from fomkit.output.comparisons import add_published
from fomkit.output.screen import PLAIN, Page
from fomkit.plan.content import as_content
from fomkit.validation.published_steps import Published, megatron_figures

if __name__ == "__main__":
    page = Page(PLAIN)
    add_published(page, [as_content(Published, one) for one in megatron_figures()])
    print(page.text(), end="")
