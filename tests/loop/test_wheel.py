"""The README as a new user follows it: the wheel in an empty environment, its programs in an empty folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from swiftfl.transports import launch

ROOT = Path(__file__).parents[2]


def programs() -> list[str]:
    """The ten lines, and the loop with two lines changed."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.S)


def test_ten_lines_are_ten_and_two_are_two() -> None:
    ten, two = programs()
    assert len([line for line in ten.splitlines() if line.strip()]) == 10
    assert len(re.findall(r"# new", two)) == 2
    assert len(re.findall(r"swiftfl\.", two)) == 2


class NewUser:
    """An environment with the wheel and nothing else, and a folder with nothing in it."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "empty"
        self.folder.mkdir()
        self.bin = place / "environment" / "bin"
        hidden = ("PYTHON", "SWIFTFL", "OMPI", "PMIX", "COV", "VIRTUAL_ENV")
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        self.env |= {"PATH": os.pathsep.join([str(self.bin), os.environ["PATH"]]), "OMP_NUM_THREADS": "1"}
        if os.geteuid() == 0:
            self.env |= launch.AS_ROOT
        venv.create(place / "environment", with_pip=True)

    def run(self, *command: str, seconds: float = 300) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def pip(self, *arguments: str) -> str:
        return self.run("python", "-m", "pip", "--disable-pip-version-check", *arguments, seconds=1800)


def no_packages_here() -> bool:
    """Whether pip reaches no index: then there is nothing to install from."""
    found = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "iniconfig"],
        capture_output=True,
        timeout=300,
        check=False,
    )
    return found.returncode != 0


def copied(to: Path) -> Path:
    """What the wheel is made of; building it beside an old build would take up that one's files."""
    shutil.copytree(ROOT / "src" / "swiftfl", to / "src" / "swiftfl", ignore=lambda *_: {"__pycache__"})
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, to)
    return to


@pytest.mark.slow
def test_the_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    if no_packages_here():
        pytest.skip("pip reaches no package index")
    user = NewUser(tmp_path)
    source = copied(tmp_path / "source")
    user.pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path / "dist"), str(source))
    (wheel,) = (tmp_path / "dist").iterdir()
    user.pip("install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), f"{wheel}[mpi]")
    installed = user.pip("list", "--format", "freeze")
    assert "nvidia" not in installed
    assert "pytest" not in installed

    ten, two = programs()
    (user.folder / "ten.py").write_text(ten)
    said = user.run("python", "ten.py")
    assert re.fullmatch(r"accuracy 0\.9\d* waited 0\.0\n", said), said
    assert (user.folder / "loss.svg").read_text().startswith("<?xml")

    (user.folder / "train.py").write_text(two)
    accuracy = r"accuracy (?:0\.9\d*|1\.0) of the average of"
    assert re.fullmatch(rf"{accuracy} 1\n", user.run("python", "train.py"))
    launched = user.run("swiftfl", "launch", "-n", "4", "train.py")
    assert sorted(re.findall(rf"^\[(\d)\] {accuracy} 4$", launched, re.M)) == ["0", "1", "2", "3"], launched
    mpi = user.run("mpiexec", "--oversubscribe", "--bind-to", "none", "-n", "4", "python", "train.py")
    assert len(re.findall(rf"^{accuracy} 4$", mpi, re.M)) == 4, mpi
    assert sorted(file.name for file in user.folder.iterdir()) == ["loss.svg", "ten.py", "train.py"]
