"""Third-party adapters: found by their entry points, tried last, and named if broken."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model

TOY = Path(__file__).parent / "data" / "toy_adapter"
BENCH = "toybench 1\nToy 9000\nfp32 512 256 1024 21.5\nfp32 64 64 64 3\n"
TRACE = "toytrace 1\nforward fp32 batch 100 784 2\nbackward fp32 batch 784 100 2\n"
OURS = "kind,dtype,m,n,k\ngemm,fp32,64,64,64\n"


def imported(*words: str) -> Any:
    return CliRunner().invoke(app, ["import", *words])


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    for name, text in (("bench.txt", BENCH), ("trace.txt", TRACE), ("ops.csv", OURS), ("other.txt", "?\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def toy(folder, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(TOY)
    yield folder
    sys.modules.pop("toy_adapter", None)


def install(folder: Path, monkeypatch, name: str, source: str, group: str = "fomkit.timings") -> None:
    """Install a distribution of one module, whose adapter is ``it``, on Python's path."""
    place = folder / f"site_{name}"
    info = place / f"{name}-2.0.dist-info"
    info.mkdir(parents=True)
    (place / f"{name}.py").write_text(source, encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{group}]\nx = {name}:it\n", encoding="utf-8")
    monkeypatch.syspath_prepend(place)


def adapter(name: str = "fine", recognises: str = "return True", read: str = "return None") -> str:
    return (
        "import pandas as pd\nfrom fomkit.readers.adapters import ReadTable\n"
        f"class It:\n    name = {name!r}\n    title = 'a format'\n"
        f"    def recognises(self, head, path):\n        {recognises}\n"
        f"    def read(self, path):\n        {read}\nit = It()\n"
    )


def error_of(done: Any) -> str:
    return str(done.exception)


