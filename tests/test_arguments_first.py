"""All arguments of a verb are checked before long work: before a model's code runs, before a suite is rated."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

import pytest
from terminal import in_this_process

from fomkit import merit, plan, validation, verbs, whatif
from fomkit.core.errors import FomkitError
from fomkit.files.write import check_new_folder

RAN = "ran"
CODE = f"""import pathlib, torch
pathlib.Path("{RAN}").touch()
model = torch.nn.Linear(4, 4)
inputs = torch.zeros(8, 4)
loss_fn = lambda output, inputs: output.mean()
"""
AFTER_CODE = """\
estimate code.py --target v100 --layout tensor=x: --layout
estimate code.py --target v100 --link bad: --link
estimate code.py --target v100 --nodes 0: --nodes
estimate code.py --target v100 --unit \xa0: --unit
estimate code.py --target v100 --for p100 -o vendor.xlsx: --for p100
estimate code.py --target v100 --baseline v100: v100: is the baseline and a target
estimate code.py --target v100 --target v100: v100: is given twice among the machines
estimate code.py --target v100 --scope system: v100: its profile does not state the scope
estimate code.py nosuchmodel --target v100: nosuchmodel: no model profile
explain code.py --target nosuch: nosuch: no machine profile
explain code.py --target v100 --layout tensor=x: --layout
memory code.py --reserve 1GiB: --reserve
memory code.py --target v100 --nodes 0: --nodes
advise code.py --target nosuch: nosuch: no machine profile
cost code.py --target nosuch: nosuch: no machine profile
cost code.py --target v100 --baseline v100: v100: is the baseline and the target
cost code.py --target v100 --claimed hardware=2: --claimed
scaling code.py --target nosuch: nosuch: no machine profile
scaling code.py --target v100 --nodes 4..2: --nodes
scaling code.py --target v100 --slots 0: --slots
scaling code.py --target v100 --checkpoint 60: --checkpoint
scaling code.py --target v100 --checkpoint-every 1h: --checkpoint-every
scaling code.py --target v100 --once x: --once
scaling code.py --target v100 --to-accuracy nosuch.csv: nosuch.csv
sweep code.py --target v100 --vary batch=1..4:2 --points 3: --points
sweep code.py --target v100 --vary batch=1..4:2 --seed -1: --seed
sweep code.py --target v100 --vary batch=1..4:2 --resume: --resume
sweep code.py --target v100 --vary batch=1..4:2 --scheduler nowhere: --scheduler nowhere
sensitivity code.py --target v100 --nodes 0: --nodes
solve code.py --target v100 --step 1ms --frontier batch: --frontier: needs at least two
pack code.py --target v100 -o code.py/pack: code.py/pack: cannot be made
pack code.py nosuchmodel --target v100 -o pack: nosuchmodel: no model profile
estimate code.py --target v100 --nodes 2 --link node,5us,1GB/s,each --link node,5us,2GB/s,each: --link
solve code.py --target v100 --step 1ms --frontier ,: --frontier: needs at least two
estimate code.py --target v100 -o code.py/x.json: code.py/x.json: cannot be written: code.py is a file"""


@pytest.mark.parametrize("line", AFTER_CODE.splitlines())
def test_a_mistake_is_told_before_a_model_runs(line: str, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE, encoding="utf-8")
    command, _, said = line.partition(": ")
    done = in_this_process(*command.split(" "), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"fomkit: {said}")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["code.py"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("fom candle --target v100 --for p100 -o vendor.xlsx", "--for p100: is not a target here"),
        ("fom lecture --for titan -o vendor.xlsx", "--for titan: is not a target here. Known names: 'a'"),
        ("compare --calibrate-on nosuch", "candle-lecture: has no row of the model 'nosuch'"),
        ("compare --grid --calibrate-on tc1", "--calibrate-on: extends single cells, and --grid shows rates"),
        ("compare --grid --host-from p100", "--host-from: extends single cells, and --grid shows rates"),
        ("solve --suite candle --target v100 --step 1ms", "--step: is of a model; a suite has only its FOM"),
        ("solve --suite candle --target v100 --fom 2 --change x", "--change x: is not a parameter here"),
        ("solve p1b3 --target v100 --step 1ms --frontier batch,batch", "--frontier batch: is given twice"),
        ("pack p1b3 p1b3 --target v100 -o pack", "p1b3: is given twice among the models"),
        ("show v100 --by op", "v100: is a machine, and --by is for models"),
        ("show --with bf16", "--with: is for the list of machines. Write 'fomkit show machines'"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_is_estimated(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **__: object) -> None:
        raise AssertionError("an estimate was made first")

    # A module that is first imported while a name is replaced would keep the replacement for later tests.
    for room in (merit, plan, validation, verbs, whatif):
        for one in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            import_module(one.name)
    for place in (
        "merit.suites.run_suite", "plan.estimate.estimate", "validation.cells.make_cells",
        "whatif.subjects.OfSuite.figures_at", "whatif.subjects.OneModel.figures_at",
    ):  # fmt: skip
        monkeypatch.setattr(f"fomkit.{place}", late)
    done = in_this_process(*command.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"fomkit: {said}")
    assert not list(tmp_path.iterdir())


def test_a_new_folder_may_be_nested_but_not_in_a_file(tmp_path: Path) -> None:
    check_new_folder(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    for path, what in ((tmp_path / "file" / "b" / "c", "is a file"), (tmp_path, "exists already")):
        with pytest.raises(FomkitError, match=what):
            check_new_folder(path)
