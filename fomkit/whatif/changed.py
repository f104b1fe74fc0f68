"""A machine or a model with some of its parameters at other values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fomkit.hardware import Link, Machine, Overhead
from fomkit.study.changes import change_machine, parameters, restated
from fomkit.study.options import Options
from fomkit.whatif.parameters import link_names, overhead_name
from fomkit.workload import ModelProfile

OF_A_RUN = ("train_samples", "validation_samples", "epochs")
"""Parameters of a model that are no sizes of its ops."""


def _overhead(one: Overhead, values: Mapping[str, float]) -> Overhead:
    value = values.get(overhead_name(one))
    if value is None:
        return one
    if one.time_s is not None:
        return replace(one, time_s=restated(one.time_s, value))
    return replace(one, share=restated(one.share, value))


def _range(ends: tuple[float, float] | None, factor: float) -> tuple[float, float] | None:
    return None if ends is None else (ends[0] * factor, ends[1] * factor)


def _link(link: Link, values: Mapping[str, float]) -> Link:
    if link.tier == "device":
        return link
    rate, alpha = (values.get(name) for name in link_names(link))
    if rate is not None:
        ends = _range(link.range_byte_per_s, rate / link.byte_per_s)
        link = replace(link, byte_per_s=rate, range_byte_per_s=ends)
    if alpha is not None:
        ends = _range(link.alpha_range_s, alpha / link.alpha_s if link.alpha_s else 1.0)
        link = replace(link, alpha_s=alpha, alpha_range_s=ends)
    return link


def changed_machine(machine: Machine, values: Mapping[str, float], channel: str = "") -> Machine:
    """Give a machine with other values of its parameters.

    Each keeps its relative spread, and each op its utilisation (`fomkit.study.changes.change_machine`).

    Parameters
    ----------
    machine : Machine
    values : mapping
        By the names of `fomkit.whatif.parameters.Parameter`, in SI units.
    channel : str
        Transport whose links are meant.
    """
    of_device = {name: value for name, value in values.items() if name in parameters(machine)}
    made = change_machine(machine, of_device) if of_device else machine
    return replace(
        made,
        overheads=tuple(_overhead(one, values) for one in made.overheads),
        links=tuple(_link(link, values) if link.channel == channel else link for link in made.links),
        availability=values.get("availability", made.availability),
        system_nodes=_whole(values, "nodes", made.system_nodes),
        node_devices=_whole(values, "node_devices", made.node_devices),
    )


def _whole(values: Mapping[str, float], name: str, now: int | None) -> int | None:
    return round(values[name]) if name in values else now


def changed_model(
    model: ModelProfile, options: Options, values: Mapping[str, float]
) -> tuple[ModelProfile, Options]:
    """Give a model profile with other samples and epochs, and the options with other sizes."""
    data = replace(
        model.data,
        train_samples=_whole(values, "train_samples", model.data.train_samples),
        validation_samples=_whole(values, "validation_samples", model.data.validation_samples),
    )
    run = replace(model.run, epochs=_whole(values, "epochs", model.run.epochs))
    sizes = {name: round(value) for name, value in values.items() if name not in OF_A_RUN}
    wanted = {**options.wanted_sizes, **sizes}
    return replace(model, data=data, run=run), replace(options, batch=None, sizes=wanted)
