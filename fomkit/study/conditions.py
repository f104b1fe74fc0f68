"""What a line of a suite fixes, what a proposal does instead, and how the difference is told."""

from __future__ import annotations

from dataclasses import replace

from fomkit.errors import FomkitError
from fomkit.suite import Conditions
from fomkit.workload import ModelProfile

_ANY = "as the framework does"


def fixed_conditions(wanted: Conditions, model: ModelProfile | None) -> Conditions:
    """Give what a line fixes: what it states, and its model profile's own values where it states nothing."""
    if model is None:
        return wanted
    return Conditions(
        batch=wanted.batch if wanted.batch is not None else model.batch,
        precision=wanted.precision,
        epochs=wanted.epochs if wanted.epochs is not None else model.run.epochs,
        samples=wanted.samples if wanted.samples is not None else model.data.train_samples,
        quality=wanted.quality,
        sizes={**{name: size for name, size in model.sizes.items() if name != "batch"}, **wanted.sizes},
    )


def changed_conditions(fixed: Conditions, proposed: Conditions) -> Conditions:
    """Give the conditions under which a line runs when a proposal changes some of them.

    The quality is what the proposal shows; what the line asks for is not shown by being asked for.
    """
    return Conditions(
        batch=proposed.batch if proposed.batch is not None else fixed.batch,
        precision=proposed.precision or fixed.precision,
        epochs=proposed.epochs if proposed.epochs is not None else fixed.epochs,
        samples=proposed.samples if proposed.samples is not None else fixed.samples,
        quality=proposed.quality,
        sizes={**fixed.sizes, **proposed.sizes},
    )


def deviations(fixed: Conditions, proposed: Conditions) -> tuple[str, ...]:
    """Tell each difference between what a line fixes and what is proposed; a condition that is open is none.

    Examples
    --------
    >>> deviations(Conditions(batch=20, epochs=400), Conditions(batch=256))
    ('batch 20 → 256 (quality not shown)',)
    """
    asked, found = fixed.stated(), proposed.stated()
    found.pop("quality", None)
    shown = "quality not shown" if proposed.quality is None else f"quality: {proposed.quality}"
    return tuple(
        f"{name} {asked.get(name, _ANY)} → {value} ({shown})"
        for name, value in found.items()
        if value != asked.get(name) and (name in asked or name == "precision")
    )


def unstated(fixed: Conditions, found: Conditions) -> tuple[str, ...]:
    """Tell what a line fixes and a stated time does not say of itself.

    Examples
    --------
    >>> unstated(Conditions(batch=20, epochs=4), Conditions(epochs=4))
    ('batch not stated (the line fixes 20)',)
    """
    known = found.stated()
    return tuple(
        f"{name} not stated (the line fixes {value})"
        for name, value in fixed.stated().items()
        if name not in known
    )


def under_conditions(model: ModelProfile, conditions: Conditions) -> ModelProfile:
    """Give a model profile with the samples and epochs of a line; batch and sizes are options of the estimate."""
    data, run = model.data, model.run
    if conditions.samples is not None:
        data = replace(data, train_samples=conditions.samples)
    if conditions.epochs is not None:
        run = replace(run, epochs=conditions.epochs)
    return replace(model, data=data, run=run)


def check_proposed(name: str, fixed: Conditions, proposed: Conditions) -> None:
    """Raise when a proposal changes a size that the line's model does not have.

    Raises
    ------
    FomkitError
        Naming the sizes it has.
    """
    if unknown := sorted(set(proposed.sizes) - set(fixed.sizes)):
        known = ", ".join(["batch", "precision", "epochs", "samples", "quality", *fixed.sizes])
        raise FomkitError(name, f"{', '.join(unknown)} is nothing that it fixes. It fixes: {known}.")
