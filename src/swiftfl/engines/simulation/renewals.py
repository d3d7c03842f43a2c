"""New weights after a change of the network: computed for everybody, or selected by the clients themselves.

Clients take them between two steps. Where nothing takes time they hold from the next client step on, also for
clients that are in the middle of theirs. Those who meet in rounds switch together, at a round that nobody
has begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swiftfl.engines.assignment import first_assignments
from swiftfl.engines.membership import Membership, connected
from swiftfl.engines.simulation.record import ClientRecord
from swiftfl.engines.simulation.running import StepRunner
from swiftfl.engines.simulation.selections import Selections
from swiftfl.engines.simulation.world import World
from swiftfl.engines.terms import Terms
from swiftfl.graph.coefficients import promised
from swiftfl.vector import Weights

Renewed = Mapping[int, tuple[Weights, float]]
"""Each client's weights, and the scale of its step size."""


class Renewals:
    """How new weights come about, and from when each client has them."""

    def __init__(self, world: World, runner: StepRunner, membership: Membership) -> None:
        self.world, self.membership = world, membership
        self._runner = runner
        self.selections = Selections(world) if world.setup.ccs == "distributed" else None

    @property
    def delayed(self) -> bool:
        """Whether they are computed some time after a change (`Dynamics.renewal`)."""
        return self.world.timed_gradients and self.selections is None

    def start(self, absent: bool) -> None:
        """The first weights, where they are not those of the setup."""
        if self.selections is not None:
            self._select_first(self.selections, absent)
        elif absent:
            self._adopt(self.membership.renew())

    def _select_first(self, selections: Selections, absent: bool) -> None:
        """Line 2 of Algorithm 1: nobody starts before it has its weights."""
        world = self.world
        told = (
            self.membership.assignments()
            if absent
            else dict(enumerate(first_assignments(world.setup.weights, world.setup.influence)))
        )
        if not world.timed_gradients:
            selections.run_at_once(told)
            self._adopt(selections.results())
            return
        for i in told:
            world.records[i].selecting = True
        self._selected(selections, selections.begin(told))

    def _adopt(self, weights: Renewed) -> None:
        for i, (w, scale) in weights.items():
            self.world.adopt(self.world.records[i], Terms(w, scale))

    def renew(self) -> None:
        """New weights for everybody who is known to be there; what clients select has its own time."""
        selections = self.selections
        if selections is None:
            self._give_all(self.membership.renew())
        elif self.world.timed_gradients:
            self._selected(selections, selections.begin(self.membership.assignments()))
        else:
            selections.run_at_once(self.membership.assignments())
            self._give_all(selections.results())

    def _give_all(self, renewed: Renewed) -> None:
        first = self._first_rounds(renewed)
        for i, (w, scale) in renewed.items():
            self._give(self.world.records[i], Terms(w, scale, first[i]))
        self._note(len(renewed))

    def _give(self, record: ClientRecord, terms: Terms) -> None:
        """A client's new weights, which it takes between two steps."""
        world, first = self.world, terms.from_round
        if record.finished:
            record.next_terms.clear()
            world.adopt(record, terms)
        elif not (world.timed_gradients or world.in_rounds):
            self._runner.adopt_in_step(record, terms)
        else:
            earlier = [waiting for waiting in record.next_terms if waiting.from_round < first]
            record.next_terms = [*earlier, terms]
            world.meetings.exchanges.include(record.index, first)

    def _note(self, clients: int) -> None:
        components, checked = len(self.membership.components()), promised(self.membership.method)
        self.world.note("renew", components=components, clients=clients, checked=checked)

    def _first_rounds(self, renewed: Renewed) -> dict[int, int]:
        """From which round each client's new weights hold.

        Where clients meet in rounds, all whom old or new edges join switch together, at the first round
        that none of them has begun: both ends of an edge then agree on it in every round.
        """
        world = self.world
        if not world.in_rounds:
            return dict.fromkeys(renewed, 0)
        edges = set()
        for i, (new, _) in renewed.items():
            record = world.records[i]
            for w in (new, record.terms.w, *(terms.w for terms in record.next_terms)):
                edges |= {(min(i, k), max(i, k)) for k in w.of}
        group = [0] * world.n if world.meetings.exchanges.everyone else connected(world.n, edges)
        first: dict[int, int] = {}
        for i in renewed:
            first[group[i]] = max(first.get(group[i], 0), world.records[i].start.c + 1)
        return {i: first[group[i]] for i in renewed}

    # --- weights that clients select themselves, in virtual time -------------------------------

    def message_arrives(self, number: int) -> None:
        """An event of the network that is none of its changes."""
        assert self.selections is not None
        self._selected(self.selections, self.selections.deliver(number))

    def _selected(self, selections: Selections, clients: Sequence[int]) -> None:
        """Clients have their weights. Where they meet in rounds, all take them when the last one has."""
        if not self.world.in_rounds:
            for i in clients:
                self._take_selected(i, Terms(*selections.result(i)))
        if not (clients and selections.over):
            return
        results = selections.results()
        if self.world.in_rounds:
            first = self._first_rounds(results)
            for k, (w, scale) in results.items():
                self._take_selected(k, Terms(w, scale, first[k]))
        if selections.renewal:
            self._note(len(results))

    def _take_selected(self, i: int, terms: Terms) -> None:
        record = self.world.records[i]
        if not record.selecting:
            self._give(record, terms)
            return
        record.selecting = False
        self.world.adopt(record, Terms(terms.w, terms.scale))
        record.clock.wait(self.world.now - record.clock.now)
        record.clock.sleep(record.sleep_due)
        record.sleep_due = 0.0
        self._runner.start_client(record)
