"""Exchanges between ranks by name, and the framework op that a timing of each stands for."""

from __future__ import annotations

from collections.abc import Mapping

SEND, STREAM, SERVER = "send_recv", "send_stream", "parameter_server"
FITTED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives that a machine's fit tells apart (`fomkit.prediction.families`)."""
OPS: Mapping[str, str] = {
    "broadcast": "c10d::broadcast_", "reduce": "c10d::reduce_", "gather": "c10d::gather_",
    "scatter": "c10d::scatter_", "barrier": "c10d::barrier", SEND: "c10d::send",
}  # fmt: skip
"""Names that PyTorch's dispatcher has for the others."""


def op_of(collective: str) -> str:
    """Name the only op that a timing of a collective stands for; "" where a fit learns from it for any.

    A broadcast beside all-reduces of the same size and ranks would be taken for one of them.

    >>> op_of("all_reduce"), op_of("broadcast"), op_of("send_stream")
    ('', 'c10d::broadcast_', 'send_stream')
    """
    return "" if collective in FITTED else OPS.get(collective, collective)
