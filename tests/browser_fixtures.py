"""Debian's Chromium, driven by Playwright; tests that need it are skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@dataclass
class OpenedPage:
    """A page that has loaded: what it requested, and what the browser complained about."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


Open = Callable[..., OpenedPage]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("Chromium is not installed (make install-chromium)")
    from playwright.sync_api import sync_playwright  # half a second: only where a browser is used

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """`open_page(place, width, dark=False)` shows a file or an address on a screen of that width."""
    with ExitStack() as closing:

        def open_place(place: Path | str, width: int, dark: bool = False) -> OpenedPage:
            context = closing.enter_context(
                browser.new_context(
                    viewport={"width": width, "height": 900},
                    is_mobile=width < 600,
                    color_scheme="dark" if dark else "light",
                )
            )
            opened = OpenedPage(context.new_page())
            opened.page.on("request", lambda request: opened.requests.append(request.url))
            opened.page.on("requestfailed", lambda request: _note_failed(request, opened.complaints))
            opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
            opened.page.on("console", lambda message: _note(message, opened.complaints))
            address = place if isinstance(place, str) else place.resolve().as_uri()
            opened.page.goto(address, wait_until="load")
            return opened

        yield open_place


def _note_failed(request: Request, complaints: list[str]) -> None:
    """A view that is left gives up what it was still asking for: that is no failure."""
    if request.failure != "net::ERR_ABORTED":
        complaints.append(f"{request.url}: {request.failure}")


def _note(message: ConsoleMessage, complaints: list[str]) -> None:
    if message.type in ("error", "warning", "assert"):
        complaints.append(message.text)
