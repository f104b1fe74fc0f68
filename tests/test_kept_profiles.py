"""Results derived from files are cached for the user, and used only for exactly the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from read_once import Readers

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.profiles import evidence, locate
from fomkit.profiles.evidence import load_typical_tables, shipped_typical_tables, without_implausible
from fomkit.profiles.locate import cache_folder, shipped_folder, user_cached, user_cached_profile

MACHINES, MODELS = shipped_folder("machine_profiles"), shipped_folder("model_profiles")
SETTLED_S = 2 * locate._SETTLED_NS / 1e9


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOMKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Write a user's own machine and model, unchanged for a while."""
    for path in (*MACHINES.glob("iphone-7.*"), *MODELS.glob("alexnet.*")):
        shutil.copy(path, tmp_path)
    time.sleep(SETTLED_S)
    return tmp_path


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    elif hasattr(one, "__dataclass_fields__"):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other or (one != one and other != other)


@pytest.mark.parametrize("name", ["v100", "gtx-1080-ti", "t4", "x86-lecture", "raspberry-pi-3"])
def test_a_kept_machine_is_the_checked_one(name: str, cache: Path, read_each_time: Readers) -> None:
    path = MACHINES / f"{name}.yaml"
    checked, kept_one = (read_each_time.machine(path, ()) for _ in range(2))
    assert len(list(cache.glob("machine-*.kept"))) == 1
    assert_same(kept_one, checked)


@pytest.mark.parametrize("name", ["resnet50", "gpt2", "candle/p1b3", "candle/p1b1"])
def test_a_kept_model_is_the_checked_one(name: str, cache: Path, read_each_time: Readers) -> None:
    path = MODELS / f"{name}.yaml"
    checked, kept_one = (read_each_time.model(path) for _ in range(2))
    assert len(list(cache.glob("model-*.kept"))) == 1
    assert_same(kept_one, checked)


def test_kept_tables_may_be_changed(read_each_time: Readers) -> None:
    for _ in range(2):
        ops = read_each_time.model(MODELS / "alexnet.yaml").ops
        ops.loc[0, "count"] = 2.0
        assert ops["count"].iloc[0] == 2.0


def test_kept_typical_tables_are_those_of_the_files(cache: Path) -> None:
    known = load_typical_tables(MACHINES / evidence.FOLDER)
    for _ in range(2):
        found = shipped_typical_tables.__wrapped__()
        assert found.key == known.key
        assert_same(found.of, known.of)
    assert len(list(cache.glob("typical-*.kept"))) == 1


def read(mine: Path, readers: Readers) -> tuple[Machine, ModelProfile]:
    return readers.machine(mine / "iphone-7.yaml", ()), readers.model(mine / "alexnet.yaml")


@pytest.mark.parametrize("changed", ["iphone-7.yaml", "iphone-7.timings.csv", "alexnet.yaml", "alexnet.ops.csv"])
def test_changed_files_are_read_anew(changed: str, mine: Path, read_each_time: Readers) -> None:
    """The bytes decide, not the modification time."""
    read(mine, read_each_time)
    path = mine / changed
    before = path.stat()
    text = path.read_text(encoding="utf-8")
    if changed.endswith(".yaml"):
        text = text.replace("\nname: ", "\nname: my-")
    else:
        text = "\n".join(text.split("\n")[:-2]) + "\n"
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    machine, model = read(mine, read_each_time)
    shown = {
        "iphone-7.yaml": machine.name, "iphone-7.timings.csv": len(machine.timings), "alexnet.yaml": model.name,
        "alexnet.ops.csv": len(model.ops),
    }[changed]  # fmt: skip
    assert shown == (text.count("\n") - 1) or str(shown).startswith("my-")


def test_a_mistake_made_since_is_told(mine: Path, read_each_time: Readers) -> None:
    read(mine, read_each_time)
    path = mine / "iphone-7.timings.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("gemm", "gemn", 1), encoding="utf-8")
    with pytest.raises(FomkitError, match=r"iphone-7\.timings\.csv:\d+: 'gemn' is not a kind of op"):
        read(mine, read_each_time)


