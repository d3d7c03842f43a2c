"""Things of one's own, registered from outside the package: `examples/extensions/extensions.py`.

Each row of CONTRIBUTING.md's table "what to touch" is proven here. Commands run in processes of their own, so
that nothing that is registered here stays for other tests.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from forked import forked, forked_call
from swiftfl.experiment.config import Config
from swiftfl.experiment.run import RunStopped, run

ROOT = Path(__file__).parents[2]
EXTENSIONS = ROOT / "examples" / "extensions" / "extensions.py"
SHORT = ["--clients", "4", "--epochs", "2", "--lr", "0.002", "--json"]

KINDS = {
    "algorithms": "one_neighbour",
    "rules": "yogi",
    "mixings": "median",
    "poisons": "zeros",
    "schedules": "halving",
    "topologies": "chords",
    "weights": "shy",
    "partitions": "first_classes:FEW",
    "datasets": "moons",
    "models": "two_layers",
    "losses": "smoothed",
    "metrics": "worst_class",
    "codecs": "half",
    "transports": "announced",
    "trackers": "losses",
}

OWN: dict[str, list[str]] = {
    "algorithm": ["--algorithm", "one_neighbour", "--set", "algorithm.keep=0.7"],
    "rule": ["--rule", "yogi", "--set", "algorithm.beta1=0.8"],
    "mixing": ["--mixing", "median"],
    "poison": ["--poison", "2:zeros"],
    "schedule": ["--schedule", "halving:period=1"],
    "topology": ["--topology", "chords:chord=2"],
    "weights": ["--weights", "shy"],
    "partition": ["--partition", "first_classes:3"],
    "dataset": ["--set", "data.dataset=moons", "--set", "data.options.noise=0.2"],
    "model": ["--model", "two_layers", "--set", "model.options.hidden=8"],
    "loss": ["--set", "model.loss=smoothed"],
    "metric": ["--metrics", "worst_class,accuracy"],
    "codec": ["--engine", "local", "--set", "engine.codec=half"],
    "transport": ["--engine", "local", "--set", "engine.live.transport=announced"],
    "tracker": ["--track", "losses"],
}
RECORDED = {
    "algorithm": ("algorithm.keep", 0.7),
    "rule": ("algorithm.beta1", 0.8),
    "mixing": ("algorithm.mixing", "median"),
    "poison": ("faults.poison", [{"client": 2, "kind": "zeros"}]),
    "schedule": ("algorithm.step_size.period", 1),
    "topology": ("topology.options", {"chord": 2}),
    "weights": ("algorithm.weights", "shy"),
    "partition": ("data.partition", "first_classes:3"),
    "dataset": ("data.options", {"samples": 600, "noise": 0.2, "seed": 0}),
    "model": ("model.options", {"hidden": 8}),
    "loss": ("model.loss", "smoothed"),
    "metric": ("evaluation.metrics", ["worst_class", "accuracy"]),
    "codec": ("engine.codec", "half"),
    "transport": ("engine.live.transport", "announced"),
    "tracker": ("trackers", ["losses"]),
}


def config(run: Path) -> Any:
    return json.loads((run / "config.json").read_text())


def setting(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree[part]
    return tree


def curve(run: Path) -> list[list[float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [[row["iteration"], row["loss"]] for row in rows]


def losses(run: Path) -> list[list[float]]:
    """What the tracker has written."""
    return [[float(word) for word in line.split()] for line in (run / "losses.txt").read_text().splitlines()]


VIRTUAL = (
    "algorithm", "rule", "schedule", "topology", "partition", "dataset", "model", "loss", "metric", "tracker",
)  # fmt: skip
LOCAL = ("algorithm", "rule", "schedule", "topology", "loss", "metric", "transport", "tracker")


def run_with(kinds: tuple[str, ...], out: Path) -> subprocess.CompletedProcess[str]:
    """A run that uses these things, each of which is in its record."""
    options = [word for kind in kinds for word in OWN[kind]]
    if "dataset" in kinds:
        options[options.index("first_classes:3")] = "first_classes:1"  # there are two moons
    line = ["run", "digits", "--import", str(EXTENSIONS), *SHORT, *options, "--out", str(out)]
    done = forked(*line, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    recorded = config(out)
    assert recorded["imports"] == [str(EXTENSIONS)]
    for key, value in [RECORDED[kind] for kind in kinds if kind != "partition" or "dataset" not in kinds]:
        assert setting(recorded, key) == value
    return done


def test_a_simulated_run_uses_and_records_them(tmp_path: Path) -> None:
    found = json.loads(run_with(VIRTUAL, tmp_path / "run").stdout)
    assert set(found["metrics"]) == {"worst_class", "accuracy"}
    assert found["parameters"] == 2 * 8 + 8 + 8 * 8 + 8 + 8 * 2 + 2
    sizes = json.loads((tmp_path / "run" / "partition.json").read_text())["sizes"]
    assert sizes == [300, 100, 100, 100]
    assert losses(tmp_path / "run") == curve(tmp_path / "run")


def test_a_local_run_uses_them_and_is_replayed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert "4 clients, models of" in run_with(LOCAL, out).stderr
    assert losses(out) == curve(out)
    again = forked("replay", str(out), cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "4 of 4 models are the same" in again.stdout


def test_weights_a_codec_a_mixing_rule_and_a_poison_of_ones_own(tmp_path: Path) -> None:
    run_with(("weights", "topology", "codec", "mixing", "poison"), tmp_path / "run")


Told = dict[str, subprocess.CompletedProcess[str]]
WITH = ["--import", str(EXTENSIONS)]
LINES: dict[str, list[str]] = {
    "list without": ["list", "--json"],
    "run without": ["run", "digits", "--algorithm", "one_neighbour"],
    "list": ["list", "--json", *WITH],
    "list for people": ["list", *WITH],
    "list algorithms": ["list", "algorithms", *WITH],
    "help": ["run", *WITH, "--help"],
    "graph": ["graph", "chords:chord=3", "--clients", "8", "--json", *WITH],
    "wrong": ["run", "digits", *WITH, "--algorithm", "one_neighbour", "--set", "algorithm.keep=half"],
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What short commands say."""
    folder = tmp_path_factory.mktemp("commands")
    return {name: forked(*line, cwd=folder) for name, line in LINES.items()}


