"""Five organisations that train together on one machine, with certificates: `make federation-demo`.

Each is a process of its own (`swiftfl node`). One is killed and started again, one comes late, one comes with
the certificate of another federation. Nothing is simulated; what is printed is what the nodes say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swiftfl.fresh import fresh_python

HERE = Path(__file__).resolve().parent
NAMES = ("aarhus", "basel", "cordoba", "dublin", "evora")
LATE, KILLED = "evora", "cordoba"
PATIENCE = 120.0
COMMUNICATION_SET = 299  # models are averaged at every 300th step: hospitals are far from each other
ALONE_EPOCHS = 100  # of each hospital by itself, for comparison
TOGETHER_STEPS, TOGETHER_SECONDS = 2000, 20.0  # of all five, before the consensus
BEGAN = time.monotonic()


def say(text: str) -> None:
    began = f"[{time.monotonic() - BEGAN:5.1f} s] "
    indent = " " * (len(began) + len(text) - len(text.lstrip()))
    lines = textwrap.wrap(
        text.strip(), 80, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    print(began + "\n".join(lines)[len(began) :], flush=True)


def command(*words: str) -> list[str]:
    return fresh_python("swiftfl", *words)


def wait(what: str, true: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.1)
    sys.exit(f"demo: waited in vain for {what}")


class Hospital:
    """A node and its process; `shown` is who it is for those who look on."""

    def __init__(self, folder: Path, name: str, shown: str | None = None) -> None:
        self.folder, self.name, self.shown = folder, name, shown or name
        self.process: subprocess.Popen[str] | None = None
        self.quiet = False

    def start(self) -> None:
        (self.folder / "status.json").unlink(missing_ok=True)
        self.process = subprocess.Popen(
            command("node", str(self.folder / "node.yaml"), "--save-seconds", "1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._tell, args=(self.process,), daemon=True).start()

    def _tell(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not self.quiet:
                say(f"  {self.shown}: {line.split(': ', 1)[-1].rstrip()}")

    def status(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / "status.json").read_text()))
        except (OSError, ValueError):
            return {}

    def end(self) -> None:
        self.quiet = True
        if self.process is not None:
            self.process.terminate()

    def gone(self) -> None:
        if self.process is not None:
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def federation(folder: Path, nodes: tuple[str, ...]) -> None:
    said = ("--nodes", ",".join(nodes), "--topology", "ring", "--communication-set", str(COMMUNICATION_SET))
    subprocess.run(command("federation", "init", str(folder), *said), check=True, stdout=subprocess.DEVNULL)
    for name in nodes:
        yaml = folder / name / "node.yaml"
        with yaml.open("a") as file:
            file.write(f"experiment: {HERE / 'hospitals.py'}:{name}\n")


def address(folder: Path, name: str) -> str:
    lines = (folder / name / "node.yaml").read_text().splitlines()
    listen = next(line for line in lines if line.startswith("listen:"))
    return listen.split("'")[1]


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    root = Path(tempfile.mkdtemp(prefix="swiftfl-federation-"))
    say(f"five hospitals on a ring, each with its own key, certificate and data; folders in {root}")
    say(f"(to look on, in another terminal: swiftfl dashboard {root}/true)")
    alone = subprocess.Popen(
        [sys.executable, str(HERE / "hospitals.py"), str(ALONE_EPOCHS)], stdout=subprocess.PIPE, text=True
    )
    false = threading.Thread(target=federation, args=(root / "false", ("aarhus", "basel")))
    false.start()
    federation(root / "true", NAMES)
    false.join()
    hospitals = {name: Hospital(root / "true" / name, name) for name in NAMES}
    others: list[Hospital] = []
    try:
        run(root, hospitals, others, alone)
    finally:
        alone.kill()
        for each in (*hospitals.values(), *others):
            each.end()
        for each in (*hospitals.values(), *others):
            each.gone()
    say(f"all of it took {time.monotonic() - BEGAN:.0f} s")


def run(
    root: Path, hospitals: dict[str, Hospital], others: list[Hospital], alone: subprocess.Popen[str]
) -> None:
    def reach(count: int, *names: str) -> Callable[[], bool]:
        return lambda: all(hospitals[name].status().get("nodes") == count for name in names)

    first = [name for name in NAMES if name != LATE]
    say(f"four start, in any order; {LATE} comes later")
    for name in reversed(first):
        hospitals[name].start()
    wait("four nodes that reach each other", reach(4, *first))
    say("the four reach each other, though the ring has a gap")

    wait("steps", lambda: all(hospitals[name].status().get("step", 0) > 500 for name in first))
    victim = hospitals[KILLED]
    assert victim.process is not None
    before = {name: hospitals[name].status()["step"] for name in first}
    say(f"{KILLED} is killed, at step {before[KILLED]}")
    victim.process.kill()
    victim.process.wait()
    wait(
        "the loss to be noticed",
        lambda: all(h.status().get("nodes") != 4 for n, h in hospitals.items() if n in ("basel", "dublin")),
    )
    time.sleep(1.0)
    went_on = {name: hospitals[name].status()["step"] - before[name] for name in first if name != KILLED}
    say(
        "meanwhile the others took " + ", ".join(f"{steps} steps ({name})" for name, steps in went_on.items())
    )
    say(f"{KILLED} is started again, and {LATE} comes")
    victim.start()
    hospitals[LATE].start()

    say("somebody comes with the name of a hospital and the certificate of another federation")
    with (root / "false" / "basel" / "node.yaml").open("a") as file:
        file.write(f"endpoints: {{aarhus: {address(root / 'true', 'aarhus')!r}}}\n")
    stranger = Hospital(root / "false" / "basel", "basel", "the stranger")
    others.append(stranger)
    stranger.start()

    wait("five nodes that reach each other", reach(5, *NAMES))
    say("the five reach each other")
    wait("the stranger's steps", lambda: stranger.status().get("step", 0) > 200)
    theirs = stranger.status()
    refused = not any(about["here"] for about in theirs["neighbours"].values()) and theirs["nodes"] == 1
    say("the stranger is refused: it reaches nobody, and trains alone" if refused else "THE STRANGER GOT IN")
    end = time.monotonic() + TOGETHER_SECONDS
    begin = {name: each.status()["step"] for name, each in hospitals.items()}

    def trained() -> bool:
        return all(each.status()["step"] > begin[name] + TOGETHER_STEPS for name, each in hospitals.items())

    while time.monotonic() < end and not trained():
        time.sleep(0.2)

    say("a consensus, asked for at dublin")
    subprocess.run(
        command("federation", "consensus", str(root / "true" / "dublin")),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    told = {
        name: wait(f"the consensus at {name}", lambda h=each: measured(h)) for name, each in hospitals.items()
    }
    by_itself = json.loads(alone.communicate()[0])
    if not (compared(by_itself, told) and refused):
        sys.exit(1)


def measured(hospital: Hospital) -> dict[str, Any] | None:
    """What a hospital says of the consensus, once it has measured it."""
    found = hospital.status().get("consensus") or {}
    return found if found.get("evaluation") else None


def compared(alone: dict[str, Any], told: dict[str, Any]) -> bool:
    """The consensus beside what each hospital has: alone, and as a node. Whether it is better than all."""
    columns = {
        "alone": alone,
        "as a node": {name: found["own"] for name, found in told.items()},
        "consensus": {name: found["evaluation"] for name, found in told.items()},
    }
    print(f"\nOn one test set of all ten classes (accuracy, loss):\n{'':10s}", end="")
    print("".join(f"{name:>20s}" for name in columns))
    for name in told:
        rows = [column[name] for column in columns.values()]
        print(f"{name:10s}" + "".join(f"{row['accuracy']:>12.1%} {row['loss']:7.3f}" for row in rows))
    print()
    consensus = min(row["accuracy"] for row in columns["consensus"].values())
    better = True
    for name, what in (("alone", "a hospital makes of its own data"), ("as a node", "is at a node now")):
        found = [row["accuracy"] for row in columns[name].values()]
        ahead = consensus > max(found)
        better = better and ahead
        word = "better" if ahead else "NOT better"
        say(
            f"the consensus ({consensus:.1%}) is {word} than any model that {what} "
            f"({min(found):.1%} to {max(found):.1%})"
        )
    return better


if __name__ == "__main__":
    main()
