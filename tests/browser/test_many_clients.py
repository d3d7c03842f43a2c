"""A thousand clients with a million steps in a browser: drawn, zoomed, listed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dashboard_pages import (
    LIMIT,
    OUTSIDE,
    SCROLL_WIDTH,
    dashboard,
    next_picture,
    shares_of,
    shown,
    wait_for_stream,
)

from facts_made import make_facts

if TYPE_CHECKING:
    from browser_fixtures import Open


@pytest.mark.slow
def test_a_thousand_clients_with_a_million_steps(tmp_path: Path, open_page: Open) -> None:
    pytest.importorskip("uvicorn", reason="the dashboard's server is not installed: swiftfl[dashboard]")
    make_facts(tmp_path / "many", clients=1000, rows=1_000_000, algorithm="d-sgd", lost=(7, 400))
    with dashboard(tmp_path) as address:
        opened = open_page(address, 1280)
        page = opened.page
        page.set_default_timeout(1000 * LIMIT)
        wait_for_stream(page)
        assert page.locator(".numbers .lost dd").inner_text() == "7, 400"
        whole = shown(page)
        assert (whole["first"], whole["last"]) == (0, 999)
        box = page.locator(".stream canvas").bounding_box()
        assert box is not None
        for _ in range(4):  # to a ten-thousandth of the run ...
            page.mouse.move(box["x"] + 500, box["y"] + 200)
            next_picture(page, lambda: [page.mouse.wheel(0, -200) for _ in range(4)])
        page.locator(".stream canvas").focus()
        for _ in range(7):  # ... and to a few clients
            next_picture(page, lambda: page.keyboard.press("PageUp"))
        near = shown(page)
        assert (near["to"] - near["from"]) * 1000 < whole["to"] - whole["from"]
        assert near["last"] - near["first"] < 10
        some = int(near["first"]) + 2
        assert sum(shares_of(page, ["compute", "communication", "empty"], client=some)) > 0.5
        for name in ("Graph", "Curves", "Clients", "Events"):
            page.get_by_role("navigation", name="views").get_by_role("link", name=name, exact=True).click()
            page.locator("main canvas, main table").first.wait_for()
            assert page.evaluate(OUTSIDE) == []
        assert page.evaluate(SCROLL_WIDTH) <= 1280
        assert opened.complaints == []
