"""Failed tests run once more, each alone: what fails again fails the suite, what passes then is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent.parent
_PROGRAM = """
import pathlib
import pytest

{extra}

def first_time(name):
    seen = pathlib.Path(__file__).with_name(name)
    there = seen.exists()
    seen.touch()
    return not there

def test_good():
    pass

def test_unlucky():
    assert not first_time("unlucky"), "too late by a second"

@pytest.fixture
def late():
    assert not first_time("late")

def test_that_needs_something(late):
    pass

@pytest.fixture
def untidy():
    yield
    assert not first_time("untidy")

def test_that_leaves_something(untidy):
    assert not first_time("twice")
"""
_BAD = """
def test_bad():
    assert 1 == 2, "always"
"""
_MANY = """
@pytest.mark.parametrize("k", range(11))
def test_many(k):
    assert first_time(f"many{k}") and False
"""
_NAMES = [
    f"test_program.py::test_{name}" for name in ("unlucky", "that_needs_something", "that_leaves_something")
]


def suite(folder: Path, extra: str, *options: str) -> tuple[int, list[str]]:
    """The exit code and the lines of a small suite with the plugin."""
    (folder / "conftest.py").write_text('pytest_plugins = ["once_more"]\n')
    (folder / "test_program.py").write_text(_PROGRAM.format(extra=extra))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider"],
        cwd=folder,
        # Only what is needed here: other plugins take seconds to import, and coverage is its own.
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
            "PYTHONPATH": str(_TESTS),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "xdist.plugin,pytest_cov.plugin",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout.splitlines()


def test_what_passes_alone_is_named_and_not_counted_as_passed(tmp_path: Path) -> None:
    code, lines = suite(tmp_path, "", "--once-more", "-n", "2")
    assert code == 0, lines
    named = next(line for line in lines if line.startswith("passed only when run alone: "))
    assert set(named.split(": ")[1].split(", ")) == set(_NAMES)
    assert lines[-1].startswith("1 passed, 3 passed only when run alone in ")
    assert any("too late by a second" in line for line in lines), "why it had failed"


def test_what_fails_again_fails_the_suite(tmp_path: Path) -> None:
    code, lines = suite(tmp_path, _BAD, "--once-more")
    assert code == 1
    assert "failed again: test_program.py::test_bad" in lines
    assert lines[-1].startswith("1 failed, 1 passed, 3 passed only when run alone in ")


def test_many_failures_are_no_accident(tmp_path: Path) -> None:
    code, lines = suite(tmp_path, _MANY, "--once-more")
    assert code == 1
    assert "14 have failed, more than 10: none is run once more" in lines
    assert not any("passed only when run alone" in line for line in lines)


def test_only_when_asked(tmp_path: Path) -> None:
    code, lines = suite(tmp_path, "")
    assert code == 1
    assert lines[-1].startswith("2 failed, 1 passed, 2 errors in ")


_MEASURED = """
def test_measured():
    assert not first_time("measured")
    import measured
    measured.covered()
"""
_COVERAGE = """
[run]
source = .
include = measured.py
parallel = true
patch = subprocess
"""


@pytest.mark.slow
def test_what_runs_alone_is_measured(tmp_path: Path) -> None:
    (tmp_path / "measured.py").write_text("def covered():\n    return 1\n")
    (tmp_path / ".coveragerc").write_text(_COVERAGE)
    code, lines = suite(tmp_path, _MEASURED, "--once-more", "-n", "2", "--cov")
    assert code == 0, lines
    assert any(line.split() == ["measured.py", "2", "0", "100%"] for line in lines), lines


def test_the_suite_asks_for_it() -> None:
    recipes = (_TESTS.parent / "Makefile").read_text().split("\n\n")
    for target in ("test:", "test-all:"):
        recipe = next(text for text in recipes if text.startswith(target))
        assert "pytest $(TWO) --once-more" in recipe
