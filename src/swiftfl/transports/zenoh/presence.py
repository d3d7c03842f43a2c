"""Who of the neighbours is there: as their tokens tell, and as asked for now and then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial

from swiftfl.transports.zenoh.link import ZenohLink

_log = logging.getLogger(__name__)
_ASK_EVERY = 1.0  # seconds


class Presence:
    """Shows this end to its neighbours, and calls `changed(k, there)` when one of them comes or goes.

    `changed` is called by threads of zenoh's and by one of its own, one call at a time.
    """

    def __init__(
        self, link: ZenohLink, neighbours: Mapping[int, str], changed: Callable[[int, bool], None]
    ) -> None:
        self._link, self._names, self._changed = link, dict(neighbours), changed
        self._lock = threading.Lock()
        self._here: set[int] = set()
        self._unannounced: set[int] = set()  # who is there though nobody has told us
        self._told_of = dict.fromkeys(self._names, 0)  # how often we were told
        self._closing = threading.Event()
        link.appear()
        for k, name in self._names.items():
            link.watch(name, partial(self._told, k))
        self._thread = threading.Thread(target=self._ask, name="swiftfl-who-is-there", daemon=True)
        self._thread.start()

    def _told(self, k: int, there: bool) -> None:
        with self._lock:
            self._told_of[k] += 1
            self._unannounced.discard(k)
            self._set(k, there)

    def _set(self, k: int, there: bool) -> None:
        (self._here.add if there else self._here.discard)(k)
        _log.info("%s is %s", self._names[k], "here" if there else "gone")
        self._changed(k, there)

    def _ask(self) -> None:
        """For those who are not there as far as we were told; a change may never be told, if it happens
        while a link comes up."""
        while not self._closing.wait(_ASK_EVERY):
            with self._lock:
                asked = sorted((self._names.keys() - self._here) | self._unannounced)
            for k in asked:
                before = self._told_of[k]
                try:
                    there = self._link.is_there(self._names[k])
                except Exception as error:  # of a session that is closed meanwhile
                    _log.debug("cannot ask for %s: %s", self._names[k], error)
                    return
                with self._lock:
                    if self._told_of[k] != before:
                        continue  # what we were told meanwhile is newer than the answer
                    if there is not None and there != (k in self._here):
                        (self._unannounced.add if there else self._unannounced.discard)(k)
                        self._set(k, there)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(2.0)
