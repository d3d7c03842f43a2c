"""What docs/graphs.md prints is what the library computes."""

from __future__ import annotations

import doctest
from pathlib import Path


def test_the_page_is_true() -> None:
    page = Path(__file__).parents[3] / "docs" / "graphs.md"
    failures, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert tried > 10
    assert failures == 0
