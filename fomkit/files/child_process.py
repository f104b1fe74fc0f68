"""Run a user's code in a child process under a time limit and a memory limit, and read its result.

The parent calls `run_child`. The child calls `read_request`, which returns the request and the `ResultFile`. The
memory limit applies to the resident memory of the process and its descendants, as Linux reports it; on other
systems memory is not limited, and the user is told so.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from fomkit.core.errors import FomkitError, ManyFomkitError

_PROCESSES = Path("/proc")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _started_by(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        try:
            text = (_PROCESSES / f"{one}/task/{one}/children").read_text(encoding="ascii")
        except OSError:
            continue
        children = [int(child) for child in text.split()]
        found += children
        waiting += children
    return found


def _own_byte(pid: int) -> int:
    """Return the resident memory of one process [byte]."""
    try:
        pages = (_PROCESSES / f"{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _share_byte(pid: int) -> int:
    """Return the resident memory of one process [byte]; a page that n processes share counts as 1/n."""
    try:
        lines = (_PROCESSES / f"{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith("Pss:")]
    return int(sizes[0]) * 1024 if sizes else 0


def resident_byte(pid: int) -> int:
    """Return the resident memory of a process and its descendants [byte]; 0 where the system does not report it.

    An address-space limit would not work: importing torch alone reserves more than most models use. Forked
    processes share most of their pages, which are counted once.
    """
    started = _started_by(pid)
    return sum(map(_share_byte, (pid, *started))) if started else _own_byte(pid)


@cache
def _tell_unlimited(processes: Path) -> None:
    """Tell the user once where the system does not report memory."""
    if not (processes / "self/statm").exists():
        sys.stderr.write("fomkit: the memory of the code that is run is not limited: only Linux reports it.\n")


PRINTED_LIMIT_BYTE = 50_000_000
RESULT_LIMIT_BYTE = 500_000_000
_TAIL = 1500
_PACKAGE = Path(__file__).resolve().parents[1] / "__init__.py"
_POLL_S = 0.02

# Loads this very package, wherever it is, without adding its folder to the path: modules of that folder, such as
# grp.py or types.py, would then replace those of the standard library.
_BOOT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("fomkit", sys.argv[1])
package = importlib.util.module_from_spec(spec)
sys.modules["fomkit"] = package
spec.loader.exec_module(package)
import importlib
importlib.import_module(sys.argv[2]).main()
"""


def child_command(module: str) -> list[str]:
    """Return the command that runs the ``main`` of one of fomkit's modules in a separate process."""
    # Unbuffered, so that the output before a crash is not lost.
    return [sys.executable, "-u", "-P", "-c", _BOOT, str(_PACKAGE), module]


@dataclass(frozen=True)
class Program:
    """The program of a child process, and advice to the user when it fails.

    `module`: its ``main`` reads the request and writes the result.
    `slow`, `large`, `gone`: advice when it exceeds the time or memory limit, or ends without a result.
    """

    module: str
    slow: str
    large: str
    gone: str
    environment: Mapping[str, str] = field(default_factory=dict)


_PASSED = frozenset(
    """
    PATH HOME USER LOGNAME USERNAME LANG LANGUAGE TZ TMPDIR TMP TEMP PWD SHELL TERM VIRTUAL_ENV
    LD_LIBRARY_PATH LD_PRELOAD DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH
    XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
    SYSTEMROOT WINDIR PATHEXT COMSPEC APPDATA LOCALAPPDATA USERPROFILE NUMBER_OF_PROCESSORS
    CONDA_PREFIX CONDA_DEFAULT_ENV HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE HF_DATASETS_CACHE HF_DATASETS_OFFLINE
    TRANSFORMERS_CACHE TRANSFORMERS_OFFLINE
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
    """.split()  # noqa: SIM905 - as a list it fills a page
)
_PASSED_FAMILIES = (
    "LC_", "PYTHON", "FOMKIT_", "PROCESSOR_",
    "OMP_", "KMP_", "MKL_", "GOMP_", "OPENBLAS_", "BLIS_", "VECLIB_", "NUMEXPR_", "DNNL_", "ONEDNN_", "MALLOC_",
    "CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "NCCL_", "HIP_", "HSA_", "ROCM_", "ROCR_", "MIOPEN_",
    "TORCH", "PYTORCH_", "ATEN_", "KERAS_", "XLA_",
    "TF_CPP_", "TF_ENABLE_", "TF_DISABLE_", "TF_XLA_", "TF_NUM_", "TF_GPU_", "TF_CUDNN_", "TF_FORCE_", "TF_USE_",
)  # fmt: skip
"""Prefixes of variables that Python, its numerical libraries and the frameworks read."""
_SECRET = re.compile(r"TOKEN|SECRET|PASS(?!ED|_ENV)|CREDENTIAL|AUTH|(^|_)KEYS?($|_)|COOKIE")
PASS_ENV = "FOMKIT_PASS_ENV"  # noqa: S105 - a variable's name
"""Variable with the comma-separated names of further variables that a program needs."""