def test_a_table_that_a_link_leads_out_is_refused_as_ever(
    mine: Path, read_each_time: Readers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    read(mine, read_each_time)
    table, elsewhere = mine / "iphone-7.timings.csv", tmp_path_factory.mktemp("elsewhere") / "a.csv"
    table.rename(elsewhere)
    table.symlink_to(elsewhere)
    with pytest.raises(FomkitError, match=r"iphone-7\.timings\.csv"):
        read(mine, read_each_time)


def test_damaged_and_foreign_entries_are_made_again(mine: Path, cache: Path, read_each_time: Readers) -> None:
    checked = read(mine, read_each_time)
    for entry in (*cache.glob("machine-*"), *cache.glob("model-*")):
        whole = entry.read_bytes()
        others = [one for one in cache.iterdir() if one != entry]
        for bad in (b"", whole[:100], whole[:-1], whole[:-1] + b"?", whole + b" ", others[0].read_bytes()):
            entry.write_bytes(bad)
            for one, other in zip(read(mine, read_each_time), checked, strict=True):
                assert_same(one, other)
            assert entry.read_bytes() == whole


def test_entries_of_another_maker_are_made_again(
    mine: Path, cache: Path, read_each_time: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(mine, read_each_time)
    before = {one: one.read_bytes() for one in cache.iterdir()}
    monkeypatch.setattr(locate, "_maker", lambda: "another fomkit")
    read(mine, read_each_time)
    assert all(one.read_bytes() != content for one, content in before.items())


def test_entries_of_other_shipped_processes_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate, "shipped_folder", lambda _folder: tmp_path)
    makers = []
    for content in ("{}", '{"gemm/fp32/vector": {}}'):
        (tmp_path / evidence.PROCESSES).write_text(content, encoding="utf-8")
        makers += [locate._maker.__wrapped__(), locate._maker.__wrapped__()]
    assert makers[0] == makers[1] != makers[2] == makers[3]


@pytest.mark.parametrize(
    "value",
    [
        {"": "os.system", "of": ["true"]},
        {"": "fomkit.core.machine.replace", "of": []},
        {"": "fomkit.core.machine.dataclass", "of": []},
        {"": "fomkit.core.errors.FomkitError", "of": ["a", "b"]},
        {"": "fomkit.core.machine.Fact", "of": [1.0]},
        {"": "ndarray", "of": ["|O", [1], 0]},
        {"": "ndarray", "of": ["<f8", [10], 0]},
    ],
)
def test_an_entry_makes_nouns_only(value: Any) -> None:
    """This also holds for an entry with a valid seal made by others."""
    with pytest.raises((ValueError, TypeError, KeyError)):
        locate._restored(value, b"12345678")


def test_a_folder_that_is_gone_or_cannot_be_written_costs_time_only(
    mine: Path, cache: Path, read_each_time: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = read(mine, read_each_time)
    shutil.rmtree(cache)
    for folder in (cache, mine / "alexnet.yaml" / "below-a-file", Path("/proc/none")):
        monkeypatch.setenv("FOMKIT_CACHE", str(folder))
        for one, other in zip(read(mine, read_each_time), checked, strict=True):
            assert_same(one, other)
    assert len(list(cache.iterdir())) == 2


def test_old_entries_go(mine: Path, cache: Path, read_each_time: Readers) -> None:
    read_each_time.machine(mine / "iphone-7.yaml", ())
    (old,) = cache.iterdir()
    os.utime(old, (time.time() - 100 * 86_400,) * 2)
    locate._clear.cache_clear()  # another process: each clears once
    read_each_time.model(mine / "alexnet.yaml")
    assert [one.name.split("-")[0] for one in cache.iterdir()] == ["model"]


def test_who_has_no_home_keeps_nothing(
    mine: Path, read_each_time: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FOMKIT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", none)
    assert read(mine, read_each_time)[1].name == "alexnet"


def test_files_that_just_changed_are_not_kept(mine: Path, cache: Path, read_each_time: Readers) -> None:
    """They may have changed between being read and being hashed."""
    (mine / "iphone-7.timings.csv").touch()
    read(mine, read_each_time)
    assert [one.name.split("-")[0] for one in cache.iterdir()] == ["model"]


def test_a_machine_on_another_machines_device_is_not_kept(cache: Path, read_each_time: Readers) -> None:
    assert len(read_each_time.machine(MACHINES / "summit.yaml", ()).timings)
    assert len(list(cache.glob("machine-*"))) <= 1


def test_what_has_no_plain_form_is_not_kept(tmp_path: Path, cache: Path) -> None:
    for value in ({1: "a"}, {"": 1}, object(), np.float64(1), pd.DataFrame({"a": [1]})):
        assert user_cached("test", "key", lambda value=value: value) is value
    path = tmp_path / "a.yaml"
    path.write_text("a", encoding="utf-8")
    time.sleep(SETTLED_S)
    assert user_cached_profile("test", (path,), lambda: ([1], [])) == user_cached_profile(
        "test", (path,), lambda: ([2], [])
    )
    assert len(list(cache.iterdir())) == 1


def test_a_verdict_is_of_a_machine_as_loaded(read_each_time: Readers) -> None:
    """A machine changed in Python gets its own verdict, although its table is that of the file."""
    machine = read_each_time.machine(MACHINES / "v100.yaml", ())
    assert not without_implausible(machine).plausibility.quarantined  # type: ignore[union-attr]
    peaks = tuple(
        replace(one, rate=replace(one.rate, value=1e9, low=1e9, high=1e9)) for one in machine.device.peaks
    )
    with pytest.raises(FomkitError, match="peak"):
        without_implausible(replace(machine, device=replace(machine.device, peaks=peaks)))


CODE = """
import sys
sys.argv = ['fomkit', 'estimate', 'resnet50', '--target', 'v100']
from fomkit.cli.main import main
try: main()
except SystemExit: pass
print(' '.join(sorted(sys.modules)))
"""


@pytest.mark.usefixtures("started_anew")
def test_a_second_estimate_checks_nothing_and_says_the_same(root: Path, cache: Path) -> None:
    runs = [
        subprocess.run([sys.executable, "-c", CODE], cwd=root, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    shown, modules = zip(*(run.stdout.rstrip("\n").rsplit("\n", 1) for run in runs), strict=True)
    assert shown[0] == shown[1]
    assert "90.94 ms" in shown[0]
    assert "pydantic.main" in modules[0].split()
    assert cache_folder() == cache
    spared = {"pydantic.main", "pydantic_core", "yaml", "threadpoolctl", "importlib.metadata", "scipy", "sympy"}
    spared |= {"openpyxl", "jinja2", "altair", "torch", "tensorflow", "onnx", "html.parser", "email.message"}
    spared |= {f"fomkit.profiles.{name}" for name in ("records", "facts", "machine_record", "suites", "campaigns")}
    spared |= {"fomkit.readers.measurements", "fomkit.merit.rated_lines", "fomkit.core.job"}
    assert not spared & set(modules[1].split())


def test_a_table_that_was_written_into_spoils_nothing_for_those_who_read_the_file_later(mine: Path) -> None:
    from fomkit.plan.estimate import estimate
    from fomkit.plan.options import Options
    from fomkit.profiles.machines import load_machine
    from fomkit.profiles.models import load_model

    model, path = load_model("alexnet"), mine / "iphone-7.yaml"
    spoilt = load_machine(path)
    spoilt.timings.loc[0, "time_s"] *= 1e-6
    estimate(model, spoilt, Options(allow_uncovered=True))
    # A copy, so that nothing in memory is of the spoilt table: what comes from the cache comes by the bytes.
    shutil.copytree(mine, mine / "copy", ignore=shutil.ignore_patterns("cache", "copy"))
    time.sleep(SETTLED_S)
    judged = without_implausible(load_machine(mine / "copy" / "iphone-7.yaml"))
    assert len(judged.timings) == len(spoilt.timings)
    assert not judged.plausibility.quarantined  # type: ignore[union-attr]


def test_what_changes_while_it_is_read_is_not_kept_and_what_is_too_large_is_not_written(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert user_cached("thing", "a" * 32, lambda: "before", lambda: "b" * 32) == "before"
    assert not list(cache.glob("*.kept")) if cache.exists() else True
    monkeypatch.setattr(locate, "MAX_BYTE", 100)
    assert user_cached("thing", "c" * 32, lambda: "x" * 200) == "x" * 200
    assert not (cache.exists() and list(cache.glob("*.kept*")))
