"""The report as a file: its content, what it must not contain, and replacement of an old file."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hostile_names import ENDING, HOSTILE
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import install_hint
from fomkit.core.job import Job
from fomkit.output import pages
from fomkit.output.pages import Book, Cell, Chapter, Claim, Head, Section, Table
from fomkit.output.screen import PAGE, Page
from fomkit.plan.evidence import op_frame
from fomkit.plan.job import place_job
from fomkit.plan.options import Options
from fomkit.verbs.machine_view import OF_FORMATS
from fomkit.verbs.report.step import devices, memory, scaling
from fomkit.verbs.report.write import sensitivity

MOST_BYTE = 3_000_000
VOID = {"meta", "br", "img", "input", "link", "hr"}


class Outline(HTMLParser):
    """The parts of a page: tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def outline(report: Path) -> Outline:
    return Outline(report.read_text(encoding="utf-8"))


def book(*sections: Section) -> Book:
    claim = Claim("m on d", "3", "runs a day", "80% between 2 and 4", "2", "4", 0.5, "")
    return Book("m on d", (Chapter("e0", "m", "d", claim, (), (), sections),), "Written by a test")


def test_it_is_one_small_file_that_fetches_nothing(report, outline) -> None:
    assert report.stat().st_size < MOST_BYTE
    assert not outline.named("link")
    assert not outline.named("img")
    assert not any({"src", "srcset", "data", "action"} & set(attributes) for _, attributes in outline.tags)
    addresses = [attributes["href"] or "" for attributes in outline.named("a")]
    assert addresses
    assert all(address.startswith("#") for address in addresses)
    (policy,) = [one["content"] or "" for one in outline.named("meta") if "http-equiv" in one]
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    assert not re.search(r"https?:", policy)
    page = report.read_text(encoding="utf-8")
    assert not re.search(r"url\(\s*['\"]?https?:|@import", page.split("<body>")[0])


def test_links_lead_somewhere_and_names_are_one_each(outline) -> None:
    names = [attributes["id"] for _, attributes in outline.tags if attributes.get("id")]
    assert len(names) == len(set(names))
    assert {(one["href"] or "")[1:] for one in outline.named("a")} <= set(names)
    assert {one["aria-labelledby"] for _, one in outline.tags if "aria-labelledby" in one} <= set(names)


def test_it_has_landmarks_headings_in_order_and_words_for_every_figure(outline) -> None:
    tags = [tag for tag, _ in outline.tags]
    assert tags.count("main") == tags.count("h1") == 1
    assert {"header", "nav", "footer"} <= set(tags)
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert tags.count("table") == tags.count("caption")
    charts = [one for one in outline.named("div") if one.get("class") == "chart"]
    assert len(charts) >= 5
    assert all(one["role"] == "img" and one["aria-label"] for one in charts)
    assert outline.named("html")[0]["lang"] == "en"


def test_it_answers_every_question_or_says_why_not(report) -> None:
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", report.read_text(encoding="utf-8"))
    assert titles == [
        "What the time is based on", "Roofline", "Where the time goes", "Every op", "Projected against measured",
        "More devices", "Memory over the step", "What the result depends on", "Where the numbers come from",
        "What it assumes and leaves out",
    ]  # fmt: skip


def test_its_figures_are_those_of_the_estimate(outline, resnet50) -> None:
    text = " ".join(" ".join(outline.text).split())
    rate = resnet50.unit_per_day
    assert f"{rate.value:.3g}" in text
    assert f"80% between {rate.low:.3g} and {rate.high:.3g}" in text
    assert "Units/day are upper bounds; not stated: input, validation, start-up." in text
    assert "have no measurement of resnet50 on v100" in text
    assert "d9e65eb7157fdafa3bb8acd6689bb0ac5845d55c33346bd9427ed02ac2d6c2d8" in text


def test_a_browser_does_not_break_the_options_of_a_command(report) -> None:
    page = report.read_text(encoding="utf-8")
    assert 'fomkit measure <span class="option">--for</span> resnet50 ' in page
    assert "Ops below the axis of rates are drawn on it." in page


def test_the_readmes_picture_has_todays_words(root, report) -> None:
    from browser import words_to

    told = words_to(report)
    assert "80% between" in told
    picture = (root / "docs" / "images" / "report.png").read_bytes()
    assert told.encode() in picture, "run 'python benchmarks/report_picture.py'"


