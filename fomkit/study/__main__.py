"""``python -m fomkit.study machine_profiles/v100.yaml`` fits a table and keeps the fits beside it."""

import sys
from pathlib import Path

from fomkit.profiles import load_machine
from fomkit.study.fits import make_fits

for name in sys.argv[1:]:
    make_fits(load_machine(name), Path(name).with_suffix(".fits.json"))
