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
    from swiftfl.federation.service import CONSENSUS, ask_for_consensus, shown

    folder = _folder(node)
    found = ask_for_consensus(folder, seconds)
    if found["nodes"] == 1:
        print(f"No other node can be reached: {folder / CONSENSUS} is the node's own model.")
        return
    print(f"The average of {found['nodes']} nodes is in {folder / CONSENSUS}, and likewise at the others.")
    if found["evaluation"] is not None:
        own, mean = shown(found["own"]), shown(found["evaluation"])
        print(f"On held-out data here: {mean}; the node's own model: {own}")


def _folder(node: Path) -> Path:
    return node.parent if node.is_file() else node


def _lines(found: dict[str, Any]) -> list[str]:
    """The node, and a line for each neighbour."""
    phase = "does not run" if found["silent"] else found["phase"]
    of = "" if found["last_step"] is None else f" of {found['last_step']:,}"
    loss = "" if found["loss"] is None else f", loss {found['loss']:.4g}"
    pace = "" if found["silent"] else f", {found['steps_per_second']:.3g} a second"
    lines = [f"{found['name']}: {phase}; step {found['step']:,}{of}{pace}{loss}"]
    if found["silent"]:
        return lines
    others = (
        f"{found['nodes']} nodes can reach each other"
        if found["nodes"] > 1
        else "no other node can be reached"
    )
    lines.append(f"started from {found['from']}; {others}; own weight {found['own_weight']:.3g}")
    return [*lines, *(f"  {name}: {_neighbour(about)}" for name, about in found["neighbours"].items())]


def _neighbour(about: dict[str, Any]) -> str:
    there = f"here, weight {about['weight']:.3g}" if about["here"] else "not here"
    refused = f", {about['refused']:,} messages refused" if about["refused"] else ""
    if about["steps"] is None:
        return (f"{there}, no model yet" if about["here"] else "not here yet") + refused
    age = "" if about["age_seconds"] is None else f" ({about['age_seconds']:.2g} s old)"
    return f"{there}, model of step {about['steps']:,}{age}{refused}"
