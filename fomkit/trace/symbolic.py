"""The batch as a name: dimensions traced at several batch sizes become expressions in ``batch``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fomkit.trace.calls import Dimensions, TracedOp

Number = int | float
FLAGS = ("trans_a", "trans_b")
"""Decided by strides, which an axis of length 1 leaves open: the largest batch decides."""


def affine(values: Sequence[Number], batches: Sequence[int]) -> Number | str | None:
    """Write a dimension as slope·batch + intercept with whole numbers.

    Returns
    -------
    number, str or None
        The number where it is the same at every batch; None where no such line meets all values.

    Examples
    --------
    >>> affine([784, 1568, 2352], [1, 2, 3]), affine([5, 5, 5], [1, 2, 3]), affine([4, 6, 8], [1, 2, 3])
    ('784*batch', 5, '2*batch + 2')
    >>> affine([1, 4, 9], [1, 2, 3]) is None
    True
    """
    if len(set(values)) == 1:
        return values[0]
    slope = (values[1] - values[0]) / (batches[1] - batches[0])
    intercept = values[0] - slope * batches[0]
    if slope != int(slope) or intercept != int(intercept):
        return None
    if any(value != slope * batch + intercept for value, batch in zip(values, batches, strict=True)):
        return None
    line = "batch" if slope == 1 else f"{int(slope)}*batch"
    if not intercept:
        return line
    return f"{line} {'+' if intercept > 0 else '-'} {abs(int(intercept))}"


class NotAffine(Exception):  # noqa: N818 - a verdict, not a fault
    """The steps at several batch sizes are not one step with a named batch; the message says where."""


def _dimensions(ops: Sequence[TracedOp], batches: Sequence[int]) -> Dimensions:
    first, found = ops[0], Dimensions()
    for name, value in first.dimensions.items():
        values = [op.dimensions.get(name) for op in ops]
        if name in FLAGS:
            found[name] = values[-1] if values[-1] is not None else value
            continue
        numbers = [number for number in values if isinstance(number, int | float)]
        line = affine(numbers, batches) if len(numbers) == len(ops) else value if len(set(values)) == 1 else None
        if line is None:
            listed = ", ".join(str(item) for item in values)
            sizes = ", ".join(str(batch) for batch in batches)
            raise NotAffine(f"{name} of {first.op} in '{first.module}' is {listed} at batches {sizes}")
        found[name] = line
    return found


def _together(steps: Sequence[Sequence[TracedOp]], batches: Sequence[int]) -> Iterator[TracedOp]:
    lengths = [len(step) for step in steps]
    if len(set(lengths)) > 1:
        counts = ", ".join(f"{length} at {batch}" for length, batch in zip(lengths, batches, strict=True))
        raise NotAffine(f"the number of ops depends on the batch ({counts})")
    for ops in zip(*steps, strict=True):
        if len({op.identity for op in ops}) > 1:
            raise NotAffine(f"at some batch {ops[0].op} becomes {ops[-1].op} in '{ops[0].module}'")
        parts = list(_together([op.parts for op in ops], batches))
        yield replace(ops[0], dimensions=_dimensions(ops, batches), parts=parts)


def name_batch(steps: Sequence[Sequence[TracedOp]], batches: Sequence[int]) -> list[TracedOp]:
    """Join the traces of one step at several batch sizes into one with ``batch`` as a name.

    Parameters
    ----------
    steps : list of lists of TracedOp
        The ops of the step at each batch size.
    batches : list of int
        At least three, ascending: two give the line and the rest check it.

    Raises
    ------
    NotAffine
        When the ops differ or a dimension is no line.
    """
    return list(_together(steps, batches))
