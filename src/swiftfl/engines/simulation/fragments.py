"""Fragments of models on their way, and those that have arrived, in virtual time.

As in the mailboxes nothing happens when one arrives: whoever gathers takes what is there by then. Of one
sender and fragment only the newest counts; one that a newer has overtaken is dropped at the next scattering.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from swiftfl.costs import Costs
from swiftfl.engines.saved import Pool, Saved
from swiftfl.engines.simulation.mailboxes import Links
from swiftfl.vector import Vector
from swiftfl.verbs import Scatter

Kind = tuple[int, int, int]
"""Sender, fragment, of how many."""


class Piece(NamedTuple):
    """When a fragment is there, of which version it is, and its numbers."""

    arrives: float
    version: int
    values: Vector


class Fragments:
    """What each client has been sent and has not gathered yet."""

    def __init__(self, n: int, costs: Costs, links: Links) -> None:
        self._costs, self._links = costs, links
        self._boxes: list[dict[Kind, list[Piece]]] = [{} for _ in range(n)]

    def size(self, verb: Scatter) -> int:
        """The bytes of one message with this fragment."""
        values = verb.x[verb.fragment :: verb.of]
        if self._costs.message_bytes is None:
            return values.nbytes
        return max(1, self._costs.message_bytes * values.size // verb.x.size)

    def scatter(self, sender: int, verb: Scatter, sent: float, now: float) -> None:
        costs, size = self._costs, self.size(verb)
        values = verb.x[verb.fragment :: verb.of].copy()
        number = verb.version * verb.of + verb.fragment
        for k in verb.to:
            if costs.lost(sender, k, number):
                continue
            journey = costs.transit(sender, k, size) + costs.delay(sender, k, number)
            pieces = self._boxes[k].setdefault((sender, verb.fragment, verb.of), [])
            there = max((piece.version for piece in pieces if piece.arrives <= now), default=-1)
            pieces[:] = [piece for piece in pieces if piece.version >= there]
            pieces.append(Piece(sent + journey, verb.version, values))

    def gather(self, receiver: int, like: Vector, now: float) -> tuple[Vector, Vector]:
        """The sums of what has arrived, and how much that is, number by number; it is used up."""
        total, count = np.zeros_like(like), np.zeros_like(like)
        box = self._boxes[receiver]
        for kind in sorted(box):
            sender, fragment, of = kind
            there = [piece for piece in box[kind] if piece.arrives <= now]
            if not there:
                continue
            newest = max(there, key=lambda piece: piece.version)
            later = [piece for piece in box[kind] if piece.version > newest.version]
            if later:
                box[kind] = later
            else:
                del box[kind]
            if self._links.passes(receiver, sender):
                total[fragment::of] += newest.values
                count[fragment::of] += 1
        return total, count

    def state(self, pool: Pool) -> list[list[object]]:
        return [
            [receiver, *kind, piece.arrives, piece.version, pool.put(piece.values)]
            for receiver, box in enumerate(self._boxes)
            for kind, pieces in box.items()
            for piece in pieces
        ]

    def restore(self, saved: Saved, like: Vector) -> None:
        n = len(self._boxes)
        self._boxes = [{} for _ in range(n)]
        for item in saved.items():
            receiver, sender, fragment, of, arrives, version, values = item.items(7)
            parts = of.integer(1)
            first = fragment.integer(0, parts - 1)
            kind = (sender.integer(0, n - 1), first, parts)
            piece = Piece(arrives.number(0.0), version.integer(), values.finite(like[first::parts]))
            self._boxes[receiver.integer(0, n - 1)].setdefault(kind, []).append(piece)
