"""Conventions of the command line: checks of every verb, and differences between terminal and pipe."""

from __future__ import annotations

import gzip
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from nsys_files import Export, linear_steps
from terminal import in_terminal, in_this_process
from typer.testing import CliRunner
from xplane_files import host

from docs.generate import command_reference, help_of
from fomkit.bench.input_rate import LIMITS_S
from fomkit.bench.network import PLANS as NETWORKS
from fomkit.bench.run import Measured, MeasureSpec, measure
from fomkit.cli import choices, main
from fomkit.cli.choices import progress

ROOT = Path(__file__).resolve().parent.parent
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
verb_command, help_of = cache(main.verb_command), cache(help_of)
VERBS = sorted(main.VERBS)


def examples(verb: str) -> list[str]:
    return re.findall(r"^\s+(fomkit .*)$", help_of(verb).split("Examples:")[-1], flags=re.MULTILINE)


def test_the_page_of_commands_is_the_commands_own_words() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == command_reference(), "run 'python docs/generate.py commands > docs/commands.md'"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_documented_by_example(verb: str) -> None:
    assert f"`fomkit {verb}" in (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    assert examples(verb)
    assert all(shlex.split(example)[1] == verb for example in examples(verb))
    # A blank line follows each, so a terminal of 80 columns shows it whole and it can be copied.
    shown = help_of(verb).split("Examples:")[-1]
    assert all(f"{example}\n\n" in shown for example in examples(verb))


@pytest.mark.parametrize("verb", VERBS)
def test_an_example_is_one_line_in_a_terminal_of_80_columns(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folded, it could not be pasted: its second line would be a command of its own."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(main.app, [verb, "-h"]).output
    assert all(f"\n    {example}\n" in shown for example in examples(verb))


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_says_what_it_does(verb: str) -> None:
    silent = [one.name for one in verb_command(verb).params if not getattr(one, "help", None)]
    assert not silent


@pytest.mark.parametrize("verb", VERBS)
def test_options_of_one_meaning_have_one_name(verb: str) -> None:
    """An option has the same name and meaning for all verbs."""
    spelled = {option: one.name for one in verb_command(verb).params for option in one.opts}
    meanings = {
        "--json": "as_json", "--force": "force", "-o": "output", "-q": "quiet", "--set": "sizes",
        "--batch": "batch", "--interval": "interval", "--allow-uncovered": "allow_uncovered",
    }  # fmt: skip
    assert {option: name for option, name in spelled.items() if option in meanings}.items() <= meanings.items()
    assert spelled.get("-t") == spelled.get("--target")
    assert spelled.get("-t", "target") in (
        "target",
        "machine",
        "machines",
    )  # as the function's parameter is called


ESTIMATE = [sys.executable, "-m", "fomkit", "estimate", "p1b3", "--target", "v100"]


def test_a_terminal_gets_colour_and_its_own_width() -> None:
    told = in_terminal(ESTIMATE, {}, ROOT)
    assert COLOUR.search(told)
    table = [line for line in COLOUR.sub("", told).splitlines() if "─" in line or line.startswith("p1b3")]
    assert table
    assert max(map(len, table)) <= 100


def test_no_word_of_a_message_is_broken_on_a_terminal() -> None:
    """In a file or a pipe a message is one line, which can be searched."""
    command = [sys.executable, "-m", "fomkit", "estimate", "zebra", "-t", "v100"]
    told = in_terminal(command, {"COLUMNS": "80", "NO_COLOR": "1"}, ROOT).splitlines()
    assert len(told) > 1
    assert max(map(len, told)) <= 80
    assert all(line.startswith("  ") for line in told[1:])
    piped = in_this_process(*command[3:], cwd=ROOT).stderr
    assert piped == f"{' '.join(line.strip() for line in told)}\n"


def test_no_colour_where_nobody_wants_it() -> None:
    assert not COLOUR.search(in_terminal([*ESTIMATE, "--quiet"], {"NO_COLOR": "1"}, ROOT))


def test_a_log_gets_a_line_of_progress_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe or a file, as in a batch job, gets lines that stay: what, how many, the time left and so far."""
    monkeypatch.setattr(choices, "SPARSE_S", 0.05)
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    with choices.progress("counting", 4) as advance, choices.status_line("shearing") as tell:
        advance()
        tell("shearing sheep 2")
        until = time.monotonic() + 60
        while not ("counting" in log.getvalue() and "shearing" in log.getvalue()) and time.monotonic() < until:
            time.sleep(0.01)
    lines = sorted(log.getvalue().splitlines())
    assert re.fullmatch(r"fomkit: counting, 1 of 4, about \d+ s left, \d+ s so far", lines[0])
    assert re.fullmatch(r"fomkit: shearing sheep 2, \d+ s so far", lines[-1])
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    with choices.progress("counting", quiet=True), choices.status_line("shearing", quiet=True):
        time.sleep(0.2)
    assert log.getvalue() == ""


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
    assert ("counting sheep, 1 of 2, about" in told) is shown


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


INTERRUPTED = """
import sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "MODULE":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["estimate", "p1b3-lecture", "--target", "x86-lecture"]
from fomkit.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "fomkit.cli.adapter", "numpy"])
def test_control_c_while_modules_are_imported_ends_without_a_traceback(module: str) -> None:
    code = INTERRUPTED.replace("MODULE", module)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["estimat"], "estimat: is not a command. The nearest name is 'estimate'."),
        (["estimate", "--traget", "v100"], "--target"),
        (["estimate", "--target", "v100", "--batch", "x"], "--batch"),
        (["estimate", "--target", "v100", "--precision", "fp3"], "fp32"),
        (["estimate", "--target", "v100", "--interval", "2"], "--interval"),
        (
            ["estimate", "-t", "v100", "--scope"],
            "--scope: has no value. Expected device, node or system. Write, for example, '--scope device'.",
        ),
        (["estimate", "-t", "v100", "--nodes"], "--nodes: has no value. Expected N|fill."),
        (["fom"], "SUITE"),
        (["nope"], "nope: is not a command. 'fomkit -h' lists them."),
        (["list"], "list: is not a command. Write 'fomkit show'."),
        (["estimate", "gpt2", "-t", "8xh200"], "The nearest name is 'h200-sxm'."),
        (
            ["estimate", "gpt2", "-t", "NVIDIA H100 80GB HBM3"],
            "The nearest names are 'h100-nvl', 'h100-pcie', 'h100",
        ),
        (["estimate", "gpt2", "-t", "4090"], "The nearest name is 'rtx-4090'."),
        (["estimate", "gpt2", "-t", "cuda:0"], "To predict times on this machine: fomkit measure -o here.yaml"),
        (["estimate", "p1b3", "-t", ""], "--target: is empty. Give a value; 'fomkit estimate -h' has examples."),
        (["fom", ""], "SUITE: is empty."),
        (["estimate", "p1b3", "-t", "v100", "-o", ""], "--output: is empty."),
        (["measure", "--threads", "100000", "-o", "never.yaml"], "--threads: is 100,000, and this machine has "),
    ],
)
def test_a_slip_of_the_finger_is_answered_with_a_hint_and_exit_code_2(typed: list[str], words: str) -> None:
    done = in_this_process(*typed, cwd=ROOT)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_slip_is_answered_so_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "fomkit", "estimat"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == in_this_process("estimat", cwd=ROOT).stderr


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
    (folder / "machine_profiles").mkdir()
    shutil.copy(ROOT / "tests" / "data" / "lstm_tagger.py", folder / "model.py")
    program = ROOT / "tests" / "data" / "scripts" / "pictures"
    shutil.copytree(program / "picturenet", folder / "picturenet")
    shutil.copy(program / "train.py", folder)
    machines, models = ROOT / "machine_profiles", ROOT / "model_profiles"
    shutil.copy(machines / "m40.timings.csv", folder / "vendor-timings.csv")
    shutil.copy(models / "candle" / "p1b3.ops.csv", folder / "vendor-ops.csv")
    shutil.copy(models / "resnet50.ops.csv", folder)
    (folder / "datasheet.yaml").write_text(FACTS, encoding="utf-8")
    (folder / "ops.csv").write_text(OPS, encoding="utf-8")
    (folder / "measured.csv").write_text(MEASURED, encoding="utf-8")
    shutil.copy(machines / "v100.yaml", folder / "round2.yaml")
    shutil.copy(machines / "v100.timings.csv", folder)
    (folder / "suite.yaml").write_text(AGREED, encoding="utf-8")
    profile = (models / "candle" / "p1b3.yaml").read_text(encoding="utf-8")
    tables = re.sub(r"^(layers|order): .*\n", "", profile.replace("p1b3.ops.csv", "vendor-ops.csv"), flags=re.M)
    (folder / "timed.yaml").write_text(tables + TIMED, encoding="utf-8")
    (folder / "m.csv").write_text(DELIVERED, encoding="utf-8")
    (folder / "record.json").write_text(RECORD, encoding="utf-8")
    (folder / "loader.py").write_text(LOADER, encoding="utf-8")
    (folder / "meter.csv").write_text("time,power_w\n0,100\n1,200\n", encoding="utf-8")
    (folder / "epochs.csv").write_text(EPOCHS, encoding="utf-8")
    (folder / "model.onnx").write_bytes(exported())
    shutil.copy(ROOT / "model_profiles" / "today" / "llama3-8b.config.json", folder / "config.json")
    (folder / "trace.json.gz").write_bytes(gzip.compress(TRACE.encode()))
    (folder / "run.xplane.pb").write_bytes(host([("net/dense/MatMul", "MatMul", [(0, 4000), (9000, 4000)])]))
    report = Export(folder / "report.sqlite")
    linear_steps(report)
    report.close()
    made = in_this_process("fom", "lecture", "--for", "a", "-o", "sent.xlsx", cwd=folder)
    assert made.returncode == 0, made.stderr
    shutil.copy(folder / "sent.xlsx", folder / "vendor.xlsx")
    return folder


