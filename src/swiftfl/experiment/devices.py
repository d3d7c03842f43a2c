"""Device traces: how fast each device computes and communicates, in the format of FedScale's capacity traces.

A file has one entry per device: `computation`, milliseconds in which it infers one sample, and
`communication`, kilobits per second of its link. As JSON, {"device": {"computation": 20.1, "communication":
5648.1}, ...}; or as CSV with the columns device, computation, communication (`#` starts a comment). FedScale
distributes its own trace as a pickle, which can run any code and is not read here.

Each client is given one device, drawn without replacement by the seed. A gradient takes three times as
long as inference of its batch, as FedScale counts it; a link is as fast as the slower of its two devices.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from swiftfl.errors import UserError
from swiftfl.files import read_text_file
from swiftfl.graph import Topology
from swiftfl.streams import stream

TRAINING = 3.0
"""Forward and backward pass together, in forward passes."""
_BITS = 8 / 1000
"""Kilobits in a byte."""
COLUMNS = ("device", "computation", "communication")
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Device:
    computation: float
    communication: float


def read_devices(file: str) -> dict[str, Device]:
    """The devices of a trace, by their names."""
    path = Path(file)
    try:
        text = read_text_file(path, _MOST_BYTES)
    except UserError as error:
        hint = "; a pickle is not read: write it as JSON first" if "not a text file" in str(error) else ""
        raise UserError(f"{error}{hint}") from None
    read = _from_json if path.suffix.lower() == ".json" else _from_csv
    found: dict[str, Device] = {}
    for name, entry in read(path, text):
        if name in found:
            raise UserError(f"{path}: device {name} stands there twice")
        found[name] = Device(*(_positive(path, name, key, entry.get(key)) for key in COLUMNS[1:]))
    if not found:
        raise UserError(f"{path}: no devices")
    return found


def _from_json(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from None
    if not isinstance(tree, dict) or not all(isinstance(entry, dict) for entry in tree.values()):
        raise UserError(f'{path}: it must be an object of devices, each {{"computation": ..., ...}}')
    yield from tree.items()


def _from_csv(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    reader = csv.DictReader(lines)
    if not {*COLUMNS} <= {*(reader.fieldnames or ())}:
        raise UserError(f"{path}: the first line must name the columns {', '.join(COLUMNS)}")
    for row in reader:
        yield str(row[COLUMNS[0]]), dict(row)


def _positive(path: Path, name: str, key: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not (math.isfinite(number) and number > 0):
        raise UserError(f"{path}: {key} of device {str(name)[:40]} must be a positive number, not {value!r}")
    return number


def costs_of(file: str, graph: Topology, batch_size: int, seed: int) -> dict[str, Any]:
    """The settings of `engine.costs` that a trace stands for, by their dotted names."""
    devices = read_devices(file)
    if len(devices) < graph.n:
        raise UserError(f"{file} has {len(devices)} devices: too few for {graph.n} clients")
    names = list(devices)
    drawn = stream(seed, "devices").choice(len(names), size=graph.n, replace=False)
    chosen = [devices[names[k]] for k in drawn]
    seconds = [TRAINING * batch_size * device.computation / 1000 for device in chosen]
    compute = median(seconds)
    rates = [device.communication / _BITS for device in chosen]
    return {
        "engine.costs.compute": compute,
        "engine.costs.trace": {i: [each / compute] for i, each in enumerate(seconds)},
        "engine.costs.bandwidth": min(rates),  # of all-reduce and a server, which go by the slowest
        "engine.costs.links": [
            {"edge": [i, j], "bandwidth": min(rates[i], rates[j])} for i, j in graph.edges.tolist()
        ],
    }
