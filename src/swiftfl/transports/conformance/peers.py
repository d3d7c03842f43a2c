"""The battery over zenoh (`swiftfl check-transport zenoh`): the program starts its other ranks itself.

What ranks tell each other to keep step goes through sockets to the first; the transport itself is a session
for each rank and check, on loopback, without certificates (those have tests of their own).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from swiftfl.fresh import fresh_python
from swiftfl.transports.codec import Identity, MakeCodec
from swiftfl.transports.conformance.ranks import RANKS, main
from swiftfl.transports.messages.transport import MessageTransport
from swiftfl.transports.ports import free_ports
from swiftfl.transports.wire import WireTerms
from swiftfl.transports.zenoh.link import ZenohLink
from swiftfl.transports.zenoh.presence import Presence
from swiftfl.transports.zenoh.settings import LinkSettings
from swiftfl.transports.zenoh.wire import WireNeighbour, ZenohWire
from swiftfl.vector import Vector

_SECONDS = 60.0
_HEADER = 4096


class Peers:
    """All ranks: the first has a line to each of the others, they have one to it."""

    def __init__(self, rank: int, lines: list[socket.socket]) -> None:
        self.rank = rank
        self._files = [line.makefile("rw", encoding="utf-8") for line in lines]

    def tell(self, value: object, who: int = 0) -> Any:
        text = json.dumps(value)
        if self.rank:
            if self.rank == who:
                self._say(0, text)
            return json.loads(self._files[0].readline())
        if who:
            text = self._files[who - 1].readline().strip()
        for other in range(RANKS - 1):
            self._say(other, text)
        return json.loads(text)

    def _say(self, line: int, text: str) -> None:
        print(text, file=self._files[line], flush=True)

    def part(self, n: int) -> PeersPart | None:
        for rank in range(1, RANKS):
            self.tell(None, rank)  # has started, and has ended its last check: the time below is not for that
        ports = self.tell(free_ports(n) if self.rank == 0 else None)
        return PeersPart(self.rank, ports) if self.rank < n else None

    def abort(self, code: int) -> None:
        """The others end when their lines do."""
        os._exit(code)


class PeersPart:
    """Those who take part in a check; each has its port."""

    def __init__(self, rank: int, ports: Sequence[int]) -> None:
        self.rank, self._addresses = rank, [f"tcp/127.0.0.1:{port}" for port in ports]

    def connect(
        self, neighbours: Sequence[Sequence[int]], x0: Vector, codec: MakeCodec = Identity
    ) -> MessageTransport:
        others = {k: f"rank{k}" for k in range(len(self._addresses)) if k != self.rank}
        settings = LinkSettings(
            "check",
            f"rank{self.rank}",
            {name: name for name in others.values()},
            [self._addresses[self.rank]],
            self._addresses[: self.rank],
        )
        link = ZenohLink(settings)
        dtype = str(x0.dtype)
        terms = WireTerms("0" * 32, "0" * 64, x0.size, dtype, "identity", _HEADER + 8 * max(x0.size, 64))
        near = {k: WireNeighbour(name, k) for k, name in others.items()}
        wire = ZenohWire(link, self.rank, near, len(self._addresses), terms, self.rank)
        here = {k: threading.Event() for k in others}
        for k, other in others.items():
            link.listen(other, lambda data, k=k: wire.arrived(k, data))  # type: ignore[misc]
        presence = Presence(link, others, lambda k, there: here[k].set() if there else None)
        for k, event in here.items():
            if not event.wait(_SECONDS):
                raise TimeoutError(f"rank {k} does not appear")
        presence.close()
        return MessageTransport(wire, neighbours, x0, codec)


def _start() -> Peers:
    """The first rank, which starts the others."""
    lines = []
    for rank in range(1, RANKS):
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        command = fresh_python(__spec__.name, f"--rank={rank}:{theirs.fileno()}", *sys.argv[1:])
        subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL)
        theirs.close()
        lines.append(ours)
    return Peers(0, lines)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("--rank="):
        which, line = map(int, sys.argv[1].removeprefix("--rank=").split(":"))
        try:
            main(sys.argv[2:], Peers(which, [socket.socket(fileno=line)]))
        except (json.JSONDecodeError, OSError):
            os._exit(0)  # the first rank has ended
    else:
        main(sys.argv[1:], _start())
