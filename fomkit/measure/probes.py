"""What is found out first: number formats, peak rates, bandwidth, and what it costs to start an op."""

from __future__ import annotations

from fomkit.measure.libraries import LIBRARIES
from fomkit.measure.ops import Cells, Wanted
from fomkit.measure.session import Session
from fomkit.timings.measure_facts import BF16_FLAGS, MATRIX_FLAGS

SQUARES = (512, 1024, 2048)
"""Sides of the products that show the peak; larger ones where they take little time."""
AMPERE = (8, 0)
VOLTA = (7, 0)


def formats_here(session: Session) -> list[tuple[str, str]]:
    """Give the number formats that the device multiplies, with the engine that does it."""
    if session.subject.device == "cuda":
        found = [("fp32", "vector"), ("fp64", "vector")]
        capability = tuple(session.subject.facts["capability"])
        found += [("fp16", "matrix")] if capability >= VOLTA else []
        return found + ([("tf32", "matrix"), ("bf16", "matrix")] if capability >= AMPERE else [])
    flags = session.subject.host.flags
    found = [("fp32", "vector"), ("fp64", "vector")]
    if flags & set(BF16_FLAGS):
        found.append(("bf16", "matrix" if flags & set(MATRIX_FLAGS) else "vector"))
    return found


def _square(side: int, dtype: str, engine: str) -> Cells:
    size = str(side)
    return {"kind": "gemm", "dtype": dtype, "engine": engine, "b": "1", "m": size, "n": size, "k": size,
            "trans_a": "0", "trans_b": "0"}  # fmt: skip


def probe(session: Session, formats: list[tuple[str, str]]) -> None:
    """Time the products that show the peaks, a stream through the memory, and an op of one element."""
    session.look()
    large = (4096, 8192) if session.subject.device == "cuda" else ()
    session.time_all([Wanted(_square(side, *pair), 1.0) for pair in formats for side in (*SQUARES, *large)])
    if not session.journal.marked("bandwidth"):
        stream = LIBRARIES[session.subject.framework].stream
        answer = session.ask(stream)
        if "reason" not in answer:
            byte = sum(float(stream[f"{way}_byte"]) for way in ("read", "write"))
            session.journal.mark("bandwidth", byte=byte, answer=answer)
    session.host()
    session.memory()
