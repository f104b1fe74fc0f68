"""Run a program that expects one process per device as the only process, on the CPU.

Such a program names its device without checking that there is one. So tensors that it moves to CUDA stay on the
CPU, and its communication between processes uses gloo. The parallel layout prices what devices send each other,
not the step of one process. A library's trainer that is configured for accelerators, many devices or shared
parameters gets one CPU instead.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.distributed import fsdp
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

from fomkit.core.model import OF_ONE
from fomkit.frontends.drafting import replaced, watched

_ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
          "MASTER_PORT": "0"}  # fmt: skip
_ASKS = re.compile(r"\b(?:LOCAL_RANK|WORLD_SIZE|init_process_group|init_device_mesh)\b")
"""Words in the text of a program that expects to be started as one of several processes."""


class Whole(torch.nn.Module):
    """Replaces FullyShardedDataParallel, which only accelerators run: one process holds all parameters."""

    def __init__(self, module: torch.nn.Module, *_args: Any, **_kwargs: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the wrapped module."""
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return its own attribute, else that of the wrapped module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __getitem__(self, place: Any) -> Any:
        """Return a part of the wrapped module."""
        whole: Any = self.module
        return whole[place]

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip the gradients, all of which are in this process."""
        return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)


_CPU = torch.device("cpu")


def _on_cpu(place: Any) -> Any:
    """Return the CPU for a CUDA device, by name, as a device or by number; return anything else unchanged."""
    is_number = isinstance(place, int) and not isinstance(place, bool)
    is_named = isinstance(place, str) and place.startswith("cuda")
    is_device = isinstance(place, torch.device) and place.type == "cuda"
    return _CPU if is_number or is_named or is_device else place


class StayOnCpu(TorchFunctionMode):
    """Keeps on the CPU what a program creates on CUDA or moves to it."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a call with the CPU as its device."""
        if func is torch.Tensor.cuda:
            return args[0]
        named = dict(kwargs or {})
        if "device" in named:
            named["device"] = _on_cpu(named["device"])
        if func is torch.Tensor.to:
            args = (args[0], *map(_on_cpu, args[1:]))
        return func(*args, **named)


