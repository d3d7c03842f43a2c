"""The rules of the house: algorithms are pure, SWIFT cannot wait, importing is light.

That layers import only downwards is checked by import-linter (`.importlinter`, `make check`).
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

import swiftfl
from swiftfl.algorithm import WaitFreeAlgorithm
from swiftfl.algorithms import DivShare, OverlappedSgp, Swift, WaitFreeQuasiGlobal
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.used import ENGINES, check_engine
from swiftfl.graph.directed import directed
from swiftfl.verbs import Verb, Waiting

SOURCE = Path(swiftfl.__file__).parent
ALGORITHMS = sorted((SOURCE / "algorithms").glob("*.py"))

ONE_PLACE = {
    "mpi4py": "transports/mpi.py",
    "opacus": "experiment/accountant.py",
    "pooch": "data/download.py",
    "platformdirs": "files.py",
    "cryptography": "federation/certificates.py",
    "filelock": "lock.py",
    "threadpoolctl": "engines/threads.py",
    "mlflow": "trackers/mlflow.py",
    "wandb": "trackers/wandb.py",
    "starlette": "dashboard/application.py",
    "uvicorn": "dashboard/server.py",
    "yaml": "experiment/config_file.py",
    "tomllib": "experiment/config_file.py",
}
"""Libraries that only one file may import, so that one file says how they are used."""


@functools.cache
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
OTHERS_NEVER_WAIT: list[WaitFreeAlgorithm] = [
    WaitFreeQuasiGlobal(),
    OverlappedSgp(directed(swiftfl.ring(3), "both")),
    DivShare(),
]
"""And so for others."""

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


UNRELATED = ("torch", *(f"swiftfl.{part}" for part in ("api", "loop", "optimizers", "trackers", "data")))
"""What `swiftfl` gives to users and algorithms know nothing of: most of mypy's time would go into it."""


def test_a_waiting_verb_in_swift_is_a_type_error(tmp_path: Path) -> None:
    """All edits in one run of mypy, which takes most of its time for what they import."""
    unrelated = ",".join(f"{module}.*" for module in UNRELATED)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\n[mypy-{unrelated}]\nfollow_imports = skip\n")
    files = {edit: f"edited_{number}.py" for number, edit in enumerate(EDITS)}
    for edit, file in files.items():
        assert edit == "as it is" or EDITS[edit][0] != SWIFT
        (tmp_path / file).write_text(EDITS[edit][0])
    # What mypy knows of the modules that they import is kept: that is most of its time, at the first run.
    known = ["--cache-dir", str(Path(__file__).parents[2] / ".mypy_cache" / "house")]
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *known, *files.values()]
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


SAME_NAME_ON_PURPOSE = {"SwiftCallback"}
"""What a user imports from the module of the library that calls it back: Lightning's, transformers'."""


def test_a_class_name_has_one_meaning() -> None:
    """Whoever reads a name, or searches for it, finds one class."""
    places: dict[str, list[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(file.relative_to(SOURCE)))
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert {name: files for name, files in twice.items() if name not in SAME_NAME_ON_PURPOSE} == {}


ONE_CALL = {
    r"\bsignal\.signal\(": {
        "signals.py",
        "experiment/worker.py",
        "engines/simulation/helpers.py",
        "transports/conformance/participants.py",
    },
    r"\bos\.(replace|rename|fsync)\(|\bmkstemp\(|\bNamedTemporaryFile\(": {"files.py"},
    r"\b(ProcessPoolExecutor|ThreadPoolExecutor|multiprocessing\.Pool|mp\.Pool)\b": set(),
}
"""Handlers of signals (and child processes that set one for themselves), files that are written whole or
not at all, and pools of processes (`experiment/pool.py` is the one pool): what may be called where."""


@pytest.mark.parametrize("call", ONE_CALL)
def test_some_things_are_done_in_one_place(call: str) -> None:
    users = {
        str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if re.search(call, file.read_text())
    }
    assert users == ONE_CALL[call]


def test_files_are_short() -> None:
    """400 lines at most."""
    for file in SOURCE.rglob("*.py"):
        assert len(file.read_text().splitlines()) <= 400, file.relative_to(SOURCE)


METAPHORS = r"\b(nursery|office|crew|pump|bells|parcels?)\b"
"""They once stood for the fork server, the control channel, the clients, the progress thread and messages."""


def test_words_of_the_field_instead_of_metaphors() -> None:
    root = Path(__file__).parents[2]
    pages = [*SOURCE.rglob("*.py"), *(root / "docs").rglob("*.md"), *root.glob("*.md")]
    found = [
        f"{file.relative_to(root)}: {word}"
        for file in pages
        for word in re.findall(METAPHORS, file.read_text(), re.IGNORECASE)
    ]
    assert found == []


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by these, and collects only one of two that are called the same."""
    names = [file.name for file in (Path(__file__).parents[1]).rglob("*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


READ_FOR = {
    "runners/simulated.py": {"virtual", "sampled"},
    "runners/live.py": {"local", "mpi"},
    "runners/local.py": {"local"},
    "runners/mpi.py": {"mpi"},
}
"""Files of `experiment` that only some engines come to."""


def leaves(section: type[BaseModel], path: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_settings_that_only_some_engines_read_are_refused_for_others() -> None:
    folder = SOURCE / "experiment"
    texts = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.py")}
    del texts["used.py"], texts["starting.py"]  # which looks at settings that a runner reads, too
    checked = []
    for key in leaves(Config):
        said = re.compile(rf"\b{re.escape('.'.join(key.split('.')[-2:]))}\b")
        readers = [file for file, text in texts.items() if said.search(text)]
        if not readers or not all(file in READ_FOR for file in readers):
            continue
        checked.append(key)
        for engine in set(ENGINES) - set().union(*(READ_FOR[file] for file in readers)):
            with pytest.raises(UserError, match=f"{key} is for engine .*not {engine}"):
                check_engine(engine, {key: key})
    assert {"evaluation.every_epochs", "engine.live.transport", "engine.live.save_steps"} <= set(checked)