SHOWN = [example for verb in VERBS if verb != "validate" for example in examples(verb)]
MEASURING = [example for example in SHOWN if example.startswith("fomkit measure ")]
GOLDEN = ROOT / "tests" / "golden"
CORPUS = "\n".join(path.read_text(encoding="utf-8") for path in (GOLDEN / "shown").glob("*.txt"))
KEPT = set(re.findall(r"^\$ (fomkit .*)\n\[exit 0\]\n(?=\S)", CORPUS, flags=re.MULTILINE))
"""Calls that the corpus runs, which end well and show something; all that they show is compared there."""
TOURED = [(ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/first-steps.md")]
TOUR = set(re.findall(r"^\$ fomkit (\w+)", "\n".join(TOURED), flags=re.MULTILINE))
"""Verbs that the tour of the README and the first steps runs as processes."""


def for_the_shell(verb: str) -> str:
    """Return the shortest example of a verb, without suites, among those that the corpus does not run."""
    return min(set(examples(verb)) - KEPT or examples(verb), key=lambda one: ("--suite" in one, len(one), one))


IN_A_SHELL = {one for one in SHOWN if {">", "|"} & set(shlex.split(one))}
IN_A_SHELL |= {for_the_shell(verb) for verb in {*VERBS} - TOUR - {"measure", "validate"}}
"""What only a shell can do, and an example of each verb; the others are run in this process."""
HERE = [one for one in SHOWN if one not in MEASURING and (one in IN_A_SHELL or one not in KEPT)]
TIMED_ALONE = "fomkit measure --quick"
"""Real measuring in a process of its own."""
TIMED_HERE = ("fomkit measure --network", "fomkit measure --input")
"""Real measuring. Other ops and another library are timed where measuring is tested, here by no machine at all."""
HURRIED = """
from fomkit.bench import run
from fomkit.bench.run import FIT_S, PLANS
run.SQUARES = (256, 512)
run.FLUSH_FACTOR = 0.0
PLANS.update({name: plan._replace(budget_s=0.5, limit_s=0.02) for name, plan in PLANS.items()})
FIT_S.update(dict.fromkeys(FIT_S, 0.2))
from fomkit.cli.main import main
main()
"""
"""Real measuring that ends after seconds; how good longer ones are is tested where measuring is."""


def shell(example: str, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = f'fomkit() {{ "{sys.executable}" {program} "$@"; }}\n{example}\n'
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["sh", "-c", script], cwd=folder, env=settings, capture_output=True, text=True, check=False
    )


def test_every_example_is_run_once() -> None:
    """Each example runs in the corpus, by a section of its calls, or in the tests below."""
    calls = set((GOLDEN / "calls.txt").read_text(encoding="utf-8").splitlines())
    assert not KEPT - calls
    assert not set(SHOWN) - set(HERE) - set(MEASURING) - KEPT
    assert {shlex.split(example)[1] for example in IN_A_SHELL} >= {*VERBS} - TOUR - {"measure", "validate"}
    assert not IN_A_SHELL - set(HERE)


@pytest.mark.parametrize("example", MEASURING)
@pytest.mark.slow
def test_the_examples_of_measuring_run(example: str, office: Path, monkeypatch) -> None:
    if example.startswith(TIMED_ALONE):
        done = shell(example, f"-c {shlex.quote(HURRIED)}", office)
    elif example.startswith(TIMED_HERE):
        for name, plan in NETWORKS.items():
            monkeypatch.setitem(NETWORKS, name, plan._replace(sizes=plan.sizes[::4], limit_s=0.02))
            monkeypatch.setitem(LIMITS_S, name, 1.0)
        done = in_this_process(*shlex.split(example)[1:], cwd=office)
    else:
        sys.path.insert(0, str(ROOT / "tests" / "measure"))
        from simple_machine import Simple

        def simply(spec: MeasureSpec, _tell: Callable[[str], None]) -> Measured:
            return measure(replace(spec, budget_s=40.0), start=lambda _setup: Simple())

        monkeypatch.setattr("fomkit.bench.run.measure", simply)
        done = in_this_process(*shlex.split(example)[1:], cwd=office)
    # Where other work has the machine, the wall's limit may come before the budget's: it says so, and ends with 1.
    reasons = ("because the budget was spent", "because the wall time reached")
    ended_early = ": too little, " in done.stdout and any(reason in done.stdout for reason in reasons)
    assert done.returncode == (1 if ended_early else 0), done.stdout + done.stderr
    assert ".timings.csv" in done.stdout or "--input" in example


@pytest.mark.parametrize("example", HERE)
@pytest.mark.slow
def test_the_examples_of_the_help_run(example: str, office: Path, request) -> None:
    if "DeepBench_NV_M40.xlsx" in example:
        source = request.getfixturevalue("shared") / "data" / "deepbench" / "train" / "DeepBench_NV_M40.xlsx"
        shutil.copy(source, office)
    if example in IN_A_SHELL:
        done = shell(example, "-m fomkit", office)
    else:
        done = in_this_process(*shlex.split(example)[1:], cwd=office)
    assert done.returncode == 0, done.stderr
    assert done.stdout or ">" in example
