"""A campaign as a process that a test can kill: `python campaign_program.py FOLDER EPOCHS WORKERS`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from swiftfl.experiment.campaign import PlannedRun, campaign
from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import digits

LENGTHS = (1, 10, 1)
"""Of the runs, relative to EPOCHS."""
HELD_AT = "CAMPAIGN_HELD_AT"
"""Names a folder: the runs wait at their first evaluation after there is one, until a signal comes."""


def planned(folder: Path, epochs: int) -> list[PlannedRun]:
    return [
        PlannedRun(
            folder / f"run{k}", config(epochs * factor, k), 96 * epochs * factor, checkpoint_seconds=0.0
        )
        for k, factor in enumerate(LENGTHS)
    ]


def config(epochs: int, seed: int) -> Config:
    return digits().with_changes(
        {
            "engine.epochs": epochs,
            "seed": seed,
            "evaluation.clients": 0,
            "evaluation.metrics": [f"{Path(__file__).resolve()}:held"],
        }
    )


def held(outputs: torch.Tensor, labels: torch.Tensor) -> float:
    """A metric that keeps a run in its middle, so that it cannot be over before a test has ended it."""
    folder = os.environ.get(HELD_AT)
    if folder is not None and Path(folder).is_dir():
        told, tell = os.pipe()
        os.set_blocking(tell, False)
        before = signal.set_wakeup_fd(tell)
        os.read(told, 1)
        signal.set_wakeup_fd(before)
    return 1.0


if __name__ == "__main__":
    campaign(planned(Path(sys.argv[1]), int(sys.argv[2])), int(sys.argv[3]), lambda progress: None)
