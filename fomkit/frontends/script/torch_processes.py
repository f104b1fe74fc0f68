"""A program that is started once for each device, run here as the only process, on the CPU.

Such programs say which device is theirs instead of asking whether there is one. So what they move to CUDA stays,
and what processes agree on goes over gloo; what the devices send each other a layout prices, not the step of one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
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
"""What a program's text has where it expects to be started as one of several processes."""


class Whole(torch.nn.Module):
    """Stands for FullyShardedDataParallel, which only accelerators run: one process holds all parameters."""

    def __init__(self, module: torch.nn.Module, *_args: Any, **_kwargs: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run what it wraps."""
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Give its own attribute, else that of what it wraps."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __getitem__(self, place: Any) -> Any:
        """Give a part of what it wraps."""
        whole: Any = self.module
        return whole[place]

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip the gradients, all of which are here."""
        return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)


_CPU = torch.device("cpu")


def _on_cpu(place: Any) -> Any:
    """Give the CPU for a CUDA device, whether by name, as a device or by its number; else what was given."""
    is_number = isinstance(place, int) and not isinstance(place, bool)
    is_named = isinstance(place, str) and place.startswith("cuda")
    is_device = isinstance(place, torch.device) and place.type == "cuda"
    return _CPU if is_number or is_named or is_device else place


class StayOnCpu(TorchFunctionMode):
    """Makes on the CPU, and leaves there, what a program makes on CUDA or moves to it."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a call with the CPU for its device."""
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
    """Let a program take its CUDA device for granted inside the block, where there is none."""

    def moved(move: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        named = {name: _on_cpu(one) if name == "device" else one for name, one in kwargs.items()}
        return move(module, *map(_on_cpu, args), **named)

    def wrapped(wrap: Any, whole: Any, module: torch.nn.Module, *_devices: Any, **kwargs: Any) -> None:
        devices = ("device_ids", "output_device")
        wrap(whole, module, **{name: one for name, one in kwargs.items() if name not in devices})

    with ExitStack() as stack:
        # PyTorch's compiler wants each of its functions to be an object of its own.
        stack.enter_context(replaced(torch.cuda, set_device=lambda *_: None, synchronize=lambda *_: None))
        stack.enter_context(replaced(torch.cuda, current_device=lambda: 0, device_count=lambda: 1))
        stack.enter_context(watched(DistributedDataParallel, __init__=wrapped))
        stack.enter_context(watched(torch.nn.Module, to=moved))
        stack.enter_context(StayOnCpu())
        yield


@contextmanager
def one_process(path: Path) -> Iterator[None]:
    """Let a program that is started once for each device run as the only one, as ``torchrun`` with one would."""
    asks = bool(_ASKS.search(path.read_text(encoding="utf-8", errors="replace")))
    if asks:
        os.environ.update(_ALONE)
    if not torch.distributed.is_available():
        yield
        return

    def alone(begin: Any, *_args: Any, **kwargs: Any) -> Any:
        os.environ.update(_ALONE)
        kept = {name: value for name, value in kwargs.items() if name == "timeout"}
        return begin("gloo", **kept)  # there is no accelerator here, whatever it asked for

    with ExitStack() as stack:
        stack.enter_context(watched(torch.distributed, init_process_group=alone))
        stack.enter_context(replaced(fsdp, FullyShardedDataParallel=Whole))
        if asks and not torch.cuda.is_available():
            stack.enter_context(without_cuda())
        yield


def parallel_notes(models: Iterable[torch.nn.Module]) -> list[str]:
    """Say how a program's devices share the training, and what to ask for to have it on many."""
    parts = [part for model in models for part in model.modules()]
    ways: dict[str, tuple[str, Any]] = {
        "copies of the model (DistributedDataParallel)": ("--nodes N", torch.nn.parallel.DistributedDataParallel),
        "its parameters (FSDP)": ("--nodes N --layout zero=3", (Whole, getattr(fsdp, "FSDPModule", Whole))),
    }
    return [
        f"{OF_ONE} of processes that share {what}: {words} of an estimate gives it on many devices, with the "
        "batch of them all"
        for what, (words, kind) in ways.items()
        if any(isinstance(part, kind) for part in parts)
    ]
