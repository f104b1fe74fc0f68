"""The page of every figure, written from the table of metrics: ``python -m fomkit.cli.metrics_page``."""

from __future__ import annotations

from fomkit.report.metrics import metrics_page

if __name__ == "__main__":
    print(metrics_page(), end="")
