"""Check whether packages of the extras are installed, without importing them, which takes seconds."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(*packages: str, reason: str) -> pytest.MarkDecorator:
    """Return a mark that skips tests if a package is missing; installed frameworks are not imported for it."""
    return pytest.mark.skipif(any(find_spec(one) is None for one in packages), reason=reason)
