"""Trace the step of a PyTorch workload without data, draft its profile, and run the step for real.

The workload comes from a user's file, in a child process, or was made in this process. `draft_profile` traces it;
`real_step` makes a step that can be timed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parameter import is_lazy

from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends import drafting, model_file
from fomkit.frontends.sizes import Sizes
from fomkit.frontends.step import Draft, Route, Step, Update, profile_by_routes
from fomkit.frontends.torch import modes, order
from fomkit.frontends.torch.calls import forget_forms, inputs_and_sizes, map_tensors, model_to_trace, tensors_of
from fomkit.frontends.torch.forms import dense_attention, shape_only
from fomkit.frontends.torch.recorder import Recorder


@dataclass(frozen=True)
class Prepared:
    """A workload ready to be traced, its tensors without data if its code allows that.

    `stand_ins`: the traced parameter by the ``id`` of each parameter that the optimizer may hold.
    `differentiates`: whether the forward pass of an inference computes gradients, such as forces from an energy.
    """

    model: torch.nn.Module
    inputs: Callable[[Sizes], Any]
    loss: Callable[[Any, Any], Any] | None
    optimizer: torch.optim.Optimizer | None
    stand_ins: Mapping[int, torch.Tensor]
    mode: str
    on_meta: bool
    where: str
    has_data: bool = False
    differentiates: bool = False


def arguments_for(model: torch.nn.Module, inputs: Any, notes: list[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a model from a tensor, a tuple or a dict; the rest goes to the loss only."""
    if not isinstance(inputs, tuple | list | Mapping):
        return (inputs,), {}
    parameters = inspect.signature(model.forward).parameters.values()
    if isinstance(inputs, Mapping):
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        names = {parameter.name for parameter in parameters}
        given = {name: value for name, value in inputs.items() if takes_all or name in names}
        if left := [repr(name) for name in inputs if name not in given]:
            notes.append(f"inputs {', '.join(left)} are not taken by the model and go to the loss only")
        return (), given
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes_all = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    places = len(inputs) if takes_all else sum(parameter.kind in by_position for parameter in parameters)
    if places < len(inputs):
        notes.append(f"the model takes {places} of {len(inputs)} inputs; the rest go to the loss only")
    return tuple(inputs[:places]), {}


def loss_of(prepared: Prepared, output: Any, inputs: Any, notes: list[str]) -> torch.Tensor:
    """Return the loss of a model's output: the workload's own, the output's, or the sum of its first tensor."""
    if prepared.loss is not None:
        loss = prepared.loss(output, inputs)
    elif isinstance(getattr(output, "loss", None), torch.Tensor):
        loss = output.loss
        notes.append("no loss_fn is given: the output's own .loss is taken")
    else:
        tensors = tensors_of(output)
        loss = tensors[0].sum() if tensors else None
        notes.append(drafting.SUMMED)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        shape = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"{loss!r:.80}"
        message = f"the loss is {shape}. One number was expected: let loss_fn take the mean."
        raise FomkitError(prepared.where, message)
    if not loss.requires_grad:
        raise FomkitError(
            prepared.where,
            "the loss depends on no trainable parameter, so there is no backward pass. Leave some parameter "
            "trainable, or profile with --mode infer.",
        )
    return loss


# Otherwise decomposed attention would widen half-precision factors, which no fused kernel does.
_SETTINGS = {"mkldnn_enabled": False, "math_sdp_allow_fp16_bf16_reduction": True}
"""PyTorch's settings while a step runs; the second came with version 2.5."""


@contextmanager
def plain_kernels(mode: str) -> Iterator[None]:
    """Decompose composite layers inside the block, whatever fused kernels a CPU has for them."""
    known = {name: value for name, value in _SETTINGS.items() if hasattr(torch._C, f"_get_{name}")}
    before = {name: getattr(torch._C, f"_get_{name}")() for name in known}
    try:
        for name, value in known.items():
            getattr(torch._C, f"_set_{name}")(value)
        with sdpa_kernel(SDPBackend.MATH), torch.set_grad_enabled(mode == "train"):
            yield
    finally:
        for name, value in before.items():
            getattr(torch._C, f"_set_{name}")(value)


