"""The flags of the authors' programs: what they mean here, and what is refused."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from swiftfl.cli.author_flags import FLAGS, SHARED, translate
from swiftfl.cli.main import run_command
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.config_file import read_config_file

pytestmark = pytest.mark.usefixtures("without_pictures")

# From their scripts (Scripts/*, test-script.sh), as they are.
SWIFT = (
    "--name swift-noniid-0.25-test3-10W-no_mem --graph clique-ring --num_clusters 3 --sgd_steps 2 "
    "--weight_type swift --momentum 0.9 --lr 0.8 --degree_noniid 0.25 --noniid 1 --resSize 18 --bs 32 "
    "--epoch 300 --wb 1 --description SWIFT-paper --randomSeed 75 --datasetRoot ./data --outputFolder Output"
)
LDSGD = (
    "--graph clique-ring --num_clusters 3 --name ldsgd --comm_style ld-sgd --momentum 0.9 --lr 0.8 "
    "--degree_noniid 0.7 --noniid 1 --i1 1 --i2 2 --resSize 18 --bs 32 --epoch 300 --randomSeed 15"
)
PDSGD = (
    "--graph ring --comm_style pd-sgd --momentum 0.9 --i1 1 --i2 1 --degree_noniid 0 --noniid 0 --resSize 50"
)


def configuration(line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Config, str]:
    """What a line asks for, and what it shows on standard error."""
    assert run_command(["run", "cifar10", *shlex.split(line), "--dry-run"]) == 0
    shown = capsys.readouterr()
    (place / "shown.yaml").write_text(shown.out)
    return parse(read_config_file(place / "shown.yaml").tree), shown.err


def test_a_line_of_their_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, told = configuration(SWIFT + " --clients 10", tmp_path, capsys)
    assert (config.topology.name, config.topology.clients, config.topology.clusters) == (
        "ring_of_cliques",
        10,
        3,
    )
    assert config.algorithm.name == "swift"
    assert config.algorithm.weights == "ccs"
    assert config.algorithm.options["communication_set"] == 1
    assert config.algorithm.rule_options["momentum"] == 0.9
    assert config.algorithm.step_size.initial == 0.8
    assert config.data.partition == "label_skew:0.25"
    assert (config.data.batch_size, config.data.folder) == (32, "data")
    assert (config.model.name, config.engine.epochs, config.seed) == ("thin_resnet18", 300, 75)
    assert told.count("\n") == 1
    assert "(without effect, left out: --wb 1, --description SWIFT-paper)" in told
    assert "--out Output/swift-noniid-0.25-test3-10W-no_mem" in told
    line = re.search(r"here: swiftfl run cifar10 (.*) \(without", told)
    assert line is not None
    again, nothing = configuration(line[1].replace("--dry-run", ""), tmp_path, capsys)
    assert again == config  # the spelling that is shown asks for the same
    assert nothing == ""


def test_their_baselines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = configuration(LDSGD + " --clients 10 --weight_type uniform", tmp_path, capsys)
    assert (config.algorithm.name, config.algorithm.weights) == ("ldsgd", "uniform")
    assert config.algorithm.options == {"i1": 1, "i2": 2, "order": "update_first"}
    config, told = configuration(PDSGD, tmp_path, capsys)
    assert config.algorithm.options == {"i1": 1, "order": "update_first"}
    assert (config.data.partition, config.model.name) == ("iid", "thin_resnet50")
    assert "left out: --i2 1)" in told


def their_step_size(epoch: int, custom: bool, noniid: bool, lr: float = 0.8) -> float:
    """As Train.py sets it at the end of each epoch, for the next one."""
    args_lr = current = lr
    for done in range(epoch):
        if not custom:
            decay_epoch = 200 if noniid else 100
            current = args_lr
            if done >= decay_epoch:
                current = args_lr * 0.5 ** ((1 + done - decay_epoch) // 10.0)
        elif done in (81, 122):
            args_lr *= 0.1
            current = args_lr
    return current


@pytest.mark.parametrize(("custom", "noniid"), [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_their_schedules(
    custom: int, noniid: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"--customLR {custom} --noniid {noniid} --lr 0.8 --epoch 300"
    config, _ = configuration(line, tmp_path, capsys)
    here = config.algorithm.step_size.make(300)
    for epoch in range(300):
        assert here(epoch) == pytest.approx(their_step_size(epoch, bool(custom), bool(noniid))), epoch


@pytest.mark.parametrize(
    ("theirs", "here"),
    [
        ("--graph fully-connected", "--topology complete"),
        ("--graph=erdos-renyi --clients 12", "--clients 12 --topology erdos_renyi:probability=0.25"),
        ("--degree_noniid 0", "--partition iid"),
        ("--noniid 1", "--partition label_skew:0.7"),
        ("--comm_style d-sgd --weight_type uniform-symmetric", "--algorithm dsgd --weights one_over_n"),
        ("--comm_style d-sgd --sgd_steps 2 --i1 0", "--algorithm dsgd"),
        ("-e 3 -n mine -p", "--epochs 3 --out Output/mine"),
        ("--outputFolder there --bs 4", "--out there/default --batch-size 4"),
        ("--bs 4 --nesterov --slowdown 4", "--batch-size 4 --set algorithm.nesterov=true --slowdown 0:4"),
        ("--bs 4 --slowdown 1 --model res", "--batch-size 4 --model thin_resnet50"),
        ("--bs 4 --warmup 3 --memory_efficient 0", "--batch-size 4 --warmup 3"),
        ("--slowdown 3:4 --model cnn --i1 2", "--slowdown 3:4 --model cnn --i1 2"),
    ],
)
def test_each_flag(theirs: str, here: str) -> None:
    assert translate(["run", "cifar10", *theirs.split()])[2:] == here.split()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--memory_efficient 1 --wb 1", "--memory_efficient 1 is not offered: line 11 of Algorithm 1"),
        ("--personalize 1", "--personalize 1 is not offered: the authors' code has it commented out"),
        ("--comm_style dsgd", "--comm_style dsgd: did you mean d-sgd?"),
        ("--graph torus", "--graph torus: choose from ring, fully-connected"),
        ("--graph erdos-renyi", "--graph erdos-renyi has edges with probability 3/n: add --clients n"),
        ("--resSize 20", "--resSize 20: choose from 18, 34, 50, 101, 152"),
        ("--bs 4 --model VGG", "--model VGG: the authors' code never reads it"),
        ("--bs 4 --warmup", "--warmup needs a number of epochs here"),
        ("--sgd_steps 0", "--sgd_steps must be at least 1, not 0"),
        ("--degree_noniid much", "--degree_noniid much: it must be a number"),
        ("--bs", "--bs needs a value"),
    ],
)
def test_what_has_no_meaning_here_is_refused(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "cifar10", *line.split()]) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.err.count("\n") == 1


def test_every_flag_of_theirs_has_its_row() -> None:
    """docs/paper-map.md names each of them."""
    page = (Path(__file__).parents[2] / "docs" / "paper-map.md").read_text()
    rows = page.split("## Their command line")[1].split("\n## ")[0]
    assert [flag for flag in {**FLAGS, **SHARED} if f"`{flag}" not in rows] == []
