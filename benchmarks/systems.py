"""Measure layouts per second of a large transformer, relative to an interleaved calibration loop.

    python benchmarks/systems.py --layouts 2000

Prints layouts per second of CPU time, and the time of one layout in iterations of an empty Python loop: that ratio
can be compared between machines.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from fomkit.core.errors import FomkitError
from fomkit.core.job import Layout
from fomkit.core.transformer import Transformer
from fomkit.parallel.step import check_layout
from fomkit.plan.options import Options
from fomkit.plan.scaling import stepper_of, with_user_links
from fomkit.profiles.declared import load_layout
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import transformer_profile

GPT_175B = Transformer(hidden=12288, heads=96, blocks=96, seq=2048, vocabulary=51200)
DEVICES, BATCH, LOOP = 512, 1536, 1_000_000
CHOICES = {
    "tensor": (1, 2, 4, 8), "pipeline": (1, 2, 4, 8, 16, 32), "microbatch": (1, 2, 4, 8), "interleave": (1, 2, 3),
    "recompute": ("none", "selective", "full"), "sequence": (False, True), "zero": (0, 1),
    "overlap": (False, True),
}  # fmt: skip


def layouts(base: Layout) -> Iterator[Layout]:
    """Yield every valid layout that combines the choices."""
    for values in product(*CHOICES.values()):
        try:
            yield check_layout(replace(base, **dict(zip(CHOICES, values, strict=True))))
        except FomkitError:
            continue


def calibration_s() -> float:
    """Time an empty loop [s]."""
    started, total = time.process_time(), 0
    for number in range(LOOP):
        total += number
    return time.process_time() - started


def main() -> None:
    """Price layouts, with a calibration loop before each hundred."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layouts", type=int, default=2000)
    count = parser.parse_args().layouts
    base, links = load_layout(Path(__file__).resolve().parent.parent / "validation/megatron/hdr.layout.yaml")
    machine, model = with_user_links(load_machine("a100-sxm"), links), transformer_profile(GPT_175B, "gpt-175b")
    chosen = list(layouts(base))
    random.Random(1).shuffle(chosen)
    spent, loops, priced, refused = 0.0, [], 0, 0
    for number, layout in enumerate(chosen[:count]):
        if number % 100 == 0:
            loops.append(calibration_s())
        started = time.process_time()
        try:
            stepper_of(model, machine, layout, Options()).at(DEVICES, BATCH)
            priced += 1
        except FomkitError:
            refused += 1
        spent += time.process_time() - started
    loop_s = sum(loops) / len(loops) / LOOP
    tried = priced + refused
    sys.stdout.write(
        f"{tried:,} layouts of a 175 B transformer on {DEVICES} devices ({refused:,} that do not divide): "
        f"{tried / spent:,.0f} a second, {spent / tried / loop_s:,.0f} iterations of an empty loop each\n"
    )


if __name__ == "__main__":
    main()
