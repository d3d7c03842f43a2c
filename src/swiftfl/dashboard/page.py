"""The files of the page, by the names that they have there; nothing else can be asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

STATIC = Path(str(files("swiftfl.views") / "static"))
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".woff2": "font/woff2",
}
_PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class PageFile:
    """What is sent, and how a browser tells whether it has it already."""

    content: bytes
    type: str
    tag: str


class PageFiles:
    """The files below a folder. A name is looked up among those that are there, never joined to a path."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, int], PageFile]] = {}

    def names(self) -> dict[str, Path]:
        return {
            path.relative_to(self._folder).as_posix(): path
            for path in self._folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        }

    def get(self, name: str) -> PageFile | None:
        """The file of a name; read again when it has changed."""
        path = self.names().get(name)
        if path is None:
            return None
        found = path.stat()
        mark = (found.st_mtime_ns, found.st_size)
        if name not in self._known or self._known[name][0] != mark:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            self._known[name] = (mark, PageFile(content, _TYPES.get(path.suffix, _PLAIN), tag))
        return self._known[name][1]
