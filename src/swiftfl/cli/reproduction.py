"""What `swiftfl reproduce` does: one experiment after the other, then the report."""

from __future__ import annotations

import contextlib
import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from swiftfl.cli.campaign_screen import CampaignScreen, StageScreen
from swiftfl.cli.screen import Interrupted
from swiftfl.data.registry import dataset
from swiftfl.errors import UserError
from swiftfl.experiment.campaign import PlannedRun, campaign, finished
from swiftfl.experiment.config import Config
from swiftfl.experiment.costs_config import CostsConfig
from swiftfl.experiment.starting import usable_device
from swiftfl.files import remove_stale, write_json
from swiftfl.lock import locked
from swiftfl.record import RunFolder
from swiftfl.reproduce.convergence import experiment as convergence
from swiftfl.reproduce.folder import check_fidelity, describe, make_folder, planned_runs, write_mpi_script
from swiftfl.reproduce.hardware import profile
from swiftfl.reproduce.laboratory import experiment as laboratory
from swiftfl.reproduce.laboratory.plan import SCALES
from swiftfl.reproduce.live_baseline import write_live
from swiftfl.reproduce.parts import check_scale_of
from swiftfl.reproduce.plan import Experiment, ReproductionOptions
from swiftfl.reproduce.prediction import write_predictions
from swiftfl.reproduce.recipes import EXPERIMENTS
from swiftfl.reproduce.report.recorded import MEASURED
from swiftfl.workload.placement import device_of

CONVERGENCE = "convergence"
HARDWARE = "paper"
"""The hardware profile that is used unless another is asked for."""


@dataclass(frozen=True)
class Task:
    """One command: at which scale, with how many seeds, where, and how."""

    scale: str
    seeds: int
    out: Path
    hardware: str
    options: ReproductionOptions
    workers: int
    command: str

    def all_names(self) -> list[str]:
        """The experiments that there are at this scale: the laboratory's have none like the paper's."""
        beyond = laboratory.INQUIRIES if self.scale in SCALES else ()
        return [*EXPERIMENTS, CONVERGENCE, *beyond]

    def run(self, names: list[str]) -> bool:
        """Run the experiments in turn, then write the report of what there is; whether all runs succeeded."""
        planned = self._checked(names)
        try:
            succeeded = [
                self._run_measured(name) if name in MEASURED else self._run_experiment(planned[name])
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

    def _checked(self, names: list[str]) -> dict[str, Experiment]:
        """The plan of each experiment. Whatever is impossible is reported here, before anything runs."""
        measured = [name for name in names if name in MEASURED]
        if names == measured:
            self._refuse_unused_options(names[0])
        for name in measured:
            if name in laboratory.INQUIRIES:
                laboratory.check(name, self.scale, self.seeds)
            check_scale_of(self.out / name, self.scale)
        planned = {name: self._plan(name) for name in names if name not in MEASURED}
        if planned:
            check_fidelity(self.out, self.options.fidelity)
            usable_device(device_of(self.options.device, 0))
        for experiment in planned.values():
            for one in self._planned_runs(experiment):
                finished(one)
        if planned:
            self._check_data(next(iter(planned.values())))
        return planned

    def _refuse_unused_options(self, name: str) -> None:
        defaults = asdict(ReproductionOptions())
        given = [key for key, value in asdict(self.options).items() if value != defaults[key]]
        given += ["hardware"] * (self.hardware != HARDWARE)
        if given:
            flags = ", ".join(f"--{key.replace('_', '-')}" for key in given)
            raise UserError(f"{name} does not use {flags}: it simulates problems of its own")

    def _report_what_there_is(self) -> None:
        # There may be nothing yet, and Ctrl-C may come again: what matters is how to go on.
        with contextlib.suppress(UserError, KeyboardInterrupt):
            self._report()

    def _plan(self, name: str) -> Experiment:
        if self.hardware == HARDWARE:
            return EXPERIMENTS[name](self.scale, self.options)
        return EXPERIMENTS[name](self.scale, replace(self.options, costs=self._measured(name)))

    def _measured(self, name: str) -> CostsConfig:
        """This machine's costs. They are kept: a second measurement would give another experiment."""
        folder = RunFolder(self.out / name)
        file = folder.path / "hardware.json"
        if file.is_file():
            return Config().with_changes({"engine.costs": folder.read_json(file.name)}).engine.costs
        make_folder(folder.path)
        first = EXPERIMENTS[name](self.scale, self.options).cases[0].config
        costs = profile("measured", config=first)
        write_json(file, costs.model_dump(mode="json"))
        return costs

    def _planned_runs(self, experiment: Experiment) -> list[PlannedRun]:
        return planned_runs(experiment, self.seeds, self.out / experiment.name)

    def _check_data(self, experiment: Experiment) -> None:
        """Read the data once (or download it) before several workers do."""
        data = experiment.cases[0].config.data
        try:
            dataset(data.dataset, data.folder)
        except UserError as error:
            hint = "; put the official binary files there, or give --data DIR that has them"
            raise UserError(f"{error}{hint}") from None

    def _run_experiment(self, experiment: Experiment) -> bool:
        folder = self.out / experiment.name
        make_folder(folder)
        with locked(folder):
            _remove_stale(folder)
            about = {
                "scale": self.scale,
                "engine": self.options.engine,
                "hardware": self.hardware,
                "fidelity": self.options.fidelity,
            }
            describe(experiment, self.seeds, folder, {**about, "command": self.command})
            runs = self._planned_runs(experiment)
            with CampaignScreen(experiment.name) as screen:
                screen.doing("predicting times")
                write_predictions(experiment, folder)
                if experiment.name == "baseline":
                    screen.doing("measuring communication with real processes")
                    write_live(experiment, folder, self.scale)
                if self.options.engine == "mpi":
                    _ask_for_mpiexec(runs, folder)
                progress = campaign(runs, self.workers, screen)
            for path, reason in progress.failed.items():
                print(f"failed: {path}: {reason}", file=sys.stderr)
            write_json(folder / "failed.json", progress.failed)
        return not progress.failed

    def _run_measured(self, name: str) -> bool:
        folder = self.out / name
        make_folder(folder)
        with locked(folder), StageScreen(name) as screen:
            _remove_stale(folder)
            if name == CONVERGENCE:
                convergence.measure(self.scale, self.seeds, folder, screen, self.workers)
            else:
                laboratory.measure(name, self.scale, self.seeds, folder, screen, self.workers, self.command)
        return True

    def _report(self) -> None:
        from swiftfl.reproduce.report.document import write  # loads matplotlib

        with StageScreen("report") as screen:
            file = write(self.out, progress=screen)
        print(f"Report: {file}")


def _remove_stale(folder: Path) -> None:
    """Remove what an earlier command that was killed has left half-written."""
    for part in ("", "parts", "tables", "figures", "pages", "mpi"):
        remove_stale(folder / part)


def _ask_for_mpiexec(runs: list[PlannedRun], folder: Path) -> None:
    """MPI starts its own processes, one job per run; when all runs are there, the tables can be made."""
    left = [one for one in runs if not finished(one)]
    if left:
        script = shlex.quote(str(write_mpi_script(left, folder)))
        raise UserError(
            f"engine mpi needs one mpiexec for each of {len(left)} runs: sh {script}; then this command again"
        )
