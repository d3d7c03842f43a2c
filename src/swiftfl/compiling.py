"""C sources of this package, compiled once per machine with $CC or `cc` and kept in the user's cache folder.

For any processor of its kind, so that a home may be shared. A file's name ends with the digest of its
content, which is compared before it is loaded: a process that loads a part of a library, left by a crash or
a full disk, may be killed by a signal instead of seeing an error.
"""

from __future__ import annotations

import contextlib
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

from swiftfl.files import cache_folder, sync, sync_folder

_log = logging.getLogger(__name__)
FLAGS = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")
_FOLDER = "kernels"
_SECONDS = 60
_TOLD = 200  # characters of what a compiler said

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
        """The library, if it was compiled before, and is whole."""
        if not cache_folder(_FOLDER).is_dir():
            return None
        folder, name = self._place()
        return next((file for file in sorted(folder.glob(f"{name}-*.so")) if _is_whole(file)), None)

    def loaded(self, load: Callable[[Path], T]) -> T:
        """What `load` makes of the library; a file that cannot be loaded is made anew, once."""
        file = self.compiled()
        try:
            return load(file)
        except (OSError, ImportError, AttributeError) as error:
            # Made where the C library is a newer one.
            _log.debug("%s is made anew: %s", file, error)
            file.unlink(missing_ok=True)
            return load(self.compiled())

    def compiled(self) -> Path:
        """The library, compiled if it is not there yet, or not whole: a second or so."""
        found = self.found()
        if found is not None:
            return found
        folder, name = self._place()
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            made = Path(beside) / "made.so"
            _compile([_compiler(), *self._options, str(self._file), "-o", str(made), "-lm"])
            made.chmod(0o700)  # whatever the umask is
            sync(made)  # or its name might be on the disk before its content
            file = folder / f"{name}-{_digest(made.read_bytes())}.so"
            made.replace(file)  # whoever is quicker: both are the same
        for old in folder.glob(f"{name}-*.so"):
            if old != file and not _is_whole(old):  # what another compiler made has another name
                with contextlib.suppress(OSError):
                    old.unlink()
        sync_folder(folder)
        return _refuse_of_others(file)

    def _place(self) -> tuple[Path, str]:
        """The folder, and how the library's name begins."""
        about = (*self._about, *FLAGS, _compiler(), platform.machine(), platform.system())
        folder = cache_folder(_FOLDER)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _refuse_of_others(folder), _digest(repr(about).encode())


def allowed() -> bool:
    """Whether compiled arithmetic is wanted."""
    return os.environ.get("SWIFTFL_KERNELS") != "numpy"


def _compiler() -> str:
    compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("cc")
    if compiler is None:
        raise OSError("there is no C compiler")
    return compiler


def _compile(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, timeout=_SECONDS)
    if done.returncode:
        said = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in said if "error" in line]  # after which a compiler may say that it ends
        why = (errors[:1] or said[-1:] or ["it does not say why"])[0][:_TOLD]
        raise OSError(f"{command[0]} ended with code {done.returncode}: {why}")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _is_whole(file: Path) -> bool:
    try:
        _refuse_of_others(file)
    except FileNotFoundError:  # another process makes it anew
        return False
    try:
        whole = file.stem.endswith(f"-{_digest(file.read_bytes())}")
    except OSError as error:  # as on a disk that fails
        _log.debug("%s cannot be read, and is not loaded: %s", file, error)
        return False
    if not whole:
        _log.debug("%s is damaged, and not loaded", file)
    return whole


def _refuse_of_others(path: Path) -> Path:
    """What is loaded was made by this user, where nobody else can put or change anything."""
    about = path.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise OSError(f"others may write to {path}")
    return path
