"""Real nodes for tests: `swiftfl node` in processes of their own, enrolled by `swiftfl federation init`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT = 120.0
"""Seconds after which whatever is waited for will not happen, on however busy a machine."""
EXPERIMENT = """
import swiftfl

def experiment():
    return {"model": "logistic", "train": "digits", "epochs": EPOCHS, "optimizer": swiftfl.SGD(lr=0.05)}
"""


def swiftfl(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "swiftfl", *map(str, words)]


def ran(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(swiftfl(*words), capture_output=True, text=True, timeout=LIMIT, check=False)


def until(true: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + LIMIT
    while not (found := true()):
        assert time.monotonic() < end, f"{what}: not within {LIMIT:g} s"
        time.sleep(0.1)
    return found


class Nodes:
    """The nodes of one federation; `root/NAME` is a node's folder, `root/NAME.log` what it has said."""

    def __init__(self, root: Path, names: Sequence[str], topology: str, epochs: int) -> None:
        self.root, self.running = root, dict[str, "subprocess.Popen[bytes]"]()
        root.parent.mkdir(parents=True, exist_ok=True)
        file = root.parent / "experiment.py"
        file.write_text(EXPERIMENT.replace("EPOCHS", str(epochs)))
        said = ("--nodes", ",".join(names), "--topology", topology, "--experiment", f"{file}:experiment")
        done = ran("federation", "init", root, *said)
        assert done.returncode == 0, done.stderr

    def folder(self, name: str) -> Path:
        return self.root / name

    def start(self, name: str, *options: str) -> None:
        log = (self.root / f"{name}.log").open("ab")
        with log:
            self.running[name] = subprocess.Popen(
                swiftfl("node", self.folder(name) / "node.yaml", "--save-seconds", "1", *options),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> int:
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(LIMIT)

    def status(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder(name) / "status.json").read_text()))
        except (OSError, ValueError):
            return {}

    def reach(self, count: int, *names: str) -> None:
        until(
            lambda: all(self.status(name).get("nodes") == count for name in names),
            f"{count} nodes that reach each other\n" + "".join(self.log(name)[-2000:] for name in names),
        )

    def log(self, name: str) -> str:
        file = self.root / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""


@contextmanager
def nodes(root: Path, names: Sequence[str], topology: str = "ring", epochs: int = 100_000) -> Iterator[Nodes]:
    made = Nodes(root, names, topology, epochs)
    try:
        yield made
    finally:
        for name in list(made.running):
            made.kill(name)
