"""What `train`, `load` and `compare` give: models, tables, pictures and a page."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import swiftfl
from report_data import embedded_in
from swiftfl.report.comparison import loss_of_all, seeds_table, time_to_loss


def data(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 3, generator=draw)
    return inputs, (inputs.sum(1) > 0).long()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> swiftfl.Result:
    out = tmp_path_factory.mktemp("api") / "mine"
    return swiftfl.train(net, data(96, 1), data(40, 2), clients=3, epochs=2, metrics=["top5"], out=str(out))


@pytest.fixture(scope="module")
def compared() -> swiftfl.Comparison:
    runs: dict[str, Any] = {"SWIFT": "swift", "D-SGD": {"algorithm": "dsgd", "batch_size": 8}}
    return swiftfl.compare(runs, net, data(96, 1), data(40, 2), clients=3, epochs=2, seeds=2, seed=5)


def test_a_loaded_run_is_the_one_that_was_recorded(recorded: swiftfl.Result) -> None:
    assert recorded.folder is not None
    loaded = swiftfl.load(str(recorded.folder), model=net)
    assert loaded.summary == recorded.summary
    assert loaded.curve == recorded.curve
    for client in (None, 0, 2):
        for key, value in recorded.state_dict(client).items():
            assert torch.equal(value, loaded.state_dict(client)[key]), key
    fresh = net()
    fresh.load_state_dict(loaded.state_dict())  # strict: nothing is missing
    inputs, labels = data(40, 2)
    said = fresh.eval()(inputs).argmax(1)
    assert float((said == labels).double().mean()) == pytest.approx(recorded.accuracy)


def test_without_its_model_a_loaded_run_still_has_what_was_trained(recorded: swiftfl.Result) -> None:
    assert recorded.folder is not None
    loaded = swiftfl.load(recorded.folder)
    with pytest.raises(
        swiftfl.UserError, match=r"the model net was given in Python: give it again, swiftfl\.load"
    ):
        loaded.model()
    assert torch.equal(loaded.state_dict()["1.running_mean"], recorded.state_dict()["1.running_mean"])
    with pytest.raises(swiftfl.UserError, match="is not the one of this run"):
        swiftfl.load(recorded.folder, model=nn.Linear(3, 2)).model()


def test_a_run_by_names_is_loaded_with_its_model(tmp_path: Path) -> None:
    result = swiftfl.train("logistic", "digits", clients=2, epochs=1, out=tmp_path / "run")
    loaded = swiftfl.load(tmp_path / "run")
    assert torch.equal(loaded.model().state_dict()["weight"], result.model().state_dict()["weight"])


def test_a_result_says_what_it_is(recorded: swiftfl.Result) -> None:
    assert "swift on data: 3 clients, ring" in repr(recorded)
    assert f"accuracy {recorded.accuracy:.1%}" in repr(recorded)
    assert str(recorded.folder) in repr(recorded)


def test_frames_need_pandas_only_when_asked(
    recorded: swiftfl.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    frame = recorded.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["loss"]) == [row["loss"] for row in recorded.curve]
    assert frame["metrics.top5"].iloc[-1] == 1.0
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(swiftfl.UserError, match=r"frame\(\) needs pandas: pip install pandas"):
        recorded.frame()


def test_pictures_and_a_page(recorded: swiftfl.Result, compared: swiftfl.Comparison, tmp_path: Path) -> None:
    recorded.plot(tmp_path / "new" / "loss.svg")
    assert (tmp_path / "new" / "loss.svg").read_text().startswith("<?xml")
    figure = compared.plot(tmp_path / "both.png", over="epoch")
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["SWIFT", "D-SGD", "mean of the clients' own"]
    assert len(figure.axes[0].get_lines()) == 2 * (2 + 2)  # a faint line per seed, the mean, the clients' own
    assert recorded.report() == recorded.folder / "report.html"  # type: ignore[operator]
    about = embedded_in(recorded.report(tmp_path / "page.html"))["about"]
    assert about["config"]["model"]["name"] == "given:net"
    assert about["summary"]["accuracy"] == recorded.summary["accuracy"]
    unrecorded = replace(recorded, folder=None)
    run = embedded_in(unrecorded.report(tmp_path / "memory.html"))
    assert run["about"]["config"] == about["config"]
    assert run["curves"]["columns"]["loss"] == [row["loss"] for row in recorded.curve]
    assert run["events"]["events"] == recorded.events


def test_a_comparison_by_name_and_by_seed(compared: swiftfl.Comparison) -> None:
    assert list(compared) == ["SWIFT", "D-SGD"]
    assert [run.config.seed for run in compared.runs["SWIFT"]] == [5, 6]
    assert compared["D-SGD"].config.data.batch_size == 8
    alone = swiftfl.train(net, data(96, 1), data(40, 2), clients=3, epochs=2, seed=6)
    assert alone.loss == compared.runs["SWIFT"][1].loss
    losses = [run.loss for run in compared.runs["SWIFT"]]
    shown = repr(compared.table(loss=1e-9))
    assert f"{np.mean(losses):.3f} ± {np.std(losses, ddof=1):.3f}" in shown
    assert "2 seeds" in shown
    assert "<table>" in compared.table()._repr_html_()
    frame = compared.frame()
    assert set(frame["run"]) == {"SWIFT", "D-SGD"}
    with pytest.raises(swiftfl.UserError, match="there is no run 'swfit'"):
        compared["swfit"]


def test_the_time_to_a_loss() -> None:
    falling = [{"time": float(k), "loss": 2.0 / (k + 1)} for k in range(4)]
    assert time_to_loss(falling, 0.7) == 2.0
    assert time_to_loss(falling, 0.1) is None
    assert loss_of_all([falling, falling[:2]]) == 1.0
    assert loss_of_all([[{"time": 0.0, "loss": None}]]) is None
    rising = [{"time": float(k), "loss": 2.0 + k} for k in range(3)]
    assert loss_of_all([falling, rising]) is None  # all had this loss at the start
    summary = {"loss": 1.0, "accuracy": None, "seconds_per_epoch": 1.0, "waiting_seconds_per_epoch": 0.5}
    table = seeds_table({"a": [(summary, falling), (summary, falling[:2])]}, 0.7)
    assert table.columns[-1] == "to loss 0.7 (s)"
    assert table.rows[0][-1] == "2.000 (1 of 2)"
    assert "accuracy (%)" not in table.columns
