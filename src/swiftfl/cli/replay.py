"""`swiftfl replay`: a recorded live run, again, in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from swiftfl.cli.names import AcceptChanges


def replay(
    folder: Annotated[Path, typer.Argument(help="The run folder of a finished live run.")],
    accept_changes: AcceptChanges = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
) -> None:
    """Repeat a live run from its record in one process, and compare the models bit for bit.

    swiftfl replay runs/mine

    swiftfl replay runs/mine --json
    """
    from swiftfl.api.own_experiment import objects_of_run
    from swiftfl.experiment.replay import replay_run

    given = objects_of_run(folder, accept_changes)
    found = replay_run(folder, given=given, accept_changes=accept_changes)
    same = found.compared - len(found.different)
    if as_json:
        numbers = {
            "algorithm": found.algorithm,
            "compared": found.compared,
            "same": same,
            "different": found.different,
            "largest_difference": found.largest_difference,
            "loss": found.loss,
            "accuracy": found.accuracy,
            "seconds": found.seconds,
            "run": str(folder),
        }
        print(json.dumps(numbers))
    else:
        print(f"{same} of {found.compared} models are the same, bit for bit ({found.seconds:.1f} s)")
        if found.different:
            print(f"different: clients {found.different}, by up to {found.largest_difference:.3g}")
    if found.different:
        raise typer.Exit(1)
