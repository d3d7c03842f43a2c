"""The report in a real browser: no complaint, nothing loaded from elsewhere, and it fits a telephone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import report_folder
from swiftfl.reproduce.report.document import write

if TYPE_CHECKING:
    from browser_fixtures import Open

UNSEEN = """() => [...document.querySelectorAll("figure img")].filter(image => {
  const box = image.getBoundingClientRect();
  return !image.complete || image.naturalWidth < 50 || box.width < 200 || box.height < 80;
}).map(image => image.alt)"""
SMALL_TEXT = """() => [...document.querySelectorAll("p, li, td, th, figcaption, caption")]
  .filter(e => parseFloat(getComputedStyle(e).fontSize) < 12).length"""
WIDE_NAMES = """() => [...document.querySelectorAll("tbody th[scope=row]")]
  .filter(e => !e.closest("details") && e.getBoundingClientRect().width > innerWidth / 2)
  .map(e => e.textContent)"""
OUTSIDE = """() => [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, pre, details")
  && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName)"""
SCROLL_WIDTH = "() => document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduction")
    trained = ["swift_c0", "dsgd_c0"]
    report_folder.build(folder / "baseline", "baseline", {"ring16": "16-client ring"}, trained)
    long_name = "one client of all clients computes four times as slowly as it should"
    report_folder.build(folder / "slowdown", "slowdown", {"1x": "no slowdown", "4x": long_name}, trained)
    return write(folder)


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1280, False)])
def test_the_report_on_a_telephone_and_a_screen(
    report: Path, open_page: Open, width: int, dark: bool
) -> None:
    opened = open_page(report, width, dark)
    evaluate = opened.page.evaluate
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [report.as_uri()]
    assert evaluate("innerWidth") == width
    assert evaluate(SCROLL_WIDTH) <= width
    assert opened.page.locator("figure img").count() >= 20
    assert evaluate(UNSEEN) == []
    assert evaluate(OUTSIDE) == []
    assert evaluate(WIDE_NAMES) == []  # names of rows stay in view, beside their numbers
    assert evaluate(SMALL_TEXT) == 0
    background = evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark
    evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert evaluate(SCROLL_WIDTH) <= width


def test_links_of_the_contents_lead_to_their_sections(report: Path, open_page: Open) -> None:
    page = open_page(report, 1280).page
    page.get_by_role("navigation").get_by_role("link", name="slowdown").click()
    heading = page.locator("section#slowdown h2")
    assert heading.evaluate("e => Math.abs(e.getBoundingClientRect().top) < innerHeight / 2")
