"""The op tables of a transformer's training by its sizes: blocks, both ends, update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.parallel.block_rows import block_rows
from fomkit.parallel.rows import Row, Rows, Split, linear_backward
from fomkit.schema import column_names
from fomkit.workload import Transformer

if TYPE_CHECKING:
    import pandas as pd

HEAD, EMBEDDING, UPDATE = "head", "embedding", "update"


def check_split(shape: Transformer, tensor: int, *, sequence: bool) -> None:
    """Raise where a transformer does not divide among the devices of a tensor group.

    Raises
    ------
    FomkitError
    """
    pieces = {"heads": shape.heads, "hidden": shape.hidden, "feed_forward": shape.feed_forward,
              **({"seq": shape.seq} if sequence else {})}  # fmt: skip
    for name, size in pieces.items():
        if size % tensor:
            raise FomkitError("layout", f"{name} {size} does not divide by tensor {tensor}. Choose a divisor.")


def check_experts(name: str, shape: Transformer, expert: int) -> None:
    """Raise where replicas cannot share the experts of a transformer.

    Raises
    ------
    FomkitError
    """
    if expert > 1 and not shape.experts:
        raise FomkitError(name, f"has no experts, which expert {expert} would share. Leave 'expert' at 1.")
    if shape.experts % expert:
        raise FomkitError("layout", f"experts {shape.experts} do not divide by expert {expert}. Choose a divisor.")


def padded_vocabulary(shape: Transformer, tensor: int) -> int:
    """Give the words of the output, padded so that 128 divides each device's share (Megatron-LM's default)."""
    unit = 128 * tensor
    return -(-shape.vocabulary // unit) * unit


def head_rows(shape: Transformer, split: Split) -> list[Row]:
    """List the ops of the last norm, the output and the loss (cross entropy in fp32, split by words)."""
    rows, tokens = Rows(split.dtype), shape.seq * split.samples
    words, hidden = padded_vocabulary(shape, split.tensor) // split.tensor, shape.hidden
    whole, logits = split.whole(shape), tokens * words
    rows.stream("last norm", "forward", "norm", whole, 2, 2, hidden, HEAD)
    rows.product("output", "forward", (tokens, words, hidden), HEAD)
    for op, kind, read, write in (("logits to fp32", "copy", 2, 4), ("largest logit", "reduction", 4, 0),
                                  ("less the largest", "pointwise", 4, 4), ("exponential", "pointwise", 4, 4),
                                  ("sum of these", "reduction", 4, 0),
                                  ("over the sum", "pointwise", 4, 4)):  # fmt: skip
        rows.stream(op, "forward", kind, logits, read, write, words, HEAD, "fp32")
    rows.stream("loss", "backward", "pointwise", logits, 4, 4, words, HEAD, "fp32")
    rows.stream("logits from fp32", "backward", "copy", logits, 4, 2, words, HEAD, "fp32")
    linear_backward(rows, "output", tokens, words, hidden, HEAD)
    rows.stream("last norm", "backward", "norm", whole, 4, 2, hidden, HEAD)
    rows.stream("last norm, by weight", "backward", "reduction", whole, 4, 0, hidden, HEAD)
    return rows.rows


def embedding_rows(shape: Transformer, split: Split) -> list[Row]:
    """List the ops of words, positions and their dropout."""
    rows, hidden = Rows(split.dtype), shape.hidden
    numel, whole = shape.seq * split.samples * hidden, split.whole(shape)
    rows.stream("words", "forward", "embedding", numel, 2, 2, hidden, EMBEDDING)
    rows.stream("positions", "forward", "pointwise", whole, 4, 2, hidden, EMBEDDING)
    rows.stream("dropout", "forward", "pointwise", whole, 2, 3, hidden, EMBEDDING)
    rows.stream("dropout", "backward", "pointwise", whole, 3, 2, hidden, EMBEDDING)
    rows.stream("words, by weight", "backward", "embedding", numel, 6, 4, hidden, EMBEDDING)
    return rows.rows


def update_rows(parameters: float, tensors: float, *, clip: bool) -> list[Row]:
    """List the ops of Adam in mixed precision: gradients, moments and a copy of the parameters in fp32.

    Bytes are those of Megatron-LM's optimizer with apex kernels: unscale and check, norm and clip, fused Adam,
    copy to the short format, zero the sums of gradients.
    """
    rows = Rows("fp32")
    steps = [
        ("gradient unscale, check", 4, 4),
        ("parameters to the short format", 4, 2),
        ("gradients to zero", 0, 4),
    ]
    if clip:
        steps += [("gradient norm", 4, 0), ("gradient clip", 4, 4)]
    for op, read, write in steps:
        kind = "reduction" if not write else "copy" if op.startswith("parameters") else "pointwise"
        rows.stream(op, "update", kind, parameters, read, write, parameters, UPDATE)
    adam = {"op": "Adam", "kind": "optimizer", "dtype": "fp32", "engine": "vector", "pass_name": "update",
            "rule": "adam", "impl": "fused", "numel": parameters, "tensors": tensors,
            "module": UPDATE}  # fmt: skip
    return [*rows.rows, adam]


def tensors_of(shape: Transformer, expert: int = 1) -> int:
    """Count the parameter tensors of a block, of which so many devices share the experts'."""
    return 12 + 4 * (shape.experts // expert) + 1 if shape.experts else 16


def as_table(rows: list[Row]) -> pd.DataFrame:
    """Make an OPS table of rows that each run once."""
    import pandas as pd

    made = pd.DataFrame(rows)
    numbers = {*column_names("OPS", "number")}
    filled = {name: made[name].astype("float64") if name in numbers else made[name].fillna("") for name in made}
    return pd.DataFrame({**filled, "count": 1.0})


def profile_table(shape: Transformer, dtype: str) -> pd.DataFrame:
    """Give the OPS table of one step on one device; dimensions are expressions in ``batch``.

    Every dimension is fixed or proportional to the batch, which two tables tell apart.
    """
    import pandas as pd

    def ops(samples: int) -> pd.DataFrame:
        split = Split(samples, 1, False, dtype)
        blocks = block_rows(shape, split)
        ends = [*embedding_rows(shape, split), *head_rows(shape, split)]
        update = update_rows(shape.parameters, tensors_of(shape) * shape.blocks + 4, clip=True)
        counts = [*[float(shape.blocks)] * len(blocks), *[1.0] * (len(ends) + len(update))]
        return as_table([*blocks, *ends, *update]).assign(count=counts)

    one, two = ops(1), ops(2)
    found: dict[str, pd.Series] = {}
    for name in one.columns:
        grows = one[name].ne(two[name]) & one[name].notna()
        texts = one[name].astype("object")
        found[name] = texts.mask(grows, [f"{value:.0f}*batch" if up else value
                                         for value, up in zip(texts, grows, strict=True)])  # fmt: skip
    return pd.DataFrame(found)
