"""Whether what the extras bring is installed, without the seconds that importing it takes."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(*packages: str, reason: str) -> pytest.MarkDecorator:
    """Skip tests where a package is absent; a framework that is here is imported by who runs them, not by all."""
    return pytest.mark.skipif(any(find_spec(one) is None for one in packages), reason=reason)
