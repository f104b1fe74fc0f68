"""Trainers of libraries and loaders of data: how long a program trains, and what lets a trainer run on one CPU.

A trainer is an object of a library that contains the loop. Its figures are read from the object that is training,
found in the frames of the call, and its class is changed when its module is imported (`TrainersHere`), so that no
library is imported for it. Where there is no trainer, the loaders and the loops around the steps say how long.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim import optimizer as hooks
from torch.utils import data
from torch.utils.data import dataloader

from fomkit.core.model import LastBatch
from fomkit.frontends.drafting import watched
from fomkit.frontends.script.loops import RunLength, run_by_loops


def length_of(values: Any) -> int | None:
    """Return the samples of a dataset, or of several by name; None if there is no length, as for streams."""
    try:
        return sum(map(len, values.values())) if isinstance(values, dict) else len(values)
    except (TypeError, NotImplementedError):
        return None


@dataclass(frozen=True)
class LoaderFacts:
    """Facts about a loader; None where unknown."""

    batch: int | None
    samples: int | None
    last_batch: LastBatch


def loader_facts(loader: Any) -> LoaderFacts:
    """Read batch size, samples per epoch and treatment of the last batch."""
    by_batch = getattr(loader, "batch_sampler", None)
    own = getattr(loader, "batch_size", None)
    batch = own or getattr(by_batch, "batch_size", None) or getattr(loader, "bs", None)  # bs: of fastai's loader
    streams = isinstance(loader.dataset, data.IterableDataset)
    samples = length_of(loader.dataset if streams or own is None else loader.sampler)
    drops = loader.drop_last or bool(getattr(by_batch, "drop_last", False))
    return LoaderFacts(batch if isinstance(batch, int) else None, samples, "drop" if drops else "keep")


@dataclass(frozen=True)
class Fetched:
    """One batch that the program fetched; ``is_first``: whether an iteration over its loader begins with it."""

    loader: Any
    values: Any
    is_full: bool
    is_first: bool = False


@contextmanager
def watch_loaders(
    on_start: Callable[[], None], on_batch: Callable[[Fetched], Any], quietly: Callable[[], Any]
) -> Iterator[None]:
    """Watch every DataLoader of this process inside the block.

    `on_start`: called before an iteration over a loader begins; `on_batch`: returns the values that the program
    gets of a batch; `quietly`: context in which batches are made: this is the host's work, and no op of the step.
    """
    loaders: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def started(start: Any, loader: Any) -> Any:
        on_start()
        with quietly():
            return start(loader)

    def made(make: Any, batches: Any, loader: Any) -> None:
        # Also of loaders that keep their iterator, and of fastai's, which iterate over a stand-in.
        loaders[batches] = loader.d if hasattr(getattr(loader, "d", None), "dataset") else loader
        make(batches, loader)

    def fetched(fetch: Any, batches: Any) -> Any:
        with quietly():
            values = fetch(batches)
            if batches not in loaders:
                return values
            loader = loaders[batches]
            facts = loader_facts(loader)
            full = None if facts.samples is None or not facts.batch else facts.samples // facts.batch
            at = batches._num_yielded
            return on_batch(Fetched(loader, values, full is None or at <= full, at == 1))

    batches = dataloader._BaseDataLoaderIter
    with watched(data.DataLoader, __iter__=started), watched(batches, __init__=made, __next__=fetched):
        yield


def _whole_count(value: Any) -> int | None:
    """Return a count that is a whole number; None for endless streams and values that are not set."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value >= 1 and value == int(value) else None


def _stops_early(callbacks: Any) -> list[str]:
    stops = any("EarlyStopping" in type(callback).__name__ for callback in callbacks or ())
    return ["early stopping may end the run before its last epoch"] * stops


def _hugging_face(trainer: Any, _loader: Any) -> RunLength:
    """Read transformers.Trainer: whole epochs, else the number of steps that it computes itself."""
    arguments, remarks = trainer.args, _stops_early(trainer.callback_handler.callbacks)
    by_steps = arguments.max_steps > 0
    epochs = None if by_steps else _whole_count(arguments.num_train_epochs)
    strategy = getattr(arguments.eval_strategy, "value", arguments.eval_strategy)
    validated = {"no": 0, "epoch": length_of(trainer.eval_dataset)}.get(strategy)
    if strategy == "steps":
        remarks.append(f"validates every {arguments.eval_steps} steps, not once an epoch; this is not counted")
    return RunLength(
        epochs, f"{'max_steps' if by_steps else 'num_train_epochs'} of transformers.Trainer",
        steps=None if epochs else _whole_count(trainer.state.max_steps), validation_samples=validated,
        accumulates=_whole_count(arguments.gradient_accumulation_steps), remarks=tuple(remarks),
    )  # fmt: skip


