"""Run the command line as ``python -m fomkit``."""

import runpy

if __name__ == "__main__":
    runpy.run_module("fomkit.cli", run_name="__main__", alter_sys=True)
