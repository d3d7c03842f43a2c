"""The table that the first rank sends to all others: orders, who is lost, and the network as it is."""

from __future__ import annotations

import math

import numpy as np

from swiftfl.engines.live.status import StatusTable
from swiftfl.engines.membership import Membership
from swiftfl.vector import Vector

_OF_STATUS = 8  # the orders of the status table come first
_NUMBERS = ("over", "from_round", "serial", "show", "switch", "switch_round")
_OF_CLIENTS = ("lost", "influence", "absent", "joined", "source", "leaves")
_COLUMNS = _OF_STATUS + len(_NUMBERS)


class OrderTable:
    """Single numbers by name, one number per client in each column, and whether each possible edge is up."""

    def __init__(self, n: int, network: Membership | None) -> None:
        self.n = n
        self._edges = [] if network is None else sorted(network.possible_edges())
        self._first_edge = _COLUMNS + len(_OF_CLIENTS) * n
        self.cells: Vector = np.zeros(self._first_edge + len(self._edges))
        self._column("leaves")[:] = math.inf
        self._column("source")[:] = -1

    def __getitem__(self, name: str) -> int:
        return int(self.cells[_OF_STATUS + _NUMBERS.index(name)])

    def __setitem__(self, name: str, value: int) -> None:
        self.cells[_OF_STATUS + _NUMBERS.index(name)] = value

    def _column(self, name: str) -> Vector:
        first = _COLUMNS + _OF_CLIENTS.index(name) * self.n
        return self.cells[first : first + self.n]

    def _named(self, name: str) -> set[int]:
        """The clients with a mark in a column."""
        marked: list[int] = np.flatnonzero(self._column(name)).tolist()
        return set(marked)

    # --- the first rank writes -------------------------------------------------------------------

    def take_orders(self, status: StatusTable) -> None:
        self.cells[:_OF_STATUS] = status.orders
        self._column("leaves")[:] = status.leaves_at

    def describe(self, network: Membership, absent: set[int]) -> None:
        """Put down the network as it is."""
        self._column("absent")[:] = [k in absent for k in range(self.n)]
        self._column("influence")[:] = network.influence
        self.cells[self._first_edge :] = [edge in network.up for edge in self._edges]

    def switch(self, epoch: int, from_round: int) -> None:
        """Everybody has its weights of this epoch, and uses them from this round on."""
        self["switch_round"] = from_round
        self["switch"] = epoch

    def lose(self, k: int) -> None:
        """Client k is lost."""
        self._column("lost")[k] = 1.0

    def admit(self, k: int, from_round: int, source: int) -> None:
        """Client k is to join at this round, from the model of another one (-1: from the first model)."""
        self._column("joined")[k] = from_round
        self._column("source")[k] = source

    def let_go(self, clean: bool) -> None:
        """The run is over; without everybody there MPI cannot be ended in good order."""
        self["over"] = 1 if clean else 2

    # --- everybody reads -------------------------------------------------------------------------

    def give_orders(self, status: StatusTable) -> None:
        status.leaves_at[:] = self._column("leaves")
        status.orders[:] = self.cells[:_OF_STATUS]

    @property
    def lost(self) -> set[int]:
        return self._named("lost")

    def shape(self, network: Membership, absent: set[int]) -> None:
        """Make the network, and who is absent, what the first rank says."""
        gone, lost = self._named("absent"), self.lost
        for k in range(self.n):
            (network.strike_off if k in gone or k in lost else network.take_in)(k)
        up = self.cells[self._first_edge :]
        network.up = {edge for edge, is_up in zip(self._edges, up, strict=True) if is_up}
        network.influence = np.array(self._column("influence"), dtype=np.float64)
        absent.intersection_update(gone)
        absent.update(gone)

    def joined(self, k: int) -> tuple[int, int]:
        """From which round client k takes part, and from whose model it starts."""
        return int(self._column("joined")[k]), int(self._column("source")[k])

    def starting_from(self, k: int) -> set[int]:
        """Who has joined and starts from client k's model."""
        there: list[int] = np.flatnonzero(self._column("source") == k).tolist()
        return set(there)

    @property
    def over(self) -> int:
        """0 while the run goes on, 1 when all may leave, 2 when they must do so without MPI_Finalize."""
        return self["over"]
