"""Transports and codecs by name, with all that come with swiftfl."""

from __future__ import annotations

from swiftfl.errors import UserError
from swiftfl.transports import compression, memory, mpi, shared_memory, zenoh
from swiftfl.transports.base import TRANSPORTS, MakePlan, TransportEntry, transport
from swiftfl.transports.codec import CODECS, codec, codec_named, make_codec

__all__ = [
    "CODECS",
    "TRANSPORTS",
    "TransportEntry",
    "codec",
    "codec_named",
    "compression",
    "make_codec",
    "memory",
    "mpi",
    "shared_memory",
    "transport",
    "transport_between_processes",
    "zenoh",
]


def transport_between_processes(name: str) -> MakePlan:
    """How to make the transport of this name, for clients that the engine starts as processes."""
    entry = TRANSPORTS[name]
    if not entry.processes or entry.program is not None:
        fit = ", ".join(e.name for e in TRANSPORTS.values() if e.processes and e.program is None)
        raise UserError(f"transport {name} cannot connect the processes of engine local: choose from {fit}")
    return entry.make
