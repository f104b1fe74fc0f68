"""The side that asks the process that times: it waits so long and no longer, and starts another when one dies."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fomkit.errors import FomkitError

START_S = 120.0
"""Time [s] that a process may take to load its library."""
_THREADS = ("OMP", "MKL", "OPENBLAS")


class GoneError(Exception):
    """Why the process that times gave no answer."""


class Child:
    """A process that times ops, and the next one when it dies.

    Parameters
    ----------
    command : sequence of str
        What starts it.
    setup : mapping
        ``device``, ``threads`` and ``cache_byte``, which each new process is told first, and the ``library`` that
        runs the ops.
    """

    def __init__(self, command: Sequence[str], setup: Mapping[str, Any]) -> None:
        self._command, self._setup = list(command), dict(setup)
        self._library = str(self._setup.get("library", "torch"))
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._spent_s = self._ended_s = 0.0
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> Child:
        try:
            self._start()
        except GoneError as reason:
            self.close()
            raise FomkitError(
                "measure",
                f"the process that times ops cannot start: it {reason}. Try its Python: 'import {self._library}'.",
            ) from reason
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            before = _of_children_s()
            self._process.kill()
            self._process.wait()
            self._ended_s += max(self._spent_s, _of_children_s() - before)
            self._spent_s = 0.0
            for stream in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
            self._process = None

    def spent_s(self) -> float:
        """Give the processor time [s] of the process that times and of those before it, as of its last answer."""
        return self._ended_s + self._spent_s

    def _start(self) -> None:
        threads = {f"{name}_NUM_THREADS": str(self._setup["threads"]) for name in _THREADS}
        self._process = subprocess.Popen(  # noqa: S603 - the program is this interpreter
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env={**os.environ, **threads},
            # An interrupt from the keyboard is for the one who asks; what is being timed is simply ended.
            start_new_session=True,
        )
        self._answers = queue.Queue()
        threading.Thread(target=self._listen, args=(self._process, self._answers), daemon=True).start()
        self.facts = self._exchange(self._setup, START_S)
        if "reason" in self.facts:
            raise GoneError(self.facts["reason"])

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
        with suppress(ValueError, OSError):
            for line in process.stdout or ():
                answers.put(line)
        answers.put("")

    def _exchange(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None:
            raise GoneError("has ended")
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=limit_s)
        except queue.Empty:
            raise GoneError(f"took longer than {limit_s:.0f} s") from None
        except OSError:
            line = ""
        if not line:
            raise GoneError(_ending(process.wait()))
        answer: dict[str, Any] = json.loads(line)
        self._spent_s = answer.pop("spent_s", self._spent_s)
        return answer

    def time_op(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Have one op timed; a request without ``cells`` asks for the host's cost of an op.

        Returns
        -------
        dict
            ``warm``, ``cold`` (repeats [s]), ``error`` and ``empty_s``; or ``reason``, why there is no time: also
            where the process died or took too long. The next op gets a new process.

        Raises
        ------
        FomkitError
            When no new process can be started.
        """
        if self._process is None:
            self.__enter__()
        try:
            return self._exchange(request, limit_s)
        except GoneError as reason:
            self.close()
            return {"reason": f"the process that timed it {reason}"}


def _of_children_s() -> float:
    """Give the processor time [s] of all processes that this one started and saw end."""
    found = os.times()
    return found.children_user + found.children_system


def _ending(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        return f"was ended by {name}{', perhaps for its memory' if name == 'SIGKILL' else ''}"
    return f"ended with exit code {code}"
