"""What `swiftfl reproduce` does: one experiment after the other, then the report."""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from swiftfl.cli.campaign_screen import CampaignScreen, StageScreen
from swiftfl.cli.screen import Interrupted
from swiftfl.errors import UserError
from swiftfl.experiment.campaign import campaign, finished
from swiftfl.experiment.config import Config, CostsConfig
from swiftfl.experiment.pool import Job
from swiftfl.record import RunFolder
from swiftfl.reproduce.folder import describe, jobs, make
from swiftfl.reproduce.hardware import profile
from swiftfl.reproduce.live_baseline import write_live
from swiftfl.reproduce.mpi_script import write_script
from swiftfl.reproduce.prediction import write_predictions
from swiftfl.reproduce.recipes import EXPERIMENTS, Experiment, ReproductionOptions

CONVERGENCE = "convergence"


@dataclass(frozen=True)
class Task:
    """One command: at which scale, how often, where, and how."""

    scale: str
    seeds: int
    out: Path
    hardware: str
    options: ReproductionOptions
    workers: int
    command: str

    def run(self, names: list[str]) -> bool:
        """Everything in turn; whether all runs succeeded. A report of what there is follows in any case."""
        planned = {name: self._plan(name) for name in names if name != CONVERGENCE}
        for name, experiment in planned.items():  # whatever cannot be is said before anything runs
            for job in self._jobs(experiment):
                finished(job)
            if name == next(iter(planned)):
                self._check_data(experiment)
        try:
            succeeded = [
                self._convergence() if name == CONVERGENCE else self._experiment(planned[name])
                for name in names
            ]
        except KeyboardInterrupt:
            self._report_what_there_is()
            raise Interrupted(f"stopped; to go on: {self.command}") from None
        except UserError:
            self._report_what_there_is()
            raise
        self._report()
        return all(succeeded)

    def _report_what_there_is(self) -> None:
        with contextlib.suppress(UserError):  # nothing yet; why the command ends is the better thing to say
            self._report()

    def _plan(self, name: str) -> Experiment:
        if self.hardware == "paper":
            return EXPERIMENTS[name](self.scale, self.options)
        return EXPERIMENTS[name](self.scale, replace(self.options, costs=self._measured(name)))

    def _measured(self, name: str) -> CostsConfig:
        """This machine's costs: measured once and kept, or else the same command would not be the same."""
        folder = RunFolder(self.out / name)
        if (folder.path / "hardware.json").is_file():
            return Config().with_changes({"engine.costs": folder.read_json("hardware.json")}).engine.costs
        make(folder.path)
        first = EXPERIMENTS[name](self.scale, self.options).cases[0].config
        costs = profile("measured", config=first)
        folder.write_json("hardware.json", costs.model_dump(mode="json"))
        return costs

    def _jobs(self, experiment: Experiment) -> list[Job]:
        return jobs(experiment, self.seeds, self.out / experiment.name)

    def _check_data(self, experiment: Experiment) -> None:
        """Read the data once (or download it) before several workers do."""
        from swiftfl.data.registry import dataset

        data = experiment.cases[0].config.data
        try:
            dataset(data.dataset, data.folder)
        except UserError as error:
            hint = "; put the official binary files there, or give --data DIR that has them"
            raise UserError(f"{error}{hint}") from None

    def _experiment(self, experiment: Experiment) -> bool:
        folder = self.out / experiment.name
        make(folder)
        with _alone(folder):
            about = {"scale": self.scale, "engine": self.options.engine, "hardware": self.hardware}
            describe(experiment, self.seeds, folder, {**about, "command": self.command})
            write_predictions(experiment, folder)
            if experiment.name == "baseline":
                write_live(experiment, folder, self.scale)
            todo = self._jobs(experiment)
            if self.options.engine == "mpi":
                _ask_for_mpiexec(todo, folder)
            with CampaignScreen(experiment.name) as screen:
                progress = campaign(todo, self.workers, screen)
            screen.say(progress)
            for path, reason in progress.failed.items():
                print(f"failed: {path}: {reason}", file=sys.stderr)
            RunFolder(folder).write_json("failed.json", progress.failed)
        return not progress.failed

    def _convergence(self) -> bool:
        from swiftfl.reproduce.convergence import reproduce

        folder = self.out / CONVERGENCE
        make(folder)
        with _alone(folder), StageScreen(CONVERGENCE) as screen:
            reproduce(self.scale, self.seeds, folder, screen, self.workers)
        return True

    def _report(self) -> None:
        from swiftfl.reproduce.report.reproduction import write

        print(f"Report: {write(self.out)}")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One command at a time works in a folder; the lock goes with the process, however it ends."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another command is at work in {folder}") from None
        yield


def _ask_for_mpiexec(todo: list[Job], folder: Path) -> None:
    """MPI starts its own processes, one job per run; when all are there, the tables can be made."""
    left = [job for job in todo if not finished(job)]
    if left:
        script = write_script(left, folder)
        raise UserError(
            f"engine mpi needs one mpiexec for each of {len(left)} runs: sh {script}; then this command again"
        )
