"""Two formats that nobody else has: timings of matrix products, and a trace of them."""

from pathlib import Path

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.readers.adapters import ReadTable


class Toybench:
    """Lines such as ``fp32 512 256 1024 21.5``: number format, m, n, k and microseconds."""

    name = "toybench"
    title = "timings of Toybench (.txt)"

    def recognises(self, head: bytes, path: Path) -> bool:
        return head.startswith(b"toybench 1\n")

    def read(self, path: Path) -> ReadTable:
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) < 3:
            raise FomkitError(str(path), "has no timing. Run Toybench to its end.")
        words = [line.split() for line in lines[2:]]
        rows = pd.DataFrame(words, columns=["dtype", "m", "n", "k", "time_s"])
        rows = rows.assign(kind="gemm", engine="vector", time_s=rows["time_s"].astype(float) * 1e-6)
        return ReadTable(rows, device=lines[1], notes=("Toybench warms up once.",))


class Toytrace:
    """Lines such as ``forward fp32 batch 100 784 2``: pass, number format, m, n, k and calls."""

    name = "toytrace"
    title = "trace of Toytrace (.txt)"

    def recognises(self, head: bytes, path: Path) -> bool:
        return head.startswith(b"toytrace 1\n")

    def read(self, path: Path) -> ReadTable:
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
        rows = pd.DataFrame(
            [line.split() for line in lines], columns=["pass_name", "dtype", "m", "n", "k", "count"]
        )
        return ReadTable(rows.assign(kind="gemm", op="toy"))


toybench, toytrace = Toybench(), Toytrace()
