"""The program of a client that engine local spawns; its argument is a descriptor.

It makes the run anew from its configuration, with the user's own code by reference, as a rank of MPI does.
"""

from __future__ import annotations

import sys

from swiftfl.api.own_experiment import objects_of
from swiftfl.engines.live.local.forkserver import run_and_exit
from swiftfl.engines.live.local.spawned import Told, run_spawned
from swiftfl.engines.setup import Setup
from swiftfl.experiment.build import build
from swiftfl.experiment.code import refuse_changed_code
from swiftfl.experiment.config import parse
from swiftfl.logs import switch_on_logs


def setup_of(told: Told) -> Setup:
    config = parse(told["config"])
    refuse_changed_code(config)  # since the run began: this client would train something else than the others
    return build(config, objects_of(config), told["launch"]["client"]).setup


def main() -> None:
    switch_on_logs()
    message = int(sys.argv[1])
    run_and_exit(lambda: run_spawned(message, setup_of))


if __name__ == "__main__":
    main()
