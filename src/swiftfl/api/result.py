"""What a run found: its models, numbers, curves, pictures and page; of a run just made, or of a folder."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from swiftfl.api.own_experiment import objects_of
from swiftfl.api.words import whole
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.recorder import EVENTS, METRICS, MODEL
from swiftfl.experiment.run import RunResult
from swiftfl.experiment.source import short_name
from swiftfl.record import RunFolder
from swiftfl.record.table import flat
from swiftfl.registry import GIVEN, was_given
from swiftfl.vector import Vector, consensus
from swiftfl.workload.models import model as named_model
from swiftfl.workload.recorded_model import MakeModel, RecordedModel

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Row: TypeAlias = dict[str, Any]
PICTURES = (".svg", ".png", ".pdf")


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """A run that has ended.

    Attributes:
        config: The whole configuration.
        summary: The numbers at its end.
        curve: One row per evaluation.
        events: What happened.
        folder: Where the run is recorded, or None.
        partition: How many samples each client held, and of which classes.
    """

    config: Config
    summary: Row
    curve: list[Row]
    events: list[Row]
    folder: Path | None
    partition: Row
    _models: Sequence[Vector] = field(default=())
    _consensus: Callable[[], Vector] | None = None
    _recorded: RecordedModel | None = None
    _make: MakeModel | None = None

    @property
    def clients(self) -> int:
        """How many there were."""
        return self.config.topology.clients

    @property
    def loss(self) -> float | None:
        """The test loss of the consensus model."""
        return self.summary.get("loss")

    @property
    def accuracy(self) -> float | None:
        """The test accuracy of the consensus model, where there are classes."""
        return self.summary.get("accuracy")

    # --- models ----------------------------------------------------------------------------------

    def model(self, client: int | None = None) -> nn.Module:
        """The consensus of all clients' models, or the model of one client, ready to be used.

        It is a module of its own, with running buffers, on the CPU and in evaluation mode.
        """
        recorded, x = self._vector(client)
        return recorded.module(self._maker(recorded), x)

    def state_dict(self, client: int | None = None) -> dict[str, Tensor]:
        """`model(client).state_dict()`; without a module at hand, what the run trained of it."""
        if self._make is None and was_given(self.config.model.name):
            recorded, x = self._vector(client)
            return recorded.state_dict(x)
        return dict(self.model(client).state_dict())

    def example(self, samples: int = 2) -> Tensor | None:
        """Inputs of zeros, as the model takes them, where inputs are one tensor."""
        about = self._recorded
        if about is None or about.inputs is None:
            return None
        return torch.zeros(samples, *about.inputs, dtype=getattr(torch, about.input_dtype))

    def _vector(self, client: object) -> tuple[RecordedModel, Vector]:
        if self._recorded is None or self._consensus is None:
            raise UserError("this process has no models: another rank of the run has them")
        if client is None:
            return self._recorded, self._consensus()
        number = whole("client", client)
        if not 0 <= number < len(self._models):
            raise UserError(f"model: there is no client {number}; clients are 0 to {len(self._models) - 1}")
        return self._recorded, self._models[number]

    def _maker(self, recorded: RecordedModel) -> MakeModel:
        if self._make is not None:
            return self._make
        config = self.config.model
        found = objects_of(self.config) if was_given(config.name) else None
        if found is not None and found.model is not None:
            return found.model
        if was_given(config.name):
            raise UserError(
                f"the model {config.name.removeprefix(GIVEN)} was given in Python: "
                "give it again, swiftfl.load(FOLDER, model=...)"
            )
        return named_model(
            config.name, recorded.inputs or (), recorded.classes or 1, config.norm, **config.options
        )

    # --- numbers and pictures ----------------------------------------------------------------------

    def frame(self) -> pd.DataFrame:
        """Every evaluation as a row of a pandas table."""
        return frame_of([flat(row) for row in self.curve])

    def plot(self, path: str | os.PathLike[str] | None = None, over: str | None = None) -> Figure:
        """Test loss and accuracy over time, drawn into a file (.svg, .png, .pdf) if one is given.

        `over` is "time", "epoch" or "iteration"; without it, whatever says most of this engine.
        """
        return plot_curves({"": [self.curve]}, self._title(), path, axis(over, self.config.engine.name))

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write one HTML page that needs nothing else, with the views of the dashboard; where it is:
        FOLDER/report.html, or report.html."""
        from swiftfl.report.embedded import embedded_result
        from swiftfl.report.run_page import write_page, write_run_page
        from swiftfl.views.run import RunView

        if path is not None and not isinstance(path, str | os.PathLike):
            raise UserError(f"report: the file must be a path, not {path!r}")
        where = (self.folder or Path()) / "report.html" if path is None else Path(path)
        if self.folder is not None and (self.folder / "config.json").is_file():
            return write_run_page(where, [RunView(self.folder)])
        config = self.config.model_dump(mode="json")
        data = embedded_result(self._title(), config, self.summary, self.curve, self.events, self.partition)
        return write_page(where, self._title(), data)

    def _title(self) -> str:
        c = self.config
        many = f"{c.topology.clients} clients" if c.topology.clients != 1 else "1 client"
        graph = c.topology.name.removeprefix(GIVEN)
        return f"{short_name(c.algorithm.name)} on {short_name(c.data.dataset)}: {many}, {graph}"

    def __repr__(self) -> str:
        if not self.summary:
            return f"<Result of {self._title()}; another rank has it>"
        return f"<Result of {self._title()}; {self._numbers()}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        numbers = self._numbers() if self.summary else "another rank has it"
        return f"<b>{html.escape(self._title())}</b><br>{html.escape(numbers)}"

    def _numbers(self) -> str:
        last = self.curve[-1]
        words = [f"{last['epoch']:.3g} epochs", f"test loss {_short(last['loss'])}"]
        if last.get("accuracy") is not None:
            words.append(f"accuracy {last['accuracy']:.1%}")
        words += [f"{name} {_short(value)}" for name, value in last.get("metrics", {}).items()]
        words += ["diverged"] if self.summary.get("diverged") else []
        return ", ".join([*words, *([f"recorded in {self.folder}"] if self.folder is not None else [])])


