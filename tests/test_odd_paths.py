"""Links that lead nowhere, one file for two outputs, parts given twice: one message each, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import in_this_process

LOOPS = """\
import ./loop.yaml -o out.yaml
export ./loop.csv -o out.json
show ./loop.yaml
estimate ./loop.yaml --target v100
estimate resnet50 --target ./loop.yaml
estimate resnet50 --target v100 --layout ./loop.yaml
estimate resnet50 --target v100 --baseline p100 --from ./loop.csv
estimate resnet50 --target v100 -o loop.json
fom ./loop.yaml
fom lecture --freeze loop.suite.yaml
profile ./loop.py -o out.yaml
measure --input ./loop.py -o out.yaml
measure --quick -o loop.yaml
show resnet50 --target v100 --timeline loop.json
pack resnet50 --target v100 -o loop.csv
pack resnet50 --target v100 -o loop.csv/pack
sweep resnet50 --target v100 --vary batch=1,2 -o loop.csv"""
ENDINGS = ("yaml", "csv", "json", "py", "suite.yaml")


@pytest.mark.parametrize("line", LOOPS.splitlines())
def test_a_link_to_itself_is_one_message_and_stays(line: str, tmp_path: Path) -> None:
    for ending in ENDINGS:
        (tmp_path / f"back.{ending}").symlink_to(f"loop.{ending}")
        (tmp_path / f"loop.{ending}").symlink_to(f"back.{ending}")
    before = sorted((one.name, one.is_symlink()) for one in tmp_path.iterdir())
    done = in_this_process(*line.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert "loop." in done.stderr
    assert "That folder has" not in done.stderr
    assert sorted((one.name, one.is_symlink()) for one in tmp_path.iterdir()) == before


def test_an_output_that_is_a_link_to_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out.json").symlink_to("absent.json")
    done = in_this_process("estimate", "p1b3", "--target", "v100", "-o", "out.json", "--force", cwd=tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr == "fomkit: out.json: is a link that leads to no file. Correct it, or name the file itself.\n"
    )
    assert (tmp_path / "out.json").is_symlink()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show p1b3 --target v100 --timeline x.json -o ./x.json", "x.json: is named for two outputs"),
        ("show p1b3 --target v100 --timeline p1b3", "p1b3: has the wrong ending for a timeline. Use .json."),
        ("scaling gpt2 -t v100 --layout data=2,data=4", "--layout data=4: data is given twice. Give it once."),
        ("scaling gpt2 -t v100 --layout clip --layout clip", "--layout clip: clip is given twice. Give it once."),
    ],
)
def test_what_is_given_twice_is_told(line: str, said: str, tmp_path: Path) -> None:
    done = in_this_process(*line.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith(f"fomkit: {said}")
    assert not list(tmp_path.iterdir())
