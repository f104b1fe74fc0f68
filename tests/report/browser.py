"""A headless browser: Debian's chromium, driven through selenium."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OWN = ("file:", "blob:", "data:")
"""Addresses that a page without network access may read: only itself."""
LONGEST_S = 300
"""The longest wait for anything [s], for pages that never reach the state, even on a busy machine."""
PICTURED = "e0-roof"
"""The last element of a report in the README's picture."""


def words_to(page: Path, last: str = PICTURED) -> str:
    """Return the words of a report up to an element; the README's picture keeps those that it shows."""
    body = page.read_text(encoding="utf-8").split("<body>")[1].split(f'id="{last}"')[0]
    return " ".join(unescape(re.sub(r"<[^>]*>?", " ", body)).split())


_SETTLED = """
const [element, isMet, done] = arguments;
let last = "", same = 0, frames = 0;
const look = () => {
  const box = element.getBoundingClientRect();
  const now = [box.x, box.y, box.width, box.height, innerWidth, innerHeight].join();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  same = now === last && (!isMet || element.contains(top)) ? same + 1 : 0;
  last = now;
  if (same >= 3 || ++frames > 60) done(same >= 3); else requestAnimationFrame(look);
};
look();
"""
"""Return whether an element rests over some frames and, if requested, if a click on its centre would hit it."""


def programs() -> tuple[str, str]:
    """Find the browser and its driver; without them a test is skipped, in CI it fails."""
    browser = next(filter(None, map(shutil.which, PROGRAMS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        said = "chromium or chromedriver is absent: install chromium and chromium-driver"
        if os.environ.get("CI"):
            pytest.fail(f"{said}, .ci/run does")
        pytest.skip(f"{said} to open reports in a browser")
    return browser, driver


@cache
def _browser() -> Chrome:
    """Start a browser, in which later pages are opened, too."""
    from selenium.webdriver import Chrome, ChromeOptions  # not while tests are collected, which both processes do
    from selenium.webdriver.chrome.service import Service

    browser, driver = programs()
    options = ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                     "--force-prefers-reduced-motion", "--force-device-scale-factor=1",
                     "--window-size=1400,1000"):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = Chrome(options=options, service=Service(driver))
    window.set_script_timeout(LONGEST_S)
    atexit.register(window.quit)
    return window


@contextmanager
def opened(page: Path, width: int = 1400, height: int = 1000) -> Iterator[Chrome]:
    """Open a page in a new tab and a window of a given size, and wait until its figures are drawn."""
    window = _browser()
    before = window.current_window_handle
    window.switch_to.new_window("tab")
    try:
        for log in ("browser", "performance"):
            window.get_log(log)  # discard the messages of earlier pages
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        window.get(page.resolve().as_uri())
        until(window, lambda: window.execute_script("return document.documentElement.dataset.figures === 'ready'"))
        yield window
    finally:
        window.close()
        window.switch_to.window(before)


def until(window: Chrome, holds: Callable[[], object]) -> None:
    """Wait until a condition holds; errors while checking it, such as a redrawn element, are retried."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(window, LONGEST_S, ignored_exceptions=[StaleElementReferenceException]).until(lambda _: holds())


def into_view(window: Chrome, element: WebElement, is_met: bool = False) -> None:
    """Scroll an element to the centre, and wait until it rests there; if requested, with nothing above it."""
    window.execute_script(
        "arguments[0].scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'})", element
    )
    until(window, lambda: window.execute_async_script(_SETTLED, element, is_met))


def click(window: Chrome, element: WebElement) -> None:
    """Click on an element once it rests and nothing is above it."""
    into_view(window, element, is_met=True)
    element.click()


def complaints(window: Chrome) -> list[str]:
    """Return the messages of the console, of any level."""
    return [str(entry["message"]) for entry in window.get_log("browser")]


def requested_urls(window: Chrome) -> list[str]:
    """Return the requested addresses that are not the page's own."""
    messages = [json.loads(entry["message"])["message"] for entry in window.get_log("performance")]
    sent = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    assert sent, "the log of requests is empty, so it proves nothing"
    return [url for url in sent if not url.startswith(OWN)]
