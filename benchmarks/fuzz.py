"""Try 20,000 almost valid files at all entry points: each must be read, or refused by one `FomkitError`.

``python benchmarks/fuzz.py [--files 20000] [--seed N] [--door NAME] [--case N]`` prints the seed, a line for
each file that raised anything else or warned, a traceback for each line of code, and the number of files read at
each entry point. Entry points (doors), their valid files and the changes are those of ``tests/test_fuzz.py``. The
exit code is 1 with any finding.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fuzz_doors import DOORS, Case, furnish, shares

STRIDE = 1_000_000
"""Distance between the case numbers of two seeds."""


def place_of(error: BaseException) -> str:
    """Return the error and the line of fomkit that raised it, which identify a finding."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "fomkit" in one.filename]
    last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"


def run(door: str, numbers: range, folder: Path, found: Counter[str]) -> int:
    """Try a door's files; count findings by place in ``found``, and return the number of files read."""
    read = 0
    for number in numbers:
        case = Case(door, number, folder)
        try:
            read += case.run()
        except Exception as error:
            place = place_of(error)
            found[place] += 1
            print(f"{door}, case {number}: {place}: {str(error)[:300]!r}", flush=True)
            if found[place] == 1:
                traceback.print_exc()
    return read


def main() -> int:
    """Try the files and print the findings."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--files", type=int, default=20_000)
    arguments.add_argument("--seed", type=int, default=secrets.randbelow(10**9), help="default: a new one")
    arguments.add_argument("--door", choices=DOORS, action="append", help="of this door only; may be repeated")
    arguments.add_argument("--case", type=int, help="one case of one door, by its number")
    options = arguments.parse_args()
    print(f"seed {options.seed}", flush=True)
    found, start = Counter[str](), time.perf_counter()
    with TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FOMKIT_CACHE"] = str(folder / "cache")
        furnish(folder)
        for door, count in shares(options.files).items():
            if options.door and door not in options.door:
                continue
            first = options.seed * STRIDE if options.case is None else options.case
            numbers = range(first, first + (count if options.case is None else 1))
            begun = time.perf_counter()
            read = run(door, numbers, folder, found)
            took = time.perf_counter() - begun
            print(f"{door}: {len(numbers):,} files, {read:,} read, {took:.0f} s", flush=True)
    print(f"{sum(found.values()):,} findings in {time.perf_counter() - start:.0f} s: {dict(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
