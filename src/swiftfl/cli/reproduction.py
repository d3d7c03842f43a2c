"""What `swiftfl reproduce` does with one experiment after the other."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from swiftfl.cli.campaign_screen import CampaignScreen
from swiftfl.cli.screen import Interrupted
from swiftfl.experiment.campaign import campaign, finished
from swiftfl.experiment.prediction import write_predictions
from swiftfl.recipes.paper import EXPERIMENTS, Experiment, Options
from swiftfl.recipes.paper.folder import describe, jobs
from swiftfl.record import RunFolder

CONVERGENCE = "convergence"


@dataclass(frozen=True)
class Task:
    """One command: which scale, how often, where, and how."""

    scale: str
    seeds: int
    out: Path
    hardware: str
    options: Options
    workers: int
    command: str

    def run(self, names: list[str]) -> bool:
        """Everything in turn; whether all runs succeeded. The report is written whatever happens."""
        for name in names:  # what is impossible is said before anything runs
            if name != CONVERGENCE:
                self.plan(name)
        try:
            return all([self._one(name) for name in names])
        except KeyboardInterrupt:
            raise Interrupted(f"stopped; to go on: {self.command}") from None
        finally:
            self._report()

    def plan(self, name: str) -> Experiment:
        return EXPERIMENTS[name](self.scale, self.options)

    def _one(self, name: str) -> bool:
        if name == CONVERGENCE:
            return self._convergence()
        folder = self.out / name
        experiment = self.plan(name)
        todo = jobs(experiment, self.seeds, folder)
        for job in todo:
            finished(job)  # refuses a folder of other runs
        describe(
            experiment,
            self.seeds,
            folder,
            {
                "scale": self.scale,
                "engine": self.options.engine,
                "hardware": self.hardware,
                "command": self.command,
            },
        )
        write_predictions(experiment, folder)
        with CampaignScreen(name) as screen:
            progress = campaign(todo, self.workers, screen)
        screen.say(progress)
        for path, reason in progress.failed.items():
            print(f"failed: {path}: {reason}", file=sys.stderr)
        RunFolder(folder).write_json("failed.json", progress.failed)
        return not progress.failed

    def _convergence(self) -> bool:
        from swiftfl.convergence import reproduce

        reproduce(self.scale, self.seeds, self.out / CONVERGENCE, None)
        return True

    def _report(self) -> None:
        try:
            from swiftfl.report.reproduction import write
        except ImportError:
            return
        print(f"Report: {write(self.out)}")
