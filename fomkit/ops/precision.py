"""Another precision: restate the ops of a step in the number formats that a framework would use for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.core.units import BLOCKS_AS_FP8, BLOCKS_OF_FP8, ITEM_BYTE, MATRIX_KINDS, Precision, precision_meant
from fomkit.ops.autocast import BY_SOFTMAX, CROSS_ENTROPY, WIDE, softmax_factors, with_casts
from fomkit.ops.families.costs import MATRICES
from fomkit.ops.kinds import PRODUCT_KINDS
from fomkit.ops.tables import TRAFFIC

PRECISIONS: tuple[str, ...] = get_args(Precision)

FLOATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp8_block")
"""Formats that are restated; fp64 and integers are intended by the user and stay."""

SHORT = ("fp16", "bf16")
"""Formats of a model whose weights are narrow already: nothing is widened, and no weights are cast."""

STREAM_KINDS = ("pointwise", "norm", "pool", "copy")
"""Kinds whose tensors are in the format of the activations; so are sums of gradients, such as those of a bias, and
the softmax inside an attention. PyTorch's autocast casts neither: a gradient has the format of its forward op, and
an attention is one op of the narrow formats (torch.amp, "CUDA Ops that can autocast to float16")."""

PRODUCTS = (*MATRIX_KINDS, "experts")
"""Kinds whose number format a precision states."""

FP32_KINDS = ("softmax", "reduction", "embedding", "optimizer")
"""Kinds that otherwise stay in fp32 at every precision, as does the whole update."""

BLOCKS: Mapping[str, int] = {"fp8": 16, "fp8_block": 64, "mxfp8": 32, "nvfp4": 16, "int8": 16}
"""Formats of linear layers alone, and the number of which both sides of a layer's weights must be multiples.

Sources: NVIDIA, Transformer Engine user guide 2.18, low-precision training: fp8 with one scale requires multiples
of 16, MXFP8 scales blocks of 32, NVFP4 of 16. cuBLAS requires int8 factors whose rows are multiples of 16 byte.
fp8_block has a scale per 128 × 128 weights; DeepGEMM pads the last block of a width that 64 divides (vLLM's pull
request 28687, 2025).
"""


@dataclass(frozen=True)
class Formats:
    """The number formats of the ops of a step.

    `matrix`: dtype and engine by kind, for ops of forward and backward; kinds that are absent stay as traced.
    `stream`: number format of the activations in between; "" leaves them as traced.
    `casts_weights`: the optimizer keeps fp32 weights; every step casts those that products read, and casts their
      gradients back.
    `scales_loss`: the gradients are divided by the scale of the loss before the update.
    `low`: number format of weights and activations of linear layers; "" if it is that of other products.
    """

    name: str
    matrix: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    stream: str = ""
    casts_weights: bool = False
    scales_loss: bool = False
    low: str = ""
    message: str = "number formats as traced"

    @property
    def computed(self) -> frozenset[str]:
        """The number formats that a machine must calculate in."""
        return frozenset({dtype for dtype, _ in self.matrix.values()} | {self.low} - {""})


_LOW = (
    "activations in {0} too; softmax outside attention, losses, embeddings and, in a step with gradients, "
    "PyTorch's layer norms stay in fp32 (softmax of its cross_entropy in {0}); the update keeps fp32 weights"
)
_OF_LINEAR = (
    "linear layers in {low}, {how}; activations, attention, routers, the last product and layers whose sizes "
    "are not multiples of {block} in {wide}; embeddings, softmax and reductions as traced"
)
_IN_PRODUCT = (
    "times include quantising the activations (a step with gradients quantises its weights once, along rows and "
    "columns, and updates fp32 weights)"
)
_BY_OP_BEFORE = "activations quantised by the preceding op at no extra cost"


def _of_linear_layers(low: str, wide: str) -> Formats:
    """Return the formats of a step in which only linear layers are in a low format.

    Transformer Engine's recipes quantise the factors of linear layers; DeepSeek-V3 (arXiv 2412.19437, section
    3.3.1) keeps embedding, output, routers, norms and attention wider; vLLM 0.5.4's documentation (quantization,
    FP8) quantises all linear layers but the last. E4M3 and E5M2 have the same width and rate.
    """
    engine = "vector" if wide == "fp32" else "matrix"
    how = _BY_OP_BEFORE if low == "int8" else _IN_PRODUCT
    message = _OF_LINEAR.format(low=low, block=BLOCKS[low], wide=wide, how=how)
    return Formats(low, dict.fromkeys(PRODUCTS, (wide, engine)), wide, casts_weights=True, low=low,
                   message=message)  # fmt: skip


FORMATS: Mapping[str, Formats] = {
    "fp32": Formats("fp32", dict.fromkeys(PRODUCTS, ("fp32", "vector")), "fp32", message="every op in fp32"),
    "tf32": Formats(
        "tf32", dict.fromkeys(PRODUCTS, ("tf32", "matrix")), "fp32",
        message="products in tf32, the rest in fp32",
    ),
    "mixed": Formats(
        "mixed", dict.fromkeys(PRODUCTS, ("fp16", "matrix")), "fp16", casts_weights=True, scales_loss=True,
        message=f"products in fp16 with fp32 sums, {_LOW.format('fp16')}",
    ),
    "bf16": Formats(
        "bf16", dict.fromkeys(PRODUCTS, ("bf16", "matrix")), "bf16", casts_weights=True,
        message=f"products in bf16, {_LOW.format('bf16')}",
    ),
    **{low: _of_linear_layers(low, "bf16") for low in BLOCKS},
}  # fmt: skip

TF32_BY_DEFAULT: Mapping[str, tuple[str, ...]] = {
    "torch": ("conv", "rnn"),
    "tensorflow": MATRIX_KINDS,
    "keras": MATRIX_KINDS,
}
"""Kinds that a framework runs in tf32 by default where the device has it.