def passed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that are passed to a user's code in a child process.

    Variables that Python and the frameworks read are passed; tokens, passwords, proxies and unknown ones are not.
    Further variables that a program needs are named in ``FOMKIT_PASS_ENV``.

    >>> passed_environment({"PATH": "/bin", "OMP_NUM_THREADS": "1", "AWS_SECRET_ACCESS_KEY": "x", "DATA": "d"})
    {'PATH': '/bin', 'OMP_NUM_THREADS': '1'}
    >>> passed_environment({"FOMKIT_PASS_ENV": "DATA", "DATA": "d"})["DATA"]
    'd'
    """
    named = {name.strip() for name in environment.get(PASS_ENV, "").split(",")}
    upper = {name: name.upper() for name in environment}
    for name, word in upper.items():
        if (word in _PASSED or word.startswith(_PASSED_FAMILIES)) and not _SECRET.search(word):
            named.add(name)
    return {name: value for name, value in environment.items() if name in named}


_NO_ACCELERATOR = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "MPLBACKEND": "Agg"}  # no window
_ON_TENSORFLOW = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
_ON_TORCH = {"TORCHDYNAMO_DISABLE": "1", "KERAS_BACKEND": "torch"}
MODEL_FILE = Program(
    "fomkit.frontends.torch.profile",
    slow="Keep only the model, its inputs and its loss in the file, or raise --time-limit.",
    large="Tensors made by torch need no memory here; do not load data or weights in the file.",
    gone="Remove that from the file.",
)
SCRIPT = Program(
    "fomkit.frontends.script.torch_draft",
    slow="Three training steps are needed: give the script a smaller batch or fewer samples by arguments of its "
    "own, or raise --time-limit.",
    large="The script really runs: give it a smaller batch or fewer samples by arguments of its own, or raise "
    "--memory-limit.",
    gone="Let it train in this process.",
    # Compiled code shows no single ops; without a visible accelerator the script takes its path for CPUs.
    environment={"TORCHDYNAMO_DISABLE": "1", **_NO_ACCELERATOR},
)
KERAS_SCRIPT = replace(
    SCRIPT, module="fomkit.frontends.script.keras_draft", environment={**_ON_TENSORFLOW, **_NO_ACCELERATOR}
)
KERAS_FILE = Program(
    "fomkit.frontends.keras.profile",
    slow=MODEL_FILE.slow,
    large="Weights made by Keras need no memory here; do not load data or weights in the file.",
    gone=MODEL_FILE.gone,
    # The graph of a step is the same on every device; what a device compiles into one op shows no single ops.
    environment={**_ON_TENSORFLOW, **_NO_ACCELERATOR},
)
ONNX_FILE = Program(
    "fomkit.frontends.onnx.profile",
    slow="The graph is very large; raise --time-limit of 'fomkit profile' if you trust it.",
    large="The weights are not needed: export the model with its weights in separate files.",
    gone="It is damaged, or shows a fault of the onnx package. Check it with onnx.checker.",
)
MEASURED = Program(
    "fomkit.bench.torch_child",
    slow="The step runs a dozen times at least: measure a smaller one with --batch, or raise --time-limit.",
    large="The model really runs: measure a smaller step with --batch, or raise --memory-limit.",
    gone=MODEL_FILE.gone,
)
KERAS_TORCH_FILE = replace(
    KERAS_FILE,
    large="Weights are allocated here: do not load data in the file, or raise --memory-limit.",
    environment={**_ON_TORCH, **_NO_ACCELERATOR},
)
KERAS_TORCH_SCRIPT = replace(KERAS_SCRIPT, environment={**_ON_TORCH, **_NO_ACCELERATOR})

MEASURED_KERAS = replace(MEASURED, module="fomkit.bench.keras_child", environment=KERAS_FILE.environment)


def _watch(
    child: subprocess.Popen[bytes], log: BinaryIO, where: str, program: Program, time_s: float, memory_byte: float
) -> None:
    """Wait until the child ends; raise when it exceeds a limit."""
    deadline = time.monotonic() + time_s
    while not _has_ended(child):
        if time.monotonic() > deadline:
            raise FomkitError(where, f"did not finish within {time_s:g} s. {program.slow}{_tail(log)}")
        if resident_byte(child.pid) > memory_byte:
            raise FomkitError(where, f"takes more than {memory_byte / 1e9:g} GB of memory. {program.large}")
        if os.fstat(log.fileno()).st_size > PRINTED_LIMIT_BYTE:
            raise FomkitError(where, f"prints more than {PRINTED_LIMIT_BYTE / 1e6:g} MB. Let it print less.")
        time.sleep(_POLL_S)


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Return whether the child has ended, without reaping it: its process id, and so its group, stay reserved."""
    if not hasattr(os, "waitid"):
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _tail(log: BinaryIO) -> str:
    log.seek(max(os.fstat(log.fileno()).st_size - _TAIL, 0))
    text = log.read(_TAIL).decode("utf-8", "replace").strip().replace("`", "'")  # backquotes mark parameters here
    return f"\nThe end of what it printed:\n{text}" if text else ""


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and its descendants, which may outlive it."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    elif child.poll() is None:  # Windows has no groups, and finds the descendants of a running process only
        with contextlib.suppress(OSError):
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(child.pid)], capture_output=True, check=False)  # noqa: S603, S607
    child.kill()
    child.wait()


