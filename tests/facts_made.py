"""A run folder with made-up facts, for whatever shows them: fast, so that a million rows take a second.

python tests/facts_made.py FOLDER [--clients 1000] [--rows 1000000] [--algorithm d-sgd] [--finished]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftfl.record.facts import CLIENT, EDGE, ROW, ClientState, FactsWriter, Layout


def ring_with_chords(clients: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """indptr and indices of a ring with an edge from each client to the one a seventh of the ring away."""
    away = sorted({1, clients - 1, clients // 7, clients - clients // 7} - {0, clients})
    indptr, indices = [0], []
    for i in range(clients):
        indices += sorted({(i + step) % clients for step in away} - {i})
        indptr.append(len(indices))
    return tuple(indptr), tuple(indices)


def make_rows(clients: int, rows: int, waiting: bool, seed: int = 0) -> NDArray[np.void]:
    """About so many rows, the same number for each client; client 0 is four times slower.

    With `waiting` they meet in rounds, as in D-SGD, so that all wait for the slow one.
    """
    random = np.random.default_rng(seed)
    each = max(rows // clients, 1)
    speed = np.ones(clients)
    speed[0] = 4.0
    compute = 0.01 * speed * random.lognormal(0.0, 0.1, (each, clients))
    communication = 0.002 * random.lognormal(0.0, 0.2, (each, clients))
    wait = compute.max(axis=1, keepdims=True) - compute if waiting else np.zeros_like(compute)
    duration = compute + communication + wait
    made = np.zeros((each, clients), ROW)
    made["client"] = np.arange(clients)
    made["steps"] = 1
    made["c"] = np.arange(1, each + 1)[:, None]
    made["start"] = np.cumsum(duration, axis=0) - duration
    made["compute"], made["waiting"], made["communication"] = compute, wait, communication
    made["loss"] = 2.3 * np.exp(-np.arange(each) / (each / 3))[:, None] + random.uniform(
        0, 0.1, (each, clients)
    )
    made["age"] = 1.0 if waiting else random.uniform(0.5, 1.5, (each, clients))
    flat = made.reshape(-1)
    return flat[np.argsort(flat["start"] + duration.reshape(-1), kind="stable")]


def make_facts(
    folder: Path,
    clients: int = 1000,
    rows: int = 1_000_000,
    algorithm: str = "swift",
    finished: bool = False,
    lost: tuple[int, ...] = (),
    seed: int = 0,
) -> Path:
    """Write a run folder: facts, configuration, metrics and events; `lost` went at half time."""
    folder.mkdir(parents=True, exist_ok=True)
    made = make_rows(clients, rows, algorithm == "d-sgd", seed)
    end = float((made["start"] + made["compute"] + made["waiting"] + made["communication"]).max())
    for client in lost:
        made = made[(made["client"] != client) | (made["start"] < end / 2)]
    indptr, indices = ring_with_chords(clients)
    layout = Layout(clients, "virtual", "virtual", time.time() - end, len(made) * 2, indptr, indices)
    writer = FactsWriter(folder, layout, limit=1 << 30)
    steps = writer.steps()
    steps.write(made)
    steps.close()
    writer.clients.write(client_records(made, clients, end, finished, lost))
    writer.edges.write(edge_records(made, indptr, indices, end))
    writer.close()
    _write_rows(folder / "metrics.jsonl", _measurements(made, clients, end))
    _write_rows(folder / "events.jsonl", _events(end, lost, finished, len(made)))
    config = {
        "algorithm": {"name": algorithm},
        "engine": {"name": "virtual"},
        "topology": {"clients": clients},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "versions.json").write_text(json.dumps({"swiftfl": "0"}))
    if finished:
        (folder / "summary.json").write_text(json.dumps({"loss": 0.1, "iterations": len(made)}))
    return folder


def client_records(
    rows: NDArray[np.void], clients: int, now: float, finished: bool = False, lost: tuple[int, ...] = ()
) -> NDArray[np.void]:
    """How each client stands after these rows."""
    records = np.zeros(clients, CLIENT)
    records["state"] = ClientState.FINISHED if finished else ClientState.RUNNING
    records["state"][list(lost)] = ClientState.LOST
    for name in ("compute", "communication", "waiting"):
        records[name] = np.bincount(rows["client"], rows[name].astype(float), clients)
    records["steps"] = np.bincount(rows["client"], rows["steps"], clients)
    order = np.argsort(rows["start"], kind="stable")
    records["c"] = 1
    records["c"][rows["client"][order]] = rows["c"][order] + 1  # of the step that it is in
    records["loss"][rows["client"][order]] = rows["loss"][order]
    with np.errstate(invalid="ignore"):
        records["age"] = np.bincount(rows["client"], rows["age"].astype(float), clients) / records["steps"]
    records["rate"] = records["steps"] / now
    records["time"] = now
    return records


def edge_records(
    rows: NDArray[np.void], indptr: tuple[int, ...], indices: tuple[int, ...], now: float
) -> NDArray[np.void]:
    """The newest model that each client has of its neighbours."""
    newest = np.zeros(len(indptr) - 1, np.int64)
    np.maximum.at(newest, rows["client"], rows["c"].astype(np.int64))
    records = np.zeros(len(indices), EDGE)
    records["version"] = newest[list(indices)]
    records["since"] = now - 0.02
    return records


def _measurements(rows: NDArray[np.void], clients: int, end: float) -> list[dict[str, Any]]:
    return [
        {
            "iteration": int(share * len(rows)),
            "epoch": 10 * share,
            "time": end * share,
            "loss": 2.3 * float(np.exp(-3 * share)),
            "accuracy": 1 - 0.9 * float(np.exp(-3 * share)),
            "mean_client_loss": 2.4 * float(np.exp(-3 * share)),
            "mean_client_accuracy": None,
            "train_loss": None if share == 0 else 2.3 * float(np.exp(-3 * share)),
            "consensus_distance": 0.1 * share,
            "models_in_memory": clients,
            "evaluation_seconds": 0.01,
            "metrics": {},
        }
        for share in np.linspace(0, 1, 41).tolist()
    ]


def _events(end: float, lost: tuple[int, ...], finished: bool, steps: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"event": "start", "iteration": 0, "time": 0.0}]
    half = {"iteration": steps // 2, "time": end / 2}
    events += [{"event": "crash", "client": client, **half} for client in lost]
    if lost:
        events.append({"event": "renew", "components": 1, "iteration": steps // 2, "time": end / 2 + 0.01})
    if finished:
        events.append({"event": "end", "iteration": steps, "time": end, "evaluation_seconds": 0.4})
    return events


def _write_rows(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--algorithm", default="swift")
    parser.add_argument("--finished", action="store_true")
    parser.add_argument("--lost", type=int, nargs="*", default=[])
    given = parser.parse_args()
    make_facts(given.folder, given.clients, given.rows, given.algorithm, given.finished, tuple(given.lost))


if __name__ == "__main__":
    _main()
