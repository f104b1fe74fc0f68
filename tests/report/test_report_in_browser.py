"""The report in a real browser: it loads without errors or network, draws, filters, sorts, and obeys the keys."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import click, complaints, into_view, opened, requested_urls, until
from hostile_names import ENDING, HOSTILE
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from fomkit.plan.evidence import op_frame

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.slow

TABLE = "e0-ops-table"


@pytest.fixture(scope="module")
def window(report: Path) -> Iterator[Chrome]:
    with opened(report) as found:
        yield found


def rows(window: Chrome) -> list[list[str]]:
    found: list[list[str]] = window.execute_script(
        "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
        ".map(row => [...row.cells].map(cell => cell.textContent))", TABLE
    )  # fmt: skip
    return found


def column(window: Chrome, place: int) -> list[float]:
    return [float(row[place].replace(",", "")) for row in rows(window)]


def width_left_over(window: Chrome) -> int:
    """Return the number of pixels by which the page is wider than the window."""
    return int(window.execute_script("return document.documentElement.scrollWidth - innerWidth"))


def test_it_loads_without_a_word_and_without_the_network(window) -> None:
    """It is the first test, so both logs are of loading the page."""
    assert complaints(window) == []
    assert requested_urls(window) == []


def test_the_claim_stands_first_with_its_interval(window, resnet50) -> None:
    heading = window.find_element(By.TAG_NAME, "h1").text
    assert heading.split("\n")[0] == "resnet50 on v100"
    assert f"{resnet50.unit_per_day.value:.3g}" in heading
    assert "80% between" in window.find_element(By.CSS_SELECTOR, ".between").text


def test_every_figure_is_drawn_and_the_roofline_has_every_op(window, resnet50) -> None:
    charts = window.find_elements(By.CSS_SELECTOR, ".chart")
    assert len(charts) >= 5
    for chart in charts:
        marks = chart.find_elements(
            By.CSS_SELECTOR, "svg .mark-symbol path, svg .mark-rect path, svg .mark-area path"
        )
        assert marks, chart.get_attribute("id")
        assert chart.get_attribute("aria-label")
    ops = op_frame(resnet50)
    points = window.find_elements(By.CSS_SELECTOR, "#e0-roof svg .ops_marks path")
    assert len(points) == int(((ops["intensity"] > 0) & (ops["flop_per_s"] > 0)).sum())


def test_the_table_filters_finds_and_sorts(window, resnet50) -> None:
    from selenium.webdriver.support.ui import Select

    kind = Select(window.find_element(By.CSS_SELECTOR, f'.filters[data-for="{TABLE}"] select'))
    kind.select_by_visible_text("conv")
    until(window, lambda: {row[4] for row in rows(window)} == {"conv"})
    kind.select_by_visible_text("all")
    until(window, lambda: {row[4] for row in rows(window)} != {"conv"})
    search = window.find_element(By.CSS_SELECTOR, ".dt-search input")
    search.send_keys("batch_norm")
    until(window, lambda: rows(window) and all("batch_norm" in row[0] for row in rows(window)))
    search.clear()
    search.send_keys("no such op")
    until(window, lambda: "No row matches." in rows(window)[0][0])
    search.send_keys(Keys.CONTROL, "a")
    search.send_keys(Keys.DELETE)
    ops = op_frame(resnet50)
    until(window, lambda: len(rows(window)) == min(25, len(ops)))
    counts = window.find_element(By.XPATH, f"//table[@id='{TABLE}']//th[contains(., 'runs')]")
    click(window, counts)
    most = sorted(ops["count"], reverse=True)[: len(rows(window))]
    until(window, lambda: column(window, 7) == most)
    click(window, counts)
    until(window, lambda: column(window, 7) == sorted(ops["count"])[: len(most)])


def test_a_click_on_an_op_finds_it_in_the_table(window) -> None:
    point = window.find_elements(By.CSS_SELECTOR, "#e0-roof svg .ops_marks path")[0]
    into_view(window, point)
    window.execute_script(
        "const box = arguments[0].getBoundingClientRect();"
        "for (const kind of ['mousemove', 'mousedown', 'mouseup', 'click']) arguments[0].dispatchEvent("
        "new MouseEvent(kind, {bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2}))",
        point,
    )
    search = window.find_element(By.CSS_SELECTOR, ".dt-search input")
    until(window, lambda: search.get_attribute("value"))
    assert search.get_attribute("value").split()[0] in {"conv", "pointwise", "norm", "gemm", "pool", "optimizer"}
    assert rows(window)
    search.send_keys(Keys.CONTROL, "a")
    search.send_keys(Keys.DELETE)


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_wider_than_the_window(report, hostile_report, width) -> None:
    for page in (report, hostile_report):
        with opened(page, width) as window:
            assert width_left_over(window) <= 0
            for summary in window.find_elements(By.TAG_NAME, "summary"):
                window.execute_script("arguments[0].click()", summary)
            assert width_left_over(window) <= 0
            drawn = (
                "return [...document.querySelectorAll('.chart svg')].map(one => one.getBoundingClientRect().width)"
            )
            assert max(window.execute_script(drawn)) <= width


def test_the_keyboard_reaches_the_answer_and_the_filters(report) -> None:
    with opened(report) as window:
        body = window.find_element(By.TAG_NAME, "body")
        body.send_keys(Keys.TAB)
        first = window.switch_to.active_element
        assert first.text == "Skip to the answer"
        first.send_keys(Keys.ENTER)
        until(window, lambda: window.switch_to.active_element.get_attribute("id") == "content")
        reached = []
        for _ in range(40):
            window.switch_to.active_element.send_keys(Keys.TAB)
            reached.append(window.execute_script(
                "const one = document.activeElement; return one.closest('.filters') ? 'filter' : "
                "one.closest('.dt-search') ? 'search' : one.closest('th') ? 'head' : "
                "one.closest('nav') ? 'nav' : '';"
            ))  # fmt: skip
        assert {"nav", "filter", "search", "head"} <= set(reached)


def test_names_that_would_run_stay_text(hostile_report) -> None:
    with opened(hostile_report) as window:
        assert complaints(window) == []
        assert window.title != "gone"
        assert window.find_elements(By.CSS_SELECTOR, "main img, main script") == []
        assert HOSTILE in window.find_element(By.TAG_NAME, "h1").text
        assert {row[0] for row in rows(window)} == {HOSTILE}
        assert any(ENDING in row[11] for row in rows(window))


def test_dark_and_print_are_legible(report) -> None:
    media = "Emulation.setEmulatedMedia"
    with opened(report) as window:
        colour = "return getComputedStyle(document.body).backgroundColor"
        light = window.execute_script(colour)
        dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        window.execute_cdp_cmd(media, dark)
        until(window, lambda: window.execute_script(colour) != light)
        assert window.execute_script(
            "return getComputedStyle(document.querySelector('#e0-roof svg text')).fill"
            " === getComputedStyle(document.body).color"
        )
        printed = base64.b64decode(window.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])
        assert printed.startswith(b"%PDF")
        assert complaints(window) == []
