"""Commands in processes of their own that need not import anything: forks of the tests' process.

For tests of what a command does, which need a process only because something is registered, printed by
children, or happens at its end. Where starting the interpreter is what is tested, start one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import typer.main

from swiftfl.cli.main import run_command
from swiftfl.engines.live.local.forkserver import fork_child, run_and_exit

LIMIT = 240.0
"""Seconds after which a command is killed."""


def forked(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`swiftfl ARGUMENTS`, as `subprocess.run` would have it with text and captured output."""
    words = [str(word) for word in arguments]
    return forked_call(lambda: run_command(words), ["swiftfl", *words], cwd, env)


def forked_call(
    work: Callable[[], int], name: list[str], cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A function in a process of its own; what it returns is the exit code."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = fork_child()
        if pid == 0:
            run_and_exit(lambda: _child(work, out.fileno(), err.fileno(), cwd, env))
        code = _exit_code(pid, name)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(name, code, out.read(), err.read())


def _child(work: Callable[[], int], out: int, err: int, cwd: Path, env: Mapping[str, str] | None) -> int:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdin, sys.stdout, sys.stderr = (open(k, mode, closefd=False) for k, mode in enumerate("rww"))  # noqa: SIM115
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    os.chdir(cwd)
    typer.main.get_command.cache_clear()  # type: ignore[attr-defined]  # conftest.py: made before an --import
    code = work()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _exit_code(pid: int, name: list[str]) -> int:
    end = time.monotonic() + LIMIT
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise subprocess.TimeoutExpired(name, LIMIT)
        time.sleep(0.005)
