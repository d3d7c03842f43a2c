"""Own models, data, losses, metrics and algorithms by reference, where a configuration has names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swiftfl.cli.main import run_command
from swiftfl.errors import UserError
from swiftfl.experiment.build import build, resolve
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.learning_config import ModelConfig
from swiftfl.experiment.own import full_names
from swiftfl.experiment.recipes import digits
from swiftfl.experiment.run import RunResult, RunStopped, resume, run
from swiftfl.record import RunFolder
from swiftfl.workload.models import MODELS

pytestmark = pytest.mark.usefixtures("without_pictures")

MINE = Path(__file__).parents[2] / "examples" / "own_code" / "mine.py"
SHORT = {"topology.clients": 4, "engine.epochs": 3, "data.batch_size": 32}
OWN = {
    "model.name": "mine.py:Net",
    "model.options": {"hidden": 8},
    "model.loss": "mine.py:smoothed",
    "data.dataset": "mine.py:spirals",
    "data.options": {"samples": 320},
    "algorithm.name": "mine.py:Lazy",
    "algorithm.far": 0.3,
    "evaluation.metrics": ["mine.py:worst_class", "accuracy"],
}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example in a folder of its own, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(MINE.read_text())
    return file


def test_a_run_is_made_of_them(mine: Path) -> None:
    config = Config().with_changes({**SHORT, **OWN})
    result = run(config, Path("run"))
    recorded = RunFolder.open(Path("run")).read_json("config.json")
    assert recorded["model"]["name"] == f"{mine}:Net"
    assert recorded["model"]["options"] == {"hidden": 8}
    assert recorded["algorithm"]["weights"] == "ccs"  # its clients do not meet in rounds
    assert recorded["algorithm"]["far"] == 0.3
    assert recorded["data"]["options"] == {"samples": 320, "turns": 0.75, "seed": 0}
    assert result.summary["parameters"] == 2 * 8 + 8 + 8 * 2 + 2
    assert set(result.summary["metrics"]) == {"worst_class", "accuracy"}
    assert list(recorded["sources"]) == [str(mine)]
    assert recorded["sources"][str(mine)]["said"] == "mine.py"


def test_references_are_the_registered_things(mine: Path) -> None:
    """The same model, bit for bit, as the one that swiftfl has under a name."""
    mine.write_text(
        "from swiftfl.workload.basic_models import mlp\n"
        "from swiftfl.algorithms.swift import swift\n"
        "from swiftfl.data.digits import digits as data\n"
        "from torch.nn.functional import cross_entropy as loss\n"
    )
    names = {"model.name": "mlp", "algorithm.name": "swift", "data.dataset": "data", "model.loss": "loss"}
    plain = digits().with_changes(SHORT)
    own = plain.with_changes({key: f"mine.py:{name}" for key, name in names.items()})
    assert own.algorithm.options == plain.algorithm.options
    one, other = run(plain), run(own)
    assert all(map(np.array_equal, one.models, other.models))


def test_a_module_itself_may_be_named(mine: Path) -> None:
    with mine.open("a") as file:
        file.write("\ntorch.manual_seed(3)\nnet = Net((2,), 2, 4)\ndata = spirals(200)\n")
    config = Config().with_changes(
        {**SHORT, "model.name": "mine.py:net", "data.dataset": "mine.py:data", "model.options": {}}
    )
    x = build(config).workload.initial(0)
    assert np.array_equal(x, build(config).workload.initial(1))  # its own values, whatever the seed
    assert x.size == 2 * 4 + 4 + 4 * 2 + 2


def test_names_mean_the_same_everywhere(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(name="mine.py:Net")
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "mine.py").write_text("def Net(): raise RuntimeError\n")
    monkeypatch.chdir(other)
    assert config.name == f"{mine}:Net"
    assert MODELS[config.name]((2,), 2) is not None


def test_a_configuration_names_files_beside_it(mine: Path, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    mine.rename(folder / "mine.py")
    (folder / "more.py").write_text("")
    tree: dict[str, Any] = {"model": {"name": "mine.py:Net"}, "imports": ["more.py"]}
    tree["evaluation"] = {"metrics": ["mine.py:worst_class"]}
    assert parse(full_names(tree, folder)).model.name == f"{folder}/mine.py:Net"
    (folder / "config.json").write_text(json.dumps(tree))
    line = ["run", "inner/config.json", "--clients", "4", "--epochs", "1", "--json", "--out", "run"]
    assert run_command(line) == 0
    assert list(json.loads(capsys.readouterr().out)["metrics"]) == ["worst_class"]


# --- digests ---------------------------------------------------------------------------------------


def stopped(config: Config, out: Path) -> None:
    def stop(done: int, total: int, last: Any) -> None:
        if last.epoch > 0.9:
            raise KeyboardInterrupt

    with pytest.raises(RunStopped):
        run(config, out, stop)


def test_a_stopped_run_finds_its_code_again_from_elsewhere(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config().with_changes({**SHORT, **OWN})
    whole = run(config)
    stopped(config, tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = resume(tmp_path / "run")
    assert all(map(np.array_equal, whole.models, again.models))


def test_changed_code_is_refused_or_accepted(mine: Path, capsys: Any) -> None:
    config = Config().with_changes({**SHORT, **OWN})
    stopped(config, Path("run"))
    was = RunFolder.open(Path("run")).read_json("config.json")["sources"][str(mine)]["digest"]
    mine.write_text(mine.read_text() + "\n# another line\n")
    assert run_command(["resume", "run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f"swiftfl: {mine} was changed after the run began (its SHA-256 was {was[:8]} and is "
    )
    assert "--accept-changes" in said
    assert said.count("\n") == 1
    result: RunResult = resume(Path("run"), accept_changes=True)
    folder = RunFolder.open(Path("run"))
    assert folder.read_json("config.json")["sources"][str(mine)]["digest"] != was
    assert "code_changed" in [event["event"] for event in folder.read_rows("events.jsonl")]
    assert all(map(np.array_equal, result.models, run(config).models))


def test_a_changed_helper_is_noticed(mine: Path) -> None:
    (mine.parent / "helper_d.py").write_text("def width():\n    return 8\n")
    text = "from helper_d import width\nfrom torch import nn\ndef net(shape, classes):\n"
    mine.write_text(text + "    return nn.Linear(shape[0], classes)\n")
    stopped(digits().with_changes({**SHORT, "model.name": "mine.py:net"}), Path("run"))
    (mine.parent / "helper_d.py").write_text("def width():\n    return 9\n")
    with pytest.raises(UserError, match=r"helper_d\.py was changed after the run began"):
        resume(Path("run"))


def test_a_new_run_from_a_recorded_one_says_what_changed(mine: Path, capsys: Any) -> None:
    run(Config().with_changes({**SHORT, **OWN}), Path("run"))
    mine.write_text(mine.read_text() + "\n# another line\n")
    assert run_command(["run", "run/config.json", "--json", "--out", "again"]) == 0
    assert f"{mine} was changed after the run began" in capsys.readouterr().err
    first, again = (json.loads(Path(name, "config.json").read_text()) for name in ("run", "again"))
    assert first["sources"][str(mine)]["digest"] != again["sources"][str(mine)]["digest"]
    assert {**first, "sources": 0} == {**again, "sources": 0}


def test_a_file_that_was_moved_is_found_where_it_was_said(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(Config().with_changes({**SHORT, **OWN}), Path("run"))
    (tmp_path / "moved").mkdir()
    mine.rename(tmp_path / "moved" / "mine.py")
    with pytest.raises(UserError, match=f"there is no file {mine}"):
        resume(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "moved")
    assert resume(tmp_path / "run").summary["diverged"] is False


def test_imported_files_have_digests_too(mine: Path) -> None:
    config = resolve(digits().with_changes({"imports": [str(mine)]}))
    assert list(config.sources) == [str(mine)]


# --- wrong uses ------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, list[str], str]] = {
    "not a function": (
        "x = 3\n",
        ["--model", "mine.py:x"],
        "mine.py:x is a int, not a function or class that",
    ),
    "no module": (
        "def net():\n    return 3\n",
        ["--model", "mine.py:net"],
        "mine.py:net returned a int, not a torch.nn.Module",
    ),
    "an unknown option": (
        "def net(hidden: int = 3): pass\n",
        ["--model", "mine.py:net", "--set", "model.options.hiden=4"],
        "there is no such setting: did you mean hidden?",
    ),
    "a wrong value": (
        "def net(hidden: int = 3): pass\n",
        ["--model", "mine.py:net", "--set", "model.options.hidden=many"],
        "model.options.hidden must be a whole number",
    ),
    "a missing option": (
        "def net(width): pass\n",
        ["--model", "mine.py:net"],
        "model.options.width is missing",
    ),
    "it fails": (
        "def net(shape):\n    return shape + 1\n",
        ["--model", "mine.py:net"],
        "mine.py:net failed: line 2: TypeError: can only concatenate tuple",
    ),
    "no algorithm": (
        "class Mine:\n    name = 'mine'\n",
        ["--algorithm", "mine.py:Mine"],
        "made a Mine, which is no algorithm: it has no step, rule, in_rounds",
    ),
    "no dataset": (
        "import torch\ndef data(): return torch.zeros(4, 2), torch.zeros(4)\n",
        ["--set", "data.dataset=mine.py:data"],
        "mine.py:data returned (Tensor, Tensor); it must return (train, test)",
    ),
    "an unknown part of a dataset": (
        "def data(): return {'train': 1, 'tests': 2}\n",
        ["--set", "data.dataset=mine.py:data"],
        "mine.py:data returned 'tests', which no dataset has: did you mean test?",
    ),
    "a folder that is not used": (
        "def data(): pass\n",
        ["--set", "data.dataset=mine.py:data", "--data", "somewhere"],
        "--data is not used: dataset",
    ),
    "a class as a metric": ("class F1: pass\n", ["--metrics", "mine.py:F1"], "a metric is a function of"),
    "two metrics of one name": (
        "def accuracy(outputs, labels): return 1.0\n",
        ["--metrics", "mine.py:accuracy,accuracy"],
        "mine.py:accuracy and accuracy have the same name",
    ),
    "a loss that fails": (
        "class Loss:\n    def __init__(self, weight): pass\n",
        ["--set", "model.loss=mine.py:Loss"],
        "mine.py:Loss failed: TypeError:",
    ),
    "a file alone": ("x = 3\n", ["--model", "mine.py"], "mine.py is a file: say what of it is meant"),
    "no such file": ("", ["--algorithm", "their.py:Mine"], "there is no file "),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_uses_are_one_line(case: str, mine: Path, capsys: Any) -> None:
    text, options, message = WRONG[case]
    mine.write_text(text)
    assert run_command(["run", "digits", *options, "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert sorted(file.name for file in mine.parent.iterdir()) in (["mine.py"], ["__pycache__", "mine.py"])


def test_what_a_step_of_ones_own_raises_is_one_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing.py").write_text(
        "class Failing:\n"
        "    name, in_rounds = 'failing', False\n\n"
        "    def __init__(self, rule):\n"
        "        self.rule = rule\n\n"
        "    def step(self, me, s):\n"
        "        raise ValueError('not today')\n"
        "        yield\n"
    )
    command = "run digits --algorithm failing.py:Failing --clients 2 --iterations 4 --out run"
    assert run_command(command.split()) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == "swiftfl: failing.py, line 8: ValueError: not today"


def test_a_mistake_of_our_own_stays_a_traceback(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while code of the user's own is loaded."""

    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("swiftfl.experiment.run.run", broken)
    with pytest.raises(RuntimeError, match="ours"):
        run_command(["run", "digits", "--model", "mine.py:Net", "--out", "run"])
