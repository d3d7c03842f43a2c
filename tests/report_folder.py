"""A small folder as `swiftfl reproduce` leaves it: real tiny runs, and predictions made up for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import digits
from swiftfl.experiment.run import run
from swiftfl.record import versions

METHODS = {
    "swift_c0": "SWIFT C_0", "swift_c1": "SWIFT C_1", "dsgd_c0": "D-SGD",
    "pasgd_c1": "PA-SGD", "ldsgd_c1": "LD-SGD", "adpsgd_c0": "AD-PSGD",
}  # fmt: skip
ALGORITHM = {"swift_c0": "swift", "swift_c1": "swift", "dsgd_c0": "dsgd"}
CLIENTS = 4
RING = [[0, 1], [1, 2], [2, 3], [0, 3]]


def predicted(group: str) -> dict[str, dict[str, float]]:
    """Parts of time that resemble the paper's; waiting grows with the slowdown."""
    factor = float(group.rstrip("x")) if group.rstrip("x").isdigit() and group.endswith("x") else 1.0
    parts = {
        "swift_c0": (0.085, 0.0), "swift_c1": (0.06, 0.0), "dsgd_c0": (0.627, 0.9 * (factor - 1)),
        "pasgd_c1": (0.35, 0.9 * (factor - 1)), "ldsgd_c1": (0.43, 0.9 * (factor - 1)),
        "adpsgd_c0": (0.4, 0.05),
    }  # fmt: skip
    compute = 0.931 * (15 + factor) / 16
    return {m: {"compute": compute, "communication": c, "waiting": w} for m, (c, w) in parts.items()}


def timeline(factor: float, waits: bool) -> dict[str, Any]:
    intervals: list[list[Any]] = []
    for client in range(16):
        now, slow = 0.0, factor if client == 0 else 1.0
        while now < 0.2:
            steps = [("compute", 0.0095 * slow), ("communication", 0.0064 if waits else 0.0009)]
            if waits and client != 0 and factor > 1:
                steps.insert(1, ("waiting", 0.0095 * (factor - 1)))
            for what, seconds in steps:
                intervals.append([client, what, now, now + seconds])
                now += seconds
    return {"clients": 16, "seconds": 0.2, "intervals": intervals}


def config_of(group: str, method: str, seed: int, epochs: int) -> Config:
    changes: dict[str, Any] = {
        "engine.epochs": epochs, "topology.clients": CLIENTS, "seed": seed,
        "algorithm.name": ALGORITHM[method],
    }  # fmt: skip
    if ALGORITHM[method] == "swift":
        changes["algorithm.communication_set"] = int(method[-1])
    if group == "4x":
        changes["engine.costs.slowdowns"] = [{"client": 0, "factor": 4.0}]
    return digits().with_changes(changes)


def build(
    folder: Path, name: str, groups: dict[str, str], methods: list[str], seeds: int = 2, epochs: int = 3
) -> Path:
    """One experiment: runs of the groups and methods given, everything else of all six methods."""
    runs = []
    for group in groups:
        for method in methods:
            for seed in range(seeds):
                path = f"runs/{group}/{method}/seed{seed}"
                run(config_of(group, method, seed, epochs), folder / path)
                runs.append({"group": group, "method": method, "seed": seed, "path": path})
    about = {
        "name": name, "title": f"{name} & <friends>", "scale": "smoke", "engine": "virtual",
        "seeds": list(range(seeds)), "hardware": "paper",
        "command": f"swiftfl reproduce {name} --scale smoke",
        "versions": versions(), "groups": groups, "methods": METHODS, "runs": runs,
        "topologies": {g: {"name": "ring", "clients": CLIENTS, "edges": RING} for g in groups},
    }  # fmt: skip
    _write(folder / "experiment.json", about)
    _write(folder / "predicted.json", {group: predicted(group) for group in groups})
    factors = {group: 4.0 if group == "4x" else 1.0 for group in groups}
    lines = {g: {m: timeline(f, m[:5] != "swift") for m in METHODS} for g, f in factors.items()}
    _write(folder / "timelines.json", lines)
    if name == "baseline":
        _write(folder / "sensitivity.json", _sensitivity())
        parts = {m: predicted("1x")[m] for m in ("swift_c0", "dsgd_c0")}
        live = {"gradient_seconds": 0.0095, "clients": 4, "steps_per_epoch": 98, "methods": parts}
        _write(folder / "live.json", live)
    return folder


def _sensitivity() -> dict[str, Any]:
    values = [0.00005, 0.00015, 0.0005]
    swift = {"communication": [0.05, 0.085, 0.2], "epoch": [0.98, 1.016, 1.13]}
    dsgd = {"communication": [0.627] * 3, "epoch": [1.558] * 3}
    return {name: {"values": values, "swift_c0": swift, "dsgd_c0": dsgd} for name in ("send", "mix")}


def _write(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


if __name__ == "__main__":
    import sys

    out = Path(sys.argv[1])
    some = ["swift_c0", "swift_c1", "dsgd_c0"]
    build(out / "baseline", "baseline", {"ring16": "16-client ring"}, some)
    build(out / "slowdown", "slowdown", {"1x": "no slowdown", "4x": "one client 4x slower"}, some)
