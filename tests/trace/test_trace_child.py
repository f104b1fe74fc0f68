"""A user's file in a child process: any misbehaviour leads to one clear error, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fomkit.core.errors import FomkitError
from fomkit.frontends.profile import profile_file

pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

Write = Callable[..., Path]
GOOD = """
import torch
model = torch.nn.Linear(8, 3)
batch_size = 6
train_samples, epochs = 60, 2
inputs = lambda batch: torch.randn(batch, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def fail(path: Path, **limits: float) -> str:
    with pytest.raises(FomkitError) as caught:
        profile_file(path, **{"time_limit_s": 60.0, **limits})  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.usefixtures("started_anew")
def test_plain_names(file_of: Write) -> None:
    path = file_of(GOOD)
    profile = profile_file(path)
    assert (profile.name, profile.batch, profile.parameters_total) == ("model", 6, 27)
    assert (profile.data.train_samples, profile.run.epochs) == (60, 2)
    assert profile.optimizer == {"rule": "sgd", "impl": "foreach", "impl_from": "default"}
    assert not list(path.parent.glob("__pycache__"))


def test_a_workload_function_a_batch_a_mode_and_a_name(file_of: Write) -> None:
    path = file_of(
        "import torch\nfrom fomkit.core.model import Workload\n"
        "def workload():\n"
        "    model = torch.nn.Linear(8, 3)\n"
        "    return Workload(model, torch.randn(6, 8), optimizer=torch.optim.Adam, epochs=3)\n"
    )
    profile = profile_file(path, batch=11, mode="infer", name="other")
    assert (profile.name, profile.batch, profile.run.epochs) == ("other", 11, None)
    assert set(profile.ops["pass_name"]) == {"forward"}
    assert profile_file(path, batch=11).run.epochs == 3


@pytest.mark.slow
@pytest.mark.usefixtures("started_anew")
def test_secrets_of_the_environment_stay_outside(file_of: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = (
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "TF_VAR_password",
        "PYTHON_KEYRING_TOKEN",
        "HTTPS_PROXY",
        "DATA",
    )
    passed = ("PATH", "HOME", "OMP_NUM_THREADS", "PYTHONHASHSEED", "LC_ALL", "CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    for name in (*hidden, "OMP_NUM_THREADS", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "1")
    look = "import os\nif {} - set(os.environ): raise NameError(*({} - set(os.environ)))\n"
    look += "if {} & set(os.environ): raise ImportError(*({} & set(os.environ)))\n"
    path = file_of(look.format(set(passed), set(passed), set(hidden), set(hidden)) + GOOD)
    assert profile_file(path).batch == 6
    monkeypatch.setenv("FOMKIT_PASS_ENV", "DATA, HF_TOKEN")
    assert "raises ImportError" in fail(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import sys\nsys.exit(0)", r":2: ends the program by sys.exit\(0\)"),
        ("import os\nos._exit(0)", "ended the process with exit code 0"),
        ("raise SystemExit", r":1: ends the program by sys.exit\(None\)"),
        ("print('so far')\nimport ctypes\nctypes.string_at(0)", "crashed by SIGSEGV.*so far"),
        ("x = (", ":1: is not valid Python"),
        ("import nowhere.at_all", ":1: raises ModuleNotFoundError: .*Install nowhere where fomkit is"),
        ("raise MemoryError", "raises MemoryError. This machine has less memory than that. Create less data"),
        ("\n\nx = 1 / 0", ":3: raises ZeroDivisionError: division by zero"),
        ("", r"is empty\. Give a Python file with a model"),
        (
            "import torch\nmodel = torch.nn.Linear(2, 3)\ninputs = torch.ones(5, 2)\nloss_fn = lambda o, i: "
            "torch.linalg.lstsq(o, o.double()).solution.sum()",
            "linalg_lstsq.*PyTorch cannot run this op without data: use another op instead",
        ),
        ("model = 3", "(?s)'model' is of type int.*'inputs' is missing.*inputs = lambda batch"),
        (
            "loss_fn = lambda output: output.mean()",
            r"(?s)the loss does not take two arguments \(too many.*of \(output, inputs\), for example",
        ),
        ("def workload(): return 3", r"workload\(\) gave a int"),
        ("while True: print('x' * 100_000)", "prints more than 50 MB"),
    ],
    ids=[
        "sys.exit",
        "os._exit",
        "SystemExit",
        "crash",
        "syntax",
        "module",
        "memory",
        "raises",
        "empty",
        "no kernel without data",
        "missing",
        "loss",
        "no workload",
        "floods",
    ],
)
def test_one_clear_error(file_of: Write, text: str, told: str) -> None:
    path = file_of(text)
    message = fail(path)
    import re

    assert message.startswith(str(path))
    assert re.search(told, message, re.DOTALL), message
    assert "Traceback" not in message


def test_what_keras_wraps_is_told_without_its_wrapping() -> None:
    from fomkit.frontends.model_file import explain_exception

    error = ValueError(
        "Exception encountered when calling M.call().\n\nCould not automatically infer the shape of 'm' (of type "
        "M). Either the `M.call()` method is incorrect. Error encountered:\n\nUsing a symbolic "
        "`tf.Tensor` as a Python `bool` is not allowed.\n\nArguments received by M.call():"
    )
    told = explain_exception(error, "model.py").what
    assert told == "raises ValueError: Using a symbolic 'tf.Tensor' as a Python 'bool' is not allowed."


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('Error(s) in loading state_dict for Net:\n\tMissing key(s): "a".\n\n', 'Missing key(s): "a".'),
        ("sizes differ\nException raised from check at a.cpp:3\nframe #0", "RuntimeError: sizes differ"),
        ("long " * 100, "long long"),
    ],
)
def test_all_lines_of_an_exception_are_told_but_those_of_its_makers(said: str, told: str) -> None:
    from fomkit.frontends.model_file import MAX_LETTERS, explain_exception

    message = explain_exception(RuntimeError(said), "model.py").what
    assert told in message
    assert not {"\n", "a.cpp"} & {*message.split(" "), *message}
    assert len(message) <= len("raises RuntimeError: ") + MAX_LETTERS