Sources: PyTorch, "CUDA semantics", TensorFloat-32 (cuDNN allows it, matrix products do not since 1.12);
TensorFlow, ``tf.config.experimental.enable_tensor_float_32_execution`` (on by default).
"""

TF32_BESIDE = "fp32/tf32"
DEFAULTS = ("", TF32_BESIDE)
"""Names of the formats of a step for which no precision is given."""


def _known_formats(machine: Machine) -> set[str]:
    return {peak.dtype for peak in machine.device.peaks} | {
        str(dtype) for dtype in machine.timings["dtype"].unique()
    }


def _default(framework: str, machine: Machine, ops: pd.DataFrame | None) -> Formats:
    if framework not in TF32_BY_DEFAULT:
        return Formats("", message="number formats as traced")
    kinds = TF32_BY_DEFAULT[framework]
    changed = ops is None or bool((ops["kind"].isin(kinds) & ops["dtype"].eq("fp32")).any())
    if "tf32" not in _known_formats(machine) or not changed:
        return Formats("", message=f"number formats as traced, the default of {framework}")
    message = f"default of {framework}: fp32 {', '.join(kinds)} in tf32, all else as traced"
    return Formats(TF32_BESIDE, dict.fromkeys(kinds, ("tf32", "matrix")), message=message)


def formats_named(precision: str) -> Formats:
    """Return the number formats of a precision."""
    if precision not in FORMATS:
        raise FomkitError("precision", f"{precision!r} is not a precision. {precision_meant(precision)}")
    return FORMATS[precision]


def choose_formats(
    precision: str | None, framework: str, machine: Machine, ops: pd.DataFrame | None = None
) -> Formats:
    """Return the number formats of a step.

    `precision`: one of `PRECISIONS`; None for the framework's default on this machine; `framework`: the one that
    traced the model; `ops`: the model's OPS table: if the framework would change nothing in it, its formats are as
    traced. Raises FomkitError where the machine lacks a format, or the precision does not apply to the model.
    """
    if precision is None:
        return _with_blocks_noted(_default(framework, machine, ops), machine, ops)
    formats, known = formats_named(precision), _known_formats(machine)
    if formats.low and ops is not None and "weight_share" in ops.columns and ops["weight_share"].notna().any():
        what = f"{precision} applies to linear layers, but the weights of this model are packed already"
        raise FomkitError("precision", f"{what}. Leave it out, or profile the model without quantization_config.")
    if precision == "int8":
        if ops is not None and ops["pass_name"].ne("forward").any():
            what = "--precision int8 is for inference, but this step has gradients"
            raise FomkitError(machine.name, f"{what}. Use fp8, or profile the model with --mode infer.")
        formats = _of_linear_layers(precision, next((wide for wide in ("bf16", "fp16") if wide in known), "fp32"))
    lacking = sorted(formats.computed - known)
    if lacking:
        has = f"It has {', '.join(sorted(known))}." if known else "It states no peaks and no timings."
        raise FomkitError(
            machine.name,
            f"--precision {precision} needs arithmetic in {' and '.join(lacking)}, which is not in its profile. "
            f"{has} Choose another precision, or add its rate to device.peak in the machine's file: "
            f"{{dtype: {lacking[0]}, engine: matrix, rate: … TFLOP/s, source: …}}.",
        )
    return _with_blocks_noted(formats, machine, ops)


def blocks_note(machine: Machine) -> str:
    """Return a note that the peak of fp8 counts for blocks of fp8; "" where the machine states one for them."""
    peak = machine.device.peak(BLOCKS_OF_FP8, "matrix")
    if peak is None or peak.rate.source != BLOCKS_AS_FP8:
        return ""
    why = f"{machine.name} states no peak of it, so that of fp8 counts (docs/adr/0084)"
    return f"products in {BLOCKS_OF_FP8} have wider bounds: {why}"


def _with_blocks_noted(formats: Formats, machine: Machine, ops: pd.DataFrame | None) -> Formats:
    stored = ops is not None and not formats.low and bool(ops["dtype"].eq(BLOCKS_OF_FP8).any())
    note = blocks_note(machine) if stored or formats.low == BLOCKS_OF_FP8 else ""
    return replace(formats, message=f"{formats.message}; {note}") if note else formats


LEAST_SHARE = 0.01
"""Share of a step's products from which their number format is named."""


