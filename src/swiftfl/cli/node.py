"""`swiftfl node`: one organisation's client of a federation."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from swiftfl.experiment.build import Parts
    from swiftfl.vector import Vector


def node(
    folder: Annotated[
        Path,
        typer.Argument(metavar="NODE.yaml", help="The node's file (docs/federation.md).", show_default=False),
    ],
    metrics: Annotated[
        str | None,
        typer.Option(help="HOST:PORT for /metrics (Prometheus) and /health.", metavar="HOST:PORT"),
    ] = None,
    leave: Annotated[
        bool, typer.Option("--leave", help="End after the last step, instead of staying for the others.")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and certificates, on this machine only.")
    ] = False,
    save_seconds: Annotated[float, typer.Option(help="Seconds between two checkpoints.", min=0.1)] = 30.0,
) -> None:
    """Train with the neighbours of a federation, whoever of them is there; alone if nobody is.

    Ctrl-C, or SIGTERM, saves and leaves; started again, it goes on.

    swiftfl node node.yaml

    swiftfl node node.yaml --metrics 127.0.0.1:9464
    """
    from dataclasses import replace

    from swiftfl.api.own_experiment import arguments_of
    from swiftfl.errors import UserError
    from swiftfl.experiment.build import build
    from swiftfl.experiment.source import reference
    from swiftfl.federation.endpoint import Endpoint
    from swiftfl.federation.enrolled import agreed, check_layout, plan_of
    from swiftfl.federation.folder import NodeFolder
    from swiftfl.federation.membership import InfluencePolicy
    from swiftfl.federation.node import Node
    from swiftfl.federation.service import NodeService
    from swiftfl.signals import stop_requests

    found = NodeFolder.read(folder)
    if found.insecure and not insecure:
        raise UserError(f"{folder} says insecure: type --insecure, too, if that is meant")
    if insecure:
        found = replace(found, insecure=True)
        print("swiftfl: INSECURE: no TLS, no certificates; this machine only", file=sys.stderr, flush=True)
    said = None if found.experiment is None else reference(found.experiment)
    if said is None:
        raise UserError(
            f"{folder} names no experiment: add experiment: mine.py:experiment (docs/federation.md)"
        )
    arguments = arguments_of(said)
    config = agreed(arguments.given.described(arguments.config()), found)
    parts = build(config, arguments.given)
    recorded = parts.workload.recorded()
    check_layout(found, recorded.layout_hash, recorded.size)
    plan = plan_of(found, recorded.layout_hash)
    measured = config.influence == "measured"
    policy = InfluencePolicy(plan.influence, measured, config.objective == "as_given")
    began = time.time()

    def say(text: str) -> None:
        print(f"{time.time() - began:8.1f} s  {found.name}: {text}", flush=True)

    with stop_requests() as request:
        running = Node(plan, parts.setup, say, policy, save_seconds)
        request.then(running.stop)
        service = NodeService(running, lambda x: _evaluation(parts, x))
        endpoint = None if metrics is None else Endpoint(metrics, service.status)
        try:
            outcome = running.train()
            if outcome == "finished":
                service.phase = "finished"
                say(
                    f"has taken its {running.control.c - 1} steps"
                    + ("" if leave else ", and stays for the others")
                )
                while not leave and not request():
                    time.sleep(0.1)
            shown = _evaluation(parts, running.x)
            told = ", ".join(f"{name} {value:.4g}" for name, value in shown.items() if value is not None)
            say(f"leaves at step {running.control.c}: {told}")
        finally:
            service.close("stopped" if not leave else "left")
            if endpoint is not None:
                endpoint.close()
            running.close()
    sys.stdout.flush()
    os._exit(0)  # threads of zenoh may take their time to end


def _evaluation(parts: Parts, x: Vector) -> dict[str, float | None]:
    found = parts.workload.evaluate([x])[0]
    return {"loss": found.loss, "accuracy": found.accuracy, **found.metrics}
