"""One step by every clock there is: the processor's time, the wall's, and events on an accelerator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Sample = dict[str, float]
"""Time of one step [s], by clock."""


def _on_processor(step: Callable[[], Any]) -> Sample:
    wall, process = time.perf_counter(), time.process_time()
    step()
    return {"process": time.process_time() - process, "wall": time.perf_counter() - wall}


def stopwatch(cuda: Any = None) -> Callable[[Callable[[], Any]], Sample]:
    """Give what times one step.

    Parameters
    ----------
    cuda : module, optional
        ``torch.cuda`` where the step runs on an accelerator: events tell when it is reached and done there, and
        the wall's clock waits for it.
    """
    if cuda is None:
        return _on_processor

    def on_device(step: Callable[[], Any]) -> Sample:
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)

        def timed() -> None:
            start.record()
            step()
            end.record()
            end.synchronize()

        cuda.synchronize()
        sample = _on_processor(timed)
        return {**sample, "device": float(start.elapsed_time(end)) / 1e3}

    return on_device