def name_precision(formats: Formats, ops: pd.DataFrame) -> str:
    """Return the name of the chosen precision, else the number formats of the products of a restated step.

    >>> import pandas as pd
    >>> ops = pd.DataFrame({"kind": "gemm", "dtype": ["bf16", "fp32"], "flop": [9.0, 1.0], "count": 1.0})
    >>> name_precision(Formats(""), ops), name_precision(FORMATS["mixed"], ops)
    ('bf16/fp32', 'mixed')
    """
    if formats.name not in DEFAULTS:
        return formats.name
    flop = ops["flop"] * ops["count"]
    products = flop.where(ops["kind"].isin(PRODUCT_KINDS), 0.0)
    by_format = (products if products.sum() > 0 else flop).groupby(ops["dtype"]).sum()
    if not len(by_format) or not by_format.max() > 0:
        return str(ops["dtype"].iloc[0]) if len(ops) else ""
    if not products.sum() > 0:
        return str(by_format.idxmax())
    named = {str(dtype) for dtype in by_format.index[by_format >= LEAST_SHARE * by_format.sum()]}
    return "/".join(sorted(named | ({"fp32"} if "tf32" in named else set())))


_POOLED = (
    "aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", "aten::adaptive_max_pool2d",
    "aten::adaptive_max_pool3d",
)  # fmt: skip
_WORDS = "eq ne lt le gt ge Equal NotEqual Less LessEqual Greater GreaterEqual"
_BESIDE: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(_POOLED, (0, 8)), **{f"{pool}_backward": (8, 0) for pool in _POOLED},
    "aten::native_dropout": (0, 1), "aten::native_dropout_backward": (1, 0), "SelectV2": (1, 0),
    **dict.fromkeys(("aten::masked_fill", "aten::masked_fill_"), (1, 0)), "aten::where": (0.5, 0),
    **{f"{'aten::' * word.islower()}{word}": (0, np.inf) for word in _WORDS.split()},
}  # fmt: skip
"""Bytes of indices and masks that an op reads and writes per number; a change of the number format leaves them.
Infinite if the op writes nothing else. A mask counts as large as the numbers: names do not tell smaller ones."""


def byte_factors(ops: pd.DataFrame, after: pd.Series[str]) -> NDArray[np.float64]:
    """Return the factors (n, 2) by which a new number format of each row changes the bytes read and written.

    >>> ops = pd.DataFrame({"op": ["aten::relu", "aten::native_dropout", "aten::ge"], "dtype": "fp32"})
    >>> byte_factors(ops, pd.Series(["fp16"] * 3)).tolist()  # of dropout 4 + 1 byte become 2 + 1
    [[0.5, 0.5], [0.5, 0.6], [0.5, 1.0]]
    """
    codes, names = pd.factorize(ops["op"].astype("str"))
    beside = np.array([_BESIDE.get(str(name), (0.0, 0.0)) for name in names]).reshape(-1, 2)[codes]
    new, old = (column.map(ITEM_BYTE).to_numpy(np.float64)[:, None] for column in (after, ops["dtype"]))
    whole = np.isinf(beside)
    return np.where(whole, 1.0, (new + np.where(whole, 0.0, beside)) / (old + np.where(whole, 0.0, beside)))


