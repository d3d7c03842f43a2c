"""Modules of swiftfl that need a library which is not here are not looked through for doctests.

A plugin of its own, since pytest asks a folder's conftest about that folder only.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

_SOURCE = Path(__file__).parent.parent / "src" / "swiftfl"
_NEEDED = {
    _SOURCE / "integrations" / "lightning.py": "lightning",
    _SOURCE / "integrations" / "transformers.py": "transformers",
    _SOURCE / "dashboard": "starlette",
    _SOURCE / "federation": "cryptography",
}
_MISSING = [path for path, library in _NEEDED.items() if importlib.util.find_spec(library) is None]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Whether a part that needs a library which is missing is passed over: it cannot be imported."""
    return True if collection_path in _MISSING else None
