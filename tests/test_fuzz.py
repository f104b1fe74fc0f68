"""Almost valid files at every entry point: read, or refused by one `FomkitError`, and nothing else.

300 files here, always the same; ``python benchmarks/fuzz.py`` tries 20,000 from a new seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fuzz_doors import DOORS, Case, attempt, furnish, limited, shares

from fomkit.core.errors import FomkitError

FILES = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the complete and valid files that the doors' files refer to."""
    made = tmp_path_factory.mktemp("fuzz")
    furnish(made)
    return made


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Fits of made-up timings do not belong in the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("FOMKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


def test_three_hundred_files_come_to_all_doors() -> None:
    assert sum(shares(FILES).values()) == pytest.approx(FILES, abs=10)


@pytest.mark.parametrize("door", DOORS)
def test_valid_files_are_taken(folder: Path, door: str) -> None:
    for content in DOORS[door].contents(folder):
        assert attempt(folder / DOORS[door].name, content, DOORS[door].use), content[:80]


@pytest.mark.parametrize("door", DOORS)
def test_no_door_waits_for_a_pipe(folder: Path, door: str) -> None:
    if door == "fits":
        pytest.skip("fits that are no file are made again")
    path = folder / f"pipe.{DOORS[door].name}"
    os.mkfifo(path)
    try:
        with limited(), pytest.raises(FomkitError, match=r"is a pipe, which may never end|no such file"):
            DOORS[door].use(path)
    finally:
        path.unlink()


@pytest.mark.parametrize("door", DOORS)
def test_changed_files_are_read_or_refused(folder: Path, door: str) -> None:
    for number in range(shares(FILES)[door]):
        case = Case(door, number, folder)
        try:
            case.run()
        except Exception as error:
            error.add_note(f"python benchmarks/fuzz.py --door {door!r} --case {number}")
            raise
