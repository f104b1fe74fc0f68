"""Rules that price the gradient of each ONNX op, since a file describes the forward pass only.

`derive_gradient` applies the rule of an op from `GRADIENTS`; the rule adds its steps to a `Backward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from fomkit.frontends.lowering import calls, onnx
from fomkit.frontends.lowering.calls import BACKWARD, INPUT_GRADIENT, Array, Dimensions, TracedOp, Work, traffic
from fomkit.frontends.lowering.onnx import NoRule, multiplied, names, stretched
from fomkit.frontends.lowering.onnx_calls import Executed, is_float, new_array, parts_of, reshaped, swapped


@dataclass(frozen=True)
class Derived:
    """One step of the backward pass: its rows, and the tensors that it reads and writes."""

    rows: list[TracedOp]
    read: tuple[Array, ...]
    written: tuple[Array, ...]


@dataclass
class Backward:
    """The gradient of one op while it is derived.

    `gradients`: of its outputs; ``None`` where no gradient arrives.
    `wanted`: positions of the inputs that get a gradient.
    `of_weights`: positions of all inputs that are weights.
    `found`: the gradients made, by position of the input.
    """

    one: Executed
    gradients: tuple[Array | None, ...]
    wanted: tuple[int, ...]
    of_weights: frozenset[int]
    steps: list[Derived] = field(default_factory=list)
    found: dict[int, Array] = field(default_factory=dict)

    @property
    def given(self) -> Array:
        """The gradient of the first output that has one."""
        return next(gradient for gradient in self.gradients if gradient is not None)

    def input(self, at: int) -> Array:
        """Return an input that must be a tensor; raise NoRule if it is not."""
        array = self.one.inputs[at]
        if array is None:
            raise NoRule(f"{self.one.op}Grad")
        return array

    def saved(self, places: Iterable[int]) -> list[Array]:
        """Return those inputs at some positions that are tensors."""
        arrays = (self.one.inputs[at] for at in places if at < len(self.one.inputs))
        return [array for array in arrays if array is not None]

    def product_pass(self, at: int) -> str:
        """Return the pass of a product; BACKWARD if neither factor is a weight."""
        return calls.WEIGHT_GRADIENT if at in self.of_weights else INPUT_GRADIENT if self.of_weights else BACKWARD

    def run(
        self,
        kind: str,
        sizes: Dimensions,
        read: Sequence[Array],
        written: Sequence[Array],
        pass_name: str = BACKWARD,
    ) -> None:
        """Add one step with one row."""
        row = TracedOp(f"{self.one.op}Grad", kind, sizes, written[0].dtype, pass_name, self.one.module)
        self.steps.append(Derived([row], tuple(read), tuple(written)))

    def make(self, at: int) -> Array:
        """Reserve memory for the gradient of an input."""
        like = self.input(at)
        self.found[at] = new_array(like.shape, like.dtype)
        return self.found[at]

    def fold(self, at: int, gradient: Array) -> None:
        """Use a gradient of broadcast shape for an input, summed where the input was broadcast."""
        like = self.input(at)
        if gradient.numel == like.numel:
            self.found[at] = reshaped(gradient, like.shape)
        else:
            self.sum_up(at, gradient)

    def sum_up(self, at: int, gradient: Array) -> None:
        """Add the sum of a gradient to the shape of an input."""
        made = self.make(at)
        row = gradient.numel // max(made.numel, 1)
        self.run("reduction", traffic(gradient.numel, [gradient], [made], row=row), [gradient], [made])


Rule = Callable[[Backward], None]


def _forward_work(one: Executed) -> Work:
    """Return the single work of an op in the forward pass."""
    rule = onnx.RULES[one.op]
    if rule is None:
        raise NoRule(f"{one.op}Grad")
    (work,) = rule(one.call)
    return work


_OF_RESULT = names("Relu Sigmoid Tanh Exp Sqrt Softmax LogSoftmax Reciprocal Elu Selu ThresholdedRelu")
"""Ops whose gradient is computed from their result; for other ops it is computed from their inputs."""

_SAVED: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "Mul": ((1,), (0,)), "Div": ((1,), (0, 1)), "Where": ((), (0,), (0,)), "Sub": ((), ()),
}  # fmt: skip
"""By op and position of an input: the inputs that its gradient needs. Gradients of other ops need all inputs."""


def _pointwise_back(back: Backward) -> None:
    one, given = back.one, back.given
    for at in back.wanted:
        if one.op in ("Add", "Sum") or (one.op == "Sub" and at == 0):
            back.fold(at, given)
            continue
        if one.op == "Dropout" and len(one.outputs) > 1 and one.outputs[1] is not None:
            saved = [one.outputs[1]]
        elif one.op in _OF_RESULT or one.op == "Dropout":
            saved = [one.made]
        else:
            saved = back.saved(_SAVED[one.op][at] if one.op in _SAVED else range(len(one.inputs)))
        full = new_array(given.shape, back.input(at).dtype)
        read = [given, *saved]
        back.run("pointwise", traffic(full.numel, read, [full]), read, [full])
        back.fold(at, full)


def _product_back(back: Backward) -> None:
    one = back.one
    left, right = onnx.factors(one.call)
    given = reshaped(back.given, (*stretched(left, right), left.shape[-2], right.shape[-1]))
    shared = prod(right.shape[:-2]) == 1 and onnx.is_row_by_row(left)
    of_left, of_right = one.call.arguments.get("transA"), one.call.arguments.get("transB")
    for at in back.wanted:
        if at == 2:
            back.fold(at, back.given)
            continue
        if at == 0:
            sizes = multiplied(right, swapped(given)) if of_left else multiplied(given, swapped(right))
        elif shared:
            rows, columns = onnx.flat_rows(left), onnx.flat_rows(given)
            sizes = multiplied(swapped(columns), rows) if of_right else multiplied(swapped(rows), columns)
        else:
            sizes = multiplied(swapped(left), given)
        # Where one input served a whole stack, its products are summed.
        like, numel = back.input(at), prod(int(sizes[one]) for one in "bmn")
        made = new_array(like.shape if numel == like.numel else (numel,), like.dtype)
        back.run("gemm", sizes, (given, right if at == 0 else left), [made], back.product_pass(at))
        back.fold(at, made)


def _einsum(back: Backward) -> None:
    equation, given = onnx.equation_of(back.one.call), back.given
    letters, _, out = equation.partition("->")
    terms = letters.split(",")
    if len(terms) == 1:
        _moved(back)
        return
    for at in back.wanted:
        own_term, others = terms[at], [other for other in range(len(terms)) if other != at]
        other_terms = ",".join(terms[other] for other in others)
        if set(own_term) - set(other_terms + out) or len(set(own_term)) < len(own_term):
            raise NoRule(f"EinsumGrad of {back.one.call.arguments['equation']}"[:60])
        read = [given, *map(back.input, others)]
        works = onnx.summed_product(f"{out},{other_terms}->{own_term}", read, (back.input(at),))
        made = back.make(at)
        for work in works:
            back.run("gemm", work.dimensions, read, [made], back.product_pass(at))


def _convolution(back: Backward) -> None:
    work, given = _forward_work(back.one), back.given
    for at, name in ((0, INPUT_GRADIENT), (1, calls.WEIGHT_GRADIENT)):
        if at in back.wanted:
            back.run("conv", dict(work.dimensions), [given, back.input(1 - at)], [back.make(at)], name)
    if 2 in back.wanted:
        back.sum_up(2, given)


def _row_back(back: Backward) -> None:
    """Add the gradient of an op that is one row with parts."""
    one, recurrent = back.one, back.one.op != "Attention"
    work, to_input = _forward_work(one), 0 in back.wanted
    parts = parts_of(one.call, work.dtype, one.module, backward=True, input_gradient=to_input)
    row = TracedOp(f"{one.op}Grad", work.kind, work.dimensions, work.dtype, BACKWARD, one.module, parts)
    row.input_gradient = to_input
    written = [back.make(at) for at in back.wanted]
    results = [array for array in one.outputs if array is not None]
    given = [array for array in back.gradients if array is not None]
    read = [*given, *back.saved(range(3)), *results, *one.saved_for_backward]
    back.steps.append(Derived(calls.split_gradients(row) if recurrent else [row], tuple(read), tuple(written)))


def _same_kind(*places: int, with_result: bool = False) -> Rule:
    """Make the rule of a gradient that costs the same kind of work as the op and reads some of its inputs."""

    def rule(back: Backward) -> None:
        work = _forward_work(back.one)
        read = [back.given, *back.saved(places), *([back.one.made] if with_result else [])]
        written = [back.make(at) for at in back.wanted]
        numel, row = (int(work.dimensions.get(name, 0)) for name in ("numel", "row"))
        back.run(work.kind, traffic(numel, read, written, row=row), read, written)

    return rule


def _moved(back: Backward) -> None:
    """Add gradients that are moved back to the places they came from."""
    one, given = back.one, [array for array in back.gradients if array is not None]
    total = sum(array.numel for array in given)
    for at in back.wanted:
        like = back.input(at)
        if one.op in ("Expand", "Tile") and total > like.numel:
            back.fold(at, given[0])
            continue
        made, taken = back.make(at), min(like.numel, total) * given[0].item_byte
        sizes = traffic(like.numel, given, [made])
        back.run("copy", {**sizes, "read_byte": taken}, given, [made])


def _reduced_back(back: Backward) -> None:
    one, given = back.one, back.given
    plain = one.op in ("ReduceSum", "ReduceMean")
    read = [given] if plain else [given, back.input(0), one.made]
    made = back.make(0)
    back.run("copy" if plain else "pointwise", traffic(made.numel, read, [made]), read, [made])


GRADIENTS: Mapping[str, Rule] = {
    **dict.fromkeys(("Gemm", "MatMul"), _product_back), "Einsum": _einsum,
    **dict.fromkeys(("Conv", "ConvTranspose"), _convolution),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "Attention"), _row_back), **dict.fromkeys(onnx.NORMS, _same_kind(0, 1)),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _same_kind(with_result=True)),
    **dict.fromkeys(("MaxPool", "LpPool", "GlobalMaxPool", "GlobalLpPool"), _same_kind(0, with_result=True)),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "Resize", "Upsample"), _same_kind()),
    **dict.fromkeys(("CumSum", "TopK", "DFT", "STFT"), _same_kind()),
    **dict.fromkeys(("LRN", "GridSample", "RoiAlign"), _same_kind(0, 1)),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _same_kind(0, 1)),
    **dict.fromkeys(onnx.POINTWISE, _pointwise_back), **dict.fromkeys(onnx.MOVES | onnx.PICKS, _moved),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND", "TensorScatter"), _moved), "Gather": _same_kind(1),
    **dict.fromkeys(onnx.REDUCTIONS, _reduced_back),
}  # fmt: skip
"""The rule of each op's gradient; the gradient of an op that is missing is unsupported and listed."""