def linear_layers(ops: pd.DataFrame, rows: pd.Series[bool], block: int) -> pd.Series[bool]:
    """Return which rows are products of linear layers that are in a low format, in each pass.

    A layer is identified by its forward product, with one matrix of weights; the products of its gradients have
    the same three sizes in another order. The last layer does not count, nor does the router of a mixture.
    """
    if not {"b", "m", "n", "k"} <= {*ops.columns}:
        return rows & False
    blank = pd.Series(np.nan, ops.index)
    experts, density = (ops.get(name, blank) for name in ("experts", "density"))
    whole = ops["n"].mod(block).eq(0) & ops["k"].mod(block).eq(0) & density.isna()
    one = rows & experts.isna() & ops["b"].eq(1)
    sizes = np.sort(ops[["m", "n", "k"]].to_numpy(np.float64), axis=1)
    modules = ops["module"].astype("str") if "module" in ops.columns else [""] * len(ops)
    keys = pd.Series(list(zip(modules, *sizes.T, strict=True)), ops.index)
    forward = one & ops["pass_name"].eq("forward")
    layers = {*keys[forward & whole & ~ops["n"].isin(experts.dropna())]} - {*keys[forward].iloc[-1:]}
    return (one & keys.isin(layers)) | (rows & experts.notna() & whole)


def _weights_of(ops: pd.DataFrame, formats: Formats) -> pd.Series[float]:
    """Return the number of weights of each layer whose forward product is in the low format; 0 for other rows."""
    held = ops["dtype"].eq(formats.low) & ops["pass_name"].eq("forward")
    numel = ops["b"] * ops["n"] * ops["k"] if "n" in ops.columns else held * 0.0
    return numel.where(held, 0.0) * np.where(ops["kind"].eq("experts"), MATRICES, 1)


def stored_byte(ops: pd.DataFrame, formats: Formats) -> float:
    """Return by how many bytes the weights of a forward pass are smaller than as traced.

    `ops`: an OPS table whose dimensions are numbers. Gradients require the wide weights, so a step with gradients
    saves nothing.

    >>> import pandas as pd
    >>> layer = {"op": "linear", "kind": "gemm", "dtype": "bf16", "engine": "matrix", "pass_name": "forward"}
    >>> ops = pd.DataFrame([{**layer, "count": 3.0, "b": 1.0, "m": 5.0, "n": n, "k": 32.0} for n in (64.0, 99.0)])
    >>> stored_byte(ops, FORMATS["fp8"]) == 3 * 64 * 32
    True
    """
    if not formats.low or ops["pass_name"].ne("forward").any():
        return 0.0
    restated = _in_formats(ops, formats)
    saved = ops["dtype"].map(ITEM_BYTE).astype(float) - ITEM_BYTE[formats.low]
    return float((_weights_of(restated, formats) * ops["count"] * saved).sum())


def formats_of_products(ops: pd.DataFrame) -> frozenset[str]:
    """Return the number formats in which products of the forward pass were traced."""
    rows = set(zip(*(ops[name].tolist() for name in ("dtype", "kind", "pass_name")), strict=True))
    return frozenset(dtype for dtype, kind, way in rows if way == "forward" and kind in PRODUCT_KINDS)


def computes_in_16(ops: pd.DataFrame) -> bool:
    """Return whether products were traced in 16 bits, as under autocast."""
    return not formats_of_products(ops).isdisjoint(SHORT)


def narrows(ops: pd.DataFrame, formats: Formats) -> bool:
    """Return whether formats make the results of ops narrower than they were traced."""
    if formats.stream in ("", "fp32"):
        return False
    handed = ops["kind"].isin((*MATRIX_KINDS, *STREAM_KINDS)) & ops["pass_name"].ne("update")
    return bool((ops["dtype"][handed].map(ITEM_BYTE).astype(float) > ITEM_BYTE[formats.stream]).any())


def _streams(ops: pd.DataFrame, formats: Formats, *, is_parts: bool) -> pd.Series[bool]:
    """Return which rows are in the format of the activations."""
    sums = ops["kind"].eq("reduction") & ops["pass_name"].astype("str").str.startswith("backward")
    rows = ops["kind"].isin((*STREAM_KINDS, *(["softmax"] if is_parts else []))) | sums
    if keeps_weights(ops, formats) and not formats.low:
        return (rows & ~ops["op"].isin(WIDE)) | ops["op"].isin(CROSS_ENTROPY)
    return rows


def keeps_weights(ops: pd.DataFrame, formats: Formats) -> bool:
    """Return whether a step updates fp32 weights while its products read narrow ones."""
    updated = ops["kind"].eq("optimizer") & ops["dtype"].eq("fp32")
    return formats.casts_weights and bool(updated.any())


