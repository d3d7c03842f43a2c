"""Peers over zenoh: between organisations, each end a process of its own that knows only its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from swiftfl.errors import UserError
from swiftfl.transports.base import TransportPlan, transport
from swiftfl.transports.codec import Identity, MakeCodec
from swiftfl.vector import Vector


@transport("zenoh", program="swiftfl.transports.conformance.peers", starts_clients=True)
def zenoh_plan(
    neighbours: Sequence[Sequence[int]], x0: Vector, codec: MakeCodec = Identity, in_rounds: bool = False
) -> TransportPlan:
    """Clients as nodes of a federation, for `swiftfl node`.

    Nodes connect by themselves, because nobody starts them together.
    """
    raise UserError("transport zenoh needs nodes, which nobody starts together: swiftfl node NODE.yaml")