def test_the_hashes_are_those_of_the_files(root) -> None:
    import hashlib

    from fomkit.verbs.report.write import content_hash

    for name in ("resnet50", "gpt2"):
        file = (root / "model_profiles" / f"{name}.ops.csv").read_bytes()
        assert content_hash(fomkit.model(name).ops, "OPS") == hashlib.sha256(file).hexdigest()
    file = (root / "machine_profiles" / "v100.timings.csv").read_bytes()
    assert content_hash(fomkit.machine("v100").timings, "TIMINGS") == hashlib.sha256(file).hexdigest()


def test_names_that_would_run_are_written_as_text(hostile_report) -> None:
    page = hostile_report.read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert ENDING not in page
    outline = Outline(page)
    assert not outline.named("img")
    assert len(outline.named("script")) == 4
    assert HOSTILE in "".join(outline.text)
    (data,) = re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert "<" not in data
    assert HOSTILE in json.dumps(json.loads(data), ensure_ascii=False).replace('\\"', '"')


@pytest.mark.parametrize("text", ["</script>", "<!--", "\u2028", "\\u003c", 'a"b\\'])
def test_json_in_a_page_reads_back(text) -> None:
    written = pages.safe_json({text: [text]})
    assert "<" not in written
    assert json.loads(written) == {text: [text]}


def test_text_in_any_place_of_the_records_stays_text() -> None:
    table = Table(HOSTILE, (Head(HOSTILE, hint=HOSTILE, filtered=True),), ((Cell(HOSTILE, 1.0, HOSTILE),),), "t")
    text = Page(PAGE)
    text.line(HOSTILE)
    text.rows([HOSTILE], [[HOSTILE]])
    shown = Section("s", HOSTILE, (HOSTILE,), tables=(table,), text=text.text(), absent=HOSTILE)
    page = pages.render_book(book(shown))
    outline = Outline(page)
    assert not outline.named("img")
    assert len(outline.named("script")) == 4


def test_a_measured_model_stands_beside_its_projection(tmp_path) -> None:
    path = tmp_path / "tc1.html"
    fomkit.write_report(fomkit.estimate("tc1", "v100"), path)
    text = " ".join(" ".join(Outline(path.read_text(encoding="utf-8")).text).split())
    assert re.search(r"tc1 v100 20 44\.00 s \S+ s \S+ … \S+ s -\d+% absolute outside", text)
    assert re.search(r"\d of \d+ are inside the projected interval", text)


def test_several_estimates_have_an_index(tmp_path) -> None:
    path = tmp_path / "two.html"
    done = CliRunner().invoke(
        app, ["estimate", "p1b3", "tc1", "--target", "v100", "--baseline", "p100", "-q", "-o", str(path)]
    )
    assert done.exit_code == 0, done.output
    outline = Outline(path.read_text(encoding="utf-8"))
    text = " ".join(" ".join(outline.text).split())
    assert [one["id"] for one in outline.named("article")] == ["e0", "e1", "e2", "e3"]
    assert "FOM" in text
    assert "times p100" in text
    assert len({one["id"] for one in outline.named("section") if one.get("id")}) == 4 * 9


def test_scaling_is_told_where_links_are_known(tmp_path) -> None:
    path = tmp_path / "links.html"
    fomkit.write_report(fomkit.estimate("p1b3", "a100-sxm"), path)
    text = " ".join(Outline(path.read_text(encoding="utf-8")).text)
    assert "8 devices are" in text
    assert "a100-sxm names no link" not in text


def test_the_command_for_unknown_links_states_every_link_that_it_needs(tmp_path) -> None:
    """Without a link of tier node the command failed: eight devices of a node have links too."""
    path = tmp_path / "none.html"
    fomkit.write_report(fomkit.estimate("p1b3", "v100"), path)
    text = " ".join(" ".join(Outline(path.read_text(encoding="utf-8")).text).split())
    (command,) = re.findall(r"See: fomkit (scaling p1b3 -t v100 (?:--\S+ \S+ ?)+)", text)
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output


def test_too_many_are_refused_before_the_work_and_the_old_file_stays(tmp_path) -> None:
    path = tmp_path / "many.html"
    path.write_text("old")
    done = CliRunner().invoke(
        app, ["estimate", "candle", "--target", "v100", "--target", "p100", "-q", "--force", "-o", str(path)]
    )
    assert isinstance(done.exception, fomkit.FomkitError)
    assert "a page, which holds 12" in str(done.exception)
    assert path.read_text() == "old"


def test_a_failure_on_the_way_leaves_the_old_file(tmp_path, monkeypatch, resnet50) -> None:
    from fomkit.verbs.report import write

    path = tmp_path / "report.html"
    path.write_text("old")

    def break_down(_book: Book) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "gather", lambda *_args, **_options: book())
    monkeypatch.setattr(write, "render_book", break_down)
    with pytest.raises(OSError, match="No space"):
        fomkit.write_report(resnet50, path)
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_a_missing_library_is_one_message_with_the_command(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "itables" else object())
    path = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["estimate", "p1b3", "--target", "v100", "-q", "-o", str(path)])
    assert isinstance(done.exception, fomkit.FomkitError)
    said = str(done.exception)
    assert "report: needs itables, not installed here" in said
    assert install_hint("report") in said
    assert not path.exists()


