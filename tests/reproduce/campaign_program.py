"""A campaign as a process that a test can kill: `python campaign_program.py FOLDER EPOCHS WORKERS`."""

from __future__ import annotations

import sys
from pathlib import Path

from swiftfl.experiment.campaign import PlannedRun, campaign
from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import digits

LENGTHS = (1, 40, 1)
"""Of the runs, relative to EPOCHS: the second is long enough to be ended in its middle."""


def planned(folder: Path, epochs: int) -> list[PlannedRun]:
    return [
        PlannedRun(
            folder / f"run{k}", config(epochs * factor, k), 96 * epochs * factor, checkpoint_seconds=0.1
        )
        for k, factor in enumerate(LENGTHS)
    ]


def config(epochs: int, seed: int) -> Config:
    return digits().with_changes({"engine.epochs": epochs, "seed": seed, "evaluation.clients": 0})


if __name__ == "__main__":
    campaign(planned(Path(sys.argv[1]), int(sys.argv[2])), int(sys.argv[3]), lambda progress: None)
