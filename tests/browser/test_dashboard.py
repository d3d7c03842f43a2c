"""The dashboard's page in a real browser: every view, on a telephone and a screen, in light and dark."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dashboard_pages import (
    OUTSIDE,
    SCROLL_WIDTH,
    dashboard,
    next_picture,
    share_of,
    shown,
    until,
    wait_for_stream,
)

from facts_made import make_facts
from swiftfl.record.facts import FACTS, FactsReader

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from browser_fixtures import Open, OpenedPage

TABS = ("Stream", "Graph", "Curves", "Clients", "Events", "Settings and data")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[str]:
    pytest.importorskip("uvicorn", reason="the dashboard's server is not installed: swiftfl[dashboard]")
    folder = tmp_path_factory.mktemp("runs")
    make_facts(folder / "swift", clients=14, rows=2800, lost=(3,))
    make_facts(folder / "dsgd", clients=14, rows=2800, algorithm="d-sgd", finished=True)
    with dashboard(folder) as found:
        yield found


def run(page: Page, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_role("heading", level=1, name=name).wait_for()


def tab(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="views").get_by_role("link", name=name, exact=True).click()
    page.locator("nav.tabs [aria-current]", has_text=name).wait_for()


def is_clean(opened: OpenedPage, address: str) -> None:
    """Nothing complains, and nobody but the dashboard was asked."""
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith((address, "data:"))] == []


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1280, False), (1280, True)])
def test_every_view_fits_its_screen(address: str, open_page: Open, width: int, dark: bool) -> None:
    opened = open_page(address, width, dark)
    page = opened.page
    run(page, "swift")
    wait_for_stream(page)
    for name in ("Overview", *TABS):
        tab(page, name)
        page.locator("main canvas, main table").first.wait_for()
        assert page.evaluate(SCROLL_WIDTH) <= width
        assert page.evaluate(OUTSIDE) == []
    page.goto(f"{address}#/")
    cell = page.locator("th", has=page.get_by_label("choose swift"))
    assert cell.evaluate("e => e.clientWidth") < 60  # the width is for the names
    page.get_by_label("choose swift").check()
    page.get_by_label("choose dsgd").check()
    page.get_by_role("button", name="compare the chosen runs").click()
    page.get_by_role("heading", name="What differs").wait_for()
    until(lambda: page.locator(".stream [data-pictures]").count() == 2, "two streams")
    assert page.evaluate(SCROLL_WIDTH) <= width
    assert page.evaluate(OUTSIDE) == []
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark
    is_clean(opened, address)


def test_the_rows_of_d_sgd_are_full_of_white_and_those_of_swift_have_none(
    address: str, open_page: Open
) -> None:
    page = open_page(address, 1280).page
    run(page, "swift")
    wait_for_stream(page)
    assert "wait 0 % of their time" in page.locator(".stream .summary").inner_text()
    assert share_of(page, "compute", client=5, to=0.25) > 0.7
    assert share_of(page, "empty", client=5, to=0.25) < 0.02
    assert share_of(page, "lost", client=3, **{"from": 0.6}) == 0  # a tint of it, not the colour itself
    page.goto(f"{address}#/")
    run(page, "dsgd")
    wait_for_stream(page)
    assert share_of(page, "empty", client=5) > 0.4
    assert share_of(page, "compute", client=0) > 0.9  # all wait for this one
    waits = re.search(r"wait (\d+) %", page.locator(".stream .summary").inner_text())
    assert waits is not None
    assert int(waits[1]) > 50


def test_zoom_by_wheel_keys_and_buttons_down_to_single_steps(address: str, open_page: Open) -> None:
    opened = open_page(address, 1280)
    page = opened.page
    run(page, "swift")
    tab(page, "Stream")
    wait_for_stream(page)
    whole = shown(page)
    canvas = page.locator(".stream canvas")
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 120, box["y"] + 60)  # nearly all have finished early
    nearer = next_picture(page, lambda: page.mouse.wheel(0, -300))
    assert whole["from"] < nearer["from"] < nearer["to"] < whole["to"]
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    much_nearer = next_picture(page, lambda: [page.keyboard.press("+") for _ in range(5)])
    assert much_nearer["to"] - much_nearer["from"] == pytest.approx(
        (nearer["to"] - nearer["from"]) / 32, rel=1e-6
    )
    later = next_picture(page, lambda: page.keyboard.press("ArrowRight"))
    assert later["from"] > much_nearer["from"]
    page.mouse.move(box["x"] + 400, box["y"] + 40)
    tooltip = page.locator(".stream .tooltip")
    assert re.search(r"client 1 .*step \d+, from .*computes .*ms", tooltip.inner_text(), re.S)
    fewer = next_picture(page, lambda: page.get_by_role("button", name="fewer, higher rows").click())
    assert fewer["last"] - fewer["first"] == 6
    moved = next_picture(page, lambda: page.mouse.wheel(0, 0) or _drag(page, box, -200))
    assert moved["from"] > fewer["from"]
    back = next_picture(page, lambda: page.get_by_role("button", name="show the whole run (Home)").click())
    assert {k: back[k] for k in ("from", "to", "first", "last")} == {
        k: whole[k] for k in ("from", "to", "first", "last")
    }
    is_clean(opened, address)


def _drag(page: Page, box: object, by: float) -> None:
    assert isinstance(box, dict)
    page.mouse.move(box["x"] + 600, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 600 + by, box["y"] + 60, steps=4)
    page.mouse.up()


def test_the_graph_by_mouse_and_by_keys(address: str, open_page: Open) -> None:
    opened = open_page(address, 1280)
    page = opened.page
    run(page, "swift")
    tab(page, "Graph")
    canvas = page.locator(".graph canvas").first
    assert "14 clients" in str(canvas.get_attribute("aria-label"))
    assert "Lost: 3." in str(canvas.get_attribute("aria-label"))
    page.locator(".graph select").select_option("rate")
    assert "steps per second" in str(canvas.get_attribute("aria-label"))
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator(".graph .tooltip").inner_text().startswith("client ")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=2, name=re.compile(r"^Client \d+: stopped")).wait_for()
    page.get_by_role("region", name="Neighbours").wait_for()
    assert page.get_by_role("region", name="Newest steps").locator("tbody tr").count() == 60
    is_clean(opened, address)


def test_curves_over_time_steps_and_epochs(address: str, open_page: Open) -> None:
    opened = open_page(address, 1280)
    page = opened.page
    run(page, "swift")
    tab(page, "Curves")
    page.locator(".uplot").first.wait_for()
    titles = page.locator(".curve h3").all_inner_texts()
    assert titles == [
        "Loss", "Accuracy (%)", "Distance of the models from their average", "Steps per second of a client",
        "Age of the averaged models (steps)",
    ]  # fmt: skip
    drawn = page.locator(".uplot canvas").first
    before = drawn.evaluate("e => e.toDataURL()")
    page.get_by_label("over:").select_option("epoch")
    until(lambda: "epochs" in page.locator(".u-legend").first.inner_text(), "the legend of epochs")
    assert page.locator(".uplot canvas").first.evaluate("e => e.toDataURL()") != before
    assert page.locator(".uplot").count() == 5
    is_clean(opened, address)


def test_clients_events_settings(address: str, open_page: Open) -> None:
    page = open_page(address, 1280).page
    run(page, "swift")
    tab(page, "Clients")
    rows = page.get_by_role("region", name="Clients").locator("tbody tr")
    assert rows.count() == 14
    assert page.locator("tr.lost").inner_text().split()[:2] == ["3", "lost"]
    page.get_by_role("button", name="sort by state").click()
    assert rows.last.get_by_role("link").inner_text() == "3"
    page.get_by_role("button", name="sort by state").click()
    assert rows.first.get_by_role("link").inner_text() == "3"
    tab(page, "Events")
    events = page.get_by_role("region", name="Events").locator("tbody tr").all_inner_texts()
    assert [text.split("\t")[1] for text in events] == ["renew", "crash", "start"]
    tab(page, "Settings and data")
    page.get_by_label("find a setting").fill("topology")
    found = page.get_by_role("region", name="Configuration").locator("tbody tr").all_inner_texts()
    assert found == ["topology.clients\t14"]


def test_the_time_to_a_loss_by_number_and_by_mouse(address: str, open_page: Open) -> None:
    opened = open_page(address, 1280)
    page = opened.page
    page.get_by_label("choose swift").check()
    page.get_by_label("choose dsgd").check()
    page.get_by_role("button", name="compare the chosen runs").click()
    field = page.get_by_label("loss to reach")
    field.wait_for()
    differs = page.get_by_role("region", name="Settings that differ").locator("tbody tr").all_inner_texts()
    assert differs[0].split("\t")[0] == "algorithm.name"
    field.fill("0.01")
    results = page.get_by_role("region", name="Runs").locator("tbody tr")
    assert results.filter(has_text="not reached").count() == 2
    over = page.locator(".u-over")
    box = over.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 200, box["y"] + box["height"] / 2)
    chosen = float(field.input_value())
    assert 0.2 < chosen < 1.5
    assert results.filter(has_text="not reached").count() == 0
    page.locator("select").first.select_option("accuracy")
    page.get_by_role("heading", name="accuracy (%)").wait_for()
    is_clean(opened, address)


def test_light_and_dark_by_a_switch_that_is_remembered(address: str, open_page: Open) -> None:
    page = open_page(address, 1280).page
    background = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="light or dark").click()
    assert page.evaluate(background) != light
    page.reload()
    assert page.evaluate(background) != light
    run(page, "dsgd")
    wait_for_stream(page)
    assert share_of(page, "compute", client=0) > 0.9


def test_what_is_not_there_is_said(address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/run/nothing", 1280).page
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text() == "there is no such run"
    opened = open_page(f"{address}#/run/%", 1280)
    opened.page.get_by_role("alert").wait_for()
    assert "%" in opened.page.get_by_role("alert").inner_text()
    assert opened.complaints == []


def test_the_way_to_the_content_stays_on_its_page(address: str, open_page: Open) -> None:
    page = open_page(address, 1280).page
    run(page, "swift")
    tab(page, "Clients")
    before = page.url
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    until(lambda: page.evaluate("document.activeElement.id") == "main", "the content")
    assert page.url == before
    page.get_by_role("region", name="Clients").wait_for()


def test_a_table_that_is_too_wide_shows_that_it_goes_on(address: str, open_page: Open) -> None:
    page = open_page(address, 390).page
    run(page, "swift")
    tab(page, "Clients")
    page.locator(".scroll.more").wait_for()
    page.locator(".scroll").evaluate("place => { place.scrollLeft = place.scrollWidth; }")
    until(lambda: page.locator(".scroll.more").count() == 0, "the end of the table")


def test_a_run_whose_folder_goes_away_is_not_shown_as_if_it_were_there(
    tmp_path: Path, open_page: Open
) -> None:
    pytest.importorskip("uvicorn", reason="the dashboard's server is not installed: swiftfl[dashboard]")
    for name in ("kept", "gone"):
        make_facts(tmp_path / name, clients=3, rows=60, finished=True)
    (tmp_path / "gone" / "partition.json").write_text('{"partition": "iid", "sizes": []}')
    with dashboard(tmp_path) as address:
        page = open_page(address, 1280).page
        run(page, "gone")
        tab(page, "Settings and data")
        page.get_by_text("How the data were divided is not recorded.").wait_for()
        shutil.rmtree(tmp_path / "gone")
        page.get_by_role("alert").wait_for()
        assert page.get_by_role("alert").inner_text() == "there is no such run"
        assert page.get_by_text("finished").count() == 0


def test_without_server_sent_events_the_page_asks(address: str, open_page: Open, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route("**/api/live*", lambda route: route.abort())
    page.goto(address)
    page.get_by_text("asking every second").wait_for()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    until(lambda: bool(page.evaluate("1")) and any(url.endswith("api/runs") for url in asked), "a question")
    context.close()


def test_a_live_run_that_took_steps_again(tmp_path: Path, open_page: Open) -> None:
    """Its progress is without them; its graph begins with what is known of live clients."""
    pytest.importorskip("uvicorn", reason="the dashboard's server is not installed: swiftfl[dashboard]")
    facts = make_facts(tmp_path / "live", clients=5, rows=1000) / FACTS
    layout = json.loads((facts / "layout.json").read_text())
    (facts / "layout.json").write_text(json.dumps({**layout, "clock": "wall"}))
    clients = FactsReader(facts.parent).clients()
    clients["steps"][3] += 70
    (facts / "clients.bin").write_bytes(clients.tobytes())
    with dashboard(tmp_path) as address:
        opened = open_page(address, 1280)
        wait_for_stream(opened.page)
        assert "1,000" in opened.page.locator("dl.numbers div", has_text="client steps").inner_text()
        tab(opened.page, "Graph")
        assert opened.page.locator(".graph select").input_value() == "age"
        is_clean(opened, address)


def test_a_wrong_token_is_refused(tmp_path: Path, open_page: Open) -> None:
    pytest.importorskip("uvicorn", reason="the dashboard's server is not installed: swiftfl[dashboard]")
    make_facts(tmp_path / "swift", clients=5, rows=100)
    with dashboard(tmp_path, "--token") as address:
        opened = open_page(address, 1280)
        wait_for_stream(opened.page)  # a single run is shown at once
        assert opened.complaints == []
        bare, _, token = address.partition("?token=")
        assert len(token) > 20
        for wrong in (bare, f"{bare}?token={token[:-1]}x"):
            refused = open_page(wrong, 1280)
            assert "token" in refused.page.inner_text("body")
            assert "swift" not in refused.page.inner_text("body")
            assert refused.page.request.get(wrong).status == 403
            assert refused.page.request.get(wrong.replace("/?", "/api/runs?")).status == 403
