"""A dashboard in a process of its own, and what its page shows, for tests in a browser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

LIMIT = 60.0
"""Seconds after which whatever is waited for will not happen, on however busy a machine."""
SCROLL_WIDTH = "() => document.documentElement.scrollWidth"
OUTSIDE = """() => [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, .skip, .tooltip")
  && e.getBoundingClientRect().right > innerWidth + 1).map(e => `${e.tagName}.${e.className}`)"""
COLOURS = """row => {
  const frame = document.querySelectorAll(".stream .canvas-frame")[row.stream ?? 0];
  const canvas = frame.querySelector("canvas");
  const { first, last } = frame.dataset;
  const ratio = canvas.width / canvas.clientWidth;
  const height = canvas.clientHeight - 8 - 26;
  const y = 8 + (row.client - first + 0.5) / (last - first + 1) * height;
  const [left, width] = [46, canvas.clientWidth - 46 - 8];
  const from = left + width * (row.from ?? 0), to = left + width * (row.to ?? 1);
  const pixels = canvas.getContext("2d").getImageData(from * ratio, y * ratio, (to - from) * ratio, 1).data;
  const found = [];
  for (let k = 0; k < pixels.length; k += 4) found.push([pixels[k], pixels[k + 1], pixels[k + 2]]);
  return found;
}"""


@contextmanager
def dashboard(*arguments: str | Path) -> Iterator[str]:
    """The address of `swiftfl dashboard ARGUMENTS`."""
    command = [sys.executable, "-m", "swiftfl", "dashboard", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield next(line.strip() for line in server.stdout if line.startswith("http"))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(LIMIT)


def until(condition: Callable[[], bool], what: str, limit: float = LIMIT) -> None:
    """Wait; a page's policy forbids what Playwright would do to wait for an expression."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {limit:g} s"
        time.sleep(0.02)


def shown(page: Page, stream: int = 0) -> dict[str, float]:
    """What part of the run the stream shows, and how many pictures of it have come."""
    data = page.locator(".stream .canvas-frame").nth(stream).evaluate("e => ({...e.dataset})")
    return {name: float(value) for name, value in data.items()}


def next_picture(page: Page, act: Callable[[], object]) -> dict[str, float]:
    """What the stream shows once the picture has come that an action asks for."""
    before = shown(page)["pictures"]
    act()
    until(lambda: shown(page)["pictures"] > before, "a new picture of the stream")
    return shown(page)


def wait_for_stream(page: Page) -> None:
    page.locator(".stream [data-pictures]").first.wait_for(timeout=1000 * LIMIT)


def shares_of(page: Page, names: Sequence[str], **where: float) -> list[float]:
    """How much of a client's row in the stream has the colours of these names in the style sheet, roughly."""
    wanted = page.evaluate(
        """names => names.map(name => {
             const e = document.createElement("span");
             e.style.color = `var(--${name})`;
             document.body.append(e);
             const c = getComputedStyle(e).color.match(/\\d+/g).map(Number);
             e.remove();
             return c.slice(0, 3);
           })""",
        list(names),
    )
    pixels = page.evaluate(COLOURS, where)
    return [
        sum(max(abs(a - b) for a, b in zip(pixel, colour, strict=True)) < 60 for pixel in pixels)
        / len(pixels)
        for colour in wanted
    ]


def share_of(page: Page, name: str, **where: float) -> float:
    return shares_of(page, [name], **where)[0]


def children(pid: int) -> list[int]:
    """Processes that a process has started, and that live."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