# --- a working one -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_an_installed_adapter_is_found_and_run_in_a_process_of_its_own() -> None:
    """The real thing: a distribution on the path of a child, nothing patched."""
    path = os.pathsep.join(filter(None, [str(TOY), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "fomkit", "import", "bench.txt", "-o", "toy.yaml"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Toy 9000: 2 timings from bench.txt" in done.stdout
    machine = load_machine("toy.yaml")
    assert machine.timings["time_s"].tolist() == pytest.approx([21.5e-6, 3e-6])
    assert machine.timings["source_file"].tolist() == ["bench.txt"] * 2
    assert "Toybench warms up once." in machine.notes
    assert any("toy-adapter 1.0" in note for note in machine.notes)


@pytest.mark.usefixtures("toy")
def test_a_trace_of_an_adapter_becomes_a_model_with_a_named_batch() -> None:
    assert "its dimensions use batch" in error_of(imported("trace.txt", "-o", "net.yaml"))
    done = imported("trace.txt", "--set", "batch=64", "-o", "net.yaml")
    assert done.exit_code == 0, done.exception
    model = load_model("net.yaml")
    assert model.ops["m"].tolist() == ["batch", "batch"]
    assert model.ops["n"].tolist() == [100, 784]
    assert model.ops["pass_name"].tolist() == ["forward", "backward"]
    done = CliRunner().invoke(app, ["estimate", "net.yaml", "--target", "v100", "--batch", "128"])
    assert done.exit_code == 0, done.exception


def test_an_adapter_may_be_named_and_must_make_what_is_asked(toy) -> None:
    (toy / "headless.txt").write_text(BENCH.replace("toybench 1", "?"), encoding="utf-8")
    assert imported("headless.txt", "--format", "toybench", "-o", "toy.yaml").exit_code == 0
    said = error_of(imported("bench.txt", "--as", "model", "--format", "toybench", "-o", "toy2.yaml"))
    assert said == "--as model: the format 'toybench' makes a machine. Leave one of them out."
    said = error_of(imported("bench.txt", "--device", "x", "-o", "toy2.yaml"))
    assert "a file of an adapter is of one device" in said


def test_an_adapter_s_own_message_is_shown(toy) -> None:
    (toy / "short.txt").write_text("toybench 1\n", encoding="utf-8")
    assert (
        error_of(imported("short.txt", "-o", "toy.yaml")) == "short.txt: has no timing. Run Toybench to its end."
    )


@pytest.mark.usefixtures("toy")
def test_a_file_of_no_format_lists_the_adapters_too() -> None:
    assert "Installed as well: toytrace, toybench." in error_of(imported("other.txt", "-o", "toy.yaml"))


# --- broken ones -------------------------------------------------------------------------------------------------

RAISES = "raise RuntimeError('no licence')\n"
WRONG = {
    "raises on import": (RAISES, "cannot be loaded (RuntimeError: no licence)"),
    "leaves on import": ("import sys\nsys.exit(3)\n", "cannot be loaded (SystemExit: 3)"),
    "has nothing": ("it = 3\n", "has no 'name'; an adapter has name, title, recognises, read"),
    "is a class": ("class it: pass\n", "is a class. Name an instance of it"),
    "takes a name": (adapter("kineto"), "calls its format 'kineto', which is one of fomkit's own"),
    "fails to look": (
        adapter(recognises="1 / 0"),
        "failed to look at the file (ZeroDivisionError: division by zero)",
    ),
    "answers wrong": (adapter(recognises="return 'yes'"), "returned 'yes', not True or False"),
    "fails to read": (adapter(read="1 / 0"), "failed (ZeroDivisionError: division by zero). Update broken"),
    "gives nothing": (adapter(read="return None"), "made a NoneType, not a ReadTable of a DataFrame"),
    "gives a list": (adapter(read="return ReadTable([])"), "made a list, not a ReadTable of a DataFrame"),
    "gives no rows": (adapter(read="return ReadTable(pd.DataFrame())"), "returned a table without rows"),
    "gives a column": (
        adapter(read="return ReadTable(pd.DataFrame({'kind': ['gemm'], 'colour': [1]}))"),
        "returned the column 'colour', which TIMINGS does not have",
    ),
    "gives text": (
        adapter(read="return ReadTable(pd.DataFrame({'kind': ['gemm'], 'time_s': ['fast']}))"),
        "returned time_s = 'fast' in row 1, not a number",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_broken_adapter_is_one_message_with_its_distribution(case, folder, monkeypatch) -> None:
    source, expected = WRONG[case]
    install(folder, monkeypatch, "broken", source)
    done = imported("other.txt", "-o", "toy.yaml")
    said = error_of(done)
    assert expected in said
    assert "the distribution broken 2.0" in said
    assert "\n" not in said
    assert not (folder / "toy.yaml").exists()
    sys.modules.pop("broken", None)


@pytest.mark.parametrize("case", ["raises on import", "leaves on import", "takes a name", "fails to look"])
def test_a_broken_adapter_breaks_nothing_else(case, toy, monkeypatch) -> None:
    install(toy, monkeypatch, "broken", WRONG[case][0])
    assert imported("bench.txt", "-o", "toy.yaml").exit_code == 0
    assert imported("ops.csv", "-o", "ours.yaml").exit_code == 0
    sys.modules.pop("broken", None)


def test_of_two_adapters_with_one_name_neither_works(toy, monkeypatch) -> None:
    install(toy, monkeypatch, "second", adapter("toybench"))
    said = error_of(imported("bench.txt", "-o", "toy.yaml"))
    assert "have the same name; remove one of them" in said
    assert "toy-adapter 1.0" in said
    assert "second 2.0" in said


def test_a_file_that_two_adapters_want_is_not_guessed(toy, monkeypatch) -> None:
    install(toy, monkeypatch, "greedy", adapter("greedy"), "fomkit.trace")
    said = error_of(imported("bench.txt", "-o", "toy.yaml"))
    assert said.startswith("bench.txt: fits more than one adapter: ")
    assert imported("bench.txt", "--as", "machine", "-o", "toy.yaml").exit_code == 0


def test_no_adapter_is_loaded_for_what_fomkit_reads_itself(folder, monkeypatch) -> None:
    install(folder, monkeypatch, "noisy", "raise SystemExit('loaded')\n")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "fomkit", "import", "ops.csv", "-o", "ours.yaml"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not re.search(r"\| +noisy$", done.stderr, flags=re.MULTILINE)


def test_the_page_shows_the_toy_as_it_is(root) -> None:
    page = (root / "docs" / "adapters.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert (TOY / "toy_adapter.py").read_text(encoding="utf-8") in blocks
