"""`swiftfl run mine.py:experiment`: the arguments of `swiftfl.train` by reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import swiftfl
from own_experiment import EXPERIMENT
from swiftfl.api.own_experiment import arguments_of, configuration_of, objects_of
from swiftfl.cli.configuration import configuration
from swiftfl.cli.main import run_command
from swiftfl.errors import UserError
from swiftfl.experiment.campaign import run_or_resume
from swiftfl.experiment.run import RunStopped, run
from swiftfl.experiment.source import load_module, reference
from swiftfl.record import RunFolder

pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(EXPERIMENT)
    return file


def models(run_folder: str) -> Any:
    return RunFolder.open(Path(run_folder)).read_models()["models"]


def test_the_command_is_train_with_these_arguments(mine: Path, capsys: Any) -> None:
    assert run_command(["run", "mine.py:experiment", "--json", "--out", "run"]) == 0
    assert set(json.loads(capsys.readouterr().out)["metrics"]) == {"ones"}
    arguments = load_module(str(mine)).module.experiment()
    by_hand = swiftfl.train(**arguments, out="by_hand", progress=False)
    assert np.array_equal(models("run"), models("by_hand"))
    recorded = json.loads(Path("run/config.json").read_text())
    assert recorded["experiment"] == f"{mine}:experiment"
    assert list(recorded["sources"]) == [str(mine)]
    assert recorded["algorithm"]["name"] == "given:Often"
    loaded = swiftfl.load("run")
    assert type(loaded.model()).__name__ == "Net"  # found again by its reference
    assert run_command(["run", "run/config.json", "--json", "--out", "again"]) == 0
    assert np.array_equal(models("run"), models("again"))
    assert by_hand.accuracy == loaded.accuracy


def test_options_override_what_the_experiment_says(mine: Path) -> None:
    line = [
        "run",
        "mine.py:experiment",
        "--epochs",
        "1",
        "--clients",
        "4",
        "--algorithm",
        "dsgd",
        "--seed",
        "3",
    ]
    assert run_command([*line, "--model", "logistic", "--metrics", "accuracy", "--json", "--out", "run"]) == 0
    recorded = json.loads(Path("run/config.json").read_text())
    assert (recorded["engine"]["epochs"], recorded["topology"]["clients"], recorded["seed"]) == (1, 4, 3)
    assert (recorded["algorithm"]["name"], recorded["algorithm"]["rule"]) == ("dsgd", "sgd")
    assert (recorded["model"]["name"], recorded["data"]["dataset"]) == ("logistic", "given:data")
    assert recorded["evaluation"]["metrics"] == ["accuracy"]


def test_a_stopped_run_goes_on_bit_for_bit(mine: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def stop(done: int, total: int, last: Any) -> None:
        if last.epoch > 1.9:
            raise KeyboardInterrupt

    config = configuration("mine.py:experiment")
    whole = run(config, given=objects_of(config))
    with pytest.raises(RunStopped, match="to go on: swiftfl resume"):
        run(config, Path("run"), stop, given=objects_of(config))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    mine.write_text(EXPERIMENT + "\n# changed\n")
    assert run_command(["resume", "../run"]) == 2
    assert f"{mine} was changed after the run began" in capsys.readouterr().err
    mine.write_text(EXPERIMENT)
    assert run_command(["resume", "../run", "--json"]) == 0
    assert np.array_equal(models("../run"), np.stack(whole.models))


def test_a_campaign_has_the_objects_too(mine: Path) -> None:
    config = configuration("mine.py:experiment")
    run_or_resume(Path("run"), config, lambda done, total, last: None, 30.0)
    assert np.array_equal(models("run"), np.stack(run(config, given=objects_of(config)).models))


def test_it_is_called_once_until_its_code_changes(mine: Path) -> None:
    said = reference("mine.py:experiment")
    assert said is not None
    assert configuration_of(said).topology.clients == 3
    assert arguments_of(said) is arguments_of(said)
    mine.write_text(EXPERIMENT.replace('"clients": 3', '"clients": 5'))
    assert configuration("mine.py:experiment").topology.clients == 5


def test_names_inside_are_relative_to_the_file(mine: Path, tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    mine.rename(folder / "mine.py")
    text = "def experiment():\n    return {'model': 'mine.py:Net', 'train': 'digits'}\n"
    (folder / "other.py").write_text(text)
    said = reference("inner/other.py:experiment")
    assert said is not None
    assert configuration_of(said).model.name == f"{folder}/mine.py:Net"


def returns(arguments: str) -> str:
    return f"def experiment():\n    return {arguments}\n"


WRONG: dict[str, tuple[str, str]] = {
    "not callable": (
        "experiment = {'model': 1}\n",
        "mine.py:experiment is a dict; it must be a function that",
    ),
    "needs arguments": (
        "def experiment(lr): pass\n",
        "mine.py:experiment must work without arguments: missing",
    ),
    "no dict": (returns("[1, 2]"), "mine.py:experiment returned a list; it must return a dict"),
    "unknown": (
        returns("{'model': 'mlp', 'train': 'digits', 'epoch': 3}"),
        "mine.py:experiment: there is no argument 'epoch': did you mean epochs?",
    ),
    "nothing to train": (returns("{'train': 'digits'}"), "mine.py:experiment: it returns no 'model'"),
    "elsewhere": (
        returns("{'model': 'mlp', 'train': 'digits', 'out': 'here'}"),
        "mine.py:experiment: 'out' is no part of an experiment: say --out on the command line",
    ),
    "a wrong value": (
        returns("{'model': 3, 'train': 'digits'}"),
        "mine.py:experiment: model must be a torch.nn.Module, a function that makes one, or a name, not 3",
    ),
    "it fails": (returns("1 / 0"), "mine.py:experiment failed: line 2: ZeroDivisionError: division by zero"),
    "no such name": ("def experimnt(): pass\n", "has no 'experiment': did you mean experimnt?"),
    "no such file": ("", "there is no file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_experiments_are_one_line(case: str, mine: Path, capsys: Any) -> None:
    text, message = WRONG[case]
    mine.write_text(text)
    recipe = "their.py:experiment" if case == "no such file" else "mine.py:experiment"
    assert run_command(["run", recipe, "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not Path("run").exists()


def test_objects_of_python_go_on_in_python(mine: Path, capsys: Any) -> None:
    """A lambda is recorded as such; the command line says what is missing and how to go on."""
    arguments = load_module(str(mine)).module.experiment()
    make = arguments.pop("model")

    class Stop:
        def on_start(self, run: object) -> None: ...
        def on_event(self, row: object) -> None: ...
        def on_end(self, summary: object) -> None: ...
        def on_evaluation(self, row: Any) -> None:
            if row["epoch"] > 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swiftfl.train(lambda: make(), **arguments, out="run", progress=False, callbacks=[Stop()])
    assert json.loads(Path("run/config.json").read_text())["model"]["name"] == "given:<lambda>"
    assert run_command(["resume", "run"]) == 2
    assert "swiftfl.train(model=..., resume=FOLDER)" in capsys.readouterr().err
    with pytest.raises(UserError, match="model was <lambda> when the run began, and is Net now"):
        swiftfl.train(make, **arguments, resume="run", progress=False)
    whole = swiftfl.train(make, **arguments, progress=False)
    again = swiftfl.train(lambda: make(), **arguments, resume="run", progress=False)
    assert again.loss == whole.loss
