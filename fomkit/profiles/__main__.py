"""``python -m fomkit.profiles machine_profiles/v100.yaml`` fits a table and keeps the fits beside it."""

import sys
from pathlib import Path

from fomkit.profiles.evidence import make_fits
from fomkit.profiles.locate import is_shipped
from fomkit.profiles.machines import load_machine

for name in sys.argv[1:]:
    beside = Path(name).with_suffix(".fits.json")
    make_fits(load_machine(name), beside)
    if not is_shipped(beside, "machine_profiles"):
        sys.stderr.write(f"{beside}: written, but read only once it lies in fomkit's own machine_profiles.\n")