def _lightning(trainer: Any, loader: Any) -> RunLength:
    """Read Lightning's Trainer: its epochs, or its steps if they end the run first."""
    batches, every = _whole_count(trainer.num_training_batches), _whole_count(trainer.accumulate_grad_batches)
    epochs, steps = _whole_count(trainer.max_epochs), _whole_count(trainer.max_steps)
    if epochs and steps:
        by_epochs = epochs * math.ceil(batches / (every or 1)) if batches else math.inf
        epochs, steps = (epochs, None) if by_epochs <= steps else (None, steps)
    validated, remarks = _validated_by_lightning(trainer)
    if getattr(trainer, "max_time", None):
        remarks.append("max_time may end the run before its last epoch")
    return RunLength(
        epochs, f"{'max_epochs' if epochs or not steps else 'max_steps'} of Lightning's Trainer",
        _limited_samples(batches, loader), validated, steps, every, (*remarks, *_stops_early(trainer.callbacks)),
    )  # fmt: skip


def _limited_samples(batches: int | None, loader: Any) -> int | None:
    """Return the samples of an epoch limited to some batches; None if the epoch ends with the loader."""
    batch, whole = (None, None) if loader is None else (loader_facts(loader).batch, length_of(loader))
    return batches * batch if batches and batch and (whole is None or batches < whole) else None


def _validated_by_lightning(trainer: Any) -> tuple[int | None, list[str]]:
    """Return the samples validated after each epoch, and notes on them."""
    if not trainer.enable_validation:
        return 0, []
    if trainer.check_val_every_n_epoch != 1 or trainer.val_check_interval not in (None, 1.0):
        return None, ["validates, but not once an epoch; this is not counted"]
    loaders = trainer.val_dataloaders
    loaders = loaders if isinstance(loaders, list | tuple) else [loaders]
    samples = 0
    for loader, most in zip(loaders, trainer.num_val_batches, strict=False):
        if not isinstance(loader, data.DataLoader) or not math.isfinite(most):
            return None, []
        facts = loader_facts(loader)
        if facts.samples is None or facts.batch is None:
            return None, []
        samples += min(facts.samples, int(most) * facts.batch)
    return samples or None, []


def _ignite(engine: Any, loader: Any) -> RunLength:
    """Read ignite's Engine, whose state holds its epochs or iterations, and the batches of an epoch."""
    state = engine.state
    epochs, steps = _whole_count(state.max_epochs), _whole_count(getattr(state, "max_iters", None))
    return RunLength(
        epochs, f"{'max_epochs' if epochs else 'max_iters'} of ignite's Engine",
        _limited_samples(_whole_count(state.epoch_length), loader), steps=None if epochs else steps,
    )  # fmt: skip


def _composer(trainer: Any, _loader: Any) -> RunLength:
    """Read composer's Trainer, whose duration is a number of epochs, batches or other units."""
    length = trainer.state.max_duration
    count = {length.unit.value: _whole_count(length.value)}
    return RunLength(count.get("ep"), "max_duration of composer's Trainer", steps=count.get("ba"))


def _ultralytics(trainer: Any, _loader: Any) -> RunLength:
    """Read ultralytics' trainers; their first steps accumulate fewer batches than the later ones."""
    validated = length_of(trainer.test_loader.dataset) if trainer.args.val else 0
    return RunLength(
        _whole_count(trainer.epochs), "epochs of ultralytics' trainer", validation_samples=validated,
        accumulates=max(round(trainer.args.nbs / trainer.batch_size), 1),
        remarks=("early stopping may end the run before its last epoch",) * bool(trainer.args.patience),
    )  # fmt: skip


_TRAINERS: Mapping[str, tuple[str, Callable[[Any, Any], RunLength]]] = {
    "transformers": ("Trainer", _hugging_face), "lightning": ("Trainer", _lightning),
    "pytorch_lightning": ("Trainer", _lightning), "composer": ("Trainer", _composer),
    "ignite": ("Engine", _ignite), "ultralytics": ("BaseTrainer", _ultralytics),
}  # fmt: skip
"""By package: its class that trains, and the function that reads it; programs may train by a subclass."""


def _trainer_of(frame: FrameType) -> tuple[Any, Callable[[Any, Any], RunLength]] | None:
    """Return the trainer whose method a frame runs, and the function that reads it."""
    owner = frame.f_locals.get("self")
    for kind in type(owner).__mro__:
        name, reader = _TRAINERS.get(kind.__module__.partition(".")[0], ("", None))
        if reader is not None and kind.__name__ == name:
            return owner, reader
    return None


