"""C sources of this package, compiled once per machine with $CC or `cc` and kept in the user's cache folder.

For any processor of its kind, so that a home may be shared.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from swiftfl.files import cache_folder

_log = logging.getLogger(__name__)
FLAGS = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")
_FOLDER = "kernels"
_SECONDS = 60

FAILURES = (OSError, ImportError, AttributeError, subprocess.SubprocessError)
"""What making or loading a library may raise."""

T = TypeVar("T")


class CSource:
    """A file of this package, what it includes, and what else a library made of it depends on."""

    def __init__(self, name: str, *includes: str, folders: Sequence[str] = (), depends: str = "") -> None:
        here = Path(__file__).parent
        self._file = here / name
        self._about = (*((here / part).read_bytes() for part in (name, *includes)), *folders, depends)
        self._options = (*FLAGS, *(f"-I{folder}" for folder in folders))

    def found(self) -> Path | None:
        """The library, if it was compiled before."""
        if not cache_folder(_FOLDER).is_dir():
            return None
        file = self._library()
        return _refuse_of_others(file) if file.exists() else None

    def loaded(self, load: Callable[[Path], T]) -> T:
        """What `load` makes of the library; a file that cannot be loaded is made anew, once."""
        file = self.compiled()
        try:
            return load(file)
        except (OSError, ImportError, AttributeError) as error:
            # A part of a file, after a crash, or made where the C library is a newer one.
            _log.debug("%s is made anew: %s", file, error)
            file.unlink(missing_ok=True)
            return load(self.compiled())

    def compiled(self) -> Path:
        """The library, compiled if it is not there yet: a second or so."""
        file = self._library()
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=file.parent) as beside:
                made = Path(beside) / "made.so"
                command = [_compiler(), *self._options, str(self._file), "-o", str(made), "-lm"]
                subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
                made.chmod(0o700)  # whatever the umask is
                made.replace(file)  # whoever is quicker: both are the same
        return _refuse_of_others(file)

    def _library(self) -> Path:
        about = (*self._about, *FLAGS, _compiler(), platform.machine(), platform.system())
        folder = cache_folder(_FOLDER)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _refuse_of_others(folder) / f"{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}.so"


def allowed() -> bool:
    """Whether compiled arithmetic is wanted."""
    return os.environ.get("SWIFTFL_KERNELS") != "numpy"


def _compiler() -> str:
    compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("cc")
    if compiler is None:
        raise OSError("there is no C compiler")
    return compiler


def _refuse_of_others(path: Path) -> Path:
    """What is loaded was made by this user, where nobody else can put or change anything."""
    about = path.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise OSError(f"others may write to {path}")
    return path
