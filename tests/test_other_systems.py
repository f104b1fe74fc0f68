"""fomkit where the ways of Linux are missing: Windows and macOS, as far as Linux can imitate them; encodings."""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from terminal import in_this_process

from fomkit.bench.journal import clocks_of
from fomkit.bench.model_steps import stopwatch
from fomkit.cli import choices, main
from fomkit.cli.main import VERB_ENTRIES
from fomkit.core.errors import FomkitError
from fomkit.files import child_process
from fomkit.files.child_process import Program, run_child
from fomkit.files.csv import READ
from fomkit.files.write import write_set, write_whole
from fomkit.frontends.model_file import framework_of_file
from fomkit.harness.torch.cases import processor_clock
from fomkit.output.files import to_json
from fomkit.profiles import locate

ROOT = Path(__file__).resolve().parent.parent
OF_LINUX = {
    os: ("fork", "getgid", "getloadavg", "getpgid", "getuid", "killpg", "mkfifo", "nice", "sched_getaffinity",
         "setsid", "statvfs", "sysconf", "waitid", "O_CLOEXEC", "O_NOCTTY", "O_NONBLOCK"),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGXCPU", "alarm", "setitimer"),
}  # fmt: skip
"""Names that Windows lacks."""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""Settings with which text is ASCII by default, as it is cp1252 on Windows."""
OWN_FILES = {"accept", "export", "import", "measure", "pack", "predict", "profile", "review", "validate"}
"""Verbs whose examples need files, or time ops."""
A_FILE = re.compile(r"\.(csv|yaml|html|xlsx|json)\b")
TICKS = SimpleNamespace(implementation="GetProcessTimes()")


class WithoutSignals(subprocess.Popen[bytes]):
    """A process that is ended without `signal.SIGKILL`, by the system itself."""

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 9)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module, names in OF_LINUX.items():
        for name in names:
            monkeypatch.delattr(module, name)
    started = {**vars(subprocess), "Popen": WithoutSignals}
    monkeypatch.setattr(child_process, "subprocess", SimpleNamespace(**started))
    monkeypatch.setattr(child_process, "_has_ended", HAS_ENDED)
    monkeypatch.setattr(child_process, "_PROCESSES", tmp_path / "proc")
    child_process._tell_unlimited.cache_clear()


HAS_ENDED = child_process._has_ended


def run(code: str, monkeypatch: pytest.MonkeyPatch, **limits: float) -> dict[str, object]:
    """Run code in a child process that has read its request."""
    reads = "from fomkit.files.child_process import read_request\nrequest, answer = read_request()\n"
    monkeypatch.setattr(child_process, "child_command", lambda _module: [sys.executable, "-c", reads + code])
    asked = {"time_limit_s": 60.0, "memory_limit_byte": 1e12, **limits}
    return run_child({}, "model.py", program=Program("none", "slow", "large", "gone"), **asked)


def test_text_has_an_encoding_wherever_it_is_opened_or_read_from_a_process() -> None:
    rule = [sys.executable, "-m", "ruff", "check", "-q", "--preview", "--select", "PLW1514", "fomkit"]
    done = subprocess.run(rule, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout
    for path in (ROOT / "fomkit").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        calls = (
            [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)] if "text=True" in text else []
        )
        given = [{one.arg for one in call.keywords} for call in calls]
        assert not [one for one in given if "text" in one and "encoding" not in one], path


def test_what_other_systems_lack_is_not_imported() -> None:
    pattern = re.compile(r"^ *(import|from) (fcntl|grp|pty|pwd|resource|syslog|termios|tty)\b", re.MULTILINE)
    found = [path for path in (ROOT / "fomkit").rglob("*.py") if pattern.search(path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("verb", sorted(VERB_ENTRIES.keys() - OWN_FILES))
def test_every_verb_answers_without_what_windows_lacks(verb: str, tmp_path: Path) -> None:
    examples = [one for one in VERB_ENTRIES[verb].examples if not A_FILE.search(one)]
    example = min(examples, key=lambda one: ("--suite" in one, len(one)))
    done = in_this_process(*shlex.split(example)[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.usefixtures("windows")
def test_a_child_runs_where_memory_is_not_reported_and_the_user_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ASCII.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        done = run("print('\\u2713 written')\nanswer.write({'n': 1})\n", monkeypatch)
        assert (done["n"], str(done["printed"]).splitlines()[-1]) == (1, "✓ written")
    said = "fomkit: the memory of the code that is run is not limited: only Linux reports it.\n"
    assert capsys.readouterr().err == said


@pytest.mark.usefixtures("started_anew")
def test_on_linux_memory_is_limited_and_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    child_process._tell_unlimited.cache_clear()
    with pytest.raises(FomkitError, match=r"more than 0.001 GB of memory. large"):
        run("import time\ntime.sleep(60)\n", monkeypatch, memory_limit_byte=1e6)
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("has_taskkill", [True, False])
def test_a_child_without_a_group_is_ended_with_its_descendants(
    has_taskkill: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_taskkill:
        (tmp_path / "taskkill").write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/told"\n', encoding="utf-8")
        (tmp_path / "taskkill").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    code = f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    with pytest.raises(FomkitError, match=r"did not finish within 1 s. slow"):
        run(code, monkeypatch, time_limit_s=1.0)
    number, told = (tmp_path / "pid").read_text(encoding="utf-8"), tmp_path / "told"
    assert not Path("/proc", number).exists()
    assert (told.read_text(encoding="utf-8") if told.exists() else "") == f"/F /T /PID {number}\n" * has_taskkill


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "ended the process with exit code 1 "),
        (0xC0000005, "crashed (code 0xc0000005) "),
        (-11, "crashed by SIGSEGV "),
    ],
)
def test_a_crash_is_named_also_by_the_codes_of_windows(code: int, words: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as log:
        found = child_process._without_result(code, "model.py", child_process.MODEL_FILE, log)
    assert found.what.startswith(words)


def test_the_classes_of_a_profiled_file_are_known_to_processes_that_are_not_forked(tmp_path: Path) -> None:
    """As a DataLoader's workers on macOS and Windows, and on Linux from Python 3.14 on."""
    own = "class Own:\n    def double(self, number):\n        return 2 * number\nown = Own()\n"
    (tmp_path / "own.py").write_text(own, encoding="utf-8")
    code = (
        "import multiprocessing, pathlib\nfrom fomkit.frontends.model_file import run_file\n"
        "from fomkit.files.child_process import read_request\n"
        "own = run_file(pathlib.Path(read_request()[0]['path'])).own\n"
        "with multiprocessing.get_context('spawn').Pool(1) as pool:\n    print(pool.map(own.double, [21]))\n"
    )
    request = json.dumps({"path": str(tmp_path / "own.py"), "result": "", "nonce": ""})
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=request, capture_output=True, encoding="utf-8", check=False, timeout=20)
    assert done.stdout == "[42]\n", done.stderr


