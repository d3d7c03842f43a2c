"""Replies as bytes: computed once for all who ask for the same thing while nothing has changed."""

from __future__ import annotations

import gzip
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from swiftfl.views import RunView

_MOST_KEPT = 64 << 20
_WORTH_PACKING = 16 << 10


@dataclass(frozen=True)
class Body:
    """JSON, and the same packed where that is worth it."""

    plain: bytes
    packed: bytes | None

    def __len__(self) -> int:
        return len(self.plain) + len(self.packed or b"")


def body(value: object) -> Body:
    """Strict JSON of a reply."""
    plain = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    return Body(plain, gzip.compress(plain, 1, mtime=0) if len(plain) > _WORTH_PACKING else None)


class Replies:
    """The newest replies, until the parts of the run that they show have changed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[object, tuple[object, Body]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def of(self, run: RunView, parts: tuple[str, ...], key: object, make: Callable[[], object]) -> Body:
        """The reply of a run to `key`, which shows these of its parts (`RunView.marks`)."""
        marks = run.marks()
        stamp = tuple(marks[part] for part in parts)
        with self._lock:
            known = self._kept.get((run.id, key))
            if known is not None and known[0] == stamp:
                self._kept.move_to_end((run.id, key))
                return known[1]
        made = body(make())
        with self._lock:
            before = self._kept.pop((run.id, key), None)
            self._size += len(made) - (0 if before is None else len(before[1]))
            self._kept[run.id, key] = (stamp, made)
            while self._size > _MOST_KEPT:
                _, (_, oldest) = self._kept.popitem(last=False)
                self._size -= len(oldest)
        return made
