"""The conditions of a measurement that no framework tells: processor, load, allocator, software, day."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fomkit import __version__

_ALLOCATOR = (
    "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "TCMALLOC_", "_RJEM_MALLOC_CONF", "MIMALLOC_", "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TF_GPU_ALLOCATOR",
    "TF_FORCE_GPU_ALLOW_GROWTH",
)  # fmt: skip
"""Beginnings of variables that set an allocator."""
_LONGEST = 200


def processor_name() -> str:
    """Name the model of the processor, as the system does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine() or "unknown"


def load() -> float | None:
    """Give the processes that wait for the processor, mean of the last minute; None where nobody counts them."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def allocator_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that set an allocator, as found."""
    return {name: text[:_LONGEST] for name, text in sorted(environment.items()) if name.startswith(_ALLOCATOR)}


def conditions_before(framework: str, version: str) -> dict[str, Any]:
    """Give what `fomkit.measurement.MeasuredRun` says of the conditions, but the load at the end."""
    return {
        "processor": processor_name(),
        "software": {
            framework: version,
            "python": platform.python_version(),
            "system": platform.platform(terse=True),
            "fomkit": __version__,
        },
        "allocator": allocator_settings(os.environ),
        "load_start": load(),
        "date": datetime.now(tz=UTC).date().isoformat(),
    }
