"""The page of words, written from the schema and the metrics: ``python -m fomkit.cli.glossary_page``."""

from __future__ import annotations

from fomkit.report.glossary import glossary_page

if __name__ == "__main__":
    print(glossary_page(), end="")