def test_where_process_time_advances_in_ticks_the_wall_clock_times(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processor_clock(1) is time.process_time
    assert set(stopwatch()(lambda: None)) == {"process", "wall"}
    monkeypatch.setattr(time, "get_clock_info", lambda _name: TICKS)
    assert processor_clock(1) is processor_clock(2) is time.perf_counter
    assert set(stopwatch()(lambda: None)) == {"wall"}
    assert clocks_of("cpu", 1, lambda: 0.0).name == "wall time"


def test_a_path_may_be_written_with_the_systems_own_separator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text("", encoding="utf-8")
    monkeypatch.setattr(os, "sep", "\\")
    assert locate.locate("candle\\p1b1", "model_profiles").name == "p1b1.yaml"
    given = f"{tmp_path}/mine".replace("/", "\\")
    assert locate.locate(given, "machine_profiles") == tmp_path / "mine.yaml"


def test_keras_is_recognised_where_nobody_has_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers with a user of their own, and on Windows without USERPROFILE."""
    (tmp_path / "model.py").write_text("import keras\n", encoding="utf-8")
    for name in ("HOME", "KERAS_HOME", "KERAS_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert framework_of_file(tmp_path / "model.py") == "tensorflow"


def test_results_of_files_that_changed_a_moment_ago_are_not_cached_where_ctime_is_of_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOMKIT_CACHE", str(tmp_path / "cache"))
    stat = Path.stat

    def created_long_ago(self: Path, **more: bool) -> SimpleNamespace:
        state = stat(self, **more)
        return SimpleNamespace(**{n: getattr(state, n) for n in dir(state) if n[:3] == "st_"} | {"st_ctime_ns": 0})

    path = tmp_path / "some.yaml"
    path.write_text("a", encoding="utf-8")
    monkeypatch.setattr(Path, "stat", created_long_ago)
    assert locate.user_cached_profile("test", [path], lambda: (1, ()))[1] == ""
    os.utime(path, ns=(0, 0))
    assert locate.user_cached_profile("test", [path], lambda: (1, ()))[1]


def test_files_are_written_on_a_disk_that_refuses_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a disk of Windows does in WSL, where it is mounted without metadata."""

    def refuse(_path: Path, _mode: int, **_more: bool) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)
    write_whole(tmp_path / "one.yaml", "a")
    for text in "cd":  # the second time they are replaced
        write_set({tmp_path / "two.yaml": "b", tmp_path / "two.csv": text})
    assert sorted(path.read_text(encoding="utf-8") for path in tmp_path.iterdir()) == ["a", "b", "d"]


