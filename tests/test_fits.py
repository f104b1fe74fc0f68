"""Fits are used only if fomkit itself made them, and depend only on the content of a table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from read_once import Readers

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.ops.pricing import add_costs
from fomkit.ops.tables import column_names
from fomkit.plan.op_tables import predict_ops
from fomkit.prediction import calibration
from fomkit.prediction.exchange import table_time
from fomkit.prediction.families import families, training_rows
from fomkit.profiles import machines
from fomkit.profiles.evidence import _shipped_fits, fit, with_fits, write_fits
from fomkit.profiles.locate import is_shipped, shipped_folder
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import fit_key, load_fits, load_machine, save_fits
from fomkit.profiles.models import load_model, save_model

SHIPPED = shipped_folder("machine_profiles")
ODD = pd.DataFrame(
    {"kind": ["gemm"] * 3, "dtype": ["fp32"] * 3, "m": [100.0, 1701.0, 64.0], "n": [99.0, 41.0, 8000.0],
     "k": [777.0, 901.0, 31.0]}
)  # fmt: skip
"""Products that no table has."""


def test_a_device_named_beside_a_copy_of_the_profiles_takes_the_fits_that_ship(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout the name is found in its own folder, which an installed fomkit does not trust."""
    (tmp_path / "machine_profiles").mkdir()
    for one in SHIPPED.glob("v100.*"):
        shutil.copy(one, tmp_path / "machine_profiles")
    (tmp_path / "mine.yaml").write_text("schema: fomkit/machine/1\nname: mine\ndevice: v100\n")
    monkeypatch.chdir(tmp_path)
    found = load_machine("mine.yaml")
    assert not found.fits
    assert _shipped_fits(found) == load_machine(SHIPPED / "v100.yaml").fits


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOMKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, read_each_time: Readers
) -> Path:
    """Set an empty cache, and load machines whose tables have no results yet."""
    folder = tmp_path_factory.mktemp("empty")
    monkeypatch.setattr(machines, "_load", read_each_time.machine)
    monkeypatch.setenv("FOMKIT_CACHE", str(folder))
    return folder


def faster(content: Any) -> Any:
    """Multiply every float by 0.9."""
    if isinstance(content, dict):
        return {name: faster(one) for name, one in content.items()}
    if isinstance(content, list):
        return [faster(one) for one in content]
    return 0.9 * content if isinstance(content, float) else content


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a vendor's folder with v100's facts and timings and better fits, and work in that folder as a user."""
    folder = tmp_path / "machine_profiles"
    folder.mkdir()
    for name in ("v100.yaml", "v100.timings.csv"):
        shutil.copy(SHIPPED / name, folder)
    machine = load_machine(SHIPPED / "v100.yaml")
    save_fits(faster(dict(machine.fits)), folder / "v100.fits.json", fit_key(machine.timings))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    "way", ["by name", "by path", "by a link to a shipped profile", "by a link from elsewhere"]
)
def test_fits_of_a_vendor_are_not_read(vendor: Path, way: str) -> None:
    path = vendor / "v100.yaml"
    if way == "by a link to a shipped profile":
        path.unlink()
        path.symlink_to(SHIPPED / "v100.yaml")
    if way == "by a link from elsewhere":
        (vendor.parent / "mine.yaml").symlink_to(path)
        path = vendor.parent / "mine.yaml"
        for name in ("timings.csv", "fits.json"):
            shutil.copy(vendor / f"v100.{name}", vendor.parent / f"mine.{name}")
            shutil.copy(vendor / f"v100.{name}", vendor.parent)
    theirs = load_machine("v100" if way == "by name" else path)
    assert not theirs.fits
    assert load_fits(vendor / "v100.fits.json", theirs.timings_key), "the forged fits are well-formed"
    honest = load_machine(SHIPPED / "v100.yaml")
    one, other = (fomkit.estimate("p1b3", machine).step for machine in (honest, theirs))
    assert (other.value, other.low, other.high) == pytest.approx((one.value, one.low, one.high), rel=1e-3)


def test_only_the_folder_beside_the_package_is_shipped(vendor: Path) -> None:
    assert is_shipped(SHIPPED / "v100.fits.json", "machine_profiles")
    for path in (
        Path("machine_profiles/v100.fits.json"),
        vendor / "v100.fits.json",
        SHIPPED / "../v100.fits.json",
    ):
        assert not is_shipped(path, "machine_profiles"), path


def test_an_edited_file_that_came_with_fomkit_is_told(vendor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key still fits: it names timings, not fits."""
    monkeypatch.setattr("fomkit.profiles.machines.is_shipped", lambda *_: True)
    beside = vendor / "v100.fits.json"
    content = json.loads((SHIPPED / "v100.fits.json").read_text(encoding="utf-8"))
    beside.write_text(json.dumps({**content, "fits": faster(content["fits"])}), encoding="utf-8")
    with pytest.raises(FomkitError, match=r"the file was changed after it was written\. Delete the file"):
        load_machine(vendor / "v100.yaml")


