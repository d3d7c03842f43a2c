"""Digests of final models and times of two dozen command lines: did a change alter a number?

    python tools/digests.py --save before.json       # before a change that should not alter numbers
    python tools/digests.py --against before.json    # after it; ends with code 1 where something differs

Run both on the same machine: the last bits of a gradient depend on the processor. Models are compared bit
for bit, virtual times exactly. `--source DIR` runs another checkout's `src`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

SHORT = "digits --epochs 6 --clients 8"
CHURN = {
    "notice": 0.02,
    "renewal": 0.01,
    "crash_rate": 0.6,
    "return_rate": 4.0,
    "sleep_rate": 0.5,
    "sleep_seconds": 0.05,
    "edge_down_rate": 0.3,
    "edge_up_rate": 4.0,
    "changes": [
        {"time": 0.1, "event": "leave", "client": 3},
        {"time": 0.3, "event": "join", "client": 3},
        {"time": 0.2, "event": "edge_down", "edge": [0, 1]},
        {"time": 0.35, "event": "edge_up", "edge": [0, 1]},
    ],
}
CHURN_OF_CLIENTS = {
    **{key: value for key, value in CHURN.items() if not key.startswith("edge")},
    "changes": [change for change in CHURN["changes"] if "edge" not in change],  # type: ignore[attr-defined]
}
"""All-reduce knows no edges."""
CNN = {
    "data": {"dataset": "synthetic", "options": {"samples": 1500, "shape": [1, 12, 12], "classes": 4}},
    "model": {"name": "cnn", "norm": "batch"},
    "topology": {"clients": 4},
    "engine": {"epochs": 2},
}
COSTS = {"compute": 0.01, "spread": 0.3, "jitter": 0.5, "loss": 0.1, "links": [
    {"edge": [0, 1], "latency": 0.02, "bandwidth": 1e6}]}  # fmt: skip
CASES = {
    "swift": f"{SHORT}",
    "swift, slow client": f"{SHORT} --slowdown 2:4",
    "swift, C_2, ring of cliques": f"{SHORT} --communication-set 2 --topology ring_of_cliques --clusters 2",
    "swift, data influence": f"{SHORT} --partition by_size:1,2,3,1,1,1,1,1 --influence data",
    "swift, skewed labels": f"{SHORT} --partition label_skew:0.7 --weight-decay 0.001",
    "swift, measured influence": f"{SHORT} --slowdown 2:3 --influence measured --objective as_given",
    "swift, churn": f"{SHORT} --epochs 12 --network CHURN",
    "swift, churn, measured": f"{SHORT} --epochs 12 --network CHURN --influence measured",
    "swift, links": f"{SHORT} --costs COSTS",
    "swift, sampled": f"{SHORT} --engine sampled",
    "swift, sampled, given influence": "digits --engine sampled --clients 4 --epochs 4 "
    "--influence 0.1,0.2,0.3,0.4 --communication-set 1",
    "swift, logistic, 200 clients": "synthetic --clients 200 --epochs 2 --topology torus",
    "swift, cnn with batch norm": "CNN.json",
    "swift, cnn, own buffers": "CNN.json --buffers own",
    "dsgd": f"{SHORT} --algorithm dsgd",
    "dsgd, slow client, global barrier": f"{SHORT} --algorithm dsgd --slowdown 2:4 --barrier global",
    "dsgd, churn": f"{SHORT} --algorithm dsgd --epochs 12 --network CHURN",
    "dsgd, sampled": f"{SHORT} --algorithm dsgd --engine sampled",
    "pasgd": f"{SHORT} --algorithm pasgd --i1 2",
    "ldsgd": f"{SHORT} --algorithm ldsgd --i1 1 --i2 2",
    "adpsgd": f"{SHORT} --algorithm adpsgd --slowdown 2:2",
    "adpsgd, churn": f"{SHORT} --algorithm adpsgd --epochs 12 --network CHURN",
    "adpsgd, background": f"{SHORT} --algorithm adpsgd --averaging background --slowdown 2:2",
    "adpsgd, background, churn": f"{SHORT} --algorithm adpsgd --averaging background --epochs 12 "
    "--network CHURN",
    "matcha": f"{SHORT} --algorithm matcha --budget 0.4 --topology complete",
    "gossip": f"{SHORT} --algorithm gossip",
    "allreduce": f"{SHORT} --algorithm allreduce",
    "allreduce, churn": f"{SHORT} --algorithm allreduce --epochs 12 --network CLIENTS",
    "fedavg": f"{SHORT} --algorithm fedavg --i1 3 --slowdown 2:2",
}
EXACT = ("iterations", "virtual_seconds", "seconds_per_epoch", "compute_seconds_per_epoch",
         "communication_seconds_per_epoch", "waiting_seconds_per_epoch", "loss", "mean_client_loss",
         "consensus_distance", "models_in_memory", "renewals", "lost")  # fmt: skip


def digest(line: str, folder: Path, source: str | None) -> dict[str, Any]:
    """Run one command line; what its models and its times are."""
    for name, content in (
        ("CHURN", CHURN),
        ("CLIENTS", CHURN_OF_CLIENTS),
        ("COSTS", COSTS),
        ("CNN.json", CNN),
    ):
        (folder / name).write_text(json.dumps(content))
        line = re.sub(rf"(^| ){name}", rf"\1{folder / name}", line)
    out = folder / "run"
    command = [sys.executable, "-m", "swiftfl", "run", *line.split(), "--out", str(out), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"PYTHONPATH": source} if source else {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    summary = json.loads(done.stdout)
    models = load_file(out / "models.safetensors")
    found = hashlib.sha256(b"".join(models[name].tobytes() for name in sorted(models))).hexdigest()
    return {"models": found[:16], **{name: summary[name] for name in EXACT if name in summary}}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--save", type=Path)
    options.add_argument("--against", type=Path)
    options.add_argument("--source", help="the src folder of another checkout")
    options.add_argument("--only", default="", help="cases whose name contains this")
    given = options.parse_args()
    before = json.loads(given.against.read_text()) if given.against else {}
    found: dict[str, Any] = {}
    differ = 0
    for name, line in CASES.items():
        if given.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found[name] = digest(line, Path(folder), given.source)
        was = before.get(name, found[name])
        different = [key for key in {**was, **found[name]} if was.get(key) != found[name].get(key)]
        differ += bool(different)
        told = found[name].get("models", found[name].get("error"))
        changes = "; ".join(f"{key}: {was.get(key)} -> {found[name].get(key)}" for key in different)
        print(
            f"{name:36s} {told}  {'DIFFERS: ' + changes if different else 'same' if before else ''}",
            flush=True,
        )
    if given.save:
        given.save.write_text(json.dumps(found, indent=1) + "\n")
    failed = sum("error" in each for each in found.values())
    print(f"{len(found)} cases, {differ} differ, {failed} did not run")
    return int(differ > 0 or failed > 0)


if __name__ == "__main__":
    sys.exit(main())
