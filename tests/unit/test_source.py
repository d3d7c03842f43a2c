"""References to code of one's own: what they mean, how files are loaded, and what is said when that fails."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from swiftfl.errors import UserError
from swiftfl.experiment.source import load, load_module, reference, refresh


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def get(text: str, folder: Path | None = None) -> object:
    found = reference(text, folder)
    assert found is not None
    return load(found)


def test_a_file_is_relative_to_who_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "mine.py", "value = 1\n")
    write(tmp_path / "other" / "mine.py", "value = 2\n")
    monkeypatch.chdir(tmp_path)
    assert get("mine.py:value") == get("./mine.py:value") == get("other/../mine.py:value") == 1
    assert get("mine.py:value", tmp_path / "other") == 2
    assert get(f"{tmp_path}/other/mine.py:value") == 2


def test_what_is_no_reference() -> None:
    for text in (
        "digits",
        "given:Net",
        "given:<lambda>",
        "dirichlet:0.3",
        "random_regular:degree=4",
        ":x",
        "x:",
    ):
        assert reference(text) is None


def test_a_module_by_its_dotted_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "ownpackage_a" / "__init__.py", "")
    write(tmp_path / "ownpackage_a" / "part.py", "class Net:\n    size = 3\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    assert get("ownpackage_a.part:Net.size") == 3
    file = tmp_path / "ownpackage_a" / "part.py"
    assert load_module("ownpackage_a.part").digests == {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
    }


def test_a_file_is_loaded_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", "from helper_a import part\nthing = object()\n")
    helper = write(tmp_path / "helper_a.py", "part = 1\ndef used(): pass\n")
    file.write_text("from helper_a import part, used\nthing = object()\n")
    first = load_module(str(file))
    assert set(first.digests) == {str(file), str(helper)}
    assert refresh(str(file)) is first
    assert load_module(str(file)).module.thing is first.module.thing
    helper.write_text("part = 22\ndef used(): pass\n")
    assert load_module(str(file)) is first  # a run that goes on keeps what it began with
    again = refresh(str(file))
    assert again.module.part == 22
    assert again.digests[str(helper)] != first.digests[str(helper)]


def test_names_of_modules_do_not_clash(tmp_path: Path) -> None:
    """Not with the standard library, and neither files nor the files beside them with each other."""
    before = sys.modules["json"]
    write(tmp_path / "a" / "json.py", "import helper_b\nvalue = ('a', helper_b.value)\n")
    write(tmp_path / "a" / "helper_b.py", "value = 'beside a'\n")
    write(tmp_path / "b" / "json.py", "import helper_b\nvalue = ('b', helper_b.value)\n")
    write(tmp_path / "b" / "helper_b.py", "value = 'beside b'\n")
    assert get("json.py:value", tmp_path / "a") == ("a", "beside a")
    assert get("json.py:value", tmp_path / "b") == ("b", "beside b")
    assert sys.modules["json"] is before
    assert str(tmp_path / "a") not in sys.path


def test_dataclasses_and_annotations_work_in_a_file(tmp_path: Path) -> None:
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    write(tmp_path / "mine.py", text + "@dataclass(frozen=True)\nclass Pair:\n    a: int\n    b: int = 2\n")
    pair = get("mine.py:Pair", tmp_path)
    assert pair(1).b == 2  # type: ignore[operator]


WRONG: dict[str, tuple[str, str, str]] = {
    "no such file": ("", "nowhere.py:x", "there is no file {folder}/nowhere.py"),
    "no such name": (
        "import os\nexperiment = 1\n",
        "mine.py:experimnt",
        "{folder}/mine.py has no 'experimnt': did you mean experiment? (experiment)",
    ),
    "an empty file": ("", "mine.py:x", "{folder}/mine.py has no 'x': it defines nothing"),
    "inside": ("class A:\n    b = 1\n", "mine.py:A.c", "{folder}/mine.py:A has no 'c': choose from b"),
    "raises": (
        "a = 1\n\nb = a / 0\n",
        "mine.py:a",
        "cannot import {folder}/mine.py: line 3: ZeroDivisionError: division by zero",
    ),
    "raises elsewhere": (
        "import json\n\nb = json.loads('{')\n",
        "mine.py:a",
        "cannot import {folder}/mine.py: line 3: JSONDecodeError: Expecting property name",
    ),
    "raises beside": (
        "import helper_c\n",
        "mine.py:a",
        "cannot import {folder}/mine.py: helper_c.py, line 2: NameError: name 'oh' is not defined",
    ),
    "syntax": ("a = 1\nb = (\n", "mine.py:a", "cannot import {folder}/mine.py: line 2: SyntaxError: '(' was"),
    "missing": (
        "import no_such_library\n",
        "mine.py:a",
        "cannot import {folder}/mine.py: line 1: ModuleNotFoundError: No module named 'no_such_library'",
    ),
    "exits": ("raise SystemExit(3)\n", "mine.py:a", "cannot import {folder}/mine.py: line 1: SystemExit: 3"),
    "no name": ("a = 1\n", "mine.py", "mine.py is a file: say what of it is meant, as in mine.py:NAME"),
    "no module": (
        "",
        "no_such_package.part:x",
        "cannot import no_such_package.part: ModuleNotFoundError: No",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(case: str, tmp_path: Path) -> None:
    text, said, message = WRONG[case]
    write(tmp_path / "mine.py", text)
    write(tmp_path / "helper_c.py", "a = 1\noh()\n")
    path = list(sys.path)
    with pytest.raises(UserError) as failure:
        get(said, tmp_path)
    assert str(failure.value).startswith(message.format(folder=tmp_path))
    assert "\n" not in str(failure.value)
    assert [entry for entry in sys.path if entry not in path] in ([], [str(Path.cwd())])


def test_a_file_that_failed_can_be_mended(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", "oh no\n")
    with pytest.raises(UserError, match="line 1: SyntaxError"):
        get("mine.py:a", tmp_path)
    file.write_text("a = 5\n")
    assert get("mine.py:a", tmp_path) == 5
