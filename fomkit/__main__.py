"""Run the command line as ``python -m fomkit``."""

from fomkit.cli.__main__ import main

if __name__ == "__main__":
    main()
