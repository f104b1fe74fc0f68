"""Write a report, open it in a headless browser, and save the picture of it that the README shows.

    python benchmarks/report_picture.py [MODEL MACHINE] [-o docs/images/report.png]

Needs chromium and chromium-driver (Debian's), and ``pip install '.[test]'``.
"""

from __future__ import annotations

import argparse
import base64
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import fomkit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "report"))
from browser import PICTURED, opened, words_to

WIDTH = 1120


def described(png: bytes, words: str) -> bytes:
    """Return a PNG with a description; a test compares it with the words of today's report."""
    content = b"iTXt" + b"Description\0\0\0\0\0" + words.encode()
    chunk = struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
    return png[:-12] + chunk + png[-12:]  # before the last chunk, IEND


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["resnet50", "v100"], help="model and machine")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images/report.png"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        fomkit.write_report(fomkit.estimate(*options.names), page)
        with opened(page, WIDTH) as window:
            last = window.find_element("id", PICTURED).rect
            height = int(last["y"] + last["height"]) + 16
            shot = window.execute_cdp_cmd(
                "Page.captureScreenshot",
                {"format": "png", "optimizeForSpeed": False, "captureBeyondViewport": True,
                 "clip": {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}},
            )  # fmt: skip
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_bytes(described(base64.b64decode(shot["data"]), words_to(page)))
    print(f"{options.output}: {options.output.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
