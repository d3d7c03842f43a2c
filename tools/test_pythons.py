"""Try the Python versions that this machine has: `make test-pythons`.

For each: do the constraints install (a dry run resolves them all, with every extra)? If so, install into
build/pythons/VERSION and run a quick part of the tests. Where pip would take a build of torch with CUDA,
which is gigabytes, torch is left out and only tests that need no torch are run; with
SWIFTFL_CUDA_WHEELS=1 it is installed all the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
HEAVY = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)$")
WITH_TORCH = ["tests/unit/graph", "tests/unit/data", "tests/unit/test_atomic_files.py"]
WITHOUT_TORCH = ["tests/unit/graph", "tests/unit/test_atomic_files.py"]


def interpreter(version: str) -> str | None:
    """The newest Python of this version: on the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"))[::-1])]:
        path = shutil.which(candidate)
        if path and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return path
    return None


def extras() -> list[str]:
    """Those that pyproject.toml names (by hand: tomllib comes with Python 3.11)."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    return re.findall(r"^(\w+) = \[", section, re.MULTILINE)


def attempt(version: str, python: str) -> str:
    """What came of it; CalledProcessError if a step failed."""
    folder = ROOT / "build" / "pythons" / version
    if not (folder / "bin" / "python").exists():
        run([python, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--upgrade", "pip"])
    report = folder / "report.json"
    wanted = ["--constraint", "constraints.txt", "--editable", ".[dev]"]
    every = [*wanted[:-1], f".[{','.join(extras())}]"]
    run([*pip, "install", "--quiet", "--dry-run", "--ignore-installed", *every])
    run([*pip, "install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report), *wanted])
    found = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    cuda = any(entry["name"].startswith("nvidia-") for entry in found)
    if cuda and os.environ.get("SWIFTFL_CUDA_WHEELS") != "1":
        light = [f"{m['name']}=={m['version']}" for m in found if not HEAVY.match(m["name"])]
        pins = [pin for pin in light if not pin.startswith("swiftfl==")]
        run([*pip, "install", "--quiet", "--no-deps", *pins])
        run([*pip, "install", "--quiet", "--no-deps", "--editable", "."])
        test(folder, WITHOUT_TORCH)
        return "constraints install; tests without torch passed (SWIFTFL_CUDA_WHEELS=1 installs it with CUDA)"
    run([*pip, "install", "--quiet", *wanted])
    test(folder, WITH_TORCH)
    return "constraints install; tests passed"


def test(folder: Path, tests: list[str]) -> None:
    python = str(folder / "bin" / "python")
    run([python, "-m", "compileall", "-q", "src"])
    run([python, "-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", *tests])


def run(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> int:
    outcome: dict[str, str] = {}
    failed = False
    for version in VERSIONS:
        python = interpreter(version)
        print(f"== Python {version}: {python or 'not on this machine'}", flush=True)
        if python is None:
            outcome[version] = "skipped: not on this machine"
            continue
        try:
            outcome[version] = attempt(version, python)
        except subprocess.CalledProcessError as error:
            outcome[version], failed = f"FAILED: {' '.join(error.cmd)[:100]}", True
    for version, what in outcome.items():
        print(f"Python {version}: {what}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
