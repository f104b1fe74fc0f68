"""Run commands on a pseudo-terminal, or in this process."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from unittest import mock

from fomkit.cli.main import main


def in_terminal(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """Run a command on a terminal of 100 columns, or COLUMNS if set, and return its output."""
    parent, child = pty.openpty()
    settings = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "OMP_NUM_THREADS": "1", **environment}
    running = subprocess.Popen(command, cwd=folder, stdin=child, stdout=child, stderr=child, env=settings)
    os.close(child)
    written = b""
    while running.poll() is None or select.select([parent], [], [], 0)[0]:
        if select.select([parent], [], [], 0.1)[0]:
            try:
                written += os.read(parent, 65536)
            except OSError:
                break
    running.wait()
    os.close(parent)
    return written.decode()


def in_this_process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``fomkit`` with arguments in this process, where all is imported; return the result as of a process."""
    out, err, words = io.StringIO(), io.StringIO(), ["fomkit", *arguments]
    heard = (contextlib.redirect_stdout(out), contextlib.redirect_stderr(err))
    as_asked = (mock.patch.object(sys, "argv", words), mock.patch.dict(os.environ))  # restores the environment
    with contextlib.chdir(cwd), as_asked[0], as_asked[1], heard[0], heard[1]:
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
