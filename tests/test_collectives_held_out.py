"""All-reduces measured by others: a table of half of the sizes predicts the other half."""

from __future__ import annotations

import gzip
from pathlib import Path
from statistics import fmean, median

import pandas as pd
import pytest

from fomkit.core.machine import Device, Machine
from fomkit.prediction.exchange import Network
from fomkit.prediction.links import Group

Times = dict[float, float]


def vtrain(path: Path, _ranks: int) -> Times:
    """Read bytes and times out of place [s]; the columns are in nanoseconds."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = pd.read_csv(file)
    return dict(zip(rows["size(B)"].astype(float), rows.filter(like="time(ns)").iloc[:, 0] * 1e-9, strict=True))


def vidur(path: Path, ranks: int) -> Times:
    """Read bytes and the median over ranks of the medians [s]; times are in milliseconds."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = pd.read_csv(file)
    rows = rows[(rows["num_workers"] == ranks) & (rows["devices_per_node"] == ranks)]
    return (rows.groupby("size")["time_stats.all_reduce.median"].median() * 1e-3).to_dict()


def network_of(times: Times, ranks: int) -> Network:
    """Return a machine whose table has these times and no link, so that no formula can help."""
    fixed = {
        "kind": "collective",
        "collective": "all_reduce",
        "ranks": float(ranks),
        "link": "node",
        "library": "nccl",
    }
    rows = pd.DataFrame({**fixed, "message_byte": list(times), "time_s": list(times.values())})
    return Network(Machine("board", "board", "published", Device(), rows, node_devices=ranks))


def held_out(times: Times, ranks: int) -> list[float]:
    """Return the relative errors at every second of the sizes between the first and the last."""
    sizes = sorted(times)
    out = [size for place, size in enumerate(sizes[:-1]) if place % 2]
    network = network_of({size: times[size] for size in sizes if size not in out}, ranks)
    taken = [network.collective("all_reduce", size, Group(ranks, 1)).value for size in out]
    return [abs(time_s / times[size] - 1) for time_s, size in zip(taken, out, strict=True)]


def powers_of_two(times: Times) -> Times:
    return {size: time_s for size, time_s in times.items() if (int(size) & (int(size) - 1)) == 0}


@pytest.mark.parametrize(
    ("name", "ranks", "most"),
    [("vtrain_a100_AR_GPU2", 2, 0.02), ("vtrain_a100_AR_GPU4", 4, 0.02), ("vtrain_a100_AR_GPU8", 8, 0.02),
     ("vtrain_v100_AR_GPU8", 8, 0.02), *((f"vidur_{board}_dgx_all_reduce", ranks, 0.1)
                                        for board in ("a100", "h100") for ranks in (2, 4, 8))],
)  # fmt: skip
def test_a_table_tells_the_sizes_between_its_own(shared: Path, name: str, ranks: int, most: float) -> None:
    path = shared / "data/collectives" / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    times = (vtrain if name.startswith("vtrain") else vidur)(path, ranks)
    assert len(times) > 20
    assert fmean(held_out(times, ranks)) <= most
    # At a size of the table its own time holds.
    known = network_of(times, ranks)
    whole = [known.collective("all_reduce", size, Group(ranks, 1)).value / times[size] for size in times]
    assert median(whole) == pytest.approx(1.0)
    assert max(whole) == pytest.approx(min(whole))
    if name.startswith("vtrain"):  # the sparse table that a vendor's log has
        network = network_of(powers_of_two(times), ranks)
        errors = [abs(network.collective("all_reduce", size, Group(ranks, 1)).value / time_s - 1)
                  for size, time_s in times.items()]  # fmt: skip
        assert fmean(errors) <= most
