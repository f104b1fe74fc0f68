"""Read the text that tfprof prints, its view of ops with the shapes of their inputs, as an op table.

Format: TensorFlow 1's tfprof, ``op -select micros,bytes,occurrence,input_shapes``: a line with the columns' names,
a line for each type of op, and under it a line for each set of shapes, ``input_type: 0:100x50, 1:50x1
(run*1|defined*1) exec_time: 22us``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile
from fomkit.files.csv import read_bytes, read_start
from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, INPUT_GRADIENT, UPDATE, WEIGHT_GRADIENT, TracedOp
from fomkit.ops.check import check_table
from fomkit.readers.profilers.kineto import bare_model, trace_table
from fomkit.readers.profilers.kineto_rows import Row

# Text copied from a page or a slide may lack the bars, the commas or the spaces between the columns.
_HEADER = re.compile(r"^\s*node ?name[\s|]*.*execution ?time", re.MULTILINE)
_TIME = r"(\d+(?:\.\d+)?)(us|ms|sec|min)(?![a-z])"
_OP = re.compile(r"^\s*(?P<op>[A-Za-z]\w*)\s+(?P<rest>.*)$")
_GLUED = re.compile(
    r"^\s*(?P<op>[A-Za-z_]+(?:[1-3]D[A-Za-z]*|V[2-5])*)(?P<rest>\d[\d.]*\s*(?:[KMGT]?B|us|ms|sec|min)\W.*)$"
)
_SHAPED = re.compile(
    rf"input_type:(?P<shapes>.*?)\(run\*(?P<run>\d+)\s*\|?\s*defined\*\d+\)\s*exec_time:\s*{_TIME}"
)
_SHAPE = re.compile(r"-?\d+(?:x-?\d+)*")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "sec": 1.0, "min": 60.0}
_PRODUCT = "MatMul"

Pair = tuple[tuple[int, ...], ...]


class _Shaped(NamedTuple):
    """One line of shapes: those of the inputs, the runs of the op with them, and the time of all runs [s]."""

    shapes: tuple[tuple[int, ...], ...]
    run: int
    time_s: float


def recognise_tfprof(path: Path) -> bool:
    """Return whether a file is tfprof's output, by the line that names its columns."""
    return _HEADER.search(read_start(path).decode("utf-8", errors="replace")) is not None


def _shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """Read ``0:100x50, 1:50x1`` by the inputs' numbers, which are in order; separators are ignored.

    >>> _shapes("0:-1x29532,1:29532x1000,"), _shapes("0:-1x295321:29532x1000")
    (((-1, 29532), (29532, 1000)), ((-1, 29532), (29532, 1000)))
    """
    found: list[tuple[int, ...]] = []
    rest = text
    while (start := rest.find(f"{len(found)}:")) >= 0:
        rest = rest[start + len(f"{len(found)}:") :]
        end = rest.find(f"{len(found) + 1}:")
        if match := _SHAPE.match(rest[: end if end >= 0 else None].strip()):
            found.append(tuple(map(int, match[0].split("x"))))
        else:
            break
    return tuple(found)


