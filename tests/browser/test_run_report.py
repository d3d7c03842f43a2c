"""`swiftfl report` as a file in a real browser: nothing is asked for, and all views work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dashboard_pages import OUTSIDE, SCROLL_WIDTH, next_picture, share_of, shown, until, wait_for_stream

from facts_made import make_facts
from swiftfl.cli.main import run_command
from swiftfl.report import embedded

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser_fixtures import Open, OpenedPage


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_facts(folder / "swift", clients=14, rows=2800, lost=(3,))
    make_facts(folder / "dsgd", clients=14, rows=2800, algorithm="d-sgd", finished=True)
    return folder


def is_clean(opened: OpenedPage, page: Path) -> None:
    assert opened.complaints == []
    assert {url.partition("#")[0] for url in opened.requests if not url.startswith("data:")} == {
        page.as_uri()
    }


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_the_report_of_one_run(folder: Path, open_page: Open, width: int, dark: bool) -> None:
    assert run_command(["report", str(folder / "swift")]) == 0
    page = folder / "swift" / "report.html"
    opened = open_page(page, width, dark)
    wait_for_stream(opened.page)
    views = opened.page.get_by_role("navigation", name="views").get_by_role("link")
    assert views.count() == 7
    for k in range(7):
        views.nth(k).click()
        opened.page.locator("main canvas, main table").first.wait_for()
        assert opened.page.evaluate(SCROLL_WIDTH) <= width
        assert opened.page.evaluate(OUTSIDE) == []
    is_clean(opened, page)


def test_the_stream_of_a_report_goes_down_to_single_steps(folder: Path, open_page: Open) -> None:
    run_command(["report", str(folder / "swift")])
    opened = open_page(folder / "swift" / "report.html", 1280)
    page = opened.page
    wait_for_stream(page)
    whole = shown(page)
    canvas = page.locator(".stream canvas")
    box = canvas.bounding_box()
    assert box is not None
    for _ in range(6):
        page.mouse.move(box["x"] + 100, box["y"] + 40)
        next_picture(page, lambda: page.mouse.wheel(0, -200))
    near = shown(page)
    assert (near["to"] - near["from"]) * 100 < whole["to"] - whole["from"]
    page.mouse.move(box["x"] + 110, box["y"] + 40)
    assert "computes" in page.locator(".stream .tooltip").inner_text()
    page.goto(page.url.partition("#")[0] + "#/")
    page.get_by_role("link", name="swift", exact=True).click()
    page.get_by_role("link", name="Clients").click()
    page.get_by_role("link", name="5", exact=True).click()
    page.get_by_role("region", name="Newest steps").wait_for()
    assert opened.complaints == []


def test_a_report_without_single_steps_says_so(
    folder: Path, open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "MOST_STEPS", 1000)
    assert run_command(["report", str(folder / "swift"), "--out", str(tmp_path / "page.html")]) == 0
    page = open_page(tmp_path / "page.html", 1280).page
    page.get_by_role("link", name="Clients").click()
    page.get_by_role("link", name="5", exact=True).click()
    page.get_by_text("more steps than a report holds").wait_for()


def test_the_report_of_two_runs_is_their_comparison(folder: Path, open_page: Open, tmp_path: Path) -> None:
    page = tmp_path / "both.html"
    run_command(["report", f"SWIFT={folder / 'swift'}", f"D-SGD={folder / 'dsgd'}", "--out", str(page)])
    opened = open_page(page, 1280)
    opened.page.get_by_role("heading", name="What differs").wait_for()
    until(lambda: opened.page.locator(".stream [data-pictures]").count() == 2, "two streams")
    titles = opened.page.locator(".streams h3").all_inner_texts()
    assert titles[0] == "SWIFT: waits 0 % of the time"
    assert titles[1].startswith("D-SGD: waits 66")
    assert share_of(opened.page, "empty", client=5, stream=1) > 0.4
    assert share_of(opened.page, "empty", client=5, stream=0, to=0.25) < 0.02
    opened.page.get_by_label("loss to reach").fill("1")
    assert "to loss 1" in opened.page.get_by_role("region", name="Runs").inner_text()
    is_clean(opened, page)


def test_a_run_that_was_never_recorded_has_its_page(open_page: Open, tmp_path: Path) -> None:
    import swiftfl

    result = swiftfl.train("logistic", "digits", clients=3, epochs=1)
    page = result.report(tmp_path / "page.html")
    opened = open_page(page, 390)
    opened.page.get_by_text("No steps are recorded for this run.").wait_for()
    opened.page.locator(".uplot").first.wait_for()
    opened.page.get_by_role("link", name="Settings and data").click()
    opened.page.get_by_role("region", name="Configuration").wait_for()
    assert opened.page.evaluate(SCROLL_WIDTH) <= 390
    is_clean(opened, page)


def test_a_clock_of_iterations_is_not_shown_as_seconds(folder: Path, open_page: Open, tmp_path: Path) -> None:
    given = ["--engine", "sampled", "--clients", "3", "--epochs", "1", "--evaluate-every", "0.5", "--out"]
    assert run_command(["run", "digits", *given, str(tmp_path / "sampled")]) == 0
    page = tmp_path / "both.html"
    swift = f"swift={folder / 'swift'}"
    assert run_command(["report", str(tmp_path / "sampled"), swift, "--out", str(page)]) == 0
    opened = open_page(page, 1280)
    table = opened.page.get_by_role("region", name="Runs")
    table.wait_for()
    cells = [row.split("\t") for row in table.inner_text().splitlines() if "\t" in row]
    times = [row[cells[0].index("time")] for row in cells[1:]]
    assert times[0].endswith(" iterations")
    assert times[1].endswith(" s (virtual)")
    assert [row[-1] for row in cells] == ["÷ fastest of its clock", "1.00 ×", "1.00 ×"]
    axes = opened.page.get_by_label("over:").locator("option").all_inner_texts()
    assert axes == ["client steps", "epochs"]
    opened.page.get_by_role("link", name="sampled").first.click()
    wait_for_stream(opened.page)
    summary = opened.page.locator(".summary").first.inner_text()
    assert "iterations." in summary
    assert "time" not in summary
    assert "time" not in opened.page.locator(".numbers dt").all_inner_texts()
    for tab in ("Clients", "Curves", "Graph"):
        opened.page.get_by_role("link", name=tab, exact=True).click()
        opened.page.locator("main canvas, main table").first.wait_for()
        assert "second" not in opened.page.locator("main").inner_text()
    is_clean(opened, page)
