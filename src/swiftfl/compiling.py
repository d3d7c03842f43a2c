"""C sources of this package, compiled once per machine with `cc` (or $CC) and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from swiftfl.files import cache_folder

FLAGS = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")
_SECONDS = 60


class Source:
    """A file of this package, what it includes, and what else a library made of it depends on."""

    def __init__(self, name: str, *includes: str, folders: Sequence[str] = (), depends: str = "") -> None:
        here = Path(__file__).parent
        self._file = here / name
        self._about = (*((here / part).read_bytes() for part in (name, *includes)), *folders, depends)
        self._options = (*FLAGS, *(f"-I{folder}" for folder in folders))

    def found(self) -> Path | None:
        """The library, if it was compiled before."""
        file = self._library()
        return file if file.exists() else None

    def compiled(self) -> Path:
        """The library, compiled if it is not there yet: a second or so."""
        file = self._library()
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=file.parent) as beside:
                made = Path(beside) / "made.so"
                command = [_compiler(), *self._options, str(self._file), "-o", str(made), "-lm"]
                subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
                made.replace(file)  # whoever is quicker: both are the same
        return file

    def _library(self) -> Path:
        about = (*self._about, *FLAGS, _compiler(), platform.machine(), platform.system())
        return _own_folder() / f"{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}.so"


def allowed() -> bool:
    """Whether compiled arithmetic is wanted."""
    return os.environ.get("SWIFTFL_KERNELS") != "numpy"


def _compiler() -> str:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise OSError("there is no C compiler")
    return compiler


def _own_folder() -> Path:
    """Where nobody else can put a library."""
    folder = cache_folder("kernels")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise OSError(f"others may write to {folder}")
    return folder
