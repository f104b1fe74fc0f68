"""Steps of a Keras model under TensorFlow's profiler: how long each took, and the time of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from fomkit.errors import FomkitError
from fomkit.trace.keras_nodes import nodes_of_step
from fomkit.trace.keras_profile import TracedWorkload
from fomkit.trace.keras_step import whole_step_of
from fomkit.trace.stopwatch import Sample
from fomkit.trace.xplane_join import JoinedNodes, join_nodes
from fomkit.trace.xplane_times import read_plane_times

PROFILER = "tf.profiler, joined to the graph; ops are not fused"


@contextmanager
def _unfused() -> Iterator[None]:
    """Keep each op of the graph one of its own inside the block, as no fused one could be told from its parts."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({**before, "remapping": False})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({**before, "remapping": before.get("remapping", True)})


@dataclass
class OpTimes:
    """Times a step's ops; ``joined`` holds the outcome once steps have run."""

    traced: TracedWorkload
    values: Any
    folder: str
    joined: JoinedNodes | None = field(default=None, init=False)

    def profiled(self, watch: Callable[[Callable[[], Any]], Sample], repeats: int) -> list[Sample]:
        """Run steps under the profiler, one more before them.

        The function is made anew: TensorFlow stops recording ops that turned out cheap after some 90 executions.
        """
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
        with _unfused():
            step = whole_step_of(self.traced.prepared, self.traced.sized.sizes)

            def run() -> Any:
                return step.function(self.values)

            run()
            tf.profiler.experimental.start(self.folder, options=options)
            try:
                samples = [watch(run) for _ in range(repeats)]
            finally:
                tf.profiler.experimental.stop()
        nodes = nodes_of_step(self.traced.prepared, step, self.traced.sized)
        self.joined = join_nodes(read_plane_times(self._file()), nodes, len(self.traced.draft.rows))
        return samples

    def _file(self) -> Path:
        found = sorted(Path(self.folder).glob("plugins/profile/*/*.xplane.pb"))
        if not found:
            raise FomkitError("tf.profiler", "left no trace. Measure the step alone with --measure step.")
        return found[-1]
