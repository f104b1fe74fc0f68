"""Which rank a process is, as torchrun, MPI or Slurm tell it, and where the ranks meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

BASE_PORT, PORTS = 29_500, 2_000
"""Ports that jobs without a port of their own take, by their number."""


class Place(NamedTuple):
    """One process among those of a launch.

    Attributes
    ----------
    rank, ranks : int
        Number of the process, from 0, and how many there are.
    local_rank, local_ranks : int
        The same on its node.
    launcher : str
        torchrun, Open MPI, MPICH or Slurm.
    job : str
        Number of the launch; "" where the launcher gives none.
    """

    rank: int
    ranks: int
    local_rank: int
    local_ranks: int
    launcher: str
    job: str = ""


_LAUNCHERS: tuple[tuple[str, tuple[str, str, str, str], tuple[str, ...]], ...] = (
    ("torchrun", ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("TORCHELASTIC_RUN_ID",)),
    (
        "Open MPI",
        (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ),
        ("SLURM_JOB_ID", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"),
    ),
    ("MPICH", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), ("SLURM_JOB_ID", "PMI_JOBID")),
    # A shell in an allocation has SLURM_PROCID too, but no step: only srun starts one.
    ("Slurm", ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""), ("SLURM_JOB_ID",)),
)
"""Launchers, their variables of rank, ranks, local rank and local ranks, and those that number a launch."""


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdigit() else default


def place_of(environment: Mapping[str, str]) -> Place | None:
    """Read from the environment which rank this process is; None where nothing launched it as one of several.

    Examples
    --------
    >>> place_of({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    Place(rank=1, ranks=4, local_rank=1, local_ranks=2, launcher='torchrun', job='')
    >>> place_of({"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}) is None
    True
    """
    for launcher, (rank, ranks, local, local_ranks), jobs in _LAUNCHERS:
        if environment.get(rank, "").isdigit() and environment.get(ranks, "").isdigit():
            count = int(environment[ranks])
            job = next((environment[name] for name in jobs if environment.get(name)), "")
            return Place(
                int(environment[rank]),
                count,
                _whole(environment, local, int(environment[rank])),
                _whole(environment, local_ranks, 0) or _tasks_here(environment, count),
                launcher,
                job,
            )
    return None


def _tasks_here(environment: Mapping[str, str], ranks: int) -> int:
    """Give the tasks of the first node, as Slurm counts them: ``4(x2)`` is 4 on each of two."""
    told = environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(",")[0].partition("(")[0]
    return int(told) if told.isdigit() else ranks


def meeting_of(place: Place, environment: Mapping[str, str]) -> str:
    """Give the address at which the ranks of a launch meet, for ``torch.distributed``.

    Raises
    ------
    ValueError
        When they are on several nodes and nobody says which the first one is.
    """
    if place.launcher == "torchrun" and environment.get("MASTER_ADDR") and environment.get("MASTER_PORT"):
        return "env://"
    address = environment.get("MASTER_ADDR", "")
    if not address and place.local_ranks < place.ranks:
        raise ValueError(
            "the ranks are on several nodes and MASTER_ADDR is not set. Set it to the name of the first node."
        )
    digits = "".join(letter for letter in place.job if letter.isdigit())
    port = environment.get("MASTER_PORT") or str(BASE_PORT + int(digits or "0") % PORTS)
    return f"tcp://{address or '127.0.0.1'}:{port}"
