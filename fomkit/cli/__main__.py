"""``python -m fomkit.cli`` does what the command ``fomkit`` does."""

from __future__ import annotations

from fomkit.cli.main import main

if __name__ == "__main__":
    main()
