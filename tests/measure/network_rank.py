"""A launched process of ``fomkit measure --network`` with a tiny plan; rank 1 dies if requested."""

from __future__ import annotations

import os
import sys

from fomkit.bench.network import PLANS, NetworkPlan
from fomkit.cli.main import main
from fomkit.harness.torch import network as measure_network

PLANS["quick"] = NetworkPlan((64, 4096), 0.5, 4, 0.01, (), ("all_reduce",), 1)
if os.environ.get("DIES") == os.environ.get("OMPI_COMM_WORLD_RANK"):
    timed = measure_network.Rank.time_exchange

    def time_exchange(rank, request):
        if request["collective"] == "all_reduce":
            os._exit(1)
        return timed(rank, request)

    measure_network.Rank.time_exchange = time_exchange

if __name__ == "__main__":
    sys.argv[0] = "fomkit"
    main()
