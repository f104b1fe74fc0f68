"""Run the command line as ``python -m fomkit``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while its modules are imported."""
    try:
        from fomkit.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, as a shell reports a program that a signal ended


if __name__ == "__main__":
    main()