def _run(prepared: Prepared, inputs: Any, recorder: Recorder, notes: list[str]) -> None:
    # The output is held until the backward pass is over, as a training loop's variable holds it.
    values, named = arguments_for(prepared.model, inputs, notes)
    output = prepared.model(*values, **named)
    if prepared.mode == "infer":
        return
    loss = loss_of(prepared, output, inputs, notes)
    with recorder.backward(loss):
        # This is the engine call in loss.backward(). That function can be overridden by modes, so it would run
        # without them, and everything that checkpointing repeats would run without them too.
        torch.autograd.Variable._execution_engine.run_backward(
            (loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True
        )


def trace_step(prepared: Prepared, sizes: Sizes) -> Step:
    """Trace one step at the given sizes."""
    notes: list[str] = []
    model = prepared.model
    with modes.same_random_numbers():
        inputs = prepared.inputs(sizes)
    for tensor in (*model.parameters(), *tensors_of(inputs)):  # a step has inputs of its own
        tensor.grad = None
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    recorder = Recorder(trainable, on_meta=prepared.on_meta)
    recorder.order.hold_model(model)
    recorder.order.hold(inputs, "input")
    with ExitStack() as stack:
        stack.enter_context(modes.same_weights(model, has_data=prepared.has_data))
        stack.enter_context(modes.watch_modules(model, recorder))
        recorder.layers = layers = stack.enter_context(order.watch_layers(model))
        stack.enter_context(modes.follow_autocast(recorder, on_meta=prepared.on_meta))
        stack.enter_context(modes.watch_sync_norms(recorder))
        stack.enter_context(plain_kernels("train" if prepared.differentiates else prepared.mode))
        stack.enter_context(dense_attention(recorder.note))
        stack.enter_context(recorder)
        stack.enter_context(modes.CallWatcher(recorder))
        with drafting.no_collection(), modes.same_random_numbers():
            _run(prepared, inputs, recorder, notes)
            optimizer, failed = prepared.optimizer, None
            if optimizer is not None and prepared.mode == "train" and not order.has_formula(optimizer):
                failed = recorder.record_update(optimizer, prepared.stand_ins)
        recorder.order.hold_model(model)
        lines = recorder.order.finish(one.grad for one in trainable if one.grad is not None)
    step, update = recorder.finish([*notes, *recorder.checkpoint_notes, *recorder.notes]), Update()
    if prepared.mode == "train":
        update = order.trace_update(prepared.optimizer, prepared.stand_ins, failed=failed)
        modules = {id(one): name.rpartition(".")[0] for name, one in model.named_parameters()}
        executed = recorder.order.executed
        lines += order.update_lines(prepared.optimizer, prepared.stand_ins, update.rows, modules, executed)
    return recorder.with_update(step, update, lines, order.layer_rows(layers, model))


@dataclass
class RealStep:
    """A step that can be run repeatedly.

    `run`: runs it and returns the loss; in inference the output.
    """

    run: Callable[[], Any]
    sizes: dict[str, int]
    notes: list[str] = field(default_factory=list)


Casting = Callable[[], AbstractContextManager[Any]]
"""Makes the context of forward pass and loss: autocast to bf16, or none."""


def _runner(prepared: Prepared, inputs: Any, casting: Casting, notes: list[str]) -> Callable[[], Any]:
    """Return the function that runs a step for real; a training returns its loss, an inference its output."""
    model, optimizer = prepared.model, prepared.optimizer
    values, named = arguments_for(model, inputs, notes)
    parameters = list(model.parameters())

    def infer() -> Any:
        with torch.no_grad(), casting():
            return model(*values, **named)

    def train() -> Any:
        if optimizer is None:
            for parameter in parameters:
                parameter.grad = None
        else:
            optimizer.zero_grad(set_to_none=True)
        with casting():
            loss = loss_of(prepared, model(*values, **named), inputs, notes)
        loss.backward()  # type: ignore[no-untyped-call]
        if optimizer is not None:
            optimizer.step()
        return loss.detach()

    return infer if prepared.mode == "infer" else train


def real_step(workload: Workload, request: drafting.Request, device: str, precision: str = "") -> RealStep:
    """Make a workload's step ready to run.

    `workload`: its own model runs, not a copy; `device`: ``cpu`` or ``cuda``; `precision`: ``bf16`` for autocast
    of forward pass and loss; "" for the step as it is.
    """
    notes: list[str] = []
    model = _of_one_device(workload.model, notes).to(device)
    infer = request.mode == "infer"
    model.train(not infer)
    optimizer = None if infer else order.make_optimizer(workload.optimizer, model, request.where)
    if optimizer is None and not infer:
        notes.append("no optimizer is given: the step has no update")
    make, sizes = inputs_and_sizes(workload, request.sizes, request.where, real=True)
    prepared = Prepared(
        model, make, workload.loss, optimizer, {}, request.mode, on_meta=False, where=request.where
    )
    if getattr(model, "_orig_mod", model) is not model:
        notes.append("the model is compiled and was timed compiled; its compiled ops have no rows")
    values = map_tensors(lambda one: one.to(device), make(sizes))
    casting: Casting = partial(torch.autocast, device, dtype=torch.bfloat16) if precision else nullcontext
    return RealStep(_runner(prepared, values, casting, notes), sizes, notes)


def check_finite(result: Any, where: str) -> None:
    """Raise if a loss or an output contains numbers that are not finite."""
    for leaf in tensors_of(result):
        if leaf.is_floating_point() and not bool(leaf.isfinite().all()):
            what = f"loss is {leaf.item()}" if leaf.numel() == 1 else "output has numbers that are not finite"
            raise FomkitError(
                where,
                f"the {what} in the first step, so its times are not those of training. Let inputs return values "
                "as in training, for example torch.randn, and not torch.empty.",
            )


def is_finite(result: Any) -> bool:
    """Return whether all numbers of a loss or an output are finite."""
    return all(bool(leaf.isfinite().all()) for leaf in tensors_of(result) if leaf.is_floating_point())


def watch_backward(around: Callable[[Any, bool], Any], inside: Callable[[], Any]) -> AbstractContextManager[None]:
    """Run every backward pass of the program inside given contexts.

    `around`: makes the context of a whole call from its outputs. `inside`: makes the context of the engine's run.
    A mode switched on again in the outer functions, which the mode itself handles, would recurse for ever.
    """

    def run_in(context: Callable[[Any], Any], run: Any, *args: Any, **kwargs: Any) -> Any:
        with context(args[0] if args else next(iter(kwargs.values()), None)):
            return run(*args, **kwargs)

    return drafting.watched(
        torch.autograd,
        backward=partial(run_in, lambda outputs: around(outputs, True)),
        grad=partial(run_in, lambda outputs: around(outputs, False)),
        _engine_run_backward=partial(run_in, lambda _: inside()),
    )


def _of_one_device(model: torch.nn.Module, notes: list[str]) -> torch.nn.Module:
    """Return the module that `torch.nn.DataParallel` copies to its devices, or the model as it is."""
    if not isinstance(model, torch.nn.DataParallel):
        return model
    notes.append("DataParallel: one device is taken, with the whole batch; --nodes of an estimate shares it out")
    inside: torch.nn.Module = model.module
    return inside


def _prepared_copy(
    workload: Workload, request: drafting.Request, *, own: bool
) -> tuple[Prepared, dict[str, int], list[str]]:
    notes: list[str] = []
    where = request.where or "profile"
    whole = _of_one_device(workload.model, notes)
    given = _of_one_device(getattr(whole, "_orig_mod", whole), notes)
    if hasattr(whole, "_orig_mod"):
        notes.append("the model is compiled; its eager ops are traced")
    has_data = request.route == "data"
    model, stand_ins = model_to_trace(given, own=own, data=has_data)
    optimizer = None
    if request.mode == "infer":
        with suppress(NotImplementedError):  # an exported graph has no mode but that of its export
            model.eval()
    else:
        if not model.training:
            notes.append("the model was in eval mode; it is traced in train mode")
            model.train()
        optimizer = order.make_optimizer(workload.optimizer, model, where)
    inputs, sizes = inputs_and_sizes(workload, request.sizes, where, real=has_data)
    on_meta = request.route in ("meta", "constants")
    prepared = Prepared(model, inputs, workload.loss, optimizer, stand_ins, request.mode, on_meta, where, has_data)
    return prepared, sizes, notes


def _packed(model: torch.nn.Module) -> int:
    """Count the weights and biases that quantised layers hold packed; PyTorch lists them as no parameters."""
    held = (value for module in model.modules() for value in vars(module).values())
    packed = (
        value.unpack() for value in held if isinstance(value, torch.ScriptObject) and hasattr(value, "unpack")
    )
    return sum(tensor.numel() for values in packed for tensor in values if isinstance(tensor, torch.Tensor))


def draft_profile(workload: Workload, request: drafting.Request, *, own: bool) -> Draft:
    """Trace a workload, inside `shape_only`; a model that is not ``own`` is copied first."""
    prepared, sizes, notes = _prepared_copy(workload, request, own=own)
    try:
        sized = drafting.trace_sizes(partial(trace_step, prepared), sizes, request.most_s)
    except RuntimeError as error:
        if request.mode != "infer" or "does not require grad" not in str(error):
            raise
        notes.append("the forward pass computes gradients: it ran with them switched on")
        sized = drafting.trace_sizes(
            partial(trace_step, replace(prepared, differentiates=True)), sizes, request.most_s
        )
    # Lazy modules have no sizes before they have run.
    parameters = list(prepared.model.parameters())
    device = "meta" if prepared.on_meta else request.route
    model = drafting.Traced(
        type(prepared.model).__name__, drafting.traced_with("torch", torch.__version__, device, request.mode),
        sum(parameter.numel() for parameter in parameters) + _packed(prepared.model),
        sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    )  # fmt: skip
    return drafting.make_draft(workload, request, model, sized, notes)


def check_workload(workload: Workload, where: str) -> None:
    """Raise unless a workload has a model, inputs and valid counts."""
    errors = model_file.count_errors(workload, where)
    errors += model_file.model_errors(
        workload, where, torch.nn.Module, "torch.nn.Module", "torch.nn.Linear(784, 10)"
    )
    if workload.inputs is None:
        errors.append(
            FomkitError(where, "'inputs' is missing: a tensor, tuple or dict, or a function of the batch size "
                               "giving one. For example: inputs = lambda batch: torch.randn(batch, 784)")
        )  # fmt: skip
    errors += model_file.loss_errors(workload, where)
    if errors:
        raise ManyFomkitError(errors)


def _profile_file(path: Path, request: drafting.Request) -> Mapping[str, object]:
    with shape_only(request.route), modes.watch_made_modules():
        workload = model_file.take_workload(model_file.run_file(path), request.where, check_workload)
        return {"draft": asdict(draft_profile(workload, request, own=True))}


def main() -> None:
    """Run one request of the parent process."""
    drafting.run_file_request(_profile_file, lambda error: isinstance(error, model_file.NEVER_MENDED))


_WHERE = "profile"
MOST_WITH_DATA = 100_000_000
"""Most parameters of a model that is run with data in the user's own process."""


def profile_here(workload: Workload, name: str, mode: str, sizes: Sizes) -> ModelProfile:
    """Trace a workload in this process; the given model and PyTorch's settings stay as they are."""
    check_workload(workload, _WHERE)

    parameters = sum(one.numel() for one in workload.model.parameters() if not is_lazy(one))

    def trace(route: Route) -> Draft | FomkitError:
        if route == "data" and parameters > MOST_WITH_DATA:
            # This process has no limits of time and memory, unlike the child that runs a file.
            what = f"has more than {MOST_WITH_DATA:,} parameters, too many to run here with data. Give its file."
            return FomkitError(_WHERE, what)
        try:
            with shape_only(route):
                return draft_profile(workload, drafting.Request(name, _WHERE, mode, sizes, route), own=False)
        except FomkitError:
            raise
        except Exception as error:  # the user's model may raise anything
            return model_file.explain_exception(error, _WHERE)
        finally:
            forget_forms()

    # A loss that uses the given model itself leaves gradients there; they are restored.
    gradients = [(parameter, parameter.grad) for parameter in workload.model.parameters()]
    try:
        return profile_by_routes(trace, _WHERE)
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
