"""The report in a real browser: no complaint, nothing loaded from elsewhere, and it fits a telephone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

import report_folder
from swiftfl.palette import GROUND, PARTS
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
FIRST_PICTURE = """() => {
  const box = document.querySelector("figure img").getBoundingClientRect();
  return box.top > 0 && box.top < innerHeight && box.width > innerWidth / 3;
}"""
UNANNOUNCED = """() => [...document.querySelectorAll(".scroll")]
  .filter(box => !box.closest("details") && box.scrollWidth > box.clientWidth + 1)
  .filter(box => !box.querySelector(".sideways")?.getClientRects().length)
  .map(box => box.getAttribute("aria-label"))"""
TALL_HEADS = """() => [...document.querySelectorAll("thead")]
  .filter(head => !head.closest("details") && head.getBoundingClientRect().height > 120)
  .map(head => head.textContent)"""
SCROLL_WIDTH = "() => document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduction")
    trained = ["swift_c0", "dsgd_c0"]
    report_folder.build(folder / "baseline", "baseline", {"ring16": "16-client ring"}, trained)
    long_name = "one client of all clients computes four times as slowly as it should"
    report_folder.build(folder / "slowdown", "slowdown", {"1x": "no slowdown", "4x": long_name}, trained)
    return write(folder, workers=1)


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
    assert evaluate(FIRST_PICTURE)  # there is one on the first screen
    assert evaluate(TALL_HEADS) == []
    if width < 600:
        assert evaluate(UNANNOUNCED) == []  # tables that scroll sideways say so
    background = evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark
    evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert evaluate(SCROLL_WIDTH) <= width


@pytest.mark.parametrize("dark", [False, True])
def test_figures_have_the_ground_of_the_page(report: Path, open_page: Open, dark: bool) -> None:
    """What is seen, and not only what the style says."""
    page = open_page(report, 1280, dark).page
    shot = Image.open(io.BytesIO(page.locator("figure img").first.screenshot())).convert("RGB")
    ground = (GROUND.dark if dark else GROUND.light).removeprefix("#")
    corner = shot.getpixel((12, 12))
    assert corner == tuple(bytes.fromhex(ground))
    pixels = [colour for _, colour in shot.getcolors(1 << 24) or []]
    for part in ("compute", "communication", "waiting"):
        drawn = PARTS[part].dark if dark else PARTS[part].light
        assert tuple(bytes.fromhex(drawn[1:])) in pixels, part


def test_links_of_the_contents_lead_to_their_sections(report: Path, open_page: Open) -> None:
    page = open_page(report, 1280).page
    page.get_by_role("navigation").get_by_role("link", name="slowdown").click()
    heading = page.locator("section#slowdown h2")
    assert heading.evaluate("e => Math.abs(e.getBoundingClientRect().top) < innerHeight / 2")
