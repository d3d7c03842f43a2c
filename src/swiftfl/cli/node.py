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
        typer.Option(
            help="Serve /metrics (Prometheus) and /health there; HOST is 127.0.0.1.", metavar="[HOST:]PORT"
        ),
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

    swiftfl node node.yaml --metrics 9464
    """
    from swiftfl.api.own_experiment import arguments_of
    from swiftfl.errors import UserError
    from swiftfl.experiment.build import build
    from swiftfl.experiment.source import reference
    from swiftfl.federation.endpoint import Endpoint
    from swiftfl.federation.enrolled import agreed, check_layout, plan_of
    from swiftfl.federation.folder import NodeFolder
    from swiftfl.federation.membership import InfluencePolicy
    from swiftfl.federation.node import Node
    from swiftfl.federation.record import NodeRecord
    from swiftfl.federation.service import NodeService, shown
    from swiftfl.signals import stop_requests

    found = NodeFolder.read(folder)
    if found.insecure and not insecure:
        raise UserError(f"{found.path} says insecure: type --insecure, too, if that is meant")
    if insecure and not found.insecure:
        raise UserError(
            f"{found.path} is of a node with TLS: leave --insecure out "
            "(swiftfl federation init --insecure makes nodes without)"
        )
    if insecure:
        print("swiftfl: INSECURE: no TLS, no certificates; this machine only", file=sys.stderr, flush=True)
    said = None if found.experiment is None else reference(found.experiment)
    if said is None:
        raise UserError(
            f"{found.path} names no experiment: add experiment: mine.py:experiment (docs/federation.md)"
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
        record = NodeRecord(plan, config.model_dump(mode="json"), parts.setup.steps_of(0), say)
        try:
            endpoint = None if metrics is None else Endpoint(metrics)
            if endpoint is not None and endpoint.beyond:
                say(f"WARNING: whoever reaches {metrics} can read the metrics there")
            running = Node(plan, parts.setup, say, policy, save_seconds, record.steps)
        except BaseException as error:
            record.give_up(str(error) or type(error).__name__)
            raise
        request.then(running.stop)
        service = NodeService(running, record, lambda x: _evaluation(parts, x))
        if endpoint is not None:
            endpoint.serve(service.status)
        phase, reason, values = "failed", "", {}
        try:
            if running.train() == "finished":
                service.phase = "finished"
                steps = running.control.c - 1
                say(f"has taken its {steps} steps" + ("" if leave else ", and stays for the others"))
                while not leave and not request():
                    service.between_steps(running.x)
                    time.sleep(0.1)
            values = service.measure(running.x)
            say(f"leaves at step {running.control.c}: {shown(values)}")
            phase = "left" if leave else "stopped"
        except BaseException as error:
            reason = str(error) or type(error).__name__
            raise
        finally:
            service.close(phase, values, reason)
            if endpoint is not None:
                endpoint.close()
            running.close()
    sys.stdout.flush()
    os._exit(0)  # threads of zenoh may take their time to end


def _evaluation(parts: Parts, x: Vector) -> dict[str, float | None]:
    found = parts.workload.evaluate([x])[0]
    return {"loss": found.loss, "accuracy": found.accuracy, **found.metrics}
