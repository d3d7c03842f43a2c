"""Twenty wrong uses of the command line and ten wrong files: one line that names what was typed, code 2,
and nothing written. (`test_cli.py` has the wrong values of single options.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftfl.cli.main import run_command

COMMAND_LINES = [
    ("run digits --workers 0", "--workers 0: it must be auto, or a number of processes"),
    ("run", "recipe"),
    ("runn digits", "runn"),
    ("run digits --epoch", "--epoch needs a value"),
    ("run digits --epochs 0", "--epochs must be at least 1, not 0"),
    ("run digits --algorithm dsdg", "there is no algorithm 'dsdg': did you mean dsgd?"),
    ("run digits --budget 0.5", "--budget is for matcha, not swift"),
    (
        "run digits --engine sampled --slowdown 1:4",
        "--slowdown is for engine virtual, local or mpi",
    ),
    ("run digits --set momentun=0.9", "--set momentun: there is no such setting"),
    (
        "run digits --set algorithm.momentun=0.9",
        "--set algorithm.momentun: there is no such setting: did you mean",
    ),
    ("run digits --comm_style dsgd", "--comm_style dsgd: did you mean d-sgd?"),
    (
        "run digits --algorithm asysg --together 3",
        "No such option: --together; a setting of asysg: --set algorithm.together=...",
    ),
    ("run digits --algorithm gossip_async --rate 1e9", "--rate must be at most 1000, not 1000000000.0"),
    (
        "run digits --algorithm divshare --set algorithm.fragments=1000000",
        "--set algorithm.fragments must be at most 10000, not 1000000",
    ),
    ("run missing.yaml", "cannot read missing.yaml"),
    ("run notes.txt", "notes.txt is neither a recipe"),
    ("run digits --out full", "full is not an empty folder"),
    ("init full/mine.txt", "full/mine.txt must end in .yaml or .toml"),
    ("sweep digits --grid algorithm", "--grid algorithm: it must be KEY=A,B,..."),
    ("export full", "full is not a run folder"),
    ("export full --format pickle", "pickle"),
    ("partition digits --partition slices", "there is no partition 'slices'"),
    (
        "partition digits --clients 8 --plot a.gif",
        "--plot a.gif: the file must end in",
    ),
    ("list colours", "there is nothing called 'colours' to list"),
    ("compare full", "full is not a run folder"),
    ("doctor --fix", "--fix"),
    ("replay missing", "missing is not a run folder"),
    ("run digits --epochs ten", "--epochs must be a whole number, not 'ten'"),
    ("run digits --lr=fast", "--lr must be a number, not 'fast'"),
    ("run digits --seed 2 --set seed=1", "--seed and --set seed say the same: give one of them"),
    ("run digits --algorithm swift:foo=1", "--algorithm swift:foo=1: there is no such setting"),
    ("sweep digits --grid lr=0.1 --seeds 0", "--seeds must be at least 1, not '0'"),
    ("launch -n two notes.txt", "-n must be a whole number, not 'two'"),
    ("run digits --rule adam --momentum 0.9", "--momentum is for rule rmsprop, rule sgd, not rule adam"),
    ("run digits --engine lokal", 'not "lokal": did you mean local?'),
    (
        "run digits --partition dirichlt:0.3",
        "no partition 'dirichlt': did you mean dirichlet:ALPHA[,min=MIN]?",
    ),
    ("export full --format onxn", "--format must be one of 'safetensors', 'state_dict', 'onnx', not 'onxn'"),
    ("report full --style=papr", "not 'papr': did you mean paper?"),
    ("dashboard full --port 99999", "--port must be at most 65535, not '99999'"),
    ("run digits --bs 4 --wb --dry-run", "--wb needs a value"),
    ("run digits --slowdown 99:4", "there is no client 99 to be slow or linked: clients are 0 to 15"),
]
FILES = [
    ("seed: 1\nalgorithm:\n  momentun: 0.9\n", "my.yaml:3: unknown key algorithm.momentun; did you mean"),
    ("algorithm:\n  name: dsdg\n", "my.yaml:2: there is no algorithm 'dsdg': did you mean dsgd?"),
    ("topology:\n  clients: many\n", 'my.yaml:2: topology.clients must be a whole number, not "many"'),
    ("engine:\n  epochs: 0\n", "my.yaml:2: engine.epochs must be at least 1, not 0"),
    ("engine:\n  name: virtual\n", "my.yaml:1: engine: a run needs an end: give epochs or iterations"),
    ("algorithm:\n  name: dsgd\n  communication_set: 1\n", "my.yaml:3: algorithm.communication_set is for"),
    ("seed: 1\nseed: 2\n", "my.yaml:2: seed is given twice, first in line 1"),
    ("data: {dataset: digits\n", "my.yaml:2: not YAML that can be read"),
    ("data: digits\n", 'my.yaml:1: data must be an object of settings, not "digits"'),
    ("a: &a [x, x]\nb: *a\n", "my.yaml:2: aliases are not allowed"),
    ("engine:\n  name: vritual\n", 'not "vritual": did you mean virtual?'),
    ("topology:\n  clients: 2\n  edges: [[0, 1], [1, 1]]\n", "my.yaml:3: topology.edges: edge (1, 1) is"),
    ("topology:\n  edges: [[0, 99]]\n", "my.yaml:2: topology.edges: edge (0, 99)"),
    ("topology:\n  edges: gone.txt\n", "my.yaml:2: topology.edges: there is no file gone.txt"),
    ("engine:\n  epochs: 1\n  costs: {devices: gone.csv}\n", "my.yaml:3: engine.costs.devices: there is"),
    ("- seed\n", "my.yaml must hold settings"),
    ("seed: true\n", "my.yaml:1: seed must be a number, not true"),
    ("algorithm:\n  communication_set: true\n", "my.yaml:2: algorithm.communication_set must be a number"),
]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.md").write_text("mine")
    (tmp_path / "notes.txt").write_text("notes")
    return tmp_path


def refuse(line: str, told: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on standard error, code 2, and no file more, less or changed."""

    def files() -> dict[str, str]:
        return {str(path): path.read_text() for path in place.rglob("*") if path.is_file()}

    before = files()
    assert run_command(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("swiftfl: ")
    assert told in shown.err
    assert shown.err.count("\n") == 1
    assert files() == before
    assert {path.name for path in place.iterdir() if path.is_dir()} == {"full"}


@pytest.mark.parametrize(("line", "told"), COMMAND_LINES, ids=[line for line, _ in COMMAND_LINES])
def test_a_wrong_command_line(line: str, told: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refuse(line, told, place, capsys)


@pytest.mark.parametrize(("text", "told"), FILES, ids=[told for _, told in FILES])
def test_a_wrong_file(text: str, told: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "my.yaml").write_text(text)
    refuse("run my.yaml --out runs/mine", told, place, capsys)
    refuse("run my.yaml --dry-run", told, place, capsys)