def test_lists_and_help_name_them(told: Told) -> None:
    listed, without = (json.loads(told[name].stdout) for name in ("list", "list without"))
    for kind, name in KINDS.items():
        assert name in listed[kind]
        assert name not in without[kind]
    for name in ("one_neighbour", "yogi", "chords", "two_layers", "worst_class"):
        assert name in told["help"].stdout
    assert "chords (" in told["list for people"].stdout
    assert "one_neighbour (keep=0.5)" in told["list algorithms"].stdout


def test_a_topology_of_ones_own_is_shown(told: Told) -> None:
    assert [0, 3] in json.loads(told["graph"].stdout)["edges"]


def test_without_the_import_the_name_is_unknown(told: Told) -> None:
    assert told["run without"].returncode == 2
    assert "there is no algorithm 'one_neighbour'" in told["run without"].stderr
    assert told["run without"].stderr.count("\n") == 1


def test_options_of_ones_own_are_checked_like_others(told: Told) -> None:
    assert told["wrong"].returncode == 2
    assert '--set algorithm.keep must be a number, not "half"' in told["wrong"].stderr


def test_a_transport_of_ones_own_is_checked(tmp_path: Path) -> None:
    checked = forked("check-transport", "announced", "--json", *WITH, cwd=tmp_path)
    assert json.loads(checked.stdout)["passed"], checked.stdout


