"""`swiftfl check-transport`: whether a transport keeps its promises, one experiment after the other."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from swiftfl.cli.names import Imports

MARKS = {True: "passed ", False: "FAILED ", None: "skipped"}


def check_transport(
    name: Annotated[
        str, typer.Argument(help="shared_memory, mpi, memory, or one of your own.", show_default=False)
    ],
    imports: Imports = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Newest wins, never torn, never blocked, rounds in order, losses noticed, nothing left behind.

    swiftfl check-transport shared_memory

    swiftfl check-transport mine --import mine.py
    """
    from swiftfl.transports import conformance
    from swiftfl.transports.registry import TRANSPORTS

    reports = []
    for report in conformance.battery(TRANSPORTS[name]):
        reports.append(report)
        if not as_json:
            print(
                f"{MARKS[report.passed]}  {report.name:<22}{report.seconds:6.2f} s  {report.detail}",
                flush=True,
            )
    passed = all(report.passed is not False for report in reports)
    if as_json:
        print(json.dumps({"transport": name, "passed": passed, "checks": [asdict(r) for r in reports]}))
    if not passed:
        raise typer.Exit(1)
