"""Run folders: whole files appear at once, nothing of others is touched, a torn end is survived."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from swiftfl.errors import UserError
from swiftfl.record import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_a_new_folder_is_made_with_its_parents_and_is_empty(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path / "a" / "b" / "run")
    assert made.path.is_dir()
    assert list(made.path.iterdir()) == []
    RunFolder.create(made.path)  # an empty one may be used


@pytest.mark.parametrize("kind", ["a file", "a folder with something in it"])
def test_what_is_there_is_never_touched(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run"
    if kind == "a file":
        path.write_text("mine")
    else:
        path.mkdir()
        (path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="not an empty folder"):
        RunFolder.create(path)
    assert (path if path.is_file() else path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("where", ["/proc/nope", "/proc/nope/deeper"])
def test_an_unwritable_place_is_one_clear_line(where: str) -> None:
    with pytest.raises(UserError, match=f"cannot write to {where}") as error:
        RunFolder.create(Path(where))
    assert "\n" not in str(error.value)


def test_a_folder_inside_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="cannot write to"):
        RunFolder.create(tmp_path / "file" / "run")


def test_only_run_folders_are_opened(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run folder"):
        RunFolder.open(tmp_path)


def test_a_file_that_fails_to_be_written_leaves_the_old_one(folder: RunFolder) -> None:
    folder.write_json("summary.json", {"loss": 1.0})
    with pytest.raises(TypeError):
        folder.write_json("summary.json", {"loss": object()})
    with pytest.raises(UserError, match="cannot write"):
        folder._atomically("summary.json", _fails_in_the_middle)
    assert folder.read_json("summary.json") == {"loss": 1.0}
    assert [file.name for file in folder.path.iterdir()] == ["summary.json"]


def _fails_in_the_middle(temporary: Path) -> None:
    temporary.write_text('{"loss": ')
    raise OSError(28, "No space left on device")


def test_rows_are_appended_and_read(folder: RunFolder) -> None:
    assert folder.read_rows("metrics.jsonl") == []
    rows = [{"iteration": i, "loss": i / 3} for i in range(3)]
    for row in rows:
        folder.append("metrics.jsonl", row)
    assert folder.read_rows("metrics.jsonl") == rows
    folder.rewrite_rows("metrics.jsonl", rows[:1])
    assert folder.read_rows("metrics.jsonl") == rows[:1]


@pytest.mark.parametrize("torn", ["{", '{"iteration": 2, "lo', '{"iteration": 2, "loss": "\u00e9'[:-1]])
def test_a_torn_last_line_does_not_count(folder: RunFolder, torn: str) -> None:
    rows = [{"iteration": 0}, {"iteration": 1}]
    folder.rewrite_rows("metrics.jsonl", rows)
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert folder.read_rows("metrics.jsonl") == rows


def test_a_torn_character_does_not_count_either(folder: RunFolder) -> None:
    (folder.path / "metrics.jsonl").write_bytes(b'{"iteration": 0}\n{"note": "\xc3')
    assert folder.read_rows("metrics.jsonl") == [{"iteration": 0}]


def test_a_broken_line_before_the_last_is_an_error(folder: RunFolder) -> None:
    (folder.path / "metrics.jsonl").write_text('{"iteration": 0}\n{"iter\n{"iteration": 2}\n')
    with pytest.raises(UserError, match="line 2"):
        folder.read_rows("metrics.jsonl")


def test_models_and_checkpoints_come_back(folder: RunFolder) -> None:
    models = [np.full(3, float(i)) for i in range(2)]
    folder.write_models(models, np.full(3, 0.5))
    assert folder.read_models()["models"].tolist() == [[0, 0, 0], [1, 1, 1]]
    assert folder.read_checkpoint() is None
    for value in (1, 2):
        folder.write_checkpoint({"format": value}, {"0": models[1]})
    tree, arrays = folder.read_checkpoint() or ({}, {})
    assert tree == {"format": 2}
    assert arrays["0"].tolist() == [1, 1, 1]
    assert sorted(p.name for p in folder.path.iterdir()) == ["checkpoint", "models.safetensors"]


def test_the_old_checkpoint_is_found_if_we_die_between_two_renames(folder: RunFolder) -> None:
    folder.write_checkpoint({"format": 1}, {"0": np.zeros(2)})
    (folder.path / "checkpoint").rename(folder.path / "checkpoint.old")
    (folder.path / "checkpoint.new").mkdir()
    (folder.path / "checkpoint.new" / "tree.json").write_text("{")
    tree, _ = folder.read_checkpoint() or ({}, {})
    assert tree == {"format": 1}
    folder.remove_checkpoint()
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize("damage", ["tree.json", "arrays.safetensors"])
def test_a_damaged_checkpoint_is_one_clear_line(folder: RunFolder, damage: str) -> None:
    folder.write_checkpoint({"format": 1}, {"0": np.zeros(2)})
    (folder.path / "checkpoint" / damage).write_text("{")
    with pytest.raises(UserError, match="cannot read") as error:
        folder.read_checkpoint()
    assert damage in str(error.value)


def test_json_is_plain(folder: RunFolder) -> None:
    folder.write_json("config.json", {"seed": 3})
    assert json.loads((folder.path / "config.json").read_text()) == {"seed": 3}
