"""Change the trainers of libraries when they are imported, to train on one CPU and to show their steps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.optim import optimizer as hooks
from torch.utils.data import DataLoader

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


def _announced(kind: Any, _note: Callable[[str], object]) -> None:
    """Make optimizers of a class that is not derived from PyTorch's announce their steps as those do."""
    step = kind.step

    @wraps(step)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        for hook in [*hooks._global_optimizer_pre_hooks.values()]:
            hook(self, (self, *args), kwargs)
        found = step(self, *args, **kwargs)
        for after in [*hooks._global_optimizer_post_hooks.values()]:
            after(self, (self, *args), kwargs)
        return found

    kind.step = stepped


class Engine(torch.nn.Module):
    """Replaces DeepSpeed's engine: it scales losses, accumulates and clips gradients, and steps, on one device."""

    def __init__(self, model: torch.nn.Module, optimizer: Any, scheduler: Any, every: int, most: float) -> None:
        super().__init__()
        self.module, self.optimizer, self.lr_scheduler = model, optimizer, scheduler
        self.device, self.global_rank, self.local_rank, self.world_size = torch.device("cpu"), 0, 0, 1
        self._every, self._most, self._passes = every, most, 0

    def __getattr__(self, name: str) -> Any:
        """Return its own attribute, else that of the model."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        return self.module(*args, **kwargs)

    def backward(self, loss: torch.Tensor, **_kwargs: Any) -> torch.Tensor:
        """Run a backward pass of the loss as a part of the step's."""
        torch.autograd.backward(loss / self._every if self._every > 1 else loss)
        self._passes += 1
        return loss

    def is_gradient_accumulation_boundary(self) -> bool:
        """Return whether the backward passes so far are those of whole steps."""
        return self._passes % self._every == 0

    def step(self, *_args: Any, **_kwargs: Any) -> None:
        """Update, if all backward passes of the step ran."""
        if not self.is_gradient_accumulation_boundary():
            return
        if self._most:
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), self._most)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.lr_scheduler is not None:
            self.lr_scheduler.step()


_OPTIMIZERS: Mapping[str, Any] = {"adam": torch.optim.AdamW, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD,
                                  "adagrad": torch.optim.Adagrad}  # fmt: skip
"""PyTorch's optimizers by DeepSpeed's names; its Adam decays weights as AdamW does."""


def _optimizer_of(config: Mapping[str, Any], parameters: Any) -> Any:
    """Return the optimizer that a configuration of DeepSpeed names."""
    stated = config.get("optimizer") or {}
    name = str(stated.get("type", "")).lower()
    if name not in _OPTIMIZERS:
        known = ", ".join(_OPTIMIZERS)
        raise ValueError(
            f"DeepSpeed's optimizer {name!r} does not run here: choose one of {known}, or pass your own"
        )
    used = ("lr", "betas", "eps", "weight_decay", "momentum")
    options = {key: one for key, one in stated.get("params", {}).items() if key in used and one != "auto"}
    fused = {"fused": True} if name.startswith("adam") else {}
    return _OPTIMIZERS[name](list(parameters), **options, **fused)


def _deepspeed_here(initialize: Any, note: Callable[[str], object]) -> None:
    """Make DeepSpeed's ``initialize`` train on this CPU, by PyTorch's optimizers and without sharding."""

    def here(args: Any = None, model: Any = None, optimizer: Any = None, model_parameters: Any = None,
             training_data: Any = None, lr_scheduler: Any = None, *_args: Any, config: Any = None,
             config_params: Any = None, collate_fn: Any = None, **_kwargs: Any) -> tuple[Any, ...]:  # fmt: skip
        stated = config or config_params or args.deepspeed_config
        stated = stated if isinstance(stated, Mapping) else json.loads(Path(stated).read_text(encoding="utf-8"))
        counts = {key: one for key, one in stated.items() if isinstance(one, int)}
        each, whole = counts.get("train_micro_batch_size_per_gpu"), counts.get("train_batch_size")
        every = counts.get("gradient_accumulation_steps") or (whole // each if whole and each else 1)
        formats = {"bf16": torch.bfloat16, "fp16": torch.float16}
        converted = [dtype for name, dtype in formats.items() if stated.get(name, {}).get("enabled") is True]
        model.to(*converted[:1])
        note("DeepSpeed" + ", whose fp32 copies of them are not counted" * bool(converted))
        if not isinstance(optimizer, torch.optim.Optimizer):
            given = model.parameters() if model_parameters is None else model_parameters
            optimizer = optimizer(given) if callable(optimizer) else _optimizer_of(stated, given)
        scheduler = lr_scheduler(optimizer) if callable(lr_scheduler) else lr_scheduler
        loader = training_data and DataLoader(
            training_data, each or (whole or every) // every, shuffle=True, collate_fn=collate_fn
        )
        clips = stated.get("gradient_clipping")
        engine = Engine(model, optimizer, scheduler, every, clips if isinstance(clips, float | int) else 0.0)
        return engine, optimizer, loader, scheduler

    initialize.__globals__.update(initialize=here, init_distributed=lambda *_args, **_kwargs: None)


_TRAINERS: Mapping[str, tuple[str, Callable[[Any, Callable[[str], object]], None]]] = {
    **dict.fromkeys(("transformers", "transformers.training_args"), ("TrainingArguments", _hugging_face_here)),
    **dict.fromkeys(
        ("lightning", "lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"),
        ("Trainer", _lightning_here),
    ),
    **dict.fromkeys(("lightning.fabric.fabric", "lightning_fabric.fabric"), ("Fabric", _lightning_here)),
    "fastai.optimizer": ("Optimizer", _announced),
    "deepspeed": ("initialize", _deepspeed_here),
}
"""By module: the class that configures the devices of a training, or updates; and the function that changes it."""
SHARED: list[str] = []
"""Ways of sharing parameters that trainers were configured with; they are ignored."""


class TrainersHere(MetaPathFinder):
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
                change(kind, SHARED.append)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec
