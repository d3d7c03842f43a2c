"""`swiftfl init`: the starter runs as it is, its comments are true, and nothing is overwritten."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from swiftfl.cli.main import run_command
from swiftfl.experiment.config import Config, parse
from swiftfl.experiment.config_file import read_config_file
from swiftfl.experiment.schema import descriptions, settings


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def value_of(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree[part]
    return tree


@pytest.mark.parametrize("name", ["swiftfl.yaml", "mine.toml"])
def test_the_starter_runs_as_it_is(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init"] if name == "swiftfl.yaml" else ["init", name]) == 0
    assert capsys.readouterr().out == f"Written: {name}. To run it: swiftfl run {name}\n"
    assert parse(read_config_file(place / name).tree) == Config()
    few = ["--model", "logistic", "--epochs", "1", "--clients", "3"]
    assert run_command(["run", name, *few, "--out", "run"]) == 0
    assert (place / "run" / "summary.json").is_file()


def test_the_comments_of_the_starter_are_true(place: Path) -> None:
    """Without a setting it has the default of its comment, and each word that can be chosen is accepted."""
    assert run_command(["init"]) == 0
    text = (place / "swiftfl.yaml").read_text()
    tree = read_config_file(place / "swiftfl.yaml").tree
    comment, seen, path = "", 0, []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment += f" {line.strip()[2:]}"
            continue
        found = re.fullmatch(r"( *)(\w+): ?(.*)", line)
        if found:
            path = [*path[: len(found[1]) // 2], found[2]]
            key = ".".join(path)
            if default := re.search(r"Default: (.*)\.$", comment):
                assert value_of(_without(tree, key), key) == json.loads(default[1]), key
                seen += 1
            if words := re.search(r"One of ([^.]*)\.", comment):
                assert found[3] in words[1].split(", "), key
        comment = ""
    assert seen >= 18


def _without(tree: Any, key: str) -> Any:
    """The whole configuration where the file leaves this setting out."""
    copied = json.loads(json.dumps(tree))
    section, _, last = key.rpartition(".")
    del (value_of(copied, section) if section else copied)[last]
    return parse(copied).model_dump(mode="json")


def test_every_setting_has_a_description() -> None:
    sections = [Config, *(one.section for one in settings() if one.section is not None)]
    for section in sections:
        told = descriptions(section)
        assert list(told) == list(section.model_fields), section
        assert all(text[0].isupper() and text.endswith(".") for text in told.values())


def test_the_page_of_settings_is_that_of_the_schema() -> None:
    """docs/configuration.md has a row for every setting, with its default and description."""
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    rows = [
        [cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| `")
    ]
    found = {row[1].strip("`"): row for row in rows}
    assert list(found) == [one.key for one in settings()]
    for one in settings():
        _, _, _, default, meaning, _ = found[one.key]
        assert meaning.startswith(one.description), one.key
        if one.section is None and one.default is not None:
            assert default == f"`{json.dumps(one.default)}`", one.key


def test_nothing_is_overwritten(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "swiftfl.yaml").write_text("mine")
    for arguments, told in {
        (): "swiftfl.yaml is there already",
        ("a.json",): "a.json must end in .yaml or .toml",
        ("nowhere/a.yaml",): "nowhere",
    }.items():
        assert run_command(["init", *arguments]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert told in shown.err
        assert shown.err.count("\n") == 1
    assert [file.name for file in place.iterdir()] == ["swiftfl.yaml"]
    assert (place / "swiftfl.yaml").read_text() == "mine"
