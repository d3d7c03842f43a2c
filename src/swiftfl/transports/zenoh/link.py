"""A zenoh session: the one file that knows zenoh."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from swiftfl.errors import UserError
from swiftfl.transports.zenoh.settings import LinkSettings, configuration

_log = logging.getLogger(__name__)
_CLOSE_SECONDS = 5.0
_ASK_SECONDS = 0.5
# A link that ends while a `put` waits for room in its queue blocks the thread of zenoh that sends, until that
# `put` gives up (_WAIT_BEFORE_CLOSE_US). By default there is one such thread for all links of a process: then
# no other neighbour hears anything meanwhile, and takes this end for dead.
_RUNTIME = "(tx: (worker_threads: 8), rx: (worker_threads: 4), net: (worker_threads: 4))"


@lru_cache(None)
def _zenoh() -> Any:
    os.environ.setdefault("ZENOH_RUNTIME", _RUNTIME)  # which it reads when it is first used
    try:
        import zenoh
    except ImportError:
        raise UserError("federations need zenoh: pip install 'swiftfl[federation]'") from None
    zenoh.init_log_from_env_or("off")  # what concerns us is said by us; RUST_LOG shows more
    return zenoh


class ZenohLink:
    """One end's session, with its neighbours only. Callbacks come from threads of zenoh's own."""

    def __init__(self, settings: LinkSettings) -> None:
        self.settings, zenoh = settings, _zenoh()
        # The default drops large messages. BLOCK_FIRST keeps one that waits and drops those that follow: it
        # is for whole models. Chunks, each put by a thread that may wait, need BLOCK.
        self._blocking = zenoh.CongestionControl.BLOCK
        self._urgent, self._usual = zenoh.Priority.INTERACTIVE_HIGH, zenoh.Priority.DATA
        self._there = zenoh.SampleKind.PUT
        try:
            self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(configuration(settings))))
        except zenoh.ZError as error:
            raise UserError(f"node {settings.name} cannot start: {_first_sentence(error)}") from None
        self._declared: list[Any] = []

    def put(self, to: str, data: bytes, urgent: bool = False) -> None:
        """Send to one neighbour; waits while its link takes no more. One thread per neighbour calls it."""
        self._session.put(
            self.settings.key(self.settings.name, to),
            data,
            congestion_control=self._blocking,
            priority=self._urgent if urgent else self._usual,
            express=urgent,
        )

    def listen(self, name: str, take: Callable[[bytes], None]) -> None:
        """Give `take` what this neighbour sends to us."""
        key = self.settings.key(name, self.settings.name)
        self._declare(self._session.declare_subscriber(key, lambda sample: take(sample.payload.to_bytes())))

    def watch(self, name: str, tell: Callable[[bool], None]) -> None:
        """Tell whether this neighbour is there, now and whenever that changes."""
        self._declare(
            self._session.liveliness().declare_subscriber(
                self.settings.token(name), lambda sample: tell(sample.kind == self._there), history=True
            )
        )

    def is_there(self, name: str) -> bool | None:
        """Ask for it; None if that is not known, because somebody connected took too long to answer."""
        began = time.monotonic()
        replies = self._session.liveliness().get(self.settings.token(name), timeout=_ASK_SECONDS)
        if any(reply.ok is not None for reply in replies):
            return True
        return False if time.monotonic() - began < _ASK_SECONDS else None

    def appear(self) -> None:
        """From now on neighbours see that we are here; what they send is expected."""
        self._declare(self._session.liveliness().declare_token(self.settings.token(self.settings.name)))

    def _declare(self, declared: Any) -> None:
        self._declared.append(declared)

    def close(self) -> None:
        """Leave; what cannot leave in a few seconds is given up. May be called again."""
        if self._session.is_closed():
            return
        closing = threading.Thread(target=self._close, name="swiftfl-zenoh-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)
        if closing.is_alive():
            _log.warning(
                "the session of %s does not close; it is left to the end of the program", self.settings.name
            )

    def _close(self) -> None:
        try:
            self._session.close()
        except _zenoh().ZError as error:  # what was under way could not be ended in good order
            _log.debug("closing the session of %s: %s", self.settings.name, error)


def _first_sentence(error: BaseException) -> str:
    return str(error).splitlines()[0].split(" at ")[0][:300]
