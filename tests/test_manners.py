"""How the command line behaves: a walk over every verb, and what a terminal gets that a pipe does not."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nsys_files import Export, linear_steps
from terminal import in_terminal
from xplane_files import host

from fomkit.cli.choices import progress
from fomkit.cli.main import main
from fomkit.cli.pages import command_reference, help_of, verbs

ROOT = Path(__file__).resolve().parent.parent
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
VERBS = sorted(verbs())


def examples(verb: str) -> list[str]:
    return re.findall(r"^\s+(fomkit .*)$", help_of(verb).split("Examples:")[-1], flags=re.MULTILINE)


def test_the_page_of_commands_is_the_commands_own_words() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == command_reference(), "run 'python -m fomkit.cli.pages commands > docs/commands.md'"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_documented_by_example(verb: str) -> None:
    assert f"`fomkit {verb}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert examples(verb)
    assert all(shlex.split(example)[1] == verb for example in examples(verb))
    # A blank line follows each, so a terminal of 80 columns shows it whole and it can be copied.
    shown = help_of(verb).split("Examples:")[-1]
    assert all(f"{example}\n\n" in shown for example in examples(verb))


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_says_what_it_does(verb: str) -> None:
    silent = [one.name for one in verbs()[verb].params if not getattr(one, "help", None)]
    assert not silent


@pytest.mark.parametrize("verb", VERBS)
def test_options_of_one_meaning_have_one_name(verb: str) -> None:
    """What a user learns at one verb holds at the others."""
    spelled = {option: one.name for one in verbs()[verb].params for option in one.opts}
    meanings = {
        "--json": "as_json", "--force": "force", "-o": "output", "-t": "target", "-q": "quiet", "--set": "sizes",
        "--batch": "batch", "--interval": "interval", "--allow-uncovered": "allow_uncovered",
    }  # fmt: skip
    assert {option: name for option, name in spelled.items() if option in meanings}.items() <= meanings.items()


ESTIMATE = [sys.executable, "-m", "fomkit.cli", "estimate", "p1b3", "--target", "v100"]


def test_a_terminal_gets_colour_and_its_own_width() -> None:
    told = in_terminal(ESTIMATE, {}, ROOT)
    assert COLOUR.search(told)
    table = [line for line in COLOUR.sub("", told).splitlines() if "─" in line or line.startswith("p1b3")]
    assert table
    assert max(map(len, table)) <= 100


def test_no_colour_where_nobody_wants_it() -> None:
    assert not COLOUR.search(in_terminal([*ESTIMATE, "--quiet"], {"NO_COLOR": "1"}, ROOT))


def test_a_pipe_gets_neither_colour_nor_progress() -> None:
    done = subprocess.run(ESTIMATE, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


SLOW = (
    "import time\nfrom fomkit.cli.choices import progress\n"
    "with progress('counting sheep', 2, quiet={quiet}) as advance:\n    advance()\n    time.sleep({seconds})\n"
)


@pytest.mark.parametrize(
    ("seconds", "quiet", "shown"), [(1.6, False, True), (1.6, True, False), (0.1, False, False)]
)
def test_work_over_a_second_shows_progress(seconds: float, quiet: bool, shown: bool) -> None:
    told = in_terminal([sys.executable, "-c", SLOW.format(seconds=seconds, quiet=quiet)], {}, ROOT)
    assert ("counting sheep" in told) is shown
    assert ("1/2" in told) is shown


def test_a_failure_in_watched_work_is_the_failure_and_ends_the_bar() -> None:
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError), progress("dividing"):
        _ = 1 / 0
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("fomkit estimate --target v1", "v100"),
        ("fomkit estimate resnet50-", "resnet50-caffe"),
        ("fomkit fom lec", "lecture"),
        ("fomkit campaign candle-", "candle-example"),
        ("fomkit esti", "estimate"),
        ("fomkit estimate --prec", "--precision"),
    ],
)
def test_the_shell_completes_verbs_options_and_names(typed: str, expected: str) -> None:
    settings = {**os.environ, "_FOMKIT_COMPLETE": "complete_bash", "COMP_WORDS": typed,
                "COMP_CWORD": str(len(typed.split()) - 1)}  # fmt: skip
    code = "import sys; sys.argv = ['fomkit']; from fomkit.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=settings, capture_output=True, text=True, check=False
    )
    assert expected in done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["estimat"], "Did you mean 'estimate'?"),
        (["estimate", "--traget", "v100"], "--target"),
        (["estimate", "--target", "v100", "--batch", "x"], "--batch"),
        (["estimate", "--target", "v100", "--precision", "fp3"], "fp32"),
        (["estimate", "--target", "v100", "--interval", "2"], "--interval"),
        (["fom"], "SUITE"),
    ],
)
def test_a_slip_of_the_finger_is_answered_with_a_hint_and_exit_code_2(typed: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fomkit.cli", *typed], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


FACTS = """schema: fomkit/machine/1
name: mine
party: vendor
device:
  peak:
    - {dtype: fp32, engine: vector, rate: 10 TFLOP/s, source: "made up for a test"}
  memory: {capacity: 16 GiB, bandwidth: 500 GB/s, source: "made up for a test"}
