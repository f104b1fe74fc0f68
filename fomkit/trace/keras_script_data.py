"""What a running Keras program says of its data: batch, samples of an epoch, and what it validates with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter
from keras.src.trainers.data_adapters.torch_data_loader_adapter import TorchDataLoaderAdapter

from fomkit.workload import LastBatch


@dataclass(frozen=True)
class Epoch:
    """Samples of one epoch, None where unknown, what becomes of the last batch, and where that was read."""

    samples: int | None
    last_batch: LastBatch
    told: str


def first_axis(values: Any) -> int | None:
    """Give how many samples some tensors hold."""
    for leaf in keras.tree.flatten(values):
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape):
            return None if shape[0] is None else int(shape[0])
    return None


def _number(value: Any) -> int:
    return int(getattr(value, "numpy", lambda: value)())


def _cardinality(dataset: Any) -> int | None:
    found = dataset.cardinality()
    return int(found) if int(found) >= 0 else None


def _unbatched(dataset: Any, batch: int) -> Epoch | None:
    """Count the samples that were put into batches of this size; None where more was done with batches."""
    at, batches = dataset, _cardinality(dataset)
    while at is not None and not hasattr(at, "_drop_remainder"):
        at = getattr(at, "_input_dataset", None)
    if at is None or _cardinality(at) != batches:
        return None
    samples, size = _cardinality(at._input_dataset), _number(at._batch_size)
    if samples is None or size != batch:
        return None
    drops = bool(_number(at._drop_remainder))
    return Epoch(samples, "drop" if drops else "keep", "has the samples that the dataset batches")


def _of_dataset(dataset: Any, batch: int) -> Epoch:
    exact = _unbatched(dataset, batch)
    if exact is not None:
        return exact
    batches = _cardinality(dataset)
    if batches is None:
        return Epoch(None, "keep", "of unknown length, as the dataset does not say how many batches it has")
    return Epoch(batches * batch, "drop", f"has {batches:,} batches of the dataset, taken to be full")


def _of_loader(loader: Any) -> Epoch:
    from fomkit.trace.torch_script_loader import loader_facts

    facts = loader_facts(loader)
    return Epoch(facts.samples, facts.last_batch, "as the DataLoader says")


def epoch_of(iterator: Any, batch: int) -> Epoch:
    """Read an epoch of training.

    Parameters
    ----------
    iterator : EpochIterator
        What ``fit`` made of its data.
    batch : int
        Samples of a full batch.
    """
    adapter, steps = iterator.data_adapter, iterator.steps_per_epoch
    if steps:
        return Epoch(steps * batch, "drop", f"has {steps:,} steps (steps_per_epoch)")
    if isinstance(adapter, ArrayDataAdapter):
        return Epoch(adapter._num_samples, "keep", "has the samples of the arrays that fit is given")
    if isinstance(adapter, TFDatasetAdapter) and callable(adapter._dataset.cardinality):
        return _of_dataset(adapter._dataset, batch)
    if isinstance(adapter, TorchDataLoaderAdapter):
        return _of_loader(adapter._dataloader)
    if adapter.num_batches:
        kind = type(adapter.py_dataset if isinstance(adapter, PyDatasetAdapter) else adapter).__name__
        batches = int(adapter.num_batches)
        return Epoch(batches * batch, "drop", f"has {batches:,} batches of the {kind}, taken to be full")
    return Epoch(
        None, "keep", "of unknown length, which a generator does not say; fit may be given steps_per_epoch"
    )


def validation_of(arguments: Mapping[str, Any], train_samples: int | None, batch: int) -> int | None:
    """Count the samples that ``fit`` validates with after an epoch; None where they are not known."""
    given, share = arguments.get("validation_data"), arguments.get("validation_split")
    if given is None:
        total = first_axis(arguments.get("x")) if share else None
        return total - (train_samples or 0) if total is not None else None if share else 0
    size = arguments.get("validation_batch_size") or arguments.get("batch_size") or batch
    if arguments.get("validation_steps"):
        return int(arguments["validation_steps"]) * int(size)
    if callable(getattr(given, "cardinality", None)):
        own = first_axis(given.element_spec) or batch
        return _unbatched_samples(given) or _of_dataset(given, own).samples
    if isinstance(given, keras.utils.PyDataset):
        return given.num_batches * batch if given.num_batches else None
    return first_axis(given) if isinstance(given, tuple | list) else None


def _unbatched_samples(dataset: Any) -> int | None:
    """Count the samples of a dataset whose batches may have any size."""
    at = dataset
    while at is not None and not hasattr(at, "_drop_remainder"):
        at = getattr(at, "_input_dataset", None)
    size = None if at is None else _number(at._batch_size)
    exact = None if size is None else _unbatched(dataset, int(size))
    return exact.samples if exact else None
