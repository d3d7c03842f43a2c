"""Nodes of a federation that are killed and started again, and links that are cut, for minutes.

    python benchmarks/soak.py --minutes 10

Eight nodes on a ring with chords, each a process with certificates. At random times one of half of them is
killed and started again, or a link is cut and healed. After each, conditions (a)-(d) are checked over the
weights that all nodes say they have. At the end: the longest time between two steps of those who were never
killed, what each restart lost, and how many renewals were checked. It fails if all nodes were not together
again within two minutes, if a restart lost more than what had not been saved, or if a node that was never
killed stood still for long.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from swiftfl.engines.assignment import Assignment, check_conditions
from swiftfl.vector import Weights

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "federation"))
from proxy import Proxy

NAMES = tuple("abcdefgh")
EDGES = [(i, (i + 1) % 8) for i in range(8)] + [(0, 4), (2, 6)]
SAVE_SECONDS = 2.0
TOGETHER_SECONDS = 120.0
STILL_SECONDS = 20.0  # much more than any step takes, also on a busy machine
EXPERIMENT = """
def experiment():  # slowed down, so that eight nodes fit on two processors
    return {"model": "logistic", "train": "digits", "epochs": 1_000_000, "slowdown": {0: 30}}
"""


class SoakNode:
    """One node, its process, and what it said before it was killed."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.killed_at, self.pace = folder, name, 0, 1.0
        self.process: subprocess.Popen[bytes] | None = None
        self.log = (folder / "log.txt").open("ab")

    def start(self) -> None:
        command = [sys.executable, "-m", "swiftfl", "node", str(self.folder / "node.yaml")]
        self.process = subprocess.Popen(
            [*command, "--save-seconds", str(SAVE_SECONDS)], stdout=self.log, stderr=self.log
        )

    def kill(self) -> None:
        assert self.process is not None
        last = self.status()
        self.killed_at, self.pace = int(last.get("step", 0)), float(last.get("steps_per_second", 1.0))
        self.process.kill()
        self.process.wait()
        (self.folder / "status.json").unlink(missing_ok=True)

    def status(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / "status.json").read_text()))
        except (OSError, ValueError):
            return {}


def checked(nodes: list[SoakNode]) -> int | None:
    """The epoch of which (a)-(d) hold over all nodes; None if not all are in the same one."""
    found = [node.status() for node in nodes]
    if not all(found) or len({(each["epoch"], each["nodes"]) for each in found}) != 1:
        return None
    here = all(about["here"] for each in found for about in each["neighbours"].values())
    if found[0]["nodes"] != len(nodes) or not here:
        return None
    told, weights = {}, {}
    for i, each in enumerate(found):
        of = {NAMES.index(k): about["weight"] for k, about in each["neighbours"].items() if about["weight"]}
        told[i] = Assignment(each["epoch"], each["nodes"], True, each["influence"], tuple(of))
        weights[i] = Weights(each["own_weight"], of)
    check_conditions(told, weights)
    return int(found[0]["epoch"])


def wait_for_all(nodes: list[SoakNode], seconds: float) -> int | None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (epoch := checked(nodes)) is not None:
            return epoch
        time.sleep(0.3)
    return None


def federation(root: Path) -> tuple[list[SoakNode], list[Proxy]]:
    """Folders, certificates, and a proxy on two of the links."""
    (root / "mine.py").write_text(EXPERIMENT)
    graph = root / "graph.txt"
    graph.write_text("".join(f"{i} {k}\n" for i, k in EDGES))
    made = root / "soak"
    command = [sys.executable, "-m", "swiftfl", "federation", "init", str(made), "--nodes", ",".join(NAMES)]
    subprocess.run(
        [*command, "--topology", str(graph), "--experiment", f"{root / 'mine.py'}:experiment"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    proxies = []
    for dialled, dials in (("a", "e"), ("c", "g")):
        line = next(x for x in (made / dialled / "node.yaml").read_text().splitlines() if "listen" in x)
        proxies.append(Proxy(int(line.rpartition(":")[2].strip("'] "))))
        # Of this link only one side dials, through the proxy; the other knows an address where nobody is.
        for name, other, port in ((dials, dialled, proxies[-1].port), (dialled, dials, 1)):
            with (made / name / "node.yaml").open("a") as file:
                file.write(f"endpoints: {{{other}: 'tls/127.0.0.1:{port}'}}\n")
    return [SoakNode(made / name, name) for name in NAMES], proxies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    root = Path(tempfile.mkdtemp(prefix="swiftfl-soak-"))
    nodes, proxies = federation(root)
    mortal = [node for node in nodes if node.name in "bdfh"]
    try:
        for node in nodes:
            node.start()
        if wait_for_all(nodes, 300.0) is None:
            sys.exit("the nodes do not find each other")
        wrong = soak(nodes, mortal, proxies, chance, chosen.minutes)
    finally:
        for node in nodes:
            if node.process is not None:
                node.process.kill()
                node.process.wait()
            node.log.close()
        for proxy in proxies:
            proxy.close()
        shutil.rmtree(root, ignore_errors=True)
    if wrong:
        sys.exit("; ".join(wrong))


def soak(
    nodes: list[SoakNode], mortal: list[SoakNode], proxies: list[Proxy], chance: random.Random, minutes: float
) -> list[str]:
    """Whatever went wrong; the rest is printed."""
    end, kills, cuts, epochs, missed = time.monotonic() + 60 * minutes, 0, 0, set(), 0
    lost: list[int] = []
    seconds: list[float] = []
    began = {node.name: node.status()["step"] for node in nodes}
    while time.monotonic() < end:
        if chance.random() < 0.6:
            victim = chance.choice(mortal)
            victim.kill()
            kills += 1
            time.sleep(chance.uniform(0.5, 4.0))
            victim.start()
        else:
            victim, cuts = None, cuts + 1
            link = chance.choice(proxies)
            link.cut()
            time.sleep(chance.uniform(1.0, 6.0))
            link.heal()
        epoch = wait_for_all(nodes, TOGETHER_SECONDS)
        if epoch is None:
            missed += 1
        else:
            epochs.add(epoch)
        if victim is not None and "checkpoint of step" in str(victim.status().get("from")):
            lost.append(victim.killed_at - int(victim.status()["from"].split()[-1]))
            seconds.append(lost[-1] / max(1e-9, victim.pace))
        print(f"{kills} kills, {cuts} cuts, {len(epochs)} renewals checked, {missed} not in time", flush=True)
    status = {node.name: node.status() for node in nodes}
    immortal = [name for name in NAMES if name not in "bdfh"]
    print(f"steps of those never killed: {[status[n]['step'] - began[n] for n in immortal]}")
    longest = max(status[name]["longest_gap_seconds"] for name in immortal)
    print(f"longest time between two of their steps: {longest:.2f} s")
    worst = max(seconds, default=0.0)
    print(f"steps lost at restarts from a checkpoint (saved every {SAVE_SECONDS:g} s): {lost or 'none'}")
    print(f"that is at most {worst:.1f} s of work")
    print(f"refused messages: {[sum(v['refused'] for v in status[n]['neighbours'].values()) for n in NAMES]}")
    print(f"conditions (a)-(d) held in all {len(epochs)} renewals; {missed} not in {TOGETHER_SECONDS:g} s")
    return [
        what
        for what, wrong in {
            f"{missed} times not together again": missed,
            f"a node stood still for {longest:.1f} s": longest > STILL_SECONDS,
            f"a restart lost {worst:.1f} s": worst > 3 * SAVE_SECONDS + 2.0,
        }.items()
        if wrong
    ]


if __name__ == "__main__":
    main()
