"""The ranks of a measurement: processes that are started here, or those that a launcher started, this one too."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from fomkit.errors import FomkitError
from fomkit.timings.measure_child import Child
from fomkit.timings.measure_network import Rank
from fomkit.timings.measure_ranks import Place, meeting_of
from fomkit.trace.child_process import child_command

Answer = dict[str, Any]
LIMIT_S = 60.0
"""Time [s] after which an exchange that does not end counts as failed."""
GONE = "the process that timed it"
"""How `Child` begins what it says of a process that gave no answer."""
GRACE_S = 15.0
"""How much longer a rank is waited for: the others find out by themselves first."""


class Ranks(Protocol):
    """Ranks that exchange messages and time it."""

    facts: Answer

    def ask(self, request: Mapping[str, Any]) -> Answer:
        """Have all ranks run an exchange; ``times`` or ``reason``, and ``broken`` where the ranks are lost."""

    def mend(self) -> bool:
        """Put others in the place of ranks that are lost; False where that cannot be done."""

    def close(self) -> None:
        """End the exchange."""


class LocalRanks:
    """Processes on this machine, one a rank, which are started anew when one is lost.

    Parameters
    ----------
    backend : str
        Of ``torch.distributed``.
    ranks : int
    limit_s : float
        Time [s] after which an exchange that does not end counts as failed.
    """

    def __init__(self, backend: str, ranks: int, limit_s: float = LIMIT_S) -> None:
        self._backend, self._ranks, self._limit_s = backend, ranks, limit_s
        self._folder = tempfile.TemporaryDirectory(prefix="fomkit-", ignore_cleanup_errors=True)
        self._starts = 0
        self.children: list[Child] = []
        self.facts: Answer = {}
        try:
            self._start()
        except BaseException:  # an interrupt too must not leave processes running
            self.close()
            raise

    def _start(self) -> None:
        meeting = Path(self._folder.name, f"meeting-{self._starts}").as_uri()
        self._starts += 1
        self.children = [
            Child(
                child_command("fomkit.timings.measure_network"),
                {"backend": self._backend, "rank": rank, "local_rank": rank, "ranks": self._ranks, "threads": 1,
                 "meeting": meeting, "limit_s": self._limit_s},
            )
            for rank in range(self._ranks)
        ]  # fmt: skip
        # They meet while they start, so that none can be waited for alone.
        self._together(Child.__enter__)
        told = [child.facts for child in self.children]
        self.facts = next((one for one in told if "missing" in one), told[0])

    def _together(self, act: Callable[[Child], Any]) -> list[Any]:
        with ThreadPoolExecutor(self._ranks) as pool:
            return list(pool.map(act, self.children))

    def ask(self, request: Mapping[str, Any]) -> Answer:
        """Have all ranks run an exchange."""
        limit_s = self._limit_s + GRACE_S
        answers: list[Answer] = self._together(lambda child: child.time_op(request, limit_s))
        lost = [rank for rank, one in enumerate(answers) if one.get("reason", "").startswith(GONE)]
        if lost:
            return {"reason": f"rank {lost[0]}: {answers[lost[0]]['reason']}", "broken": True}
        failed = [one for one in answers if "reason" in one]
        return failed[0] if failed else answers[0]

    def mend(self) -> bool:
        """Start all ranks anew."""
        self._end()
        try:
            self._start()
        except FomkitError:
            return False
        return "missing" not in self.facts

    def _end(self) -> None:
        for child in self.children:
            child.close()

    def close(self) -> None:
        """End all ranks."""
        self._end()
        self._folder.cleanup()


class LaunchedRank:
    """The process at hand as one of those that torchrun, MPI or Slurm started.

    Parameters
    ----------
    backend : str
    place : Place
    environment : mapping
        Where the launcher says how to meet.
    """

    def __init__(
        self, backend: str, place: Place, environment: Mapping[str, str], limit_s: float = LIMIT_S
    ) -> None:
        self._rank = Rank(
            {"backend": backend, "rank": place.rank, "ranks": place.ranks, "local_rank": place.local_rank,
             "meeting": meeting_of(place, environment), "limit_s": limit_s}
        )  # fmt: skip
        try:
            self.facts: Answer = self._rank.join()
        except (RuntimeError, OSError) as problem:
            self.facts = {"missing": f"the ranks did not meet ({str(problem).splitlines()[0][:160]})"}

    def ask(self, request: Mapping[str, Any]) -> Answer:
        """Do this rank's part."""
        return self._rank.time_exchange(request)

    def mend(self) -> bool:
        """Tell that no rank can be started anew: that is the launcher's."""
        return False

    def close(self) -> None:
        """Leave the others."""
        self._rank.leave()
