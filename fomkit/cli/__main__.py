"""Run the command line as ``python -m fomkit.cli``."""

from __future__ import annotations

from fomkit.cli.main import main

if __name__ == "__main__":
    main()