WRONG = """
import numpy as np
from swiftfl.data import PARTITIONS, Partition
from swiftfl.graph import TOPOLOGIES, Topology
from swiftfl.rules import update_rule
from swiftfl.transports.base import transport
from swiftfl.transports.codec import codec

@TOPOLOGIES.add("one_more")
def one_more(n: int) -> Topology:
    return Topology(n + 1, [(i, i + 1) for i in range(n)])

@TOPOLOGIES.add("pairs")
def pairs(n: int) -> Topology:
    return [(0, 1)]

@PARTITIONS.add("fewer")
def fewer(labels, clients: int, seed: int) -> Partition:
    return Partition("fewer", tuple(np.arange(50) for i in range(clients - 1)))

@PARTITIONS.add("beyond")
def beyond(labels, clients: int, seed: int) -> Partition:
    return Partition("beyond", tuple(np.arange(5) + 10**6 for i in range(clients)))

@PARTITIONS.add("lists")
def lists(labels, clients: int, seed: int) -> Partition:
    return Partition("lists", tuple([1, 2, 3] for i in range(clients)))

@PARTITIONS.add("nothing")
def nothing(labels, clients: int, seed: int) -> Partition:
    pass

class Forgets:
    def init(self, x): return {}
    def update(self, g, x, step_size, memory): pass

@update_rule("forgets")
def forgets():
    return Forgets()

@codec("longer")
class Longer:
    name = "longer"
    def most_bytes(self, size, dtype): return size
    def encode(self, x): return x.view(np.uint8)
    def decode(self, data, size, dtype): return data.view(dtype)
    def state(self): return {}
    def restore(self, memory): pass

@codec("cut")
class Cut(Longer):
    name = "cut"
    def most_bytes(self, size, dtype): return 4 * size
    def decode(self, data, size, dtype): return data.view(dtype)[:5]

@transport("absent")
def absent(neighbours, x0, codec, in_rounds):
    pass
"""
MISTAKES = {
    "--topology one_more": "topology one_more must have 4 clients as it was asked to, not 5",
    "--topology pairs": "topology pairs must return a Topology, not a list",
    "--partition fewer": "partition fewer must have a part for each of 4 clients, not 3",
    "--partition beyond": "partition beyond: there is no sample 1000000; samples are 0 to ",
    "--partition lists": "partition lists: the part of client 0 must be a flat array of integers",
    "--partition nothing": "partition nothing must return a Partition, not None",
    "--rule forgets": "Forgets.update must return the move and the memory to keep, not None",
    "--rule forgets --clip 1": "Forgets.update must return the move and the memory to keep, not None",
    "--rule forgets --algorithm adpsgd": "Forgets.update must return the move and the memory to keep, not N",
    "--codec longer": "codec longer gave 19240 bytes, and had promised at most 4810",
    "--codec cut": "codec cut made float32 of shape (5,), not 4810 float32",
    "--engine local --set engine.live.transport=absent": "transport absent must return a plan, not None",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_in_ones_own_code_is_one_line(line: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    done = forked("run", "digits", "--import", "wrong.py", *SHORT, *line.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert MISTAKES[line] in done.stderr
    assert "Traceback" not in done.stderr


def run_and_stop() -> int:
    """Whole, and once more until it is stopped in its middle."""

    def stop(done: int, total: int, last: Any) -> None:
        if last.epoch > 0.9:
            raise KeyboardInterrupt

    changes = {
        "imports": [str(EXTENSIONS)],
        "algorithm.name": "one_neighbour",
        "algorithm.rule": "yogi",
        "algorithm.step_size.initial": 0.002,
        "topology.clients": 4,
        "engine.epochs": 3,
        "data.dataset": "moons",
        "evaluation.metrics": ["worst_class"],
    }
    config = Config().with_changes(changes)
    run(config, Path("whole"))
    with contextlib.suppress(RunStopped):
        run(config, Path("stopped"), stop)
    return 0


def test_a_rule_with_arrays_of_its_own_goes_on_bit_for_bit(tmp_path: Path) -> None:
    made = forked_call(run_and_stop, ["run and stop"], tmp_path)
    assert made.returncode == 0, made.stderr
    assert not (tmp_path / "stopped" / "summary.json").exists()
    resumed = forked("resume", "stopped", "--json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    whole = json.loads((tmp_path / "whole" / "summary.json").read_text())
    again = json.loads((tmp_path / "stopped" / "summary.json").read_text())
    assert again["loss"] == whole["loss"]
    assert again["metrics"] == whole["metrics"]
    one, other = ((tmp_path / run / "models.safetensors").read_bytes() for run in ("whole", "stopped"))
    assert one == other
