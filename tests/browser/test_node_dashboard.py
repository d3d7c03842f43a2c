"""The folder of a node of a federation in a browser: names, a neighbour that is killed and returns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dashboard_pages import LIMIT, OUTSIDE, dashboard, until, wait_for_stream

from node_processes import nodes

if TYPE_CHECKING:
    from browser_fixtures import Open


@pytest.mark.slow
def test_a_nodes_neighbours_come_and_go_on_the_screen(tmp_path: Path, open_page: Open) -> None:
    pytest.importorskip("uvicorn", reason="the dashboard's server is not installed: swiftfl[dashboard]")
    pytest.importorskip("zenoh", reason="nodes are not installed: swiftfl[federation]")
    with nodes(tmp_path / "federation", ("aarhus", "basel", "cordoba")) as made:
        made.start("aarhus")
        made.start("basel")
        made.reach(2, "aarhus", "basel")
        with dashboard(made.folder("aarhus")) as address:
            opened = open_page(address, 1280)
            page = opened.page
            page.set_default_timeout(1000 * LIMIT)
            wait_for_stream(page)
            page.locator(".badge.running").wait_for()
            summary = page.locator(".stream .summary")
            until(lambda: "aarhus and 2 neighbours" in summary.inner_text(), "the summary")
            assert "waits 0" in summary.inner_text()  # SWIFT never waits
            canvas = page.locator(".graph canvas").first
            assert "Graph of 3 nodes with 2 edges." in str(canvas.get_attribute("aria-label"))
            page.get_by_role("navigation", name="views").get_by_role("link", name="Nodes").click()
            rows = page.locator("tbody tr")
            until(lambda: rows.count() == 3, "the table of nodes")
            names = [rows.nth(i).locator("th").inner_text() for i in range(3)]
            assert names == ["aarhus", "basel", "cordoba"]
            until(lambda: "here" in rows.nth(1).inner_text() and "0.5" in rows.nth(1).inner_text(), "basel")
            assert "not here yet" in rows.nth(2).inner_text()
            made.kill("basel")
            page.locator("tbody tr.lost", has_text="basel").wait_for()
            until(lambda: page.locator(".numbers .lost dd").inner_text() == "basel", "the loss in the head")
            made.start("basel")
            until(lambda: "back" in rows.nth(1).inner_text(), "its return")
            page.get_by_role("navigation", name="views").get_by_role("link", name="Events").click()
            page.get_by_role("cell", name="lost", exact=True).first.wait_for()
            assert page.get_by_role("cell", name="basel", exact=True).count() >= 3
            assert "client 1" not in page.locator("main").inner_text()
            small = open_page(address, 390, dark=True)
            small.page.set_default_timeout(1000 * LIMIT)
            wait_for_stream(small.page)
            assert small.page.evaluate(OUTSIDE) == []
            assert opened.complaints == small.complaints == []
            for url in (*opened.requests, *small.requests):
                assert url.startswith((address, "data:"))
                assert "key" not in url
        made.stop("aarhus")
        with dashboard(made.folder("aarhus")) as address:
            page = open_page(address, 1280).page
            page.set_default_timeout(1000 * LIMIT)
            wait_for_stream(page)
            page.locator(".badge.stopped").wait_for()
