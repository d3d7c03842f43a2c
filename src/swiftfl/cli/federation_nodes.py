"""`swiftfl federation status` and `consensus`: of a node that runs on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

NodePath = Annotated[
    Path, typer.Argument(metavar="[NODE]", help="The node's folder, or its node.yaml (default: here).")
]


def status(
    node: NodePath = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """How a node stands: its steps, its neighbours, how many it can reach.

    swiftfl federation status hospital

    swiftfl federation status hospital --json
    """
    from swiftfl.federation.service import read_status

    found = read_status(_folder(node))
    if as_json:
        print(json.dumps(found))
        return
    for line in _lines(found):
        print(line)


def consensus(
    node: NodePath = Path(),
    seconds: Annotated[float, typer.Option(help="How long to wait for it.", min=1.0)] = 60.0,
) -> None:
    """Average the models of all who can be reached; the average is written at every node.

    It is in consensus.safetensors of each node's folder. Training goes on meanwhile.

    swiftfl federation consensus hospital

    swiftfl federation consensus hospital --seconds 600
    """
    from swiftfl.federation.service import CONSENSUS, ask_for_consensus

    folder = _folder(node)
    found = ask_for_consensus(folder, seconds)
    print(f"The average of {found['nodes']} nodes is in {folder / CONSENSUS}, and likewise at the others.")
    own, mean = _numbers(found["own"]), _numbers(found["evaluation"])
    print(f"On held-out data here: {mean}; the node's own model: {own}")


def _folder(node: Path) -> Path:
    return node.parent if node.is_file() else node


def _numbers(values: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if value is not None)


def _lines(found: dict[str, Any]) -> list[str]:
    phase = "does not run" if found["silent"] else found["phase"]
    of = "" if found["last_step"] is None else f" of {found['last_step']}"
    loss = "" if found["loss"] is None else f", loss {found['loss']:.4g}"
    lines = [
        f"{found['name']}: {phase}; step {found['step']}{of}, {found['steps_per_second']:.3g} a second{loss}",
        f"started from {found['from']}; {found['nodes']} nodes can reach each other; own weight "
        f"{found['own_weight']:.3g}",
    ]
    for name, about in found["neighbours"].items():
        there = "here" if about["here"] and not found["silent"] else "not here"
        steps = "no model yet" if about["steps"] is None else f"model of step {about['steps']}"
        lines.append(f"  {name}: {there}, weight {about['weight']:.3g}, {steps}, refused {about['refused']}")
    return lines
