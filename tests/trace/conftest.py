"""Fixtures of the tracer's tests."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def torch() -> Any:
    torch = pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")
    importlib.import_module("torch._dynamo")  # any optimizer loads it
    gc.freeze()
    return torch


@pytest.fixture(scope="session")
def keras() -> Any:
    """Return Keras on TensorFlow, or skip the test."""
    pytest.importorskip("tensorflow", reason="Keras's tests need TensorFlow: pip install '.[tensorflow]'")
    return pytest.importorskip("keras", reason="Keras's tests need TensorFlow: pip install '.[tensorflow]'")


@pytest.fixture(scope="module", autouse=True)
def few_objects_are_searched() -> None:
    """Exclude what other files have loaded from each trace's search for caches of tensors without data.

    The search of a million objects takes longer than to trace a small model.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def on_meta(torch: Any) -> Iterator[None]:
    """Build the test's own model without memory for its weights."""
    with torch.device("meta"):
        yield


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a model.py into the test's folder."""

    def write(text: str, name: str = "model.py") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write