def _short(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def result_of(found: RunResult, make: MakeModel | None) -> Result:
    """What the run loop returned, for users."""
    recorded = found.about.get(MODEL)
    members = [found.models[i] for i in found.members] or found.models
    return Result(
        found.config,
        found.summary,
        found.curve,
        found.events,
        found.folder,
        found.about.get("partition.json", {}),
        found.models,
        partial(consensus, members) if members else None,
        None if recorded is None else RecordedModel.from_json(recorded),
        make,
    )


def load(folder: str | os.PathLike[str], model: MakeModel | None = None) -> Result:
    """A recorded run.

    Args:
        folder: The run folder of a finished run.
        model: The module, or the function that makes it, if it was given in Python.

    Returns:
        The same as the run returned.
    """
    if not isinstance(folder, str | os.PathLike):
        raise UserError(f"folder must be the path of a run folder, not {folder!r}")
    if model is not None and not callable(model):
        raise UserError(f"model must be a torch.nn.Module or a function that makes one, not {model!r}")
    there = RunFolder.open(Path(folder))
    if not (there.path / "summary.json").is_file():
        raise UserError(
            f"{folder} has not finished: go on with it first (swiftfl.train(..., resume={str(folder)!r}))"
        )
    if not (there.path / MODEL).is_file():
        raise UserError(f"{folder} has no {MODEL}: it was recorded by an older version")
    arrays = there.read_models()
    return Result(
        parse(there.read_object("config.json")),
        there.read_json("summary.json"),
        there.read_rows(METRICS),
        there.read_rows(EVENTS),
        there.path,
        there.read_json("partition.json"),
        list(arrays["models"]),
        lambda: arrays["consensus"],
        RecordedModel.from_json(there.read_json(MODEL)),
        model,
    )


# --- shared with comparisons ----------------------------------------------------------------------


def frame_of(rows: Sequence[Row]) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError:
        raise UserError("frame() needs pandas: pip install pandas") from None
    return pd.DataFrame(rows)


def axis(over: object, engine: str) -> tuple[str, str]:
    """What curves are drawn over, and how that is called."""
    from swiftfl.report.run_figures import AXES, axis_of

    if over is None:
        return axis_of(engine)
    if over not in AXES:
        raise UserError(f"over must be one of {', '.join(AXES)}, not {over!r}")
    return str(over), AXES[str(over)]


def plot_curves(
    curves: Mapping[str, Sequence[Sequence[Row]]],
    title: str,
    path: object,
    over: tuple[str, str],
) -> Figure:
    """Draw, and write where a path says so."""
    from swiftfl.report.run_figures import curves_figure, write_figure

    if path is not None and (not isinstance(path, str | os.PathLike) or Path(path).suffix not in PICTURES):
        raise UserError(f"plot: the file must end in {', '.join(PICTURES)}, not {str(path)!r}")
    figure = curves_figure(curves, title, over)
    if isinstance(path, str | os.PathLike):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_figure(figure, Path(path))
    return figure
