"""A network that changes: clients join, leave, crash, come back and sleep; edges come and go.

What happens to those who stay:

1. The neighbours of a crashed client go on with its last model until they notice (`notice` seconds).
2. From then on its weight stays with themselves: column sums and the symmetry of the expected matrix
   survive that, so averaging remains valid at once.
3. After `renewal` more seconds the coefficients are computed anew on what is left, one connected
   component at a time, conditions (a)-(d) are checked, and each client takes its new weights at the
   start of its next step. Algorithms that meet in rounds switch at one round that nobody has reached
   yet, so that both ends of an edge agree on it.

Whoever leaves in good order is noticed at once. Whoever joins or comes back starts from the newest
model of a neighbour, with its own weight at one until the renewal that includes it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

import numpy as np

from swiftfl.engines.assignment import Assignment
from swiftfl.engines.dynamics import Change, Dynamics, Kind, absent_at_start
from swiftfl.engines.saved import Saved, Tree
from swiftfl.graph import Coefficients, Topology, communication_coefficients, from_edges, given, is_uniform
from swiftfl.streams import stream
from swiftfl.vector import Weights

_log = logging.getLogger(__name__)


def possible_neighbours(weights: Sequence[Weights], network: Membership | None) -> list[tuple[int, ...]]:
    """Whom each client may ever have as a neighbour: by its first weights, and by planned edges."""
    near = [dict.fromkeys(w.of) for w in weights]
    for i, k in () if network is None else sorted(network.possible_edges()):
        near[i][k] = near[k][i] = None
    return [tuple(those) for those in near]


class Membership:
    """Who is there, which edges exist, and the coefficients that hold: the state of a changing network.

    It decides; the world carries out. A client whose first change is a join is absent until then.
    """

    def __init__(
        self, topology: Topology, influence: Sequence[float], method: str, dynamics: Dynamics, seed: int
    ) -> None:
        dynamics.check(topology.n)
        self.n = topology.n
        self.dynamics = dynamics
        self.method = method
        self.seed = seed
        self.given = np.asarray(influence, dtype=np.float64)
        self.influence = self.given
        self.edges: set[tuple[int, int]] = {(int(i), int(j)) for i, j in topology.edges.tolist()}
        self.up = set(self.edges)
        self.present = set(range(self.n)) - absent_at_start(dynamics.changes)
        self.known = set(self.present)
        self.draws: dict[str, int] = {}
        self.renewals = 0

    def first_changes(self) -> list[Change]:
        """What is scheduled from the start: the given changes, and the first random ones."""
        changes = list(self.dynamics.changes)
        for i in sorted(self.present):
            changes += self._random_of(i, 0.0, ("crash", "sleep"))
        for edge in sorted(self.edges):
            changes += self._random_edge(edge, 0.0, "edge_down")
        return changes

    def holds(self, change: Change) -> bool:
        """False for a random change that a later draw has replaced."""
        return not change.draw or change.draw == self.draws[_key(change.kind, change.client, change.edge)]

    def knows(self, change: Change) -> bool:
        """Whether a random change was drawn; one that was given always is known."""
        return not change.draw or _key(change.kind, change.client, change.edge) in self.draws

    def followers(self, change: Change, now: float) -> list[Change]:
        """The random changes that follow one that made a difference now."""
        if change.kind == "crash":
            return self._random_of(change.client, now, ("return",))
        if change.kind in ("return", "join"):
            return self._random_of(change.client, now, ("crash", "sleep"))
        if change.kind == "sleep":
            return self._random_of(change.client, now + change.seconds, ("sleep",))
        if change.kind == "edge_down" and change.edge is not None:
            return self._random_edge(change.edge, now, "edge_up")
        if change.kind == "edge_up" and change.edge is not None:
            return self._random_edge(change.edge, now, "edge_down")
        return []

    def _random_of(self, client: int, now: float, kinds: Sequence[Kind]) -> list[Change]:
        rates = self.dynamics.rates
        rate = {"crash": rates.crash, "return": rates.come_back, "sleep": rates.sleep}
        return [
            self._random(kind, now, rate[kind], client, None, rates.sleep_seconds)
            for kind in kinds
            if rate[kind] > 0
        ]

    def _random_edge(self, edge: tuple[int, int], now: float, kind: Kind) -> list[Change]:
        rate = self.dynamics.rates.edge_down if kind == "edge_down" else self.dynamics.rates.edge_up
        return [self._random(kind, now, rate, -1, edge, 0.0)] if rate > 0 else []

    def _random(
        self, kind: Kind, now: float, rate: float, client: int, edge: tuple[int, int] | None, seconds: float
    ) -> Change:
        """The next change of a kind, exponentially later; it replaces an earlier one that is still due."""
        key = _key(kind, client, edge)
        draw = self.draws[key] = self.draws.get(key, 0) + 1
        wait = float(stream(self.seed, key, client, draw).standard_exponential()) / rate
        return Change(now + wait, kind, client, edge, seconds, draw)

    # --- what has changed ----------------------------------------------------------------------

    def neighbours(self, i: int) -> list[int]:
        """Who is there and joined to i by an edge that is up."""
        return sorted(k for edge in self.up if i in edge for k in edge if k != i and k in self.present)

    def change_edge(self, edge: tuple[int, int], up: bool) -> bool:
        """Whether this made a difference."""
        edge = (min(edge), max(edge))
        if up == (edge in self.up):
            return False
        (self.up.add if up else self.up.discard)(edge)
        return True

    def possible_edges(self) -> set[tuple[int, int]]:
        """Every edge that there is or that a planned change may bring."""
        planned = [change.edge for change in self.dynamics.changes if change.edge is not None]
        return self.edges | {(min(edge), max(edge)) for edge in planned}

    def take_in(self, i: int) -> None:
        """Client i is there, and everybody knows."""
        self.present.add(i)
        self.known.add(i)

    def strike_off(self, i: int) -> None:
        """Client i is not there, and everybody knows."""
        self.present.discard(i)
        self.known.discard(i)

    # --- renewal -------------------------------------------------------------------------------

    def measure(self, steps: Sequence[int], away: set[int]) -> None:
        """Take each client's share of the steps as its influence; half a step for those without.

        The steps of a client that was away meanwhile say nothing: it keeps what it had.
        """
        counts = np.asarray(steps, dtype=np.float64) + 0.5
        there = [i for i in range(self.n) if i not in away]
        if not there:
            return
        earlier = self.influence / self.influence[there].mean()
        counts[sorted(away)] = counts[there].mean() * earlier[sorted(away)]
        self.influence = counts / counts.sum()

    def renew(self) -> dict[int, tuple[Weights, float]]:
        """New coefficients on each component of what is known to be there; (a)-(d) are asserted.

        (But for neighbourhood-uniform weights, which do not promise (d).)
        With each client's weights goes by how much its step size is scaled.
        """
        self.renewals += 1
        renewed = self.coefficients()
        _log.debug("renewal %d: new coefficients for %d clients", self.renewals, len(renewed))
        return renewed

    def coefficients(self) -> dict[int, tuple[Weights, float]]:
        """Those of the network as it is now."""
        renewed: dict[int, tuple[Weights, float]] = {}
        for members in self.components():
            if len(members) == 1:
                renewed[members[0]] = Weights(1.0, {}), 1.0
                continue
            coefficients = self._coefficients(members)
            coefficients.check()
            for position, (i, scale) in enumerate(zip(members, self._scales(members), strict=True)):
                w = coefficients.weights(position)
                renewed[i] = Weights(w.own, {members[k]: value for k, value in w.of.items()}), scale
        return renewed

    def assignments(self) -> dict[int, Assignment]:
        """The same for clients that run CCS themselves: what each is told. Renewals count the epochs."""
        self.renewals += 1
        return {i: each for members in self.components() for i, each in self._assign(members).items()}

    def _assign(self, members: list[int]) -> dict[int, Assignment]:
        p = given(self.influence[members] / self.influence[members].sum())
        uniform, there = is_uniform(p), set(members)
        near: dict[int, list[int]] = {i: [] for i in members}
        for i, j in self.up:
            if i in there and j in there:
                near[i].append(j)
                near[j].append(i)
        return {
            i: Assignment(self.renewals, len(members), uniform, own, tuple(sorted(near[i])), scale)
            for i, own, scale in zip(members, p.tolist(), self._scales(members), strict=True)
        }

    def _scales(self, members: list[int]) -> list[float]:
        """Given over true influence among those who are there, so that data keep their given weight."""
        if not (self.dynamics.measured and self.dynamics.keep_objective):
            return [1.0] * len(members)
        given, true = self.given[members], self.influence[members]
        scales: list[float] = ((given / given.sum()) / (true / true.sum())).tolist()
        return scales

    def components(self) -> list[list[int]]:
        """The connected components of the known clients, each in ascending order."""
        labels = connected(self.n, {edge for edge in self.up if self.known.issuperset(edge)})
        found: dict[int, list[int]] = {}
        for i in sorted(self.known):
            found.setdefault(labels[i], []).append(i)
        return list(found.values())

    def _coefficients(self, members: list[int]) -> Coefficients:
        place = {i: position for position, i in enumerate(members)}
        edges = [(place[i], place[j]) for i, j in sorted(self.up) if i in place and j in place]
        influence = self.influence[members]
        return communication_coefficients(
            from_edges(edges, len(members)), influence / influence.sum(), self.method
        )

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self) -> Tree:
        return {
            "up": sorted(self.up),
            "present": sorted(self.present),
            "known": sorted(self.known),
            "influence": self.influence.tolist(),
            "draws": dict(self.draws),
            "renewals": self.renewals,
        }

    def restore(self, saved: Saved) -> None:
        self.up = {(min(e), max(e)) for e in (edge.edge(self.n) for edge in saved["up"].items())}
        self.present = set(saved["present"].clients(self.n))
        self.known = set(saved["known"].clients(self.n))
        self.influence = np.array([p.number() for p in saved["influence"].items(self.n)])
        if not (self.influence > 0).all():
            saved["influence"].fail("is not positive")
        self.draws = {key: drawn.integer() for key, drawn in saved["draws"].entries().items()}
        self.renewals = saved["renewals"].integer()


def connected(n: int, edges: Collection[tuple[int, int]]) -> list[int]:
    """Of each client, which connected component it is in."""
    labels: list[int] = from_edges(sorted(edges), n).components.tolist()
    return labels


def _key(kind: str, client: int, edge: tuple[int, int] | None) -> str:
    return f"{kind}/{client}" if edge is None else f"{kind}/{edge[0]}-{edge[1]}"
