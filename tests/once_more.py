"""`--once-more`: tests that failed are run once more, each alone in a process of its own, after all others.

A test that passes only then depends on what else the machine was doing. It does not fail the suite, but it is
not hidden: its first failure is printed, its name is printed, and the closing line counts it as "passed only
when run alone", never as passed. Many failures at once are no accident, and nothing is run again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator

import pytest

MOST = 10
"""Tests that are run again; when more have failed, none is."""
ALONE = "passed only when run alone"
_SECONDS = 900.0
_FAILED = ("failed", "error")  # as pytest calls failures of a test, and of what it needs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--once-more", action="store_true", help="run failed tests once more, each alone")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--once-more") and not hasattr(
        config, "workerinput"
    ):  # only one of the processes decides
        config.pluginmanager.register(_OnceMore(config))


class _OnceMore:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reports: dict[str, list[pytest.TestReport]] = {}
        self.again: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.reports.setdefault(report.nodeid, []).append(report)

    # Innermost, so that what is counted after the tests, such as coverage, has what happens here.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        if self.reports and len(self.reports) <= MOST:
            self._run_again(session)
        return result

    def _run_again(self, session: pytest.Session) -> None:
        terminal = self.config.pluginmanager.getplugin("terminalreporter")
        terminal.section(f"{len(self.reports)} failed, and now once more, each alone")
        for test, reports in self.reports.items():
            passed, output = _alone(test, self.config)
            terminal.write_line(f"{'passed' if passed else 'failed again'}: {test}")
            if not passed:
                terminal.write_line(output)
                continue
            self.again.append(test)
            session.testsfailed -= len(reports)
            for kind in _FAILED:
                terminal.stats[kind] = [one for one in terminal.stats.get(kind, []) if one not in reports]
            terminal.stats.setdefault(ALONE, []).append(reports[0])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self.again:
            for report in self.reports[test]:
                terminalreporter.section(f"{ALONE}; before that: {test}", sep="_")
                report.toterminal(terminalreporter._tw)
        if self.again:
            terminalreporter.write_line(f"{ALONE}: {', '.join(self.again)}")
        elif len(self.reports) > MOST:
            terminalreporter.write_line(
                f"{len(self.reports)} have failed, more than {MOST}: none is run once more"
            )


def _alone(test: str, config: pytest.Config) -> tuple[bool, str]:
    """Whether a test passes in a process of its own, and what that printed."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", test]
    try:
        done = subprocess.run(
            command, cwd=config.rootpath, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"not over after {_SECONDS:.0f} seconds"
    return done.returncode == 0, done.stdout + done.stderr
