"""The documentation as a site: it builds without a warning, and a broken link is one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import swiftfl

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("sphinx", "myst_parser", "furo")),
        reason="Sphinx with MyST and Furo is not installed (make install-docs)",
    ),
]


def build(source: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """As `make docs` does it."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-c", ROOT / "docs"]
    return subprocess.run(
        [*command, *options, "-d", out / "doctrees", source, out / "site"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    inventory = (tmp_path / "site" / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries = {line.split(" ")[0] for line in zlib.decompress(inventory).decode().splitlines()}
    public = {f"swiftfl.{name}" for name in swiftfl.__all__ if not name.startswith("__")}
    assert public <= entries, sorted(public - entries)
    assert {"swiftfl.verbs.Publish", "swiftfl.trackers.base.Callback.on_evaluation"} <= entries
    for page in [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]:
        assert (tmp_path / "site" / page.relative_to(ROOT)).with_suffix(".html").is_file(), page.name


@pytest.mark.parametrize("link", ["missing.md", "other.md#no-such-heading"])
def test_a_broken_link_fails(tmp_path: Path, link: str) -> None:
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    page = "# Page\n\n[there]({})\n\n```{{toctree}}\nother\n```\n"
    (source / "docs" / "other.md").write_text("# Other\n\n## A heading\n")
    (source / "docs" / "index.md").write_text(page.format("other.md#a-heading"))
    sound = build(source, tmp_path / "sound")
    assert sound.returncode == 0, sound.stderr
    (source / "docs" / "index.md").write_text(page.format(link))
    broken = build(source, tmp_path / "broken")
    assert broken.returncode != 0
    assert link.rpartition("#")[2].removesuffix(".md") in broken.stderr