def test_an_input_under_its_other_name_is_not_overwritten(tmp_path: Path) -> None:
    """A second link stands for the other case of a name on a disk that does not tell them apart."""
    (tmp_path / "model.yaml").write_text("a", encoding="utf-8")
    os.link(tmp_path / "model.yaml", tmp_path / "Model.yaml")
    before = READ.set({tmp_path / "gone.yaml", tmp_path / "model.yaml"})
    try:
        with pytest.raises(FomkitError, match=r"Model\.yaml: is an input"):
            write_whole(tmp_path / "Model.yaml", "b")
    finally:
        READ.reset(before)


@pytest.mark.parametrize(
    ("encoding", "shown"), [("cp437", '"254 \\u2026 310"'), ("utf-8", '"254 … 310"'), (None, "…")]
)
def test_printed_json_loses_nothing_in_any_encoding(encoding: str | None, shown: str) -> None:
    stream = io.StringIO() if encoding is None else io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    text = to_json({"interval": "254 … 310"}, stream)
    assert shown in text
    assert json.loads(text.encode(encoding or "utf-8")) == {"interval": "254 … 310"}


@pytest.mark.parametrize("words", ["estimate p1b3 -t v100", "memory resnet50 --json", "schema machine"])
def test_an_output_without_unicode_shows_similar_characters_and_whole_json(words: str, tmp_path: Path) -> None:
    settings = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "fomkit", *words.split()]
    shown = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, check=True).stdout.decode()
    if words.startswith("estimate"):
        assert re.search(r"\d \.\.\. \d", shown)
        assert "?" not in shown
    else:
        usual = in_this_process(*words.split(), cwd=tmp_path).stdout
        assert not usual.isascii()
        assert json.loads(shown) == json.loads(usual)


def test_colours_are_for_the_newer_console_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = SimpleNamespace(isatty=lambda: True)
    for name in ("NO_COLOR", "TERM", "WT_SESSION"):
        monkeypatch.delenv(name, raising=False)
    assert choices._coloured(terminal)
    with monkeypatch.context() as there:
        there.setattr(os, "name", "nt")
        assert not choices._coloured(terminal)
        there.setenv("WT_SESSION", "1")
        assert choices._coloured(terminal)


@pytest.mark.parametrize(("system", "code"), [("nt", 0), ("posix", 2)])
def test_a_pipe_that_its_reader_closed_is_no_mistake_on_windows(
    system: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows reports an invalid argument, without a file."""

    def write_to_it() -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(main, "app", write_to_it)
    monkeypatch.setattr(main, "print_error", lambda _message: None)
    monkeypatch.setattr(main, "os", SimpleNamespace(**{**vars(os), "name": system, "_exit": sys.exit}))
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == code