def _in_formats(ops: pd.DataFrame, formats: Formats, *, is_parts: bool = False) -> pd.DataFrame:
    """Return the rows with their number formats and engines, and with bytes scaled accordingly."""
    if not formats.matrix and not formats.stream:
        return ops
    kinds, dtype, engine = ops["kind"], ops["dtype"], ops["engine"]
    trained = ops["pass_name"].ne("update")
    allowed = dtype.isin(FLOATS if formats.stream else ("fp32",))
    if "weight_share" in ops.columns:
        allowed &= ops["weight_share"].isna()  # packed weights stay as they are
    if formats.stream:
        widened = allowed & ~(dtype.isin(SHORT) & formats.casts_weights)
        dtype = dtype.mask(widened & kinds.isin((*MATRIX_KINDS, *STREAM_KINDS, *FP32_KINDS)), "fp32")
        # What a step in 16 bits computes in fp32, its program wants so.
        meant = ops["dtype"].eq("fp32") & (formats.stream in SHORT and computes_in_16(ops))
        streams = allowed & trained & ~meant & _streams(ops, formats, is_parts=is_parts)
        dtype = dtype.mask(streams, formats.stream)
    for kind, (its_dtype, its_engine) in formats.matrix.items():
        rows = allowed & trained & kinds.eq(kind)
        dtype, engine = dtype.mask(rows, its_dtype), engine.mask(rows, its_engine)
    if formats.low:
        rows = linear_layers(ops, allowed & trained, BLOCKS[formats.low])
        dtype, engine = dtype.mask(rows, formats.low), engine.mask(rows, "matrix")
    factors = byte_factors(ops, dtype).T
    if formats.stream == BY_SOFTMAX and keeps_weights(ops, formats) and not computes_in_16(ops):
        factors = factors * softmax_factors(ops)
    moved = {
        name: ops[name] * factor for name, factor in zip(TRAFFIC, factors, strict=True) if name in ops.columns
    }
    return ops.assign(dtype=dtype, engine=engine, **moved)


def _quantised(ops: pd.DataFrame, formats: Formats) -> list[dict[str, object]]:
    """Return rows that quantise the weights of a step with gradients, along rows and along columns at once."""
    wide, low = ITEM_BYTE[formats.stream], ITEM_BYTE[formats.low]
    each = {"op": "weight quantised", "kind": "copy", "dtype": formats.stream, "engine": "vector"}
    rows = ops.assign(weights=_weights_of(ops, formats)).query("weights > 0").to_dict("records")
    return [
        {**each, "pass_name": "forward", "module": row.get("module", ""), "count": row["count"],
         "numel": row["weights"], "read_byte": wide * row["weights"], "write_byte": 2 * low * row["weights"]}
        for row in rows
    ]  # fmt: skip


def add_casts(ops: pd.DataFrame, numbers: pd.DataFrame, formats: Formats) -> pd.DataFrame:
    """Append the ops that a step runs only for its number formats: casts, and divisions by the loss's scale.

    `ops`: an OPS table as traced, whose cells may be expressions; `numbers`: the same at some sizes.
    """
    if not keeps_weights(ops, formats) or computes_in_16(ops):
        return ops
    return with_casts(
        ops, numbers, formats.stream, of_activations=not formats.low, scales_loss=formats.scales_loss
    )


def restate_rows(ops: pd.DataFrame, formats: Formats, *, is_parts: bool = False) -> pd.DataFrame:
    """Restate a step that has its casts, and append the quantising of the weights of low-format linear layers.

    See `restate_ops`.
    """
    restated = _in_formats(ops, formats, is_parts=is_parts)
    if not formats.low or restated["pass_name"].eq("forward").all():
        return restated
    made = pd.DataFrame(_quantised(restated, formats))
    return pd.concat([restated, made.reindex(columns=ops.columns)], ignore_index=True) if len(made) else restated


def restate_ops(ops: pd.DataFrame, formats: Formats) -> pd.DataFrame:
    """Restate a step in other number formats.

    `ops`: an OPS table whose dimensions are numbers. Returns the same rows with other dtype, engine and bytes;
    then those of `add_casts`, and those that quantise weights.

    >>> import pandas as pd
    >>> op = {"op": "relu", "kind": "pointwise", "dtype": "fp32", "engine": "vector", "pass_name": "forward"}
    >>> ops = pd.DataFrame([{**op, "count": 1.0, "numel": 10.0, "read_byte": 40.0, "write_byte": 40.0}])
    >>> restate_ops(ops, FORMATS["mixed"])[["dtype", "read_byte"]].values.tolist()
    [['fp16', 20.0]]
    """
    return restate_rows(add_casts(ops, ops, formats), formats)
