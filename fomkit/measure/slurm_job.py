"""A job script for Slurm that measures between processes on its nodes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from fomkit.errors import FomkitError

MINUTES = {"quick": 10, "default": 20, "full": 60}
"""Time that is asked of Slurm [min], by plan; starting PyTorch on many nodes takes a part of it."""


class Job(NamedTuple):
    """What the job is to run on.

    Attributes
    ----------
    nodes, ranks : int
        Nodes, and processes on all of them together.
    plan : str
        quick, default or full.
    backends : tuple of str
    output : str
        Machine profile that rank 0 writes, as the job's folder sees it.
    add : bool
        Whether it adds to a profile that is there.
    """

    nodes: int
    ranks: int
    plan: str
    backends: tuple[str, ...]
    output: str
    add: bool


def _command(job: Job) -> str:
    words: Sequence[str] = (
        "fomkit", "measure", "--network", *([] if job.plan == "default" else [f"--{job.plan}"]),
        *(word for one in job.backends for word in ("--backend", one)), "-o", job.output,
        *(["--add"] if job.add else []),
    )  # fmt: skip
    return " ".join(map(shlex.quote, words))


def slurm_job(job: Job) -> str:
    """Write the script; ``sbatch FILE`` submits it.

    Raises
    ------
    FomkitError
        When the ranks do not fill the nodes evenly.

    Examples
    --------
    >>> text = slurm_job(Job(2, 8, "quick", ("nccl",), "here.yaml", False))
    >>> [line for line in text.splitlines() if "tasks-per-node" in line or line.startswith("srun")]
    ['#SBATCH --ntasks-per-node=4', 'srun fomkit measure --network --quick --backend nccl -o here.yaml']
    """
    if job.ranks % job.nodes or job.ranks < 2:
        raise FomkitError(
            f"--ranks {job.ranks} --nodes {job.nodes}", "each node needs as many ranks as the others, 2 at least "
            "in all. Give, for example, '--nodes 2 --ranks 8'.",
        )  # fmt: skip
    tasks = job.ranks // job.nodes
    gpus = [f"#SBATCH --gpus-per-node={tasks}"] if "nccl" in job.backends else []
    minutes = MINUTES[job.plan]
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=fomkit-network",
        f"#SBATCH --nodes={job.nodes}",
        f"#SBATCH --ntasks-per-node={tasks}",
        *gpus,
        "#SBATCH --exclusive",
        f"#SBATCH --time={minutes // 60:02d}:{minutes % 60:02d}:00",
        "#SBATCH --output=%x-%j.log",
        "",
        "# Made by 'fomkit measure --network --slurm'. Add your account and partition above, and here what makes",
        "# fomkit and PyTorch available on the nodes, for example: source .venv/bin/activate",
        "",
        "set -euo pipefail",
        'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        'MASTER_PORT="$((29500 + SLURM_JOB_ID % 2000))"',
        "export MASTER_ADDR MASTER_PORT OMP_NUM_THREADS=1",
        f"srun {_command(job)}",
    ]
    return "\n".join(lines) + "\n"
