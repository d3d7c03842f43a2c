"""docs/paper-map.md has a row for everything that is numbered in the paper, and names what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}")[1].split("\n## ")[0]


def first_cells(title: str) -> list[str]:
    rows = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows]


def numbers(title: str, what: str) -> list[int]:
    """Of rows that begin with `what` and a number."""
    found = [re.fullmatch(rf"{re.escape(what)}(\d+)", cell) for cell in first_cells(title)]
    return [int(match[1]) for match in found if match is not None]


@pytest.mark.parametrize(
    ("title", "what", "last"),
    [
        ("Algorithm 1", "", 17),
        ("Algorithm 2", "", 22),
        ("Theory", "Assumption ", 3),
        ("Theory", "Lemma ", 8),
        ("Theory", "Theorem ", 1),
        ("Theory", "Corollary ", 1),
        ("Tables and figures", "Table ", 8),
        ("Tables and figures", "Figure ", 9),
    ],
)
def test_every_number_has_one_row(title: str, what: str, last: int) -> None:
    assert numbers(title, what) == list(range(1, last + 1))


def test_every_equation_has_one_row() -> None:
    covered: list[int] = []
    for cell in first_cells("Equations"):
        match = re.fullmatch(r"\((\d+)\)(?:-\((\d+)\))?", cell)
        if match is not None:
            covered += range(int(match[1]), int(match[2] or match[1]) + 1)
    assert covered == list(range(1, 137))


NAMED = re.findall(r"`([\w/]+\.py)` \(((?:`[^`]+`(?:, )?)+)\)", TEXT)


def test_names_in_brackets_after_a_file_are_in_that_file() -> None:
    assert len(NAMED) > 40
    for file, names in NAMED:
        base = ROOT if file.startswith("tests/") else ROOT / "src" / "swiftfl"
        code = (base / file).read_text(encoding="utf-8")
        for name in re.findall(r"`([^`]+)`", names):
            assert re.search(rf"\b{re.escape(name)}\b", code), f"{file} has no {name}"


def test_names_of_the_two_forms_of_ccs_are_in_their_files() -> None:
    rows = [line.split("|") for line in section("Algorithm 2").splitlines() if line.startswith("| ")]
    for column, file in ((3, "ccs.py"), (4, "messages.py")):
        code = (ROOT / "src" / "swiftfl" / "graph" / file).read_text(encoding="utf-8")
        names = {name for row in rows[1:] for name in re.findall(r"`(\w+)`", row[column])}
        assert len(names) > 5
        for name in names:
            assert re.search(rf"\b{name}\b", code), f"{file} has no {name}"


def test_a_system_that_is_built_is_not_listed_as_missing() -> None:
    from swiftfl.algorithms import ALGORITHMS

    rows = [line.split("|") for line in section("Systems").splitlines() if line.startswith("| ")]
    missing = [re.sub(r"\W", "", row[1].split()[0]).lower() for row in rows if "not built yet" in row[2]]
    for name in ALGORITHMS:
        assert not any(system.startswith(name) for system in missing), name


def test_places_in_shared_memory_are_as_many_as_the_map_says() -> None:
    from swiftfl.transports.shared_memory.layout import MemoryLayout

    (more,) = re.findall(r"In shared memory a client owns degree \+ (\d+) places", TEXT)
    star = MemoryLayout(((1, 2, 3), (0,), (0,), (0,)), size=1, itemsize=4)
    assert [star.slots(i) for i in range(4)] == [degree + int(more) for degree in (3, 1, 1, 1)]