def test_a_hang_is_ended(file_of: Write) -> None:
    start = time.monotonic()
    assert "did not finish within 1 s" in fail(file_of("import time\ntime.sleep(600)"), time_limit_s=1.0)
    assert time.monotonic() - start < 30


@pytest.mark.usefixtures("started_anew")
def test_memory_is_watched(file_of: Write) -> None:
    text = "hoard = []\nwhile True: hoard.append(bytearray(20_000_000))"
    assert "takes more than 0.8 GB" in fail(file_of(text), memory_limit_byte=8e8)


def test_only_the_parents_nonce_proves_success(file_of: Write) -> None:
    forged = """
import glob, json, os, tempfile
for folder in glob.glob(tempfile.gettempdir() + "/fomkit-*"):
    with open(folder + "/result.json", "w") as stream:
        json.dump({"nonce": "guess", "draft": {}}, stream)
os._exit(0)
"""
    assert "ended the process with exit code 0" in fail(file_of(forged))


own_folder = pytest.mark.skipif(not Path("/proc/self/fd/1").exists(), reason="finds its folder by /proc")


@own_folder
@pytest.mark.parametrize(
    "forged",
    [
        "'no json'",
        "'[1, 2]'",
        "'[' * 100_000",
        "json.dumps({'draft': {}})",
        "json.dumps({'nonce': None, 'draft': {}})",
    ],
)
def test_a_result_written_by_the_file_is_none(file_of: Write, forged: str) -> None:
    text = f"""
import json, os
folder = os.path.dirname(os.readlink("/proc/self/fd/1"))
with open(folder + "/result.json", "w") as stream:
    stream.write({forged})
os._exit(0)
"""
    message = fail(file_of(text))
    assert "ended the process with exit code 0" in message
    assert "Traceback" not in message


