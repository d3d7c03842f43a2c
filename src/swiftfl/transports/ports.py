"""Ports of this machine for ends that listen on loopback."""

from __future__ import annotations

import random
import socket

_LOOPBACK = "127.0.0.1"
_PORTS = range(20_000, 32_000)
"""Below those that the kernel takes for connections: it might give one away before somebody listens there."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now; all are held until the last one is found.

    >>> len(set(free_ports(3)))
    3
    """
    found: list[int] = []
    held: list[socket.socket] = []
    try:
        while len(found) < count:
            port = random.SystemRandom().choice(_PORTS)
            try:
                held.append(socket.create_server((_LOOPBACK, port)))
            except OSError:
                continue
            found.append(port)
        return found
    finally:
        for each in held:
            each.close()
