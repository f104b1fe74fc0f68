"""A suite of two of CANDLE's lines, for tests of suites in general; all eleven lines take five times as long."""

from __future__ import annotations

from pathlib import Path

from fomkit.profiles.locate import shipped_folder

LINES = ("P1B1", "P1B3")


def short_suite(folder: Path) -> str:
    """Write the suite into a folder, without the whole suite's frozen figures; return its path."""
    path = folder / "short.suite.yaml"
    whole = (shipped_folder("model_profiles") / "candle.suite.yaml").read_text(encoding="utf-8")
    head, _, rest = whole.partition("lines:\n")
    lines = [line for line in rest.splitlines() if line.startswith(tuple(f"  - {{name: {one}," for one in LINES))]
    assert len(lines) == len(LINES)
    path.write_text(
        "\n".join([f"{head.replace('name: candle', 'name: short')}lines:", *lines, ""]), encoding="utf-8"
    )
    return str(path)
