"""The pictures of docs/gallery.md: its commands are run, and their pages photographed in Chromium."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"
WIDTH = 1000
PHOTOS = {
    "stream-swift": ("runs/swift/report.html", "", ".stream"),
    "stream-dsgd": ("runs/dsgd/report.html", "", ".stream"),
    "graph-churn": ("runs/churn/report.html", "/graph", ".graph"),
    "stream-churn": ("runs/churn/report.html", "/stream", ".stream"),
    "comparison": ("five.html", "", "main"),
}
"""Of each picture: the page, the view of its only run, and the part that is shown."""
_COLOURS = 256
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def commands(page: str) -> list[str]:
    """The lines of the page's blocks of bash.

    >>> commands("```bash\\nswiftfl run digits\\n```\\n")
    ['swiftfl run digits']
    """
    blocks = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def draw_gallery(folder: Path) -> None:
    """Run what the page says in a folder of its own, and take the pictures."""
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        (work / "examples").symlink_to(ROOT / "examples")
        for line in commands(PAGE.read_text()):
            command = [sys.executable, "-m", *shlex.split(line)]
            subprocess.run(command, cwd=work, check=True, stdout=subprocess.DEVNULL)
        _photograph(work, folder)


def _photograph(work: Path, folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    program = next((found for name in _CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        sys.exit("the gallery needs Chromium: make install-chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for name, (file, view, part) in PHOTOS.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": 900})
            page.goto((work / file).as_uri())
            page.locator("body[data-ready]").wait_for()
            if view:
                link = page.locator("nav.tabs a").first.get_attribute("href")
                page.goto((work / file).as_uri() + f"{link}{view}")
            page.locator(f"{part} canvas").first.wait_for()
            page.wait_for_timeout(500)  # uPlot and the canvas draw in the next frame
            picture = folder / f"gallery-{name}.png"
            page.locator(part).first.screenshot(path=picture)
            Image.open(picture).convert("RGB").quantize(_COLOURS).save(picture, optimize=True)
            page.close()
        browser.close()
    print(f"{len(PHOTOS)} pictures in {os.path.relpath(folder)}")