def test_an_edited_cache_is_made_again(cache: Path) -> None:
    machine = replace(load_machine("raspberry-pi-3"), fits={})
    ops = ODD.assign(dtype="int8")
    honest = predict_ops(ops, with_fits(machine)).ops
    (file,) = cache.glob("fits-*.kept")
    whole = file.read_bytes()
    for edited in (whole.replace(b"0.", b"9."), whole[:1000], b"[]", b""):
        assert edited != whole
        file.write_bytes(edited)
        again = replace(load_machine("raspberry-pi-3"), fits={})
        pd.testing.assert_frame_equal(predict_ops(ops, with_fits(again)).ops, honest)
        assert file.read_bytes() == whole


@pytest.mark.usefixtures("cache")
def test_fits_that_other_code_made_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit by an earlier version of the code may use other features of an op."""
    fresh = partial(replace, load_machine("raspberry-pi-3"), fits={})
    with monkeypatch.context() as earlier:
        earlier.setattr("fomkit.profiles.locate._maker", lambda: "earlier code")
        earlier.setattr("fomkit.profiles.evidence.fit", lambda *_: {"sparse_gemm/int8/vector": {}})
        assert with_fits(fresh()).fits == {"sparse_gemm/int8/vector": {}}
    honest = with_fits(fresh(timings=fresh().timings.copy())).fits["sparse_gemm/int8/vector"]
    assert isinstance(honest, dict)
    assert "rows_sha256" in honest


def test_the_cache_is_of_the_content_of_a_table(cache: Path) -> None:
    machine = replace(load_machine("raspberry-pi-3"), fits={}, timings_key="")
    slower = machine.timings.assign(time_s=2 * machine.timings["time_s"])
    first, other = (with_fits(replace(machine, timings=table)) for table in (machine.timings, slower))
    assert first.fits != other.fits
    assert len(list(cache.glob("fits-*.kept"))) == 2
    assert first.timings_key != other.timings_key
    assert with_fits(replace(machine, timings=slower.copy())).fits == other.fits
    assert len(list(cache.glob("fits-*"))) == 2
    # Whose table it is counts: a machine's own table must not be heard as that of another one.
    assert with_fits(replace(machine, timings=slower.copy(), name="another")).fits == other.fits
    assert len(list(cache.glob("fits-*"))) == 3


def test_of_a_shipped_table_with_other_rows_only_what_they_change_is_fitted(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a machine with other facts everything is refitted, because the other machines' evidence changes."""
    assert not list(cache.iterdir())
    made, make = list[str](), calibration._fit_family
    monkeypatch.setattr(calibration, "_fit_family", lambda *of: made.append(of[1]) or make(*of))
    machine = load_machine("raspberry-pi-3")
    kinds = machine.timings["kind"]
    fewer = replace(machine, timings=machine.timings[kinds != "conv"].reset_index(drop=True))
    assert set(with_fits(fewer).fits) == {name for name in machine.fits if not name.startswith("conv")}
    assert made == []
    slower = machine.timings["time_s"].where(kinds != "conv", 2 * machine.timings["time_s"])
    found = with_fits(replace(machine, timings=machine.timings.assign(time_s=slower))).fits
    assert set(made) == {"conv"}
    assert found["gemm/int8/vector"] == machine.fits["gemm/int8/vector"]
    device = replace(machine.device, architecture="NVIDIA Pascal GP100")
    with_fits(replace(machine, device=device, timings=machine.timings.iloc[1:].reset_index(drop=True)))
    assert set(made) == {"conv", "gemm", "sparse_gemm"}


def test_fits_are_written_beside_shipped_profiles_only(tmp_path: Path, cache: Path) -> None:
    machine = load_machine("raspberry-pi-3")
    (path, _) = save_machine(machine, tmp_path / "mine.yaml")
    assert write_fits(load_machine(path), path) == []
    assert not (tmp_path / "mine.fits.json").exists()
    assert len(list(cache.glob("fits-*.kept"))) == 1


def shuffled(machine: Machine, seed: int) -> Machine:
    order = np.random.default_rng(seed).permutation(len(machine.timings))
    return replace(machine, timings=machine.timings.iloc[order].reset_index(drop=True), fits={}, timings_key="")


