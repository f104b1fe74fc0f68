"""Start child processes with their framework already loaded, as forks of a waiting process.

A child process takes seconds to load a framework, and a hundredth of a second to trace a test's model. A fork is a
separate process like any other: its folder, environment, input, output, session and end are those that
`fomkit.files.child_process` requests, and its limits are enforced. It has only the modules that it would import,
and those of other programs with the same framework (`TOGETHER`). A child in another environment than that of the
session or its commands (apart from fomkit's own variables) is started as a new process, as are all children of a
test with the fixture ``started_anew``. A test that leaves a changed environment fails the session at the end,
because all later children would be started as new processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO
from unittest import mock

from fomkit.files import child_process

MOST_WAITING = 6
"""Largest number of waiting processes; each uses some hundred MB, and takes seconds to start again."""
TOGETHER = {
    "fomkit.frontends.torch.profile": "torch",
    "fomkit.bench.torch_child": "torch",
    "fomkit.frontends.keras.profile": "tensorflow",
    "fomkit.frontends.script.keras_draft": "tensorflow",
    "fomkit.bench.keras_child": "tensorflow",
}
"""Programs that share one waiting process, because they use the same environment and framework."""
OWN = "FOMKIT_"
"""Prefix of variables that are read only after a program begins."""
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
"""Variables that the command line sets for its libraries."""
SET_BY_FRAMEWORKS = (
    "TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "PYTORCH_NVML_BASED_CUDA_CHECK",
)  # fmt: skip
"""Environment variables that PyTorch, Lightning and TensorFlow set in the process of the tests."""

# The command of a child up to its ``main``; then it is forked once per child, each with its own pipe.
WAITING = """
import importlib, importlib.util, json, os, signal, socket, sys
spec = importlib.util.spec_from_file_location("fomkit", sys.argv[1])
package = importlib.util.module_from_spec(spec)
sys.modules["fomkit"] = package
spec.loader.exec_module(package)
parent = socket.socket(fileno=int(sys.argv[2]))
while True:
    message, files, _, _ = socket.recv_fds(parent, 65536, 2)
    if not message:
        os._exit(0)
    read, log = files
    asked = json.loads(message)
    module = importlib.import_module(asked["module"])
    if "torch" in sys.modules:
        import torch._dynamo  # any optimizer loads it
    pid = os.fork()
    if not pid:
        parent.close()
        os.setsid()
        os.chdir(asked["folder"])
        os.environ.update(asked["own"])
        for file, place in ((read, 0), (log, 1), (log, 2)):
            os.dup2(file, place)
        os.close(read), os.close(log)
        del parent, message, files, read, log, pid, asked
        try:
            module.main()
        except SystemExit as ended:
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    os.close(read), os.close(log)
    parent.sendall(f"{pid}\\n".encode())
    # It stays an entry of the system until the parent has ended its group, so that no other gets its number.
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    parent.sendall(f"{code}\\n".encode())
    parent.recv(1)
    os.waitpid(pid, 0)
    parent.sendall(b".")
"""


class Waiting:
    """A waiting process that loads the modules of programs, each once, and forks."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._here, there = socket.socketpair()
        command = [sys.executable, "-u", "-P", "-c", WAITING, str(child_process._PACKAGE)]
        self._process = subprocess.Popen(
            [*command, str(there.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            pass_fds=[there.fileno()],
            start_new_session=True,
        )
        there.close()
        self.child: Forked | None = None

    def fork(self, module: str, own: Mapping[str, str], log: BinaryIO) -> Forked:
        read, write = os.pipe()
        message = json.dumps({"module": module, "own": own, "folder": os.getcwd()}).encode()
        socket.send_fds(self._here, [message], [read, log.fileno()])
        os.close(read)
        self.child = Forked(self, int(self.line()), os.fdopen(write, "wb", buffering=0))
        return self.child

    def line(self) -> bytes:
        """Read its next line; raise ChildProcessError if it has ended."""
        told = b""
        while not told.endswith((b"\n", b".")):
            more = self._here.recv(1)
            if not more:
                raise ChildProcessError("the process that waits with a framework has ended")
            told += more
        return told

    def has_told(self) -> bool:
        self._here.setblocking(False)
        try:
            return bool(self._here.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self._here.setblocking(True)

    def let_go(self) -> None:
        """Make it reap the ended fork."""
        self._here.sendall(b".")
        self.line()
        self.child = None

    def close(self) -> None:
        self._here.close()
        self._process.kill()
        self._process.wait()


class Forked:
    """A fork with the part of `subprocess.Popen`'s interface that `run_child` uses."""

    def __init__(self, waiting: Waiting, pid: int, stdin: BinaryIO) -> None:
        self._waiting, self.pid, self.stdin = waiting, pid, stdin
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and self._waiting.has_told():
            self.returncode = int(self._waiting.line())
        return self.returncode

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._waiting.line())
        self._waiting.let_go()
        return self.returncode


class ReadyChildren:
    """The replacement of `subprocess` in `fomkit.files.child_process`."""

    PIPE = subprocess.PIPE

    def __init__(self) -> None:
        self._usual = _asked(child_process.passed_environment(os.environ))
        self._waiting: dict[tuple[str, str], Waiting] = {}

    def Popen(  # noqa: N802 - as it is called there
        self, command: Sequence[str], *, stdout: BinaryIO, env: Mapping[str, str], **others: Any
    ) -> Any:
        module = command[-1]
        known = {**vars(child_process), **vars(sys.modules.get(module, child_process))}.values()
        programs = [one for one in known if isinstance(one, child_process.Program)]
        settings = [one.environment for one in programs if one.module == module]
        asked = _asked(env)
        own = {name: value for name, value in env.items() if name.startswith(OWN)}
        key = (TOGETHER.get(module, module), json.dumps(asked, sort_keys=True))
        waiting = self._waiting.pop(key, None)
        is_busy = waiting is not None and waiting.child is not None
        if waiting is None and any(asked == {**one, **more} for one in self.usual() for more in settings):
            waiting = Waiting(asked)
        if waiting is not None:
            self._waiting[key] = waiting  # most recently used last
        if len(self._waiting) > MOST_WAITING:
            self._waiting.pop(next(iter(self._waiting))).close()
        if waiting is None or is_busy:
            return subprocess.Popen(command, stdout=stdout, env=env, **others)
        return waiting.fork(module, own, stdout)

    def usual(self) -> tuple[dict[str, str], ...]:
        """Return the usual environments of children: the session's, and the session's with `ONE_THREAD`."""
        return self._usual, {**ONE_THREAD, **self._usual}

    def close(self) -> None:
        for waiting in self._waiting.values():
            waiting.close()


def _asked(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that do not affect how a program begins."""
    return {
        name: value
        for name, value in environment.items()
        if name not in SET_BY_FRAMEWORKS and not name.startswith(OWN)
    }


def _has_ended(child: Any) -> bool:
    return child.poll() is not None if isinstance(child, Forked) else _ENDED(child)


_ENDED = child_process._has_ended


@contextlib.contextmanager
def ready_children() -> Iterator[None]:
    """Start children as forks with their framework loaded, inside the block."""
    ready = ReadyChildren()
    with mock.patch.multiple(child_process, subprocess=ready, _has_ended=_has_ended):
        try:
            yield
        finally:
            ready.close()
    assert _asked(child_process.passed_environment(os.environ)) in ready.usual()


@contextlib.contextmanager
def children_started_anew() -> Iterator[None]:
    """Start children as for a user, inside the block."""
    with mock.patch.multiple(child_process, subprocess=subprocess, _has_ended=_ENDED):
        yield
