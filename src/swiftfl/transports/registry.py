"""Transports and codecs by name, with all that come with swiftfl."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from swiftfl.errors import UserError
from swiftfl.transports import compression, memory, mpi, shared_memory, zenoh
from swiftfl.transports.base import TRANSPORTS, MakePlan, TransportEntry, TransportPlan, transport
from swiftfl.transports.codec import CODECS, MakeCodec, codec, codec_named, make_codec
from swiftfl.vector import Vector

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
    return partial(_made, entry)


def _made(
    entry: TransportEntry,
    neighbours: Sequence[Sequence[int]],
    x0: Vector,
    codec: MakeCodec,
    in_rounds: bool,
) -> TransportPlan:
    plan: object = entry.make(neighbours, x0, codec, in_rounds)
    if plan is None:  # a function of the user's own without its return
        raise UserError(f"transport {entry.name} must return a plan, not None")
    return cast(TransportPlan, plan)
