"""A model profile with what was measured of it: its step, and the times of its ops in the op table.

Not imported with the room, as `fomkit.study.imports`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError
from fomkit.measurement import MeasuredOps
from fomkit.quantities import round_quantity
from fomkit.resize import resize_ops
from fomkit.study.joined_times import Joined, join_times
from fomkit.trace.measuring import Timed, time_file
from fomkit.trace.xplane_join import with_node_times
from fomkit.workload import ModelProfile


def _notes(model: ModelProfile, joined: Joined) -> Iterator[str]:
    if joined.miscounted:
        yield f"{joined.miscounted} rows ran another number of times than the table counts; they have that time"
    missing = int(joined.time_s.isna().sum())
    if missing:
        yield f"{missing} of {len(model.ops)} rows have no time: nothing ran by their name, or another row has it"
    said = {str(one) for one in model.ops["impl"] if one}
    if joined.impls and said and joined.impls != said:
        ran, told = (" and ".join(sorted(names)) for names in (joined.impls, said))
        yield f"the update ran {ran} here, where the table has {told}"
    if joined.parted:
        yield f"the times of both gradients were told as one, and parted by their work: {joined.parted} rows"


def _joined(model: ModelProfile, timed: Timed) -> Joined:
    """Put times on rows: by the nodes of the graph where these told theirs, else by what ops are."""
    sized = resize_ops(model.ops, model.sizes, model.name)
    by_node = timed.joined
    if by_node is None:
        return join_times(sized, timed.spent)
    rows = tuple(sized[["op", "pass_name", "module"]].itertuples(index=False, name=None))
    if rows != timed.rows:
        raise FomkitError(
            model.name,
            "another step ran than was profiled: its ops are not those of the table. Let the file build the same "
            "model each time.",
        )
    times = with_node_times(sized, sized["count"].astype("float64").tolist(), by_node)
    listed = tuple(replace(one, time_s=float(f"{one.time_s:.6g}")) for one in by_node.unjoined)
    return Joined(times["traced_time_s"], by_node.joined_s, listed, miscounted=0)


def with_times(model: ModelProfile, timed: Timed) -> ModelProfile:
    """Put what was timed into a profile.

    Parameters
    ----------
    model : ModelProfile
        Its op table stays, but for ``traced_time_s``.
    timed : Timed
        Of the same model at the same sizes.
    """
    if timed.profiled is None:
        return replace(model, measured=timed.run)
    joined = _joined(model, timed)
    joined_s = round_quantity(joined.joined_s, "time_s")
    factor = float(f"{timed.scaled_by:.6g}")
    seen = MeasuredOps(timed.profiler, timed.profiled, joined_s, joined.unjoined, factor)
    run = replace(timed.run, ops=seen, notes=(*timed.run.notes, *_notes(model, joined)))
    ops = model.ops.assign(traced_time_s=joined.time_s.map(lambda time: float(f"{time:.6g}")))
    return replace(model, ops=ops, measured=run)


def measure_profile(model: ModelProfile, path: Path, **asked: Any) -> ModelProfile:
    """Time the model of a file that was profiled, at the profile's sizes.

    Parameters
    ----------
    model : ModelProfile
        Of that file.
    path : Path
    asked
        As `fomkit.trace.measuring.time_file` takes them; ``energy`` is of `fomkit.measure.step_energy`.

    Raises
    ------
    FomkitError
        When the model does not run, does not fit, or its loss is no finite number.
    """
    return with_times(model, time_file(path, mode=model.traced_with["mode"], sizes=model.sizes, **asked))