@pytest.mark.parametrize(
    ("estimates", "name", "said"),
    [([], "r.html", "needs estimates"), (["v100"], "r.html", "needs estimates"), (None, "r.pdf", r"Use \.html"),
     (None, "absent/r.html", "no folder")],
)  # fmt: skip
def test_bad_input_in_python_is_a_message(tmp_path, resnet50, estimates, name, said) -> None:
    with pytest.raises(fomkit.FomkitError, match=said):
        fomkit.write_report(resnet50 if estimates is None else estimates, tmp_path / name)


def test_an_ending_that_cannot_be_is_refused(tmp_path) -> None:
    done = CliRunner().invoke(app, ["estimate", "p1b3", "--target", "v100", "-q", "-o", str(tmp_path / "r.pdf")])
    assert isinstance(done.exception, fomkit.FomkitError)
    assert ".html" in str(done.exception)


def test_a_run_on_several_devices_shows_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A hundred estimates of a layout; the next test makes this section of a run on several devices.
    of_sensitivity = Section("e0-sensitivity", "What the result depends on", absent="Not computed here.")
    monkeypatch.setattr("fomkit.verbs.report.write.sensitivity", lambda *_: of_sensitivity)
    layout = {"nodes": 1, "layout": "tensor=2,sequence,zero=1,microbatch=1"}
    one = fomkit.estimate("llama3-8b", "h100-sxm", **layout)
    fomkit.write_report(one, tmp_path / "job.html")
    text = " ".join(Outline((tmp_path / "job.html").read_text(encoding="utf-8")).text)
    assert "8 devices (1 node), tensor 2, sequence, microbatch 1, zero 1; replicas: 4" in text
    assert "those of one device for a microbatch of 1 sample" in text
    assert one.job is not None
    assert one.job.memory_byte is not None
    held = f"{one.job.memory_byte / 2**20:,.2f}"
    assert held in text
    assert re.search(r"h100-sxm: the step at batch \d+ fits in 81,920 MiB", " ".join(text.split()))
    assert f"{one.job.exposed_s.value / one.step.value:.1%}" in text
    assert "8 devices are 3.88 times as fast as 2 devices" in text
    assert "Projected against measured" not in text
    serving = fomkit.estimate("llama3-70b-decode", "h100-sxm", layout="tensor=8")
    assert "h100-sxm has 8 devices, and no link to more" in scaling(serving, "e0", Options(batch=16)).absent
    assert "262 kB over 8" in op_frame(serving)["size"].tolist()


def test_the_nodes_of_one_run_and_the_memory_of_16_bits_are_no_limits_of_a_page() -> None:
    """Where the number of nodes is not stated, more nodes complete more, as `fomkit sensitivity` says."""
    one = fomkit.estimate("llama3-8b-decode", "h100-sxm", nodes=1)
    section = sensitivity(one, "e0", Options(batch=16))
    row = " ".join(Outline(section.text).text).partition(" nodes ")[2].split()
    known = fomkit.sensitivity("llama3-8b-decode", "h100-sxm", nodes=1, batch=16).content["parameters"]
    (slope,) = (entry["elasticity"]["unit_per_day"] for entry in known if entry["parameter"] == "nodes")
    assert slope == pytest.approx(float(row[1]), abs=1e-3) == 1
    narrow = Options(batch=64, precision="bf16")
    placed = place_job(fomkit.model("resnet50"), fomkit.machine("a100-sxm"), Job(1), narrow)
    job = fomkit.estimate("resnet50", "a100-sxm", nodes=1, batch=64, precision="bf16")
    assert f"assumed: {'; '.join(OF_FORMATS)}" in unescape(devices(job, placed, "e0", narrow).text)


def test_memory_of_a_training_by_its_sizes_is_by_role() -> None:
    section = memory(fomkit.estimate("today/llama3-8b", "b300-sxm", batch=2), "one", Options(batch=2))
    text = " ".join(Outline(section.text).text)
    assert "b300-sxm: the step at batch 2 fits in 276,480 MiB (78%)" in text
    assert "libraries: 3,968 MiB (256 MiB to 8,448 MiB), assumed: PyTorch's out-of-memory messages" in text
    assert "activation" in text
    assert "as with" in text.partition("assumed: memory is counted by the transformer's sizes")[2]