def _parsed(path: Path) -> list[tuple[int, str, float, list[_Shaped]]]:
    """Return line, type, time of all runs [s] and shapes of each op."""
    text = read_bytes(path).decode("utf-8-sig", errors="replace")
    found: list[tuple[int, str, float, list[_Shaped]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        shaped = _SHAPED.search(line)
        if shaped and found:
            found[-1][3].append(
                _Shaped(_shapes(shaped["shapes"]), int(shaped["run"]), float(shaped[3]) * _SECONDS[shaped[4]])
            )
        elif (op := _GLUED.match(line) or _OP.match(line)) and (time := re.search(_TIME, op["rest"])):
            found.append((number, op["op"], float(time[1]) * _SECONDS[time[2]], []))
    return found


def _roles_of_pairs(lines: Sequence[_Shaped], batch: int) -> Mapping[Pair, list[TracedOp]]:
    """Return the ops that each pair of shapes can be: a layer's forward product and the two gradients of it.

    Two matrices alone do not show which axes are summed; the batch and the layers of the forward pass do.
    """
    roles: dict[Pair, list[TracedOp]] = {}
    for line in lines:
        left, right = line.shapes
        if left[0] != batch or left[1] != right[0]:
            continue
        inner, outer = right
        for pair, pass_name, sizes in (
            (((batch, inner), (inner, outer)), FORWARD, (batch, outer, inner, 0, 0)),
            (((batch, inner), (batch, outer)), WEIGHT_GRADIENT, (inner, outer, batch, 1, 0)),
            (((batch, outer), (inner, outer)), INPUT_GRADIENT, (batch, inner, outer, 0, 1)),
        ):
            names = ("m", "n", "k", "trans_a", "trans_b")
            op = TracedOp(
                _PRODUCT, "gemm", {"b": 1, **dict(zip(names, sizes, strict=True))}, "fp32", pass_name, ""
            )
            if op not in roles.setdefault(pair, []):
                roles[pair].append(op)
    return roles


def _product_rows(lines: Sequence[_Shaped], batch: int, where: str) -> Iterator[Row]:
    def bind(line: _Shaped) -> _Shaped:
        shapes = (tuple(batch if size == -1 else size for size in shape) for shape in line.shapes)
        return line._replace(shapes=tuple(shapes))

    bound = [bind(line) for line in lines if line.run]
    if any(len(line.shapes) != 2 or any(len(shape) != 2 for shape in line.shapes) for line in bound):
        raise FomkitError(where, f"a {_PRODUCT} does not have two matrices. Print it with input_shapes.")
    roles = _roles_of_pairs(bound, batch)
    for line in bound:
        fitting = roles.get(line.shapes, [])
        if not fitting or line.run % len(fitting):
            shown = ", ".join("x".join(map(str, shape)) for shape in line.shapes)
            raise FomkitError(
                where, f"{_PRODUCT} of {shown} is not of a dense layer at batch {batch}. Check --set batch."
            )
        for op in fitting:
            op.count = line.run // len(fitting)
            yield Row(op, [line.time_s / line.run], alone=len(fitting) == 1, unit="")


def _pass_of(op: str) -> str:
    if op.startswith(("Assign", "Apply", "ResourceApply")):
        return UPDATE
    return BACKWARD if "Grad" in op or "Backprop" in op else FORWARD


def read_tfprof(path: Path, sizes: Mapping[str, int]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Read tfprof's text.

    `sizes`: with ``batch``, which tfprof prints as -1. Returns notes and an OPS table: a row for each matrix
    product and its pass, and a row for the sum of each other op, whose sizes are not printed.
    """
    where = str(path)
    rows: list[Row] = []
    batch = sizes.get("batch", 0)
    for line, op, time_s, shaped in _parsed(path):
        if op == _PRODUCT and shaped:
            if not batch:
                raise FomkitError(where, "its shapes leave the batch open. Give it, for example --set batch=100.")
            rows += _product_rows(shaped, batch, f"{where}:{line}")
        else:
            rows.append(Row(TracedOp(op, "other", {}, "fp32", _pass_of(op), ""), [time_s], alone=True, unit=""))
    if not rows:
        raise FomkitError(
            where, "has no op with a time. Print it with: op -select micros,occurrence,input_shapes."
        )
    others = sum(row.op.kind == "other" for row in rows)
    notes = [
        "traced_time_s: mean time of one run, as tfprof prints it; number formats are not printed, fp32 is assumed"
    ]
    if others:
        notes.append(f"partial: {others} types of op are sums without sizes; their pass is guessed by name")
    return trace_table(rows), tuple(notes)


def model_of_tfprof(path: Path, sizes: Mapping[str, int]) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile from tfprof's output."""
    ops, messages = read_tfprof(path, sizes)
    check_table(ops, "OPS", str(path))
    return bare_model(path, ops, sizes, framework="tensorflow"), messages
