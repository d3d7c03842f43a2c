"""The rules of the house: algorithms are pure, SWIFT cannot wait, importing is light.

That layers import only downwards is checked by import-linter (`.importlinter`, `make check`).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import swiftfl
from swiftfl.algorithm import WaitFreeAlgorithm
from swiftfl.algorithms import Swift
from swiftfl.verbs import Verb, Waiting

SOURCE = Path(swiftfl.__file__).parent
ALGORITHMS = sorted((SOURCE / "algorithms").glob("*.py"))

ONE_PLACE = {
    "mpi4py": "transports/mpi.py",
    "pooch": "data/download.py",
    "platformdirs": "data/download.py",
    "filelock": "lock.py",
}
"""Libraries that only one file may import, so that one file says how they are used."""


def imported_libraries(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("library", ONE_PLACE)
def test_some_libraries_are_imported_in_one_file(library: str) -> None:
    users = [file.relative_to(SOURCE) for file in SOURCE.rglob("*.py") if library in imported_libraries(file)]
    assert [str(file) for file in users] == [ONE_PLACE[library]]


@pytest.mark.parametrize("file", ALGORITHMS, ids=lambda file: file.name)
def test_algorithms_are_pure(file: Path) -> None:
    """No clock, file, lock, process or socket; no Any; no verb without `yield from`."""
    tree = ast.parse(file.read_text())
    allowed = {"__future__", "collections", "dataclasses", "typing", "swiftfl", "math", "numpy", "functools"}
    verbs = {verb.__name__ for verb in get_args(Verb)}
    asked = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.YieldFrom)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Overlapped":
            asked |= {id(part) for part in (*node.args, *(k.value for k in node.keywords))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= allowed
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] in allowed
        if isinstance(node, ast.Name):
            assert node.id not in {"Any", "open", "print", "cast"}, f"{file}: {node.id}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in verbs:
            assert id(node) in asked, f"{file}:{node.lineno}: a verb without yield from does nothing"


@pytest.mark.parametrize("file", ALGORITHMS, ids=lambda file: file.name)
def test_no_way_around_the_types_in_algorithms(file: Path) -> None:
    """No ignored error, and nothing of typing (such as Any or cast, under whatever name) but ClassVar."""
    assert "type: ignore" not in file.read_text()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            assert "typing" not in {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module == "typing":
            assert {alias.name for alias in node.names} <= {"ClassVar"}


SWIFT_NEVER_WAITS: WaitFreeAlgorithm = Swift()
"""That this line type-checks (`make check`) says that SWIFT's step yields wait-free verbs only."""

SWIFT = (SOURCE / "algorithms" / "swift.py").read_text()
FETCH = "inbox = yield from Fetch(me.neighbours)"
IMPORT = "from swiftfl.verbs import Fetch,"
EDITS = {
    "as it is": (SWIFT, True),
    "with a waiting verb": (
        SWIFT.replace(FETCH, "inbox = yield from Exchange(s.x, me.neighbours, round=s.c)").replace(
            IMPORT, "from swiftfl.verbs import Exchange, Fetch,"
        ),
        False,
    ),
    "with a waiting verb in a helper": (
        SWIFT.replace(FETCH, "inbox = yield from ask(me, s)").replace(
            IMPORT, "from swiftfl.verbs import Exchange, Inbox, Verb, Fetch,"
        )
        + "\n\ndef ask(me: Client, s: State) -> Generator[Verb, object, Inbox]:\n"
        + "    return (yield from Exchange(s.x, me.neighbours, round=s.c))\n",
        False,
    ),
}


def test_a_waiting_verb_in_swift_is_a_type_error(tmp_path: Path) -> None:
    """All edits in one run of mypy, which takes most of its time for what they import."""
    files = {edit: f"edited_{number}.py" for number, edit in enumerate(EDITS)}
    for edit, file in files.items():
        assert edit == "as it is" or EDITS[edit][0] != SWIFT
        (tmp_path / file).write_text(EDITS[edit][0])
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *files.values()]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert result.stderr == ""
    for edit, file in files.items():
        mine = [line for line in result.stdout.splitlines() if line.startswith(f"{file}:")]
        errors = [line for line in mine if ": error:" in line]
        if EDITS[edit][1]:
            assert errors == []
        else:
            assert any("yield from" in line and "Exchange" in line for line in errors), result.stdout
    assert all(line.startswith(tuple(files.values())) for line in result.stdout.splitlines()), result.stdout


def test_swift_is_a_wait_free_algorithm() -> None:
    """What the type says, seen from outside: the verbs of a step are wait-free ones."""
    assert "-> Generator[WaitFree, object, State]:" in SWIFT
    assert SWIFT_NEVER_WAITS.name == "swift"
    names = {node.id for node in ast.walk(ast.parse(SWIFT)) if isinstance(node, ast.Name)}
    assert not names & {verb.__name__ for verb in get_args(Waiting)}


def test_a_logger_is_used_by_the_module_that_has_it() -> None:
    """A logger per module that has something to say, and none that says nothing."""
    made = re.compile(r"^(\w+) = logging\.getLogger\(__name__\)$", re.MULTILINE)
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text()
        for name in made.findall(text):
            assert re.search(rf"^ +{name}\.(debug|info|warning|error|exception)\(", text, re.MULTILINE), file


def test_tests_of_graphs_need_no_torch() -> None:
    """`make test-pythons` runs them where torch is not installed."""
    layers = "algorithms|engines|experiment|workload"
    heavy = re.compile(rf"^(from|import) (torch|worlds|swiftfl\.({layers}))\b", re.MULTILINE)
    tests = (Path(__file__).parents[1] / "unit" / "graph").glob("*.py")
    assert [file.name for file in tests if heavy.search(file.read_text())] == []


def test_importing_swiftfl_is_light() -> None:
    """`swiftfl --help` should not have to wait for torch, and signals are answered from the start."""
    heavy = "{'torch', 'matplotlib', 'numpy', 'scipy'}"
    code = f"import sys, swiftfl; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