def _without_result(code: int, where: str, program: Program, log: BinaryIO) -> FomkitError:
    if code < 0:
        ended = f"crashed by {signal.Signals(-code).name}"
    elif code >= 2**31:  # so Windows reports a crash
        ended = f"crashed (code {code:#x})"
    else:
        ended = f"ended the process with exit code {code} (os._exit, perhaps)"
    return FomkitError(where, f"{ended} before the profile was done. {program.gone}{_tail(log)}")


def run_child(
    request: Mapping[str, Any],
    where: str,
    time_limit_s: float,
    memory_limit_byte: float,
    program: Program = MODEL_FILE,
) -> dict[str, Any]:
    """Run a request in a child process and return its result.

    `request`: plain values for the program; `where`: the user's file, for error messages; `time_limit_s`,
    `memory_limit_byte`: limits of wall time [s] and resident memory [byte]; `program`: what runs in the child.
    Returns the child's result with ``printed``, the end of its output. Raises FomkitError when the child ends
    without a result, or with ``limits`` alone, a sentence on what may be the cause.
    """
    if memory_limit_byte < math.inf:
        _tell_unlimited(_PROCESSES)
    # The user's code may change or delete the folder's files, so the log is read through its descriptor.
    with (
        tempfile.TemporaryDirectory(prefix="fomkit-", ignore_cleanup_errors=True) as folder,
        Path(folder, "log.txt").open("a+b", buffering=0) as log,
    ):
        result_path, nonce = Path(folder, "result.json"), secrets.token_hex(16)
        message = {**request, "nonce": nonce, "result": str(result_path)}
        child = subprocess.Popen(  # noqa: S603 - the program is this interpreter
            child_command(program.module),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**passed_environment(os.environ), **program.environment},
        )
        overstepped = None
        try:
            # If the child has already ended, its missing result is reported below. Windows knows no broken pipe.
            with contextlib.suppress(OSError), child.stdin or contextlib.nullcontext() as stream:
                if stream is not None:
                    stream.write(json.dumps(message).encode() + b"\n")
            _watch(child, log, where, program, time_limit_s, memory_limit_byte)
        except FomkitError as error:
            overstepped = error
        finally:
            _end(child)
        # A result that was written before the child exceeded a limit is valid.
        result = _read_result(result_path, nonce)
        if result is None or "limits" in result:
            ended = overstepped or _without_result(child.returncode, where, program, log)
            what, *printed = ended.what.partition("\n")
            raise FomkitError(ended.where, "".join([what, str((result or {}).get("limits", "")), *printed]))
        return {**result, "printed": _tail(log)}


def _read_result(path: Path, nonce: str) -> dict[str, Any] | None:
    """Read the result; None where it is missing or lacks the nonce, so that the child did not write it."""
    try:
        if not path.is_file() or path.stat().st_size > RESULT_LIMIT_BYTE:
            return None
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) and result.pop("nonce", None) == nonce else None


@dataclass(frozen=True)
class ResultFile:
    """Where the result is written, and the parent's nonce, which the user's code never sees."""

    path: Path
    nonce: str

    def write(self, result: Mapping[str, Any]) -> None:
        """Write the result, whole or not at all."""
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text(json.dumps({"nonce": self.nonce, **result}), encoding="utf-8")
        unfinished.replace(self.path)


def error_content(error: FomkitError) -> dict[str, object]:
    """Convert an error to plain values for the result file; `error_in` reverses it."""
    errors = error.errors if isinstance(error, ManyFomkitError) else (error,)
    return {"errors": [[one.where, one.what] for one in errors]}


def error_in(result: Mapping[str, Any]) -> FomkitError:
    """Return the error that a child wrote."""
    errors = [FomkitError(*one) for one in result["errors"]]
    return errors[0] if len(errors) == 1 else ManyFomkitError(errors)


def _end_with_parent() -> None:
    """Let Linux kill this process when its parent dies, whose limits then no longer hold."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # a C library without it
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def read_request() -> tuple[dict[str, Any], ResultFile]:
    """Read a request from standard input; standard output and error are left to the user's code."""
    _end_with_parent()
    # No compiled file is left in the user's folders, nor by the processes that load the user's data.
    sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
    # They are a file, for which Windows would choose an encoding that lacks much of what a terminal shows.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    request = json.loads(sys.stdin.readline())
    # Processes that the user's code starts without a fork run this file again, to know its classes.
    vars(sys.modules["__main__"])["__file__"] = request.get("path")
    return request, ResultFile(Path(request.pop("result")), request.pop("nonce"))