@contextmanager
def without_cuda() -> Iterator[None]:
    """Let a program without an accelerator use CUDA devices by name inside the block."""

    def moved(move: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        named = {name: _on_cpu(one) if name == "device" else one for name, one in kwargs.items()}
        return move(module, *map(_on_cpu, args), **named)

    def wrapped(wrap: Any, whole: Any, module: torch.nn.Module, *_devices: Any, **kwargs: Any) -> None:
        devices = ("device_ids", "output_device")
        wrap(whole, module, **{name: one for name, one in kwargs.items() if name not in devices})

    with ExitStack() as stack:
        # PyTorch's compiler requires each of its functions to be a separate object.
        stack.enter_context(replaced(torch.cuda, set_device=lambda *_: None, synchronize=lambda *_: None))
        stack.enter_context(replaced(torch.cuda, current_device=lambda: 0, device_count=lambda: 1))
        stack.enter_context(watched(DistributedDataParallel, __init__=wrapped))
        stack.enter_context(watched(torch.nn.Module, to=moved))
        stack.enter_context(StayOnCpu())
        yield


_SHARES = re.compile(r"fsdp|deepspeed|model_?parallel", re.IGNORECASE)
"""Names of strategies by which processes share a model's parameters."""
_SPREADS = frozenset({"ddp_spawn", "ddp_fork", "ddp_notebook"})
"""Strategies that start processes of their own."""


def _lightning_here(kind: Any, note: Callable[[str], object]) -> None:
    """Make Lightning's Trainer or Fabric use one device, the CPU if there is no accelerator."""
    make = kind.__init__

    @wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        strategy = kwargs.get("strategy", "auto")
        name = strategy if isinstance(strategy, str) else type(strategy).__name__
        if shares := bool(_SHARES.search(name)):
            note(name)
        if shares or name in _SPREADS:
            kwargs["strategy"] = "auto" if shares else "ddp"
        if not torch.cuda.is_available():
            kwargs["accelerator"] = "cpu"
        make(self, *args, **{**kwargs, "devices": 1, "num_nodes": 1})

    kind.__init__ = made


def _hugging_face_here(kind: Any, note: Callable[[str], object]) -> None:
    """Make transformers' TrainingArguments use unshared parameters, and the CPU if there is no accelerator."""
    check = kind.__post_init__

    @wraps(check)
    def checked(self: Any) -> None:
        for name in ("fsdp", "deepspeed"):
            if getattr(self, name, None):
                note(name)
                setattr(self, name, None)
        if not torch.cuda.is_available():
            self.use_cpu, self.tf32 = True, None
        check(self)

    kind.__post_init__ = checked


_TRAINERS: Mapping[str, tuple[str, Callable[[Any, Callable[[str], object]], None]]] = {
    **dict.fromkeys(("transformers", "transformers.training_args"), ("TrainingArguments", _hugging_face_here)),
    **dict.fromkeys(
        ("lightning", "lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"),
        ("Trainer", _lightning_here),
    ),
    **dict.fromkeys(("lightning.fabric.fabric", "lightning_fabric.fabric"), ("Fabric", _lightning_here)),
}
"""By module: the class that configures the devices of a training, and the function that changes it."""
_SHARED: list[str] = []
"""Ways of sharing parameters that trainers were configured with; they are ignored."""


class _TrainersHere(MetaPathFinder):
    """Changes the classes of trainers when their module is imported, so that no trainer is imported for it."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a trainer's module, and arrange that its class is changed once the module has run."""
        spec = PathFinder.find_spec(name, path, target) if name in _TRAINERS else None
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            run(module)
            word, change = _TRAINERS[name]
            kind = vars(module).get(word)
            if getattr(kind, "__module__", "") == name:
                change(kind, _SHARED.append)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


@contextmanager
def one_process(path: Path) -> Iterator[None]:
    """Let a program that expects one process per device run as the only one, as under ``torchrun`` with one."""
    asks = bool(_ASKS.search(path.read_text(encoding="utf-8", errors="replace")))
    if asks or "WORLD_SIZE" in os.environ:
        os.environ.update(_ALONE)
    sys.meta_path.insert(0, _TrainersHere())
    if not torch.distributed.is_available():
        yield
        return

    def alone(begin: Any, *_args: Any, **kwargs: Any) -> Any:
        os.environ.update(_ALONE)
        kept = {name: value for name, value in kwargs.items() if name == "timeout"}
        return begin("gloo", **kept)  # there is no accelerator here, whatever backend was requested

    with ExitStack() as stack:
        stack.enter_context(watched(torch.distributed, init_process_group=alone))
        stack.enter_context(replaced(fsdp, FullyShardedDataParallel=Whole))
        if asks and not torch.cuda.is_available():
            stack.enter_context(without_cuda())
        yield


_SHARDED: Any = getattr(fsdp, "FSDPModule", Whole)


def class_name(model: torch.nn.Module) -> str:
    """Return the class name of a program's model, without wrappers for many devices.

    >>> class_name(Whole(torch.nn.Linear(2, 3)))
    'Linear'
    """
    while isinstance(model, Whole | DistributedDataParallel):
        model = model.module
    # FSDP gives a model that is sharded in place a new class, derived from the model's own.
    return next(kind.__name__ for kind in type(model).__mro__ if not issubclass(kind, _SHARDED))


def parallel_notes(models: Iterable[torch.nn.Module]) -> list[str]:
    """Return notes on how a program's devices share the training, and on options to estimate many devices."""
    parts = [part for model in models for part in model.modules()]
    names = dict.fromkeys(["FSDP"] * any(isinstance(part, Whole | _SHARDED) for part in parts) + _SHARED)
    copied = any(isinstance(part, DistributedDataParallel) for part in parts)
    alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
    ways = {
        "share copies of the model (DistributedDataParallel)": "--nodes N" if copied else "",
        f"share its parameters ({', '.join(names)})": "--nodes N --layout zero=3" if names else "",
        "communicate by calls of their own, which are not counted": (
            "" if alone or copied or names else "--nodes N, which sums the gradients of copies,"
        ),
    }
    return [
        f"{OF_ONE} of processes that {what}: to estimate many devices, use {words} with the batch of them all"
        for what, words in ways.items()
        if words
    ]