@lru_cache
def fit_in_order(name: str) -> dict[str, object]:
    return fit(load_machine(name))


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_rows_moves_no_fit(seed: int) -> None:
    for name in ("raspberry-pi-3", "iphone-7", "x86-lecture"):
        machine = load_machine(name)
        other = shuffled(machine, seed)
        assert fit_key(other.timings) == fit_key(machine.timings)
        assert fit(other) == fit_in_order(name)


@pytest.mark.parametrize("name", ["titan-x-pascal", "a100-sxm", "p4"])
def test_the_order_of_rows_moves_nothing_that_a_fit_learns_from(name: str) -> None:
    """This also holds for large tables, of which a fit uses only every n-th row."""
    machine = load_machine(name)
    one, other = (add_costs(table) for table in (machine.timings, shuffled(machine, 7).timings))
    for family, _ in families(one):
        pd.testing.assert_frame_equal(training_rows(one, family), training_rows(other, family))


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1))
@pytest.mark.slow
def test_the_order_of_rows_moves_no_prediction(seed: int) -> None:
    for name in ("titan-x-pascal", "v100", "a100-sxm"):
        machine = load_machine(name)
        other = replace(shuffled(machine, seed), fits=machine.fits, timings_key=machine.timings_key)
        rows = machine.timings.sample(60, random_state=seed % 1000)
        ops = pd.concat([ODD, rows[rows.columns.intersection(column_names("OPS"))]])
        ops = ops[ops["kind"] != "collective"].reset_index(drop=True)
        pd.testing.assert_frame_equal(
            predict_ops(ops, with_fits(machine)).ops, predict_ops(ops, with_fits(other)).ops
        )
        for model in ("p1b3", "alexnet"):
            one, two = (fomkit.estimate(model, either) for either in (machine, other))
            pd.testing.assert_frame_equal(one.ops, two.ops)
            assert one.step == two.step


def test_the_order_of_rows_moves_no_collective() -> None:
    table = load_machine("gtx-1080-ti").timings
    link = {"link": "node", "ranks": 8.0, "collective": "all_reduce", "library": "NCCL 2.0"}
    rows = table[table["kind"] == "collective"].assign(**link)
    shapes = rows.assign(message_byte=1e6 * (1 + np.arange(len(rows)) % 3))
    first = table_time(shapes, "all_reduce", 1.5e6, 8, "nccl")
    for seed in range(20):
        assert table_time(shapes.sample(frac=1.0, random_state=seed), "all_reduce", 1.5e6, 8, "nccl") == first


def contents(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


@contextmanager
def renaming_fails(number: int) -> Iterator[None]:
    """Let the renaming with this number fail, as on a disk that is full or gone."""
    rename, calls = Path.replace, list[Path]()

    def broken(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == number + 1:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", broken)
        yield


def test_a_set_of_files_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    model, machine = load_model("resnet50"), load_machine("v100")
    for at in range(4):
        with renaming_fails(at), pytest.raises(FomkitError, match="cannot be written"):
            save_model(model, tmp_path / "m.yaml")
        assert contents(tmp_path) == {}
    for at in range(2):
        with renaming_fails(at), pytest.raises(FomkitError, match="cannot be written"):
            save_machine(machine, tmp_path / "v.yaml")
        assert contents(tmp_path) == {}
    written = save_model(model, tmp_path / "m.yaml")
    assert {path.name for path in written} == {"m.yaml", "m.ops.csv", "m.layers.csv", "m.order.csv.gz"}
    assert set(contents(tmp_path)) == {path.name for path in written}


def test_an_older_set_is_not_half_replaced(tmp_path: Path) -> None:
    save_model(load_model("resnet50"), tmp_path / "m.yaml")
    before, other = contents(tmp_path), load_model("alexnet")  # a profile that is read for the first time is kept
    for at in range(4):
        with renaming_fails(at), pytest.raises(FomkitError, match="cannot be written"):
            save_model(other, tmp_path / "m.yaml")
        assert contents(tmp_path) == before
    save_model(other, tmp_path / "m.yaml")
    assert contents(tmp_path).keys() == before.keys()
    assert contents(tmp_path) != before


def test_a_table_whose_name_is_taken_by_a_folder_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.order.csv.gz").mkdir()
    with pytest.raises(FomkitError, match=r"m\.order\.csv\.gz: is a folder"):
        save_model(load_model("resnet50"), tmp_path / "m.yaml")
    assert contents(tmp_path) == {}
