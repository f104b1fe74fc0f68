"""Fixtures of the tracer's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")


@pytest.fixture(scope="session")
def keras() -> Any:
    """Keras on TensorFlow, which warns about other packages while it is imported."""
    pytest.importorskip("tensorflow", reason="Keras's tests need TensorFlow: pip install '.[tensorflow]'")
    return pytest.importorskip("keras", reason="Keras's tests need TensorFlow: pip install '.[tensorflow]'")


@pytest.fixture
def on_meta(torch: Any) -> Iterator[None]:
    """Build the test's own model without memory for its weights."""
    with torch.device("meta"):
        yield


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[str], Path]:
    """Write a model.py into a folder of its own."""

    def write(text: str, name: str = "model.py") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write
