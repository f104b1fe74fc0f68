"""A real browser without a window: Debian's chromium, driven through selenium."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OWN = ("file:", "blob:", "data:")
"""What a page that asks nothing of the network may read: itself."""


def programs() -> tuple[str, str]:
    """Find the browser and its driver; without them a test is skipped by name, in CI it fails."""
    browser = next(filter(None, map(shutil.which, PROGRAMS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        said = "chromium or chromedriver is absent: install chromium and chromium-driver"
        if os.environ.get("CI"):
            pytest.fail(f"{said}, .ci/run does")
        pytest.skip(f"{said} to open reports in a browser")
    return browser, driver


@contextmanager
def opened(page: Path, width: int = 1400, height: int = 1000) -> Iterator[Chrome]:
    """Open a page in a window of a size, and wait until its figures are drawn."""
    browser, driver = programs()
    options = ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                     "--force-device-scale-factor=1", f"--window-size={width},{height}"):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = Chrome(options=options, service=Service(driver))
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        window.get(page.resolve().as_uri())
        WebDriverWait(window, 120).until(
            lambda one: one.execute_script("return document.documentElement.dataset.figures === 'ready'")
        )
        yield window
    finally:
        window.quit()


def complaints(window: Chrome) -> list[str]:
    """Give what the console says, of any level."""
    return [str(entry["message"]) for entry in window.get_log("browser")]


def asked_for(window: Chrome) -> list[str]:
    """Give the addresses that were asked for and are not the page's own."""
    messages = [json.loads(entry["message"])["message"] for entry in window.get_log("performance")]
    sent = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    assert sent, "the log of requests is empty, so it proves nothing"
    return [url for url in sent if not url.startswith(OWN)]