@own_folder
def test_a_file_that_clears_its_folder_away(file_of: Write) -> None:
    text = """
import os, shutil
print("cleared", flush=True)
shutil.rmtree(os.path.dirname(os.readlink("/proc/self/fd/1")))
os._exit(0)
"""
    assert "The end of what it printed:\ncleared" in fail(file_of(text))


def test_stderr_is_limited_too(file_of: Write) -> None:
    text = "import sys\nwhile True: sys.stderr.write('x' * 100_000)"
    assert "prints more than 50 MB" in fail(file_of(text))


def test_a_fork_that_outlives_the_file_is_ended(file_of: Write, tmp_path: Path) -> None:
    text = f"""
import os, time
if os.fork() == 0:
    with open({str(tmp_path / "started")!r}, "w") as stream:
        stream.write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists({str(tmp_path / "started")!r}):
    time.sleep(0.01)
os._exit(0)
"""
    assert "ended the process with exit code 0" in fail(file_of(text))
    # What is left of an ended process, if anything, is its entry until somebody asks for its exit code.
    status = Path("/proc", (tmp_path / "started").read_text(), "stat")
    deadline = time.monotonic() + 10
    while status.exists() and status.read_text().split()[2] not in "ZX" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not status.exists() or status.read_text().split()[2] in "ZX"


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell memory by process"
)
@pytest.mark.slow
@pytest.mark.usefixtures("started_anew")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not end a process with its parent")
def test_a_file_ends_with_the_fomkit_that_started_it(file_of: Write, tmp_path: Path) -> None:
    """Nobody watches the limits of a file whose fomkit was killed; one grew to 24 GB in an hour."""
    told = tmp_path / "pid"
    path = file_of(f"import os, time\nopen({str(told)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    parent = subprocess.Popen(
        [sys.executable, "-c", "from fomkit.cli.main import app; app()", "profile", str(path)]
    )
    wait_for(lambda: told.exists() and told.read_text(encoding="ascii"))
    parent.kill()
    parent.wait()
    child = Path("/proc", told.read_text(encoding="ascii"))
    wait_for(lambda: not child.exists() or "State:\tZ" in child.joinpath("status").read_text(encoding="ascii"))


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_memory_of_forks_is_watched_and_shared_pages_count_once(file_of: Write) -> None:
    hoarding = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        hoard = bytearray(os.urandom(1 << 20)) * 400
        time.sleep(600)
time.sleep(600)
"""
    assert "takes more than 1.2 GB" in fail(file_of(hoarding), memory_limit_byte=1.2e9)
    sharing = (
        GOOD
        + """
import os, time
for _ in range(6):
    if os.fork() == 0:
        time.sleep(600)
time.sleep(1)
"""
    )
    # Seven processes with PyTorch loaded, whose pages are the same ones.
    assert profile_file(file_of(sharing), memory_limit_byte=1.2e9).batch == 6


@pytest.mark.usefixtures("started_anew")
def test_what_stands_beside_and_what_is_left_running(
    file_of: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("grp.py", "types.py", "colorsys.py"):
        file_of("raise RuntimeError('this is not the standard library')", name)
    # The folder of the file is neither what Python starts in nor what comes first on its path.
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    file_of("WIDTH = 8", "beside.py")
    path = file_of(
        GOOD
        + """
import atexit, colorsys, grp, os, threading, time, types
from beside import WIDTH
os.write(2, b"noise on stderr")
print("noise on stdout")
torch.set_default_dtype(torch.float64)
threading.Thread(target=time.sleep, args=(600,)).start()
atexit.register(time.sleep, 600)
model = torch.nn.Linear(WIDTH, 3).cuda()
optimizer = None
"""
    )
    start = time.monotonic()
    profile = profile_file(path, time_limit_s=60)
    assert time.monotonic() - start < 40
    assert set(profile.ops["dtype"]) == {"fp64"}
    import torch

    assert torch.get_default_dtype() == torch.float32


def test_files_that_are_none(tmp_path: Path, file_of: Write) -> None:
    assert "is not a file" in fail(tmp_path / "nowhere.py")
    assert "must end in .py" in fail(file_of("{}", "model.json"))


@pytest.mark.usefixtures("started_anew")
def test_a_large_model_takes_neither_memory_nor_time(file_of: Write) -> None:
    text = """
