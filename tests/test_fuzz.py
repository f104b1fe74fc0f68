"""5,000 files that are almost right: each is read, or refused by one `FomkitError`; nothing else ever comes out.

``FOMKIT_FUZZ=20`` runs twenty times as many, from a new seed each time; the default run is always the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hostile_files import encoded, mutated_bytes, mutated_part, mutated_text, mutated_workbook, workbook
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from timings.deepbench_cells import GEMM, PREAMBLE

from fomkit.errors import FomkitError
from fomkit.profiles import load_machine, load_model, load_suite, save_machine, save_model
from fomkit.profiles.campaigns import load_campaign
from fomkit.profiles.epochs_table import load_epochs
from fomkit.report.campaign import format_campaign
from fomkit.report.suite import format_suite
from fomkit.resize import sizes_used
from fomkit.rollup.to_target import epochs_at
from fomkit.study import Options, estimate, predict_ops, run_suite, suite_content
from fomkit.study.campaign import run_campaign
from fomkit.study.campaign_content import campaigns_content
from fomkit.study.footprint import Grid
from fomkit.study.imports import choose_import, import_model
from fomkit.tables import format_as_given, read_numbered_table
from fomkit.timings import as_machine, read_timings

TIMES = int(os.environ.get("FOMKIT_FUZZ", "1"))
ROOT = Path(__file__).resolve().parent.parent
DOCS = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")


def cases(share: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return settings(
        max_examples=share * TIMES,
        derandomize=TIMES == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def block(name: str) -> str:
    """Give a file of docs/profiles.md."""
    return DOCS.split(f'title="{name}"\n')[1].split("\n```")[0] + "\n"


MACHINE = block("example-gpu.yaml")
MODEL = block("digits.yaml")
OPS = block("digits.ops.csv")
TIMINGS = block("example-gpu.timings.csv")
SUITE = (ROOT / "model_profiles" / "lecture.suite.yaml").read_text(encoding="utf-8")
PRICED = (
    "schema: fomkit/machine/1\nname: m\ndevice:\n  memory: {bandwidth: 1 GB/s, source: s}\n"
    "price: {rate: 4.56 USD/h, low: 4 USD/h, high: 500 USD/d, per: node, date: 2018-04-01, source: s}\n"
)
EPOCHS = "batch,epochs,low,high,metric,target,source\n64,9,8.5,11,loss,0.1,a\n256,12,,,loss,0.1,b\n"
CAMPAIGN = (
    "schema: fomkit/campaign/1\nname: c\nphases:\n"
    "  - {name: a, suite: lecture, line: P1, runs: 1000000, basis: estimated, source: s}\n"
    "  - {name: b, model: p1b3, mode: infer, batch: 100, samples: 1000, runs: 2, basis: assumed, source: s}\n"
)
CONV = (
    "kind,dtype,engine,pass_name,count,batch,in_channels,out_channels,height,width,kernel_h,kernel_w,stride_h,stride_w,"
    "pad_h,pad_w,heads,kv_heads,q_len,kv_len,head_dim,causal,cell,steps,input_size,hidden_size,layers,directions,yours\n"
    "conv,fp32,vector,forward,2,batch,3,64,224,224,7,7,2,2,3,3,,,,,,,,,,,,,a\n"
    "attention,fp16,matrix,backward,12,batch,,,,,,,,,,,12,12,512,512,64,1,,,,,,,=b\n"
    "rnn,fp32,vector,forward,1,batch,,,,,,,,,,,,,,,,,lstm,25,512,512,2,1,-5\n"
)
KERNELS = (
    "kind,dtype,engine,pass_name,time_s,p25_s,p75_s,repeats,harness_s,library,b,m,n,k,batch,in_channels,out_channels,"
    "height,width,kernel_h,kernel_w,stride_h,stride_w,pad_h,pad_w,numel,row,read_byte,write_byte,note\n"
    "gemm,fp32,vector,,2.1e-05,2e-05,2.3e-05,100,2e-06,cuBLAS,1,64,100,784,,,,,,,,,,,,,,,,\n"
    "conv,fp16,matrix,forward,0.0003,,,,,cuDNN,,,,,8,64,64,56,56,3,3,1,1,1,1,,,,,'-x\n"
    "softmax,fp32,vector,forward,1e-05,,,,,,,,,,,,,,,,,,,,,6400,100,25600,25600,\n"
)
SHEETS: dict[str, list[list[object]]] = {
    "Results FP32": [*PREAMBLE, *GEMM, [*GEMM[1][:8], 0.07]],
    "Specs": [["GPU Model", "X"], ["CUDA Version", "8.0"]],
}
BOOK = workbook(SHEETS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, complete and right; each case replaces one of them."""
    made = tmp_path_factory.mktemp("fuzz")
    for name, text in {"example-gpu.yaml": MACHINE, "digits.yaml": MODEL, "digits.ops.csv": OPS,
                       "example-gpu.timings.csv": TIMINGS}.items():  # fmt: skip
        (made / name).write_text(text, encoding="utf-8")
    return made


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Fits of made-up timings do not belong in the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("FOMKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


def check_told(error: FomkitError) -> None:
    """A message is one or several whole sentences that a terminal can show, each saying where."""
    for line in str(error).split("\n"):
        assert line.isprintable(), repr(line)
        assert ": " in line, line
        assert line.rstrip("'").endswith((".", ")", ",…")), line
        assert len(line) < 1200, line


def attempt(path: Path, content: bytes, use: Callable[[Path], object]) -> bool:
    """Put ``content`` at ``path`` and use it; tell whether it was taken."""
    path.write_bytes(content)
    try:
        use(path)
    except FomkitError as error:
        check_told(error)
        return False
    return True


known_machine, known_model = cache(load_machine), cache(load_model)


def use_machine(path: Path) -> None:
    machine = load_machine(path)
    again = load_machine(save_machine(machine, path.with_name("saved.yaml"))[0])
    assert (again.device, again.links, again.overheads) == (machine.device, machine.links, machine.overheads)
    assert (again.name, again.title, again.notes) == (machine.name, machine.title, machine.notes)
    assert again.price == machine.price
    estimate(known_model(path.with_name("digits.yaml")), machine, Options(allow_uncovered=True)).summary()


def use_model(path: Path) -> None:
    model = load_model(path)
    again = load_model(save_model(model, path.with_name("saved.yaml"))[0])
    assert (again.name, again.title, again.notes, again.data, again.run, again.unit) == (
        model.name, model.title, model.notes, model.data, model.run, model.unit,
    )  # fmt: skip
    machine = known_machine(path.with_name("example-gpu.yaml"))
    estimate(model, machine, Options(allow_uncovered=True)).summary()


def use_suite(path: Path) -> None:
    suite = load_suite(path)
    format_suite(
        suite_content(run_suite(suite, known_machine("a"), known_machine("titan"), Options(), known_model))
    )


def use_campaign(path: Path) -> None:
    found = run_campaign(load_campaign(path), known_machine("titan"), Options(), None, known_model, load_suite)
    format_campaign(campaigns_content([found], Grid()))


def use_epochs(path: Path) -> None:
    curve = load_epochs(path)
    assert list(curve.epochs) == sorted(curve.epochs)
    first, last = min(curve.epochs), max(curve.epochs)
    assert epochs_at(curve, (first + last) // 2, 0.8).value > 0


def use_ops(path: Path) -> None:
    table = read_numbered_table(path, "TIMED", keep=())
    machine = known_machine(path.with_name("example-gpu.yaml"))
    found = predict_ops(table, machine, sizes=dict.fromkeys(sizes_used(table), 8), where=str(path))
    found.summary()
    again = path.with_name("again.csv")
    again.write_text(format_as_given(found.ops, "TIMED"), encoding="utf-8")
    second = predict_ops(read_numbered_table(again, "TIMED", keep=tuple(table.columns)), machine)
    assert format_as_given(second.ops, "TIMED") == again.read_text(encoding="utf-8")


def use_import(path: Path) -> None:
    chosen, product = choose_import(path, None, None)
    saved = path.with_name("saved.yaml")
    if product == "model":
        load_model(save_model(import_model(path, sizes={"batch": 8})[0], saved)[0])
        return
    machine = as_machine(read_timings(path, chosen), "m")
    again = load_machine(save_machine(machine, saved)[0])
    assert again.timings["time_s"].tolist() == machine.timings["time_s"].tolist()
    predict_ops(read_numbered_table(path.with_name("digits.ops.csv"), "OPS"), again, sizes={"batch": 8}).summary()


@given(mutated_text([MACHINE], ":,{}"))
@cases(750)
def test_machine_files(folder: Path, text: str) -> None:
    attempt(folder / "machine.yaml", encoded(text), use_machine)


@given(mutated_text([PRICED], ":,{}"))
@cases(100)
def test_prices(folder: Path, text: str) -> None:
    attempt(folder / "machine.yaml", encoded(text), use_machine)


@given(mutated_text([CAMPAIGN], ":,{}"))
@cases(100)
def test_campaign_files(folder: Path, text: str) -> None:
    attempt(folder / "x.campaign.yaml", encoded(text), use_campaign)


@given(mutated_text([EPOCHS], ",\n"))
@cases(100)
def test_curves_of_epochs(folder: Path, text: str) -> None:
    attempt(folder / "epochs.csv", encoded(text), use_epochs)


@given(mutated_text([MODEL], ":,{}"))
@cases(700)
def test_model_files(folder: Path, text: str) -> None:
    attempt(folder / "model.yaml", encoded(text), use_model)


@given(mutated_text([SUITE], ":,{}"))
@cases(1400)
def test_suite_files(folder: Path, text: str) -> None:
    attempt(folder / "x.suite.yaml", encoded(text), use_suite)


@given(mutated_text([OPS, CONV], ","))
@cases(350)
def test_op_tables(folder: Path, text: str) -> None:
    attempt(folder / "x.csv", encoded(text), use_ops)


@given(mutated_text([TIMINGS, KERNELS, OPS, CONV], ","))
@cases(900)
def test_imported_tables(folder: Path, text: str) -> None:
    attempt(folder / "x.csv", encoded(text), use_import)


@given(st.sampled_from([MACHINE, OPS, TIMINGS, MODEL]).flatmap(lambda text: mutated_bytes(text.encode())))
@cases(200)
def test_bytes_of_text(folder: Path, content: bytes) -> None:
    for use in (use_import, use_machine, use_ops):
        attempt(folder / "x.any", content, use)


@given(mutated_workbook(SHEETS))
@cases(150)
def test_cells_of_workbooks(folder: Path, content: bytes) -> None:
    attempt(folder / "x.xlsx", content, use_import)


@given(mutated_bytes(BOOK))
@cases(400)
def test_bytes_of_workbooks(folder: Path, content: bytes) -> None:
    attempt(folder / "x.xlsx", content, use_import)


@given(mutated_part(BOOK))
@cases(150)
def test_parts_of_workbooks(folder: Path, content: bytes) -> None:
    attempt(folder / "x.xlsx", content, use_import)


def test_the_valid_files_are_taken(folder: Path) -> None:
    for name, text, use in (
        ("m.yaml", MACHINE, use_machine), ("n.yaml", MODEL, use_model), ("s.suite.yaml", SUITE, use_suite),
        ("o.csv", OPS, use_ops), ("c.csv", CONV, use_ops), ("i.csv", OPS, use_import),
        ("t.csv", TIMINGS, use_import), ("k.csv", KERNELS, use_import),
    ):  # fmt: skip
        assert attempt(folder / name, text.encode(), use), name
    assert attempt(folder / "b.xlsx", BOOK, use_import)
