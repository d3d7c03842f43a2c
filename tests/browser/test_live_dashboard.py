"""A real run with a process per client, followed in a browser: a client is killed, turns red and returns."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dashboard_pages import LIMIT, children, dashboard, kill, shown, until, wait_for_stream

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser_fixtures import Open

CLIENTS = 4
ATTEMPTS = 3
"""One delay of three is enough: a busy machine may be late now and then."""
RED_WITHIN = 2.0
TRAINS = re.compile(r"running|back")


@contextmanager
def local_run(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run with one process per client that goes on until it is stopped."""
    command = [
        sys.executable, "-m", "swiftfl", "run", "digits", "--model", "logistic", "--engine", "local",
        "--clients", str(CLIENTS), "--epochs", "1000000", "--out", str(folder), *options,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()


def clients_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes of the clients: children of the run's fork server."""
    for server in children(process.pid):
        found = children(server)
        if len(found) >= CLIENTS:
            return found
    return []


def steps(page: Page) -> int:
    text = page.locator(".numbers div", has_text="client steps").locator("dd").inner_text()
    return int(text.replace(",", ""))


@pytest.mark.slow
def test_a_client_that_is_killed_turns_red_and_comes_back(tmp_path: Path, open_page: Open) -> None:
    pytest.importorskip("uvicorn", reason="the dashboard's server is not installed: swiftfl[dashboard]")
    folder = tmp_path / "run"
    with local_run(folder, "--restart-lost") as process:
        until((folder / "facts" / "clients.bin").exists, "the first facts", 3 * LIMIT)
        until(lambda: len(clients_of(process)) == CLIENTS, "all clients")
        with dashboard(folder) as address:
            opened = open_page(address, 1280)
            page = opened.page
            page.set_default_timeout(1000 * LIMIT)
            wait_for_stream(page)
            page.locator(".badge.running").wait_for()
            page.locator(".how[data-how=live]").wait_for()
            first, began = shown(page), steps(page)
            until(lambda: steps(page) > began, "further steps on the screen")
            until(lambda: shown(page)["to"] > first["to"], "a longer stream")
            page.get_by_role("navigation", name="views").get_by_role("link", name="Clients").click()
            until(lambda: page.locator("tbody tr").count() == CLIENTS, "the table of clients")
            delays: list[float] = []
            while len(delays) < ATTEMPTS and min(delays, default=RED_WITHIN + 1) > RED_WITHIN:
                kill(clients_of(process)[-1])
                killed = time.monotonic()
                page.locator("tbody tr.lost").first.wait_for()
                delays.append(time.monotonic() - killed)
                page.locator(".numbers .lost").wait_for()
                page.locator("tbody tr.lost").first.wait_for(state="detached")
                until(lambda: len(clients_of(process)) == CLIENTS, "the client's new process")
                until(lambda: page.locator("tbody tr", has_text=TRAINS).count() == CLIENTS, "its return")
            assert min(delays) <= RED_WITHIN
            page.get_by_role("navigation", name="views").get_by_role("link", name="Events").click()
            page.get_by_role("cell", name="lost", exact=True).first.wait_for()
            page.get_by_role("cell", name="join", exact=True).first.wait_for()
            assert opened.complaints == []
            assert [url for url in opened.requests if not url.startswith((address, "data:"))] == []


@pytest.mark.slow
def test_a_client_that_is_lost_for_good_stays_red(tmp_path: Path, open_page: Open) -> None:
    pytest.importorskip("uvicorn", reason="the dashboard's server is not installed: swiftfl[dashboard]")
    folder = tmp_path / "run"
    with local_run(folder) as process:
        until((folder / "facts" / "clients.bin").exists, "the first facts", 3 * LIMIT)
        until(lambda: len(clients_of(process)) == CLIENTS, "all clients")
        with dashboard(folder) as address:
            page = open_page(address, 390, dark=True).page
            page.set_default_timeout(1000 * LIMIT)
            wait_for_stream(page)
            page.locator(".badge.running").wait_for()
            kill(clients_of(process)[0])
            page.locator(".numbers .lost dd").wait_for()
            lost = int(page.locator(".numbers .lost dd").inner_text())
            time.sleep(3)  # longer than a loss is shown of a client that returns at once
            assert page.locator(".numbers .lost dd").inner_text() == str(lost)
            assert f"Lost: client {lost}." in page.locator(".stream .summary").inner_text()
            page.get_by_role("navigation", name="views").get_by_role("link", name="Graph").click()
            assert f"Lost: {lost}." in str(page.locator(".graph canvas").first.get_attribute("aria-label"))
