"""Weights & Biases: online with the key that `wandb login` or WANDB_API_KEY gives, offline without one.

What was recorded offline is in the run folder; `wandb sync` uploads it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from swiftfl.trackers.base import Callback, Row, RunInfo
from swiftfl.trackers.library import numbers, recall, remember, require

if TYPE_CHECKING:
    from wandb import Run


class WandB(Callback):
    """Records configuration, curves and summary of a run with Weights & Biases.

    The axis of the curves is `iteration` (client steps). What the program prints, its arguments, its source
    and the state of the machine are not collected.

    Args:
        project: The project's name; by default WANDB_PROJECT, or else `swiftfl`.
        mode: `online` or `offline`; by default WANDB_MODE, or else online if there is a key.
    """

    def __init__(self, project: str | None = None, mode: str | None = None) -> None:
        require("wandb", "wandb")
        self._project = project or os.environ.get("WANDB_PROJECT") or "swiftfl"
        self._mode = mode
        self._run: Run | None = None

    def on_start(self, run: RunInfo) -> None:
        import wandb

        mode = self._mode or os.environ.get("WANDB_MODE")
        if mode is None and wandb.api.api_key is None:
            mode = "offline"  # rather than to ask for a key, which nobody may be there to type
        self._run = wandb.init(
            project=self._project,
            name=run.name,
            id=recall(run, "wandb"),
            resume="allow" if run.resumed else None,
            dir=None if run.folder is None else str(run.folder),
            config=dict(run.config),
            mode=mode,
            settings=wandb.Settings(
                console="off",
                silent=True,
                save_code=False,
                disable_git=True,
                disable_job_creation=True,
                x_disable_meta=True,
                x_disable_stats=True,
            ),
        )
        remember(run, "wandb", self._run.id)
        self._run.define_metric("iteration")
        self._run.define_metric("*", step_metric="iteration")

    def on_evaluation(self, row: Row) -> None:
        if self._run is not None:
            self._run.log(numbers(row))

    def on_event(self, row: Row) -> None:
        """Events stand in the run folder."""

    def on_end(self, summary: Row | None) -> None:
        if self._run is None:
            return
        if summary is not None:
            self._run.summary.update(numbers(summary))
        self._run.finish(exit_code=0 if summary is not None else 1)
        self._run = None
