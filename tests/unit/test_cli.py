"""The command line from outside: what it prints where, its exit codes, and what it leaves on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import swiftfl
from forked import forked
from swiftfl.algorithms import ALGORITHMS
from swiftfl.cli.main import run_command

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "paper" / "ccs_golden.json").read_text(encoding="utf-8")
)["cases"]
METRICS = [
    "accuracy",
    "loss",
    "seconds_per_epoch",
    "compute_seconds_per_epoch",
    "communication_seconds_per_epoch",
    "waiting_seconds_per_epoch",
    "consensus_distance",
]
RUN_FILES = {
    "config.json",
    "model.json",
    "partition.json",
    "versions.json",
    "facts",
    "metrics.csv",
    "metrics.jsonl",
    "events.jsonl",
    "summary.json",
    "models.safetensors",
}
TINY = ["--clients", "4", "--epochs", "1", "--model", "logistic", "--batching", "on"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with some files that are wrong in various ways."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    for name, text in {
        "file": "mine",
        "broken.txt": "0 1\n1 two\n",
        "words.txt": "zero one\n",
        "loop.txt": "0 1\n1 1\n",
        "apart.txt": "0 1\n1 2\n2 0\n3 4\n4 5\n5 3\n",
        "binary.txt": "\x00\x01",
        "empty.txt": "",
        "broken.json": "{",
        "list.json": "[1, 2]",
        "unknown.json": '{"speed": 3}',
        "wrong.json": '{"compute": "fast"}',
        "late.json": '{"changes": [{"time": 1, "event": "crash", "client": 99}]}',
        "config.json": '{"data": {"dataset": "digits", "colour": "red"}}',
        "costs.json": '{"compute": 0.02}',
        "deep.json": "[" * 100_000,
        "raises.py": "1 / 0",
        "taken.py": "from swiftfl.graph import TOPOLOGIES\n@TOPOLOGIES.add('ring')\ndef mine(n): ...\n",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").write_text("{}")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


BAD = [
    # the command line itself
    ("--nope", "--nope"),
    ("nope", "nope"),
    ("run", "recipe"),
    ("resume", "folder"),
    ("run digits --nope", "--nope"),
    ("run digits --epochs many", "--epochs"),
    ("run digits --lr", "--lr"),
    ("run digits extra", "extra"),
    ("graph ring --clients three", "--clients"),
    ("graph rng", "there is no topology 'rng': did you mean ring?"),
    ("graph grid:3 --clients 9", "name:option=value"),
    ("graph ring:degree=2 --clients 9", "degree is for random_regular"),
    ("demo --colour red", "--colour"),
    # recipes and configurations
    ("run nope", "no recipe 'nope'"),
    ("run broken.json", "broken.json:1: not JSON that can be read"),
    ("run list.json", "list.json must hold settings"),
    ("run missing.json", "cannot read missing.json"),
    ("run config.json", "config.json:1: unknown key data.colour (data has"),
    ("run digits --costs broken.json", "broken.json:1: not JSON that can be read"),
    ("run digits --costs unknown.json", "--costs: speed: there is no such setting"),
    ("run digits --costs wrong.json", '--costs: compute must be a number, not "fast"'),
    ("run digits --costs missing.json", "cannot read missing.json"),
    ("run digits --network broken.json", "broken.json:1: not JSON that can be read"),
    ("run digits --network unknown.json", "--network: speed: there is no such setting"),
    ("run digits --network late.json", "clients are 0 to 15"),
    # topologies
    ("graph hypercube --clients 6", "power of two"),
    ("run digits --topology hypercube --clients 6", "power of two"),
    ("run digits --topology circle", "no topology 'circle'"),
    ("run digits --topology grid:rows=x", "rows must be a whole number"),
    ("run digits --topology grid:colour=red", "colour"),
    ("run digits --topology random_regular:degree=3 --clients 5", "degree"),
    ("graph ring --clients 0", "at least one client"),
    ("graph --edges broken.txt", "broken.txt: line 2"),
    ("run digits --edges broken.txt", "broken.txt: line 2"),
    ("graph --edges words.txt", "words.txt: line 1"),
    ("graph --edges loop.txt", "loop.txt"),
    ("graph --edges apart.txt", "connected"),
    ("run digits --edges apart.txt", "connected"),
    ("graph --edges binary.txt", "binary.txt"),
    ("graph --edges empty.txt", "empty.txt"),
    ("graph --edges missing.txt", "missing.txt"),
    ("graph --edges full", "full"),
    ("graph ring --clients 3 --weights best", "best"),
    ("graph ring --clients 3 --influence 0.5,0.5", "2 scores"),
    ("graph ring --clients 3 --draw nowhere/g.svg", "nowhere"),
    ("graph ring --clients 3 --save /proc/nope", "/proc/nope"),
    # values
    ("run digits --slowdown 3", "CLIENT:FACTOR"),
    ("run digits --slowdown x:4", "CLIENT:FACTOR"),
    ("run digits --slowdown 3:0", "factor"),
    ("run digits --slowdown 3:nan", "factor"),
    ("run digits --slowdown 16:4", "client 16"),
    ("run digits --slowdown=-1:4", "client"),
    ("demo --slowdown nan", "factor"),
    ("run digits --lr nan", "finite"),
    ("run digits --lr inf", "finite"),
    ("run digits --lr=-1", "--lr must be at least 0"),
    ("run synthetic --set data.options.samples=1000000000000", "of memory"),
    ("run digits --momentum 1", "momentum"),
    ("run digits --buffers own", "mlp has no running buffers"),
    ("run digits --buffers mine", "--buffers"),
    ("run digits --algorithm adpsgd --averaging before", "--averaging"),
    ("run digits --averaging background", "--averaging"),
    ("run digits --epochs 0", "--epochs must be at least 1, not 0"),
    ("run digits --iterations 0", "--iterations must be at least 1, not 0"),
    ("demo --epochs 0", "--epochs must be at least 1, not 0"),
    ("run digits --batch-size 0", "--batch-size must be at least 1, not 0"),
    ("run digits --seed=-1", "seed"),
    ("run digits --clients 2000", "2000 clients cannot share 1437"),
    ("run digits --clients 0", "--clients must be at least 1, not 0"),
    ("run digits --algorithm sgd", "no algorithm 'sgd': did you mean dsgd?"),
    ("run digits --algorithm pasgd --i1=-1", "i1"),
    ("run digits --algorithm matcha --budget 0", "budget"),
    ("run digits --communication-set=-1", "--communication-set must be at least 0, not -1"),
    ("run digits --partition label_skew:2", "label_skew"),
    ("run digits --partition slices", "slices"),
    ("run digits --partition by_size:1,2", "by_size"),
    ("run digits --model resnet18", "ResNet"),
    ("run digits --model transformer", "transformer"),
    ("run digits --device nope", "device"),
    ("run digits --influence 0.5,x", "influence"),
    ("run digits --influence 0.5,0.5", "2 scores"),
    ("run digits --objective as_given", "measured"),
    ("run digits --engine sampled --influence measured", "measured influence needs time"),
    ("run digits --engine real", "--engine must be one of"),
    ("run digits --data nowhere", "--data is not used: dataset digits comes from no folder"),
    # options that what was chosen does not use
    ("run digits --budget 0.5", "--budget is for matcha, not swift"),
    ("run digits --participation 0.5", "--participation is for fedavg, not swift"),
    ("run digits --algorithm fedavg --participation 0", "--participation must be above 0"),
    ("run digits --algorithm quasi_global --momentum 0", "needs --rule sgd with a momentum above 0"),
    ("run digits --algorithm quasi_global --order swift", "diverges for client 0"),
    ("run digits --algorithm sgp --topology path --direction one_way", "is the only one between two parts"),
    ("run digits --algorithm sgp --engine local --restart-lost", "sgp relies on the clients of the start"),
    ("run digits --algorithm sgp --engine local --codec bf16", "sgp does not send models"),
    (
        "run digits --algorithm sgp --engine local --influence measured --set objective=as_given",
        "sgp relies on the clients and links",
    ),
    ("run digits --algorithm divshare --engine local", "divshare sends fragments of models, which processes"),
    (
        "run digits --algorithm hogwild --influence measured --set objective=as_given",
        "its network cannot change",
    ),
    ("run digits --algorithm hogwild --influence measured", "--influence has no effect: to hogwild all"),
    ("run digits --algorithm gossip --influence data", "--influence has no effect: to gossip all clients"),
    (
        "run digits --set engine.network.measure_every=5",
        "--set engine.network.measure_every has no effect without influence measured",
    ),
    (
        "run digits --engine local --evaluate-every 2",
        "--evaluate-every is for engine virtual or sampled, not local; local has engine.live.evaluate_",
    ),
    (
        "run digits --engine mpi --set engine.live.transport=shared_memory",
        "--set engine.live.transport is for engine local, not mpi",
    ),
    ("run digits --algorithm dsgd --i1 2", "--i1 is for pasgd, ldsgd, fedavg, not dsgd"),
    ("run digits --algorithm pasgd --i2 2", "--i2 is for ldsgd, not pasgd"),
    ("run digits --algorithm dsgd --communication-set 1", "--communication-set is for swift, not dsgd"),
    ("run digits --algorithm ldsgd --i2 1", "--i2 1 is pasgd"),
    ("run digits --algorithm gossip --weights ccs", "--weights has no effect: gossip"),
    ("run digits --ccs distributed --weights metropolis", "--ccs distributed selects weights ccs, not metro"),
    (
        "run digits --algorithm dsgd --ccs distributed",
        "--ccs distributed selects weights ccs, not metropolis",
    ),
    ("run digits --algorithm gossip --ccs distributed", "--ccs has no effect: gossip"),
    ("run digits --ccs both", "--ccs must be one of"),
    ("run digits --barrier global", "--barrier is for algorithms that meet in rounds, and swift does not"),
    ("run digits --engine local --barrier global", "--barrier is for algorithms that meet in rounds"),
    (
        "run digits --algorithm allreduce --barrier global",
        "--barrier has no effect: all clients of",
    ),
    ("run digits --algorithm fedavg --barrier global", "--barrier has no effect: all clients of fedavg"),
    ("run digits --restart-lost", "--restart-lost is for engine local, not virtual"),
    ("run digits --engine sampled --slowdown 1:4", "--slowdown is for engine virtual, local or mpi"),
    ("run digits --engine sampled --costs costs.json", "--costs is for engine virtual, not sampled"),
    ("run digits --engine local --costs costs.json", "--costs is for engine virtual, not local"),
    ("run digits --engine local --network late.json", "crash of client 99 needs the virtual engine"),
    ("run digits --clusters 2", "--clusters is for ring_of_cliques, not topology ring"),
    ("run digits --topology ring_of_cliques", "--clusters is missing"),
    ("run digits --topology ring:degree=2", "degree is for random_regular"),
    ("run digits --topology random_regular", "degree is missing"),
    ("run digits --topology grid:3", "name:option=value"),
    ("run digits --edges apart.txt --clients 6", "--clients has no effect with --edges"),
    ("run digits --edges apart.txt --topology ring", "--topology has no effect with --edges"),
    ("run digits --norm batch", "not model mlp"),
    ("run digits --metrics accuracy,f1", "no metric 'f1'"),
    ("run digits --rule adm", "no update rule 'adm': did you mean adam?"),
    ("run digits --rule adam --momentum 0.9", "--momentum is for rule rmsprop, rule sgd, not"),
    ("run digits --set algorithm.beta1=0.8", "--set algorithm.beta1 is for rule adam"),
    ("run digits --rule lion --set algorithm.beta1=1", "--set algorithm.beta1 must be below 1, not 1"),
    ("run digits --clip 0", "--clip must be above 0, not 0.0"),
    ("run digits --moments averaged", "--moments must be one of 'kept' or 'reset', not \"averaged\""),
    ("run digits --algorithm allreduce --moments reset", "--moments reset has no effect: allreduce averages"),
    ("run digits --momentum 0 --moments reset", "--moments reset has no effect: rule sgd without momentum"),
    ("run digits --schedule cosin", "no schedule 'cosin': did you mean cosine?"),
    ("run digits --schedule cosine:rate=0.1", "--schedule cosine:rate=0.1 is for schedule step, not"),
    ("run digits --schedule cosine:final=2", "--schedule cosine:final=2 must be at most 1, not 2"),
    ("run digits --schedule cosine --iterations 50", "schedule cosine needs its length in epochs"),
    ("run digits --warmup -1", "--warmup must be at least 0, not -1.0"),
    ("run digits --set algorithm.step_size.inital=1", "did you mean initial?"),
    # any setting by name
    ("run digits --set speed=3", "--set speed: there is no such setting"),
    ("run digits --set engine.epochs", "it must be KEY=VALUE"),
    ("run digits --set engine.cost.jitter=1", "did you mean costs?"),
    ("run digits --set engine.costs.jitter=soon", "--set engine.costs.jitter must be a number, not"),
    ("run digits --set seed.first=1", "seed has no settings inside"),
    ("run digits --set algorithm.budget=0.5", "--set algorithm.budget is for matcha, not swift"),
    ("run digits --set engine.live.save_steps=3", "is for engine local or mpi, not virtual"),
    ("run digits --set model.options.depth=3", "there is no such setting"),
    ("run digits --set data.options=3", "--set data.options must be an object"),
    ("run digits --set algorithm=3", "there is no algorithm '3'"),
    # modules of one's own
    ("run digits --import nowhere", "cannot import nowhere"),
    ("run digits --import nowhere.py", "there is no file"),
    ("run digits --import raises.py", "ZeroDivisionError"),
    ("run digits --import taken.py", "there is a topology called 'ring' already"),
    ("list algorithms --import nowhere", "cannot import nowhere"),
    ("list colours", "there is nothing called 'colours' to list"),
    # files that are no files, or too deep
    ("run digits --costs pipe", "cannot read pipe: not a regular file"),
    ("run digits --network /dev/zero", "cannot read /dev/zero: not a regular file"),
    ("run digits --costs deep.json", "deep.json: not JSON that can be read: it is nested too deeply"),
    ("run digits --partition from_file:deep.json", "deep.json: not JSON that can be read: it is nested too"),
    ("run deep.json", "deep.json: not JSON that can be read: it is nested too deeply"),
    ("run pipe", "pipe is neither a recipe"),
    ("run digit", "no recipe 'digit': did you mean digits?"),
    ("run full", "full is a folder without config.json"),
    ("run begun", "swiftfl resume begun goes on with it"),
    # folders
    ("run digits --out full", "full is not an empty folder"),
    ("run digits --out file", "file is not an empty folder"),
    ("run digits --out file/run", "cannot write to file/run"),
    ("run digits --out /proc/nope", "cannot write to /proc/nope"),
    ("demo --out full", "full is not an empty folder"),
    ("demo --out /proc/nope", "cannot write to /proc/nope"),
    ("resume full", "not a run folder"),
    ("resume missing", "not a run folder"),
]


@pytest.mark.parametrize(("line", "told"), BAD, ids=[line for line, _ in BAD])
def test_a_bad_request_is_one_line_and_leaves_nothing(
    line: str, told: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(place)
    assert run_command(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("swiftfl: ")
    assert shown.err.count("\n") == 1
    assert shown.err.endswith("\n")
    assert told in shown.err
    assert tree(place) == before


def test_an_empty_recipe_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", ""]) == 2
    assert capsys.readouterr().err.startswith("swiftfl: '' is neither a recipe (")


@pytest.mark.parametrize(
    "line",
    [
        "graph ring --nope",
        "graph hypercube --clients 6",
        "graph --edges broken.txt",
        "run digits --lr nan --json",
        pytest.param("run digits --out /proc/nope", marks=pytest.mark.slow),
    ],
)
def test_the_same_from_a_shell(line: str, place: Path) -> None:
    before = tree(place)
    done = subprocess.run(
        [sys.executable, "-m", "swiftfl", *line.split()],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("swiftfl: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert tree(place) == before


def test_version_and_help(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"swiftfl {swiftfl.__version__}\n"
    for line in (
        ["--help"],
        ["-h"],
        ["run", "--help"],
        ["graph", "-h"],
        ["demo", "--help"],
        ["resume", "-h"],
    ):
        assert run_command(line) == 0
        assert "Usage: swiftfl" in capsys.readouterr().out
    assert list(place.glob("runs")) == []


def test_everything_that_is_listed_is_described(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from swiftfl.cli.names import kinds

    for name, kind in kinds().items():
        assert [entry for entry in kind.entries if not kind.description(entry)] == [], name
    monkeypatch.setenv("COLUMNS", "60")
    assert run_command(["list"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 60
    assert "ring_of_cliques (clusters)" in shown
    for kind in kinds().values():
        assert all(f"  {form}" in shown for form in kind.forms)


def test_algorithms_are_listed_with_swift_and_its_baselines_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["list", "algorithms", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["algorithms"]
    assert listed[:5] == ["swift", "dsgd", "pasgd", "ldsgd", "adpsgd"]
    assert listed[5:9] == ["matcha", "gossip", "allreduce", "fedavg"]


def test_the_demo_as_json_is_one_object(place: Path) -> None:
    done = forked("demo", "--json", "--epochs", "2", "--out", "out", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    found = json.loads(done.stdout)
    assert list(found) == ["algorithms", "run"]
    assert found["run"] == "out"
    assert list(found["algorithms"]) == ["swift", "dsgd"]
    for numbers in found["algorithms"].values():
        assert list(numbers) == METRICS
        assert all(isinstance(value, float) for value in numbers.values())
        parts = [numbers[f"{part}_seconds_per_epoch"] for part in ("compute", "communication", "waiting")]
        assert numbers["seconds_per_epoch"] == pytest.approx(sum(parts))
    out = place / "out"
    pictures = {f"{name}.{form}" for name in ("loss", "stream") for form in ("png", "svg")}
    assert {file.name for file in out.iterdir()} == {"swift", "dsgd", "summary.json"} | pictures
    assert json.loads((out / "summary.json").read_text()) == found
    for name in ("swift", "dsgd"):
        assert {file.name for file in (out / name).iterdir()} == RUN_FILES


def test_the_demo_for_people(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["demo", "--epochs", "2", "--out", "out"]) == 0
    shown = capsys.readouterr()
    for word in ("SWIFT", "D-SGD", "accuracy", "waiting", "loss.png", "stream.png", "out"):
        assert word in shown.out
    assert "\x1b" not in shown.out
    assert max(len(line.rstrip()) for line in shown.out.splitlines()) <= 80
    assert shown.err == ""


def test_run_as_json_is_one_object_and_is_recorded(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "digits", *TINY, "--slowdown", "1:2", "--out", "out", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("\n") == 1
    found = json.loads(shown.out)
    assert set(METRICS) | {"algorithm", "run"} <= set(found)
    assert (found["algorithm"], found["run"]) == ("swift", "out")
    assert {file.name for file in (place / "out").iterdir()} == RUN_FILES | {"loss.png", "partition.png"}
    config = json.loads((place / "out" / "config.json").read_text())
    assert config["engine"]["costs"]["slowdowns"] == [{"client": 1, "factor": 2.0, "start": 0.0, "end": None}]

    assert run_command(["run", "out/config.json", "--out", "again", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert {**again, "run": "out"} == found

    assert run_command(["resume", "out"]) == 2
    assert "has finished" in capsys.readouterr().err


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_algorithm_runs(algorithm: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "digits", *TINY, "--algorithm", algorithm, "--out", "out"]) == 0
    assert algorithm in capsys.readouterr().out


def test_a_stopped_run_says_how_to_go_on(place: Path) -> None:
    """Ctrl-C in a terminal: one line, exit code 130, and `swiftfl resume` gives the same numbers."""
    arguments = ["run", "synthetic", "--clients", "8", "--epochs", "1000000", "--out", "out", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "swiftfl", *arguments],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    rows = place / "out" / "metrics.jsonl"
    while process.poll() is None and (not rows.exists() or rows.read_text().count("\n") < 3):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "swiftfl: stopped; to go on: swiftfl resume out"
    assert "Traceback" not in err
    assert (place / "out" / "checkpoint").is_dir()


def test_a_step_size_of_zero_warns(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "digits", "--lr", "0", "--clients", "3", "--iterations", "3", "--json"]) == 0
    assert "(--lr) of 0 trains nothing" in capsys.readouterr().err


def test_a_warmup_longer_than_the_run_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "run",
        "digits",
        "--clients",
        "4",
        "--epochs",
        "1",
        "--warmup",
        "50",
        "--out",
        str(tmp_path / "r"),
    ]
    assert run_command(command) == 0
    warned = "the run ends (--epochs 1) before its step size is reached (--warmup 50)"
    assert warned in capsys.readouterr().err


@pytest.mark.parametrize("method", ["ccs", "ccs_by_rate"])
@pytest.mark.parametrize("name", list(GOLDEN))
def test_graph_gives_the_golden_fractions(
    name: str, method: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = GOLDEN[name]
    if method not in case:
        pytest.skip("no golden fractions of this method")
    (place / "e.txt").write_text("".join(f"{i} {j}\n" for i, j in case["edges"]))
    (place / "p.json").write_text(json.dumps([float(Fraction(p)) for p in case["p"]]))
    assert run_command(f"graph --edges e.txt --influence p.json --weights {method} --json".split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["clients", "edges", "influence", "method", "columns", "rho", "spectral_gap"]
    assert found["clients"] == case["n"]
    assert found["method"] == method
    for i, column in enumerate(found["columns"]):
        golden = {j: float(Fraction(w)) for j, w in case[method]["columns"][str(i)].items()}
        assert set(column) == set(golden)
        for j, weight in golden.items():
            assert column[j] == pytest.approx(weight, abs=1e-12)
    assert found["rho"] == pytest.approx(case[method]["rho"], abs=1e-9)
    assert found["rho"] + found["spectral_gap"] == pytest.approx(1.0)


def test_the_table_is_whole_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from swiftfl.cli.screen import COLUMNS, show_table

    rows = {name: dict.fromkeys(COLUMNS, 0.1234) for name in ("SWIFT", "D-SGD")}
    for width in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        show_table("16-client ring", rows)
        shown = capsys.readouterr().out
        assert shown.count("0.1234") == 8
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= width
        assert "\x1b" not in shown


def test_the_table_of_a_diverged_run_is_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from swiftfl.cli.screen import COLUMNS, show_table

    row = dict.fromkeys(COLUMNS, 0.1234) | {"loss": None, "consensus_distance": 5.7027630745997624e29}
    for width in (60, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        show_table("4-client ring", {"swift": row})
        shown = capsys.readouterr().out
        assert "5.7e+29" in shown
        assert "…" not in shown


def test_where_nothing_takes_time_there_are_no_columns_of_time(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "run digits --engine sampled --clients 4 --iterations 8 --evaluate-every 1 --out run"
    assert run_command(line.split()) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "accuracy" in shown
    assert "Nothing takes time where clients are drawn." in shown
    assert "(s)" not in shown
    assert "0.0000" not in shown


@pytest.mark.parametrize("ranks", [False, True])
def test_no_control_codes_where_there_is_no_terminal(ranks: bool, place: Path) -> None:
    """A launcher of MPI gives its ranks a pseudo-terminal, even where its own output goes to a pipe."""
    source = (
        "from swiftfl.cli.screen import COLUMNS, show_table\n"
        "show_table('t', {'a': dict.fromkeys(COLUMNS, 1.0)})"
    )
    names = {**os.environ, "TERM": "xterm-256color"} | ({"OMPI_COMM_WORLD_RANK": "0"} if ranks else {})
    ours, theirs = os.openpty()
    done = subprocess.Popen([sys.executable, "-c", source], stdout=theirs, cwd=place, env=names)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the end of a pseudo-terminal
        pass
    os.close(ours)
    assert done.wait(60) == 0
    assert b"accuracy" in shown
    assert (b"\x1b" in shown) is not ranks
