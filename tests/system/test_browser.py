"""The page in a real browser: Chromium, headless, at the width of a desk and of a phone, light, dark and printed."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import SCRIPT, make_page

for library in ("matplotlib", "jinja2"):
    pytest.importorskip(library, reason="pages need the extra: pip install 'drrej[plot]'")
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser: pip install 'drrej[test]'")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium: apt-get install chromium chromium-driver"
)

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync --hide-scrollbars"
)

CONTRAST = """
const linear = c => c <= 10.31475 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
const light = c => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
const numbers = text => {  // rgb(0 to 255) or, where colours are mixed, color(srgb 0 to 1)
  const found = text.match(/[0-9.]+(e-?[0-9]+)?/g).map(Number);
  return text.startsWith('color(') ? found.map((part, place) => place < 3 ? 255 * part : part) : found;
};
const behind = node => {
  for (let at = node; at; at = at.parentElement) {
    const color = numbers(getComputedStyle(at).backgroundColor);
    if (color.length < 4 || color[3] > 0) return color;
  }
  return [255, 255, 255];
};
const low = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
  const box = node.getBoundingClientRect();
  if (!text || !box.width || !box.height) continue;
  const style = getComputedStyle(node);
  const ink = numbers(node.closest('svg') ? style.fill : style.color);
  const [a, b] = [light(ink), light(behind(node))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) low.push([text.slice(0, 40), ratio]);
}
return low;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_page(tmp_path_factory.mktemp("page"))


def show(browser: Any, page: Path, width: int = 1280, scheme: str = "light", media: str = "") -> None:
    """Open the page as a screen of this width, or a printer, shows it."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    browser.get(page.as_uri())


def test_the_slider_shows_what_another_cutoff_gives(browser: Any, page: Path) -> None:
    """The figures are those of the embedded curve, which a reader of the page gets by dragging."""
    show(browser, page)
    data = json.loads(browser.execute_script("return document.getElementById('curve-data').textContent"))

    def shown(name: str) -> str:
        return browser.execute_script(f"return document.querySelector('#slider [data-show={name}]').textContent")

    for place in (4, 30, len(data["points"]) - 1):
        browser.execute_script(
            "const range = document.querySelector('#slider input'); range.value = arguments[0];"
            "range.dispatchEvent(new Event('input'))",
            place,
        )
        coverage, accuracy, *_ = data["points"][place]
        accepted = round(coverage * data["rows"])
        assert shown("coverage") == f"{100 * coverage:.1f} %"
        assert shown("accuracy") == f"{100 * accuracy:.1f} %"
        assert shown("errors") == f"{round((1 - accuracy) * accepted):,}"
        assert shown("reviews") == f"{data['rows'] - accepted:,}"
        assert f"--coverage {coverage:.3f}" in shown("command")


def test_no_complaints_no_requests_and_only_the_slider_for_a_script(browser: Any, page: Path) -> None:
    browser.get_log("performance")
    show(browser, page)
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    sent = [
        entry["message"] for entry in browser.get_log("performance") if "Network.requestWillBeSent" in entry["message"]
    ]
    assert not [message for message in sent if '"url":"http' in message]
    assert browser.execute_script("return Array.from(document.scripts, (each) => each.type)") == [
        "application/json",
        "module",
    ]
    assert SCRIPT in browser.execute_script("return document.body.innerText")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_visible_and_nothing_sticks_out(browser: Any, page: Path, width: int, scheme: str) -> None:
    show(browser, page, width, scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].map(s => {const b = s.getBoundingClientRect();"
        "return [b.left, b.right, b.width, b.height]})"
    )
    assert len(boxes) == 3
    for left, right, wide, high in boxes:
        assert 0 <= left < right <= width
        assert wide > 300
        assert high > 200
    assert different_colours(browser) > 20


def different_colours(browser: Any) -> int:
    """Colours in a picture of the screen: an empty page has one."""
    import io

    import matplotlib.image
    import numpy as np

    picture = matplotlib.image.imread(io.BytesIO(browser.get_screenshot_as_png()))
    return len(np.unique((picture * 255).astype(np.uint8).reshape(-1, picture.shape[2]), axis=0))


@pytest.mark.parametrize(("scheme", "media"), [("light", "screen"), ("dark", "screen"), ("dark", "print")])
def test_all_text_has_contrast(browser: Any, page: Path, scheme: str, media: str) -> None:
    """At least 4.5 to 1 (WCAG AA), labels of the plots included; print is light for those who read in the dark."""
    show(browser, page, 1280, scheme, media)
    assert browser.execute_script(CONTRAST) == []
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light" or media == "print")


def test_the_text_of_plots_is_not_tiny_on_a_phone(browser: Any, page: Path) -> None:
    show(browser, page, 390)
    heights = browser.execute_script(
        "return [...document.querySelectorAll('figure svg text')].map(t => "
        "parseFloat(getComputedStyle(t).fontSize) * Math.hypot(t.getCTM().a, t.getCTM().b))"
    )
    assert heights
    assert min(heights) >= 8


def test_it_prints(browser: Any, page: Path) -> None:
    show(browser, page)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})
    content = base64.b64decode(printed["data"])
    assert content.startswith(b"%PDF")
    assert 1 < content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") + content.count(b"/Type/Page/") < 12