"""
OPS = "kind,dtype,b,m,n,k\ngemm,fp32,1,64,64,64\n"
MEASURED = """\
model,machine,quantity,value,batch,precision,devices,scope,basis
resnet50,p100,step_s,0.15,32,fp32,1,device,measured
"""

TRACE = """{"record_shapes": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1,
    "tid": 1, "ts": 1, "dur": 5, "args": {"Input Dims": [[64, 8], [8, 4]], "Input type": ["float", "float"]}}]}"""
LOADER = """
import torch

data = torch.utils.data.TensorDataset(torch.zeros(4096, 8), torch.zeros(4096))
loader = torch.utils.data.DataLoader(data, batch_size=32)
"""
RECORD = '{"device": "V100", "framework": "pytorch", "problem": {"name": "resnet50"}, "samples_per_second": 321}'


AGREED = """schema: fomkit/suite/1
name: agreed
version: 1
baseline: p100
scope: device
mean: ratio_of_harmonic_means
lines: [{name: A, basis: committed, party: vendor, given: {p100: 9 h, v100: 5 h}}]
"""
EPOCHS = "batch,epochs,metric,target,source\n128,80,accuracy,0.7,made up\n512,90,accuracy,0.7,made up\n"
DELIVERED = "model,machine,quantity,value,devices,scope,basis\nA,v100,run_s,17000,1,device,measured\n"
TIMED = """measured:
  {clock: wall, device: cpu, processor: a test's, threads: 1, warm_up: 3,
   step: {repeats: 1, wall: {median: 300 ms, p25: 300 ms, p75: 300 ms}}}
