"""Write exports of Nsight Systems by NVIDIA's published schema, because no GPU was available to record one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

PROCESS = 0x1_000_123 << 24
THREAD = PROCESS + 77
SCHEMA = """
    CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, smCount INTEGER, totalMemory INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
        start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
        streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
        shortName INTEGER NOT NULL, registersPerThread INTEGER NOT NULL DEFAULT 32);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
        start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
        correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
        start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
        streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,
        copyKind INTEGER NOT NULL);
    CREATE TABLE NVTX_EVENTS (
        start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT,
        globalTid INTEGER, textId INTEGER, domainId INTEGER);
    INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.15.1');
    INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA A100-SXM4-80GB', 108, 85000000000);
"""


class Export:
    """Writes ranges and launches of one thread with a simulated clock [ns]; kernels run in sequence."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock, self.device_clock, self.correlation = 1_000_000, 2_000_000, 0
        self.strings: dict[str, int] = {}
        self._database = sqlite3.connect(path)
        self._database.executescript(SCHEMA)

    def string(self, text: str) -> int:
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.add("StringIds", self.strings[text], text)
        return self.strings[text]

    def add(self, table: str, *values: object) -> None:
        marks = ", ".join("?" * len(values))
        names = [one[1] for one in self._database.execute(f"PRAGMA table_info({table})")][: len(values)]
        self._database.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", values)

    @contextmanager
    def range(self, text: str, *, by_id: bool = False) -> Iterator[None]:
        start = self.clock
        self.clock += 1000
        yield
        self.clock += 1000
        told = (None, THREAD, self.string(text)) if by_id else (text, THREAD, None)
        self.add("NVTX_EVENTS", start, self.clock, 59, None, *told, 0)
        self.clock += 1000

    def _launch(self) -> None:
        self.correlation += 1
        name = self.string("cudaLaunchKernel_v7000")
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", self.clock, self.clock + 500, 0, THREAD, self.correlation, name)
        self.clock += 1000
        self.device_clock = max(self.device_clock, self.clock) + 1000

    def kernel(self, name: str, time_us: int) -> None:
        self._launch()
        end = self.device_clock + 1000 * time_us
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", self.device_clock, end, 0, 1, 7, self.correlation, PROCESS,
                 self.string(name), self.string(name.partition("<")[0]))  # fmt: skip
        self.device_clock = end

    def copy(self, byte: int, time_us: int) -> None:
        self._launch()
        end = self.device_clock + 1000 * time_us
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", self.device_clock, end, 0, 1, 7, self.correlation, PROCESS, byte, 1)
        self.device_clock = end

    def op(self, text: str, kernels: Sequence[tuple[str, int]], *, by_id: bool = False) -> None:
        with self.range(text, by_id=by_id):
            for name, time_us in kernels:
                self.kernel(name, time_us)

    def close(self) -> Path:
        self._database.commit()
        self._database.close()
        return self.path


def linear_steps(export: Export, steps: int = 3, *, sized: bool = True) -> None:
    """Write steps of a linear layer, 8 samples, 16 to 4 features, as PyTorch's emit_nvtx names them."""
    for number in range(steps):
        seq = 3 * number

        def text(name: str, sizes: str, seq: int = seq) -> str:
            return f"{name}, seq = {seq}, op_id = {seq + 1}" + (f", sizes = {sizes}" if sized else "")

        with export.range("aten::_local_scalar_dense"):
            export.copy(512, 5)
        with export.range(text("aten::linear", "[[8, 16], [4, 16], [4]]")):
            export.op(text("aten::addmm", "[[4], [8, 16], [16, 4], [], []]"), [("ampere_sgemm_64x64_tn", 20)])
        with export.range(f"autograd::engine::evaluate_function: AddmmBackward0, seq = {seq}"):
            export.op(text("aten::mm", "[[4, 8], [8, 16]]"), [("ampere_sgemm_64x64_nt", 30)], by_id=True)
        with export.range("Optimizer.step#SGD.step"):
            export.op(
                "aten::add_" + (", sizes = [[4, 16], [4, 16], []]" if sized else ""), [("elementwise<1>", 3)]
            )
            export.op("aten::add_" + (", sizes = [[4], [4], []]" if sized else ""), [("elementwise<1>", 1)])


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)
