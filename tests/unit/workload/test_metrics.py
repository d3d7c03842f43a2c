"""Metrics by name: their values, and that runs tell them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.run import run
from swiftfl.workload.metrics import METRICS, evaluate_metrics

SMALL = {
    "data.dataset": "synthetic",
    "data.options": {"samples": 120, "shape": 6, "classes": 3},
    "model.name": "logistic",
    "topology.clients": 4,
    "engine.epochs": 1,
}


def test_values_against_counting_by_hand() -> None:
    outputs = torch.tensor([[3.0, 1, 0], [0, 2, 1], [0, 1, 2], [5, 0, 0], [0, 1, 0]])
    labels = torch.tensor([0, 1, 1, 2, 1])
    assert METRICS["accuracy"](outputs, labels) == 3 / 5
    assert METRICS["top5"](outputs, labels) == 1.0
    # class 0: TP 1, FP 1, FN 0; class 1: TP 2, FP 0, FN 1; class 2: TP 0, FP 1, FN 1
    assert METRICS["f1_macro"](outputs, labels) == pytest.approx((2 / 3 + 4 / 5 + 0) / 3)


def test_top5_looks_at_five_scores() -> None:
    outputs = torch.arange(10.0)[None].repeat(2, 1)
    assert METRICS["top5"](outputs, torch.tensor([5, 4])) == 0.5


def test_a_run_tells_the_metrics_of_the_consensus_model(tmp_path: Path) -> None:
    config = Config().with_changes({**SMALL, "evaluation.metrics": ["f1_macro", "accuracy"]})
    found = run(config, tmp_path / "run")
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["metrics"] == found.summary["metrics"]
    assert list(last["metrics"]) == ["f1_macro", "accuracy"]
    assert last["metrics"]["accuracy"] == pytest.approx(last["accuracy"], abs=1e-12)
    assert 0 < last["metrics"]["f1_macro"] < 1


def test_metrics_change_nothing_else() -> None:
    plain = run(Config().with_changes(SMALL))
    asked = run(Config().with_changes({**SMALL, "evaluation.metrics": ["top5"]}))
    assert plain.summary["loss"] == asked.summary["loss"]
    assert all((x == y).all() for x, y in zip(plain.models, asked.models, strict=True))


def test_an_unknown_metric_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="no metric 'f1_makro': did you mean f1_macro"):
        run(Config().with_changes({**SMALL, "evaluation.metrics": ["f1_makro"]}))


def test_a_metric_that_fails_is_named() -> None:
    with pytest.raises(UserError, match="metric 'broken' failed: ZeroDivisionError"):
        evaluate_metrics(
            {"broken": lambda outputs, labels: 1 / 0}, torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)
        )
