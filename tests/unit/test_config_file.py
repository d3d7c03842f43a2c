"""Configuration files: YAML, TOML and JSON say the same, and what is wrong is reported with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swiftfl.cli.main import run_command
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.config_file import read_config_file, yaml_text
from swiftfl.record import RunFolder

pytestmark = pytest.mark.usefixtures("without_pictures")

YAML = """\
data:
  partition: label_skew:0.3   # a comment
  batch_size: 32
model:
  name: logistic
  batching: off               # text, as in YAML 1.2
topology: {name: ring, clients: 4}
algorithm:
  name: swift
  weight_decay: 1e-4          # a number, although YAML 1.1 says text
  step_size: {initial: 0.05}
engine:
  epochs: 1
  costs:
    slowdowns:
      - {client: 1, factor: 4}
evaluation: {metrics: [top5]}
seed: 3
"""
TOML = """\
seed = 3
[data]
partition = "label_skew:0.3"
batch_size = 32
[model]
name = "logistic"
batching = "off"
[topology]
name = "ring"
clients = 4
[algorithm]
name = "swift"
weight_decay = 1e-4
step_size = { initial = 0.05 }
[engine]
epochs = 1
[[engine.costs.slowdowns]]
client = 1
factor = 4
[evaluation]
metrics = ["top5"]
"""
CHANGES: dict[str, Any] = {
    "data.partition": "label_skew:0.3",
    "data.batch_size": 32,
    "model.name": "logistic",
    "model.batching": "off",
    "topology.clients": 4,
    "algorithm.weight_decay": 1e-4,
    "algorithm.step_size.initial": 0.05,
    "engine.epochs": 1,
    "engine.costs.slowdowns": [{"client": 1, "factor": 4}],
    "evaluation.metrics": ["top5"],
    "seed": 3,
}


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_the_three_formats_say_the_same(tmp_path: Path) -> None:
    asked = Config().with_changes(CHANGES)
    plain = json.dumps(asked.model_dump(mode="json"))
    for name, text in {"a.yaml": YAML, "a.yml": YAML, "a.toml": TOML, "a.json": plain}.items():
        assert parse(read_config_file(written(tmp_path, name, text)).tree) == asked, name


def test_yaml_that_is_written_is_read_back_to_the_same_values(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "text": ["off", "yes", "3", "3:4", "1e-4", "", "null", "~", "2001-01-01", "a: b", "# c", " d", "é\n"],
        "numbers": [0, -3, 1e-05, 0.1 + 0.2, 1e300, float("inf"), -float("inf"), 2**63],
        "others": {"none": None, "true": True, "empty": {}, "list": [[], [1, [2]]]},
    }
    assert read_config_file(written(tmp_path, "a.yaml", yaml_text(values))).tree == values


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.yaml", "seed: 1\nseed: 2\n", "a.yaml:2: seed is given twice, first in line 1"),
        ("a.yaml", "a: &x [1]\nb: *x\n", "a.yaml:2: aliases are not allowed"),
        ("a.yaml", "a: !!python/object:os.system x\n", "a.yaml:1: tags such as !!python/object:os.system"),
        ("a.yaml", "a: !!int x\n", "a.yaml:1: 'x' is not a number"),
        ("a.yaml", "seed: 1\nmodel: [1\nb: 3\n", "a.yaml:3: not YAML that can be read: while parsing"),
        ("a.yaml", "seed: 1\n---\nseed: 2\n", "a.yaml:2: not YAML that can be read: expected a single"),
        ("a.yaml", "a: " + "[" * 5000, "a.yaml: not YAML that can be read: it is nested too deeply"),
        ("a.yaml", "- seed\n", "a.yaml must hold settings"),
        ("a.yaml", "a: \x07\n", "a.yaml: not YAML that can be read: unacceptable character"),
        ("a.yaml", "#" * (2 << 20), "a.yaml: 2097152 bytes are more than the 1048576"),
        ("a.yaml", "seed: 1\n? [1, 2]\n: 3\n", "a.yaml:2: a key must be a word"),
        ("a.toml", "seed = 1\nseed = 2\n", "a.toml:2: not TOML that can be read"),
        ("a.json", '{"seed": 1, "seed": 2}', "a.json: not JSON that can be read: seed is given twice"),
        ("a.json", '{"seed": 1,\n "data"}', "a.json:2: not JSON that can be read: Expecting ':'"),
    ],
)
def test_what_is_no_configuration_is_refused_with_its_line(
    name: str, text: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        read_config_file(written(tmp_path, name, text))
    assert told in str(refused.value).replace(f"{tmp_path}/", "")


def test_aliases_cannot_grow_a_small_file_into_a_large_tree(tmp_path: Path) -> None:
    """The "billion laughs": nine lines that would be 10^9 words."""
    lines = ["a0: &a0 [lol, lol]"] + [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 9)]
    with pytest.raises(UserError, match=r"a\.yaml:2: aliases are not allowed"):
        read_config_file(written(tmp_path, "a.yaml", "\n".join(lines)))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "a.yaml",
            "seed: 1\nalgorithm:\n  momentun: 0.9\n",
            "a.yaml:3: unknown key algorithm.momentun; did you",
        ),
        ("a.yaml", "seed: 1\nalgoritm: {}\n", "a.yaml:2: unknown key algoritm; did you mean algorithm?"),
        (
            "a.yaml",
            "algorithm:\n  name: dsdg\n",
            "a.yaml:2: there is no algorithm 'dsdg': did you mean dsgd?",
        ),
        ("a.yaml", "data:\n  batch_size: 0\n", "a.yaml:2: data.batch_size must be at least 1, not 0"),
        ("a.yaml", "data:\n  partition: slices\n", "a.yaml:2: there is no partition 'slices'"),
        ("a.yaml", "algorithm:\n  budget: 0.5\n", "a.yaml:2: algorithm.budget is for matcha, not swift"),
        ("a.yaml", "algorithm:\n  weights: best\n", "a.yaml:2: there is no weight method 'best'"),
        ("a.yaml", "engine:\n  name: virtual\n", "a.yaml:1: engine: a run needs an end"),
        (
            "a.yaml",
            "engine:\n  epochs: 1\n  costs:\n    slowdowns:\n    - client: 1\n      factr: 4\n",
            "a.yaml:6: unknown key engine.costs.slowdowns.0.factr; did you mean factor?",
        ),
        ("a.yaml", "seed: soon\n", 'a.yaml:1: seed must be a whole number, not "soon"'),
        ("a.toml", "seed = 1\n[data]\ncolour = 1\n", "a.toml:3: unknown key data.colour (data has dataset,"),
        (
            "a.toml",
            "[data]\n\ndataset = 'digit'\n",
            "a.toml:3: there is no dataset 'digit': did you mean digits",
        ),
        ("a.json", '{\n "seed": 1,\n "data": {\n  "colour": 1}}', "a.json:4: unknown key data.colour"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_line(
    name: str, text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    written(tmp_path, name, text)
    assert run_command(["run", name]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"swiftfl: {told}")
    assert shown.err.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_dry_run_prints_a_file_that_runs_to_the_same_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "mine.yaml", YAML)
    written(tmp_path, "edges.txt", "0 1\n1 2\n2 3\n3 0\n0 2\n")
    asked = ["mine.yaml", "--algorithm", "dsgd", "--edges", "edges.txt"]
    assert run_command(["run", *asked, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert sorted(file.name for file in tmp_path.iterdir()) == ["edges.txt", "mine.yaml"]
    written(tmp_path, "resolved.yaml", shown.out)
    (tmp_path / "edges.txt").unlink(missing_ok=False)
    assert run_command(["run", "resolved.yaml", "--out", "again"]) == 0
    written(tmp_path, "edges.txt", "0 1\n1 2\n2 3\n3 0\n0 2\n")
    assert run_command(["run", *asked, "--out", "first"]) == 0
    first, again = (RunFolder.open(tmp_path / name) for name in ("first", "again"))
    assert first.read_json("config.json") == again.read_json("config.json")
    assert first.read_json("config.json") == read_config_file(tmp_path / "resolved.yaml").tree
    assert (first.read_models()["models"] == again.read_models()["models"]).all()