import torch
from torch import nn
width, layers = 3200, 12
layer = nn.TransformerEncoderLayer(width, 50, 4 * width, batch_first=True, norm_first=True, dropout=0.0)
model = nn.Sequential(nn.Embedding(50257, width), nn.TransformerEncoder(layer, layers), nn.Linear(width, 50257))
batch_size = 4
inputs = lambda batch: torch.zeros(batch, 1024, dtype=torch.long)
optimizer = torch.optim.AdamW
"""
    profile = profile_file(file_of(text), memory_limit_byte=2e9)
    assert profile.parameters_total is not None
    assert profile.parameters_total > 1.5e9
    attention = profile.ops[(profile.ops.kind == "attention") & (profile.ops.pass_name == "forward")]
    assert len(attention) == 12


def test_a_file_may_say_what_an_epoch_holds_besides_its_steps(file_of: Write) -> None:
    told = 'validation_samples = 30\nlast_batch = "keep"\nnotes = ["an estimate"]\n'
    profile = profile_file(file_of(GOOD + told))
    assert (profile.data.validation_samples, profile.data.last_batch) == (30, "keep")
    assert profile.notes[-1] == "an estimate"
    plain = profile_file(file_of(GOOD))
    assert (plain.data.validation_samples, plain.data.last_batch) == (None, "drop")


def test_what_it_says_of_an_epoch_is_checked(file_of: Write) -> None:
    told = 'validation_samples = -1\nlast_batch = "half"\nnotes = "an estimate"\n'
    with pytest.raises(FomkitError) as caught:
        profile_file(file_of(GOOD + told))
    for words in ("validation_samples is -1. A whole number of 0", "Write 'drop' or 'keep'", "A list of strings"):
        assert words in str(caught.value)


def test_a_layer_of_nothing_is_named(file_of: Write) -> None:
    """The error was 'add_costs: row 3: m is 0', which did not name the layer."""
    path = file_of(GOOD.replace("torch.nn.Linear(8, 3)", "torch.nn.Sequential(torch.nn.Linear(8, 0))"))
    said = fail(path)
    assert said.startswith("model: the module '0' (model.py:3 <module>) runs aten::addmm with n = 0, so nothing")
    assert "Give this layer sizes of 1 or more, or leave it out." in said
    assert "add_costs" not in said


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("import numpy.nothing", "for another version of numpy than 2."),
        ("import numpy; numpy.nothing", "for another version of numpy than"),
        ("from numpy import nothing", "for another version of numpy than"),
        ("import nowhere.at_all", "Install nowhere where fomkit is installed"),
        ("open('nowhere.txt')", "put its data there, or a few samples and --samples."),
        ("raise OSError('<urlopen error [Errno -2]>')", "pass a proxy on: FOMKIT_PASS_ENV=HTTPS_PROXY."),
    ],
)
def test_an_error_of_the_users_code_comes_with_advice(text: str, advice: str) -> None:
    from fomkit.frontends.model_file import explain_exception

    with pytest.raises(Exception) as caught:
        exec(text, {})
    assert advice in explain_exception(caught.value, "train.py").what


def test_an_error_in_a_file_beside_it_names_its_line(file_of: Write, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def width():\n    return int('many')")
    path = file_of("import torch\nimport beside\nbeside.width()\n" + GOOD)
    assert (
        "model.py:3: raises ValueError: invalid literal for int() with base 10: 'many' (at beside.py:2)"
        in fail(path)
    )