"""


def exported() -> bytes:
    """A dense layer as an ONNX file."""
    helper = pytest.importorskip("onnx", reason="an example reads ONNX: pip install '.[onnx]'").helper
    given, made = (
        helper.make_tensor_value_info(name, 1, ["batch", length]) for name, length in (("x", 3), ("y", 2))
    )
    weight = helper.make_tensor("w", 1, [3, 2], [0.0] * 6)
    layer = helper.make_node("MatMul", ["x", "w"], ["y"])
    return helper.make_model(helper.make_graph([layer], "g", [given], [made], [weight])).SerializeToString()


@pytest.fixture(scope="module")
def office(tmp_path_factory) -> Path:
    """A folder with everything that the examples of the help texts name."""
    folder = tmp_path_factory.mktemp("office")
    for name in ("machine_profiles", "model_profiles"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "tests" / "data" / "lstm_tagger.py", folder / "model.py")
    program = ROOT / "tests" / "data" / "scripts" / "pictures"
    shutil.copytree(program / "picturenet", folder / "picturenet")
    shutil.copy(program / "train.py", folder)
    shutil.copy(folder / "machine_profiles" / "m40.timings.csv", folder / "vendor-timings.csv")
    shutil.copy(folder / "model_profiles" / "candle" / "p1b3.ops.csv", folder / "vendor-ops.csv")
    (folder / "machine_profiles" / "m40.yaml").unlink()
    (folder / "machine_profiles" / "m40.timings.csv").unlink()
    shutil.copy(folder / "model_profiles" / "resnet50.ops.csv", folder)
    (folder / "datasheet.yaml").write_text(FACTS, encoding="utf-8")
    (folder / "ops.csv").write_text(OPS, encoding="utf-8")
    (folder / "measured.csv").write_text(MEASURED, encoding="utf-8")
    shutil.copy(folder / "machine_profiles" / "v100.yaml", folder / "round2.yaml")
    shutil.copy(folder / "machine_profiles" / "v100.timings.csv", folder)
    (folder / "suite.yaml").write_text(AGREED, encoding="utf-8")
    profile = (folder / "model_profiles" / "candle" / "p1b3.yaml").read_text(encoding="utf-8")
    tables = re.sub(r"^(layers|order): .*\n", "", profile.replace("p1b3.ops.csv", "vendor-ops.csv"), flags=re.M)
    (folder / "timed.yaml").write_text(tables + TIMED, encoding="utf-8")
    (folder / "m.csv").write_text(DELIVERED, encoding="utf-8")
    (folder / "record.json").write_text(RECORD, encoding="utf-8")
    (folder / "loader.py").write_text(LOADER, encoding="utf-8")
    (folder / "meter.csv").write_text("time,power_w\n0,100\n1,200\n", encoding="utf-8")
    (folder / "epochs.csv").write_text(EPOCHS, encoding="utf-8")
    (folder / "model.onnx").write_bytes(exported())
    (folder / "trace.json.gz").write_bytes(gzip.compress(TRACE.encode()))
    (folder / "run.xplane.pb").write_bytes(host([("net/dense/MatMul", "MatMul", [(0, 4000), (9000, 4000)])]))
    report = Export(folder / "report.sqlite")
    linear_steps(report)
    report.close()
    command = [sys.executable, "-m", "fomkit.cli", "fom", "lecture", "--for", "a", "-o", "sent.xlsx"]
    subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True
    )
    shutil.copy(folder / "sent.xlsx", folder / "vendor.xlsx")
    return folder


SHOWN = [(verb, example) for verb in VERBS if verb != "validate" for example in examples(verb)]
FIRST = dict(reversed(SHOWN))
"""An example of each verb that a shell runs; the others are run in this process, where all is imported already."""
HURRIED = (
    "from fomkit.bench.input_rate import LIMITS_S\n"
    "from fomkit.bench.run import FIT_S, PLANS\n"
    "PLANS.update({name: plan._replace(budget_s=6.0) for name, plan in PLANS.items()})\n"
    "FIT_S.update(dict.fromkeys(FIT_S, 1.0))\n"
    "LIMITS_S.update(dict.fromkeys(LIMITS_S, 3.0))\n"
    "from fomkit.cli.main import main\n"
    "main()\n"
)
"""Real measuring that ends after seconds; how good longer ones are is tested where measuring is."""


def shell(example: str, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = f'fomkit() {{ "{sys.executable}" {program} "$@"; }}\n{example}\n'
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["sh", "-c", script], cwd=folder, env=settings, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("example", [example for verb, example in SHOWN if verb == "measure"])
@pytest.mark.slow
def test_the_examples_of_measuring_run(example: str, office: Path) -> None:
    done = shell(example, f"-c {shlex.quote(HURRIED)}", office)
    ended_early = "not sufficient: " in done.stdout and "because the budget was spent" in done.stdout
    assert done.returncode == (1 if ended_early else 0), done.stdout + done.stderr
    assert ".timings.csv" in done.stdout or "--input" in example


@pytest.mark.parametrize("example", [example for verb, example in SHOWN if verb != "measure"])
@pytest.mark.slow
def test_the_examples_of_the_help_run(example: str, office: Path, request, monkeypatch, capfd) -> None:
    if "DeepBench_NV_M40.xlsx" in example:
        source = request.getfixturevalue("shared") / "data" / "deepbench" / "train" / "DeepBench_NV_M40.xlsx"
        shutil.copy(source, office)
    words = shlex.split(example)
    if example in FIRST.values() or {">", "|"} & set(words):
        done = shell(example, "-m fomkit.cli", office)
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        monkeypatch.chdir(office)
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        code, (out, err) = ended.value.code or 0, capfd.readouterr()
    assert code == 0, err
    assert out or ">" in example
