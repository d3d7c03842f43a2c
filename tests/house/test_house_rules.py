"""The rules of the house: layers import only downwards, algorithms are pure, SWIFT cannot wait."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import swiftfl
from swiftfl.algorithm import WaitFreeAlgorithm
from swiftfl.algorithms import Swift

SOURCE = Path(swiftfl.__file__).parent
ALGORITHMS = sorted((SOURCE / "algorithms").glob("*.py"))

LAYERS: dict[str, int] = {
    "errors": 0, "files": 0, "registry": 0, "_version": 0, "vector": 0, "streams": 0, "sample": 0,
    "graph": 1, "data": 1, "workload": 1, "rules": 1, "schedule": 1,
    "verbs": 2, "client": 2, "algorithm": 2,
    "algorithms": 3,
    "costs": 4, "engines": 4, "transports": 4, "record": 4,
    "experiment": 5, "report": 6, "reproduce": 6, "cli": 7, "__main__": 7,
}  # fmt: skip


def module_parts() -> list[tuple[Path, str]]:
    files = [f for f in SOURCE.rglob("*.py") if f != SOURCE / "__init__.py"]
    return [(f, f.relative_to(SOURCE).parts[0].removesuffix(".py")) for f in files]


def imported_parts(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "swiftfl":
                names = [f"swiftfl.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("swiftfl.")}
    return found


@pytest.mark.parametrize(("file", "part"), module_parts(), ids=lambda value: str(value)[-40:])
def test_layers_import_only_downwards(file: Path, part: str) -> None:
    assert part in LAYERS, f"{file} belongs to no layer"
    for other in imported_parts(file):
        assert LAYERS[other] <= LAYERS[part], f"{file} imports {other}, which is above {part}"


@pytest.mark.parametrize("file", ALGORITHMS, ids=lambda file: file.name)
def test_algorithms_are_pure(file: Path) -> None:
    """No clock, file, lock, process or socket; no Any; no verb without `yield from`."""
    tree = ast.parse(file.read_text())
    allowed = {"__future__", "collections", "dataclasses", "typing", "swiftfl", "math", "numpy", "functools"}
    verbs = {"Publish", "Gradient", "Fetch", "Mix", "Exchange", "Load", "AverageWith", "Add", "AllReduce"}
    asked = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.YieldFrom)}
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


@pytest.mark.parametrize("edit", EDITS)
def test_a_waiting_verb_in_swift_is_a_type_error(edit: str, tmp_path: Path) -> None:
    text, accepted = EDITS[edit]
    assert edit == "as it is" or text != SWIFT
    edited = tmp_path / "edited_swift.py"
    edited.write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(edited)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert (result.returncode == 0) == accepted, result.stdout + result.stderr
    if not accepted:
        assert "yield from" in result.stdout
        assert "Exchange" in result.stdout


def test_swift_is_a_wait_free_algorithm() -> None:
    """What the type says, seen from outside: the verbs of a step are wait-free ones."""
    from swiftfl import verbs

    waiting = {verbs.Exchange, verbs.Load, verbs.AverageWith, verbs.Add, verbs.AllReduce}
    assert "-> Generator[WaitFree, object, State]:" in SWIFT
    assert SWIFT_NEVER_WAITS.name == "swift"
    names = {node.id for node in ast.walk(ast.parse(SWIFT)) if isinstance(node, ast.Name)}
    assert not names & {verb.__name__ for verb in waiting}


def test_importing_swiftfl_is_light() -> None:
    """`swiftfl graph` and `swiftfl --help` should not have to wait for torch."""
    code = "import sys, swiftfl; sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