WITHOUT_GRADIENT = names(
    """ArgMax ArgMin And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Equal Floor Greater
    GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Round Sign Xor Hardmax OneHot NonZero Unique
    NonMaxSuppression ConstantOfShape EyeLike Range Bernoulli Multinomial RandomNormal RandomNormalLike
    RandomUniform RandomUniformLike BlackmanWindow HammingWindow HannWindow"""
)
"""Ops whose results do not change with a small change of their inputs."""

_NO_INPUT: Mapping[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4), "LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5), "Resize": (1, 2, 3),
    "Attention": (3, 4, 5), "Clip": (1, 2), "Pad": (1, 2, 3), "Upsample": (1,), "Gather": (1,), "Dropout": (1, 2),
    "Where": (0,), "RotaryEmbedding": (1, 2),
}  # fmt: skip


def takes_gradient(executed: Executed) -> list[int]:
    """Return the positions of an op's inputs that could get a gradient."""
    never = _NO_INPUT.get(executed.op, ())
    inputs = enumerate(executed.inputs)
    return [at for at, array in inputs if array is not None and is_float(array) and at not in never]


def derive_gradient(
    executed: Executed, gradients: tuple[Array | None, ...], wanted: tuple[int, ...], of_weights: frozenset[int]
) -> Backward:
    """Derive the backward pass of one op."""
    rule = GRADIENTS.get(executed.op)
    if rule is None:
        raise NoRule(f"{executed.op}Grad")
    back = Backward(executed, gradients, wanted, of_weights)
    rule(back)
    return back
