"""What every verb shows is what the corpus keeps; a change that is meant is written with ``corpus.py --write``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from unittest import mock

import pytest
from golden import corpus


@pytest.fixture(scope="module", autouse=True)
def settled() -> Iterator[None]:
    # The command line names itself by the program that it is part of, which here would be pytest.
    with mock.patch.dict(os.environ), mock.patch.object(sys.modules["__main__"], "__package__", None):
        corpus.settle()
        yield


@pytest.mark.parametrize("name", corpus.sections())
def test_it_shows_what_is_kept(name: str) -> None:
    kept = (corpus.SHOWN / f"{name}.txt").read_text(encoding="utf-8")
    assert corpus.differences(kept, corpus.show(name)) == []
