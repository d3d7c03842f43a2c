"""MLflow: where it records is mlflow's own setting, MLFLOW_TRACKING_URI (default: a database)."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from swiftfl.record.table import flat
from swiftfl.trackers.base import Callback, Row, RunInfo
from swiftfl.trackers.library import numbers, recall, remember, require

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_LONGEST = 500  # characters of a parameter
_AT_ONCE = 100  # parameters that MLflow takes in one call


class MLflow(Callback):
    """Records parameters, curves and the summary of a run with MLflow.

    The step of a metric is the iteration (client steps).

    Args:
        experiment: The experiment's name; by default MLFLOW_EXPERIMENT_NAME, or else `swiftfl`.
        tracking_uri: Where to record; by default what mlflow is set to.
    """

    def __init__(self, experiment: str | None = None, tracking_uri: str | None = None) -> None:
        require("mlflow", "mlflow")
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "swiftfl"
        self._uri = tracking_uri
        self._client: MlflowClient | None = None
        self._run_id = ""
        self._run: RunInfo | None = None

    def on_start(self, run: RunInfo) -> None:
        from mlflow.tracking import MlflowClient

        self._client, self._run = MlflowClient(tracking_uri=self._uri), run
        known = recall(run, "mlflow")
        if known is not None:
            self._run_id = known
            self._client.update_run(known, status="RUNNING")
            return
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = (
            self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        )
        self._run_id = self._client.create_run(experiment, run_name=run.name).info.run_id
        remember(run, "mlflow", self._run_id)
        self._log_parameters(run.config)

    def _log_parameters(self, config: Row) -> None:
        from mlflow.entities import Param

        assert self._client is not None
        values = [Param(name, str(value)[:_LONGEST]) for name, value in flat(config).items()]
        for first in range(0, len(values), _AT_ONCE):
            self._client.log_batch(self._run_id, params=values[first : first + _AT_ONCE])

    def on_evaluation(self, row: Row) -> None:
        values = numbers(row)
        iteration = int(values.pop("iteration"))
        self._log(values, iteration)

    def _log(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        if self._client is not None:
            now = int(time.time() * 1000)
            found: list[Any] = [Metric(name, value, now, step) for name, value in values.items()]
            self._client.log_batch(self._run_id, metrics=found)

    def on_event(self, row: Row) -> None:
        """Events are handed over with the result."""

    def on_end(self, summary: Row | None) -> None:
        if self._client is None or self._run is None:
            return
        if summary is not None:
            values = {f"summary/{name}": value for name, value in numbers(summary).items()}
            self._log(values, int(summary["iterations"]))
        if self._run.folder is not None:
            for file in ("config.json", "events.jsonl"):
                self._client.log_artifact(self._run_id, str(self._run.folder / file))
        self._client.set_terminated(self._run_id, "KILLED" if summary is None else "FINISHED")
        self._client = None