def run_length(frame: FrameType | None, loader: Any, *heads: Any) -> RunLength:
    """Find how long a program trains: from the running trainer, else by the loops around the data (`loops`)."""
    outer = frame
    while outer is not None:
        if found := _trainer_of(outer):
            trainer, reader = found
            try:
                return reader(trainer, loader)
            except Exception as error:  # another version of the library may differ
                name = type(trainer).__name__
                return RunLength(None, f"{name} has another form than in known versions ({type(error).__name__})")
        outer = outer.f_back
    return run_by_loops(frame, loader, *heads)


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


_ANSWERS: Mapping[str, Any] = {
    "load_checkpoint": (None, {}), "no_sync": nullcontext(), "was_step_applied": True,
    **dict.fromkeys(("get_global_grad_norm", "save_checkpoint", "save_16bit_model", "destroy")),
}  # fmt: skip
"""What methods of DeepSpeed's engine return here that do nothing; no checkpoint is found or written."""


class Engine(torch.nn.Module):
    """Replaces DeepSpeed's engine: it scales losses, accumulates and clips gradients, and steps, on one device."""

    def __init__(self, model: torch.nn.Module, optimizer: Any, scheduler: Any, facts: Mapping[str, Any]) -> None:
        super().__init__()
        self.module, self.optimizer, self.lr_scheduler = model, optimizer, scheduler
        self.device, self.global_rank, self.local_rank, self.world_size = torch.device("cpu"), 0, 0, 1
        self.micro_steps, self._facts = 0, {**_ANSWERS, **facts}
        self._every, self._most = facts["gradient_accumulation_steps"], facts["gradient_clipping"]

    def __getattr__(self, name: str) -> Any:
        """Return its own attribute, else a function that states a fact, else an attribute of the model."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in (facts := vars(self).get("_facts", {})):
                return lambda *_args, **_kwargs: facts[name]
            return getattr(super().__getattr__("module"), name)

    @property
    def global_steps(self) -> int:
        """Return the steps so far."""
        return int(self.micro_steps // self._every)

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group of parameters."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        return self.module(*args, **kwargs)

    def backward(self, loss: torch.Tensor, **_kwargs: Any) -> torch.Tensor:
        """Run a backward pass of the loss as a part of the step's."""
        torch.autograd.backward(loss / self._every if self._every > 1 else loss)
        self.micro_steps += 1
        return loss

    def is_gradient_accumulation_boundary(self) -> bool:
        """Return whether the backward passes so far are those of whole steps."""
        return bool(self.micro_steps % self._every == 0)

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
        on = [name for name in formats if stated.get(name, {}).get("enabled") is True]
        model.to(*(formats[name] for name in on[:1]))
        note("DeepSpeed" + ", whose fp32 copies of them are not counted" * bool(on))
        if not isinstance(optimizer, torch.optim.Optimizer):
            given = model.parameters() if model_parameters is None else model_parameters
            optimizer = optimizer(given) if callable(optimizer) else _optimizer_of(stated, given)
        scheduler = lr_scheduler(optimizer) if callable(lr_scheduler) else lr_scheduler
        each = each or (whole or every) // every
        loader = training_data and data.DataLoader(training_data, each, shuffle=True, collate_fn=collate_fn)
        clips, stage = stated.get("gradient_clipping"), stated.get("zero_optimization", {}).get("stage", 0)
        most = clips if isinstance(clips, float | int) else 0.0
        engine = Engine(model, optimizer, scheduler, {
            "train_micro_batch_size_per_gpu": each, "gradient_accumulation_steps": every,
            "train_batch_size": each * every, "gradient_clipping": most,
            "zero_optimization": stage > 0, "zero_optimization_stage": stage,
            "fp16_enabled": "fp16" in on, "bfloat16_enabled": "bf16" in on,
        })  # fmt: skip
        return engine, optimizer, loader, scheduler

    initialize.__globals__.update(initialize=here, init_distributed=lambda *_args, **_kwargs: None)


_CHANGED: Mapping[str, tuple[str, Callable[[Any, Callable[[str], object]], None]]] = {
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
        spec = PathFinder.find_spec(name, path, target) if name in _CHANGED else None
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            run(module)
            word, change = _CHANGED[name]
            kind = vars(module).get(word)
            if getattr(kind, "__module__", "") == name:
                change(kind, SHARED.append)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec
