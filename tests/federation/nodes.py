"""Nodes for tests: each in a thread, on loopback, with a small model and its own part of the digits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy

from swiftfl.api.arguments import read_arguments
from swiftfl.engines.assignment import Assignment, check_conditions
from swiftfl.engines.setup import Setup
from swiftfl.experiment.build import build
from swiftfl.federation.membership import InfluencePolicy
from swiftfl.federation.node import Node
from swiftfl.federation.plan import NodePlan, PlannedNeighbour
from swiftfl.sample import Batch, Slope
from swiftfl.transports.ports import free_ports
from swiftfl.vector import Vector, Weights

LIMIT = 60.0


def until(true: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + LIMIT
    while not true():
        if time.monotonic() > end:
            pytest.fail(f"{what}: not within {LIMIT:g} s")
        time.sleep(0.02)


def setup_of(place: int, epochs: int = 10_000, **more: Any) -> Setup:
    arguments = read_arguments(model="logistic", train="digits", clients=1, epochs=epochs, **more)
    setup = build(arguments.given.described(arguments.config()), arguments.given).setup
    return replace(setup, workload=Unhurried(setup.workload))


class Unhurried:
    """A workload that leaves the interpreter, which all nodes of a test share, to the others now and then."""

    def __init__(self, workload: Any, pause: float = 0.004) -> None:
        self._workload, self._pause = workload, pause

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)

    def gradient(self, x: Vector, batch: Batch) -> Slope:
        time.sleep(self._pause)
        found: Slope = self._workload.gradient(x, batch)
        return found


class Federation:
    """Nodes on a graph, which come and go as the test says."""

    def __init__(
        self, root: Path, n: int, edges: Iterable[tuple[int, int]], influence: list[float] | None = None
    ) -> None:
        self.meet_seconds = 1.0
        self.root, self.n, self.edges = root, n, {tuple(sorted(edge)) for edge in edges}
        self.influence = influence or [1.0 / n] * n
        self.addresses = [f"tcp/127.0.0.1:{port}" for port in free_ports(n)]
        self.proxies: dict[tuple[int, int], Proxy] = {}
        self.nodes: dict[int, Node] = {}
        self.threads: dict[int, threading.Thread] = {}
        self.said: dict[int, list[str]] = {i: [] for i in range(n)}

    def near(self, i: int) -> list[int]:
        return sorted({k for edge in self.edges if i in edge for k in edge} - {i})

    def plan(self, i: int) -> NodePlan:
        near = self.near(i)
        return NodePlan(
            "0" * 32,
            f"n{i}",
            i,
            self.root / f"n{i}",
            {f"n{k}": PlannedNeighbour(k, f"n{k}") for k in near},
            {f"n{k}": self._address(i, k) for k in near if k < i},
            (self.addresses[i],),
            self.influence[i],
        )

    def _address(self, i: int, k: int) -> str:
        """Where node i dials node k: through the proxy of their edge, if it has one."""
        proxy = self.proxies.get((k, i))
        return self.addresses[k] if proxy is None else f"tcp/127.0.0.1:{proxy.port}"

    def put_proxy(self, i: int, k: int, rate: float | None = None) -> Proxy:
        """Before the nodes of this edge start; i is the smaller number, which is dialled."""
        self.proxies[i, k] = Proxy(int(self.addresses[i].rpartition(":")[2]), rate)
        return self.proxies[i, k]

    def start(
        self, i: int, policy: InfluencePolicy | None = None, setup: Setup | None = None, **more: Any
    ) -> Node:
        node = self.nodes[i] = Node(
            self.plan(i),
            setup or setup_of(i, **more),
            self.said[i].append,
            policy,
            save_seconds=0.5,
            meet_seconds=self.meet_seconds,
        )
        thread = self.threads[i] = threading.Thread(target=node.train, daemon=True)
        thread.start()
        return node

    def stop(self, i: int, save: bool = True) -> None:
        """It leaves; without a save, as if it were killed but for the end of its session."""
        node = self.nodes.pop(i)
        if not save:
            node.client.saver._folder = None
        node.stop()
        self.threads.pop(i).join(LIMIT)
        node.close()

    def close(self) -> None:
        for i in list(self.nodes):
            self.stop(i)
        for proxy in self.proxies.values():
            proxy.close()

    # --- what all have selected ------------------------------------------------------------------

    def settled(self, members: Iterable[int]) -> bool:
        """Whether these have the weights of one epoch, of so many nodes."""
        members = list(members)
        found = [self.nodes[i].membership.selected for i in members]
        return all(each is not None for each in found) and {
            (each[0].epoch, each[0].n) for each in found if each is not None
        } == {(found[0][0].epoch, len(members)) if found[0] is not None else (0, 0)}

    def check(self, members: Iterable[int]) -> None:
        """Conditions (a)-(d) of what these have selected, by the numbers of the whole federation."""
        told: dict[int, Assignment] = {}
        weights: dict[int, Weights] = {}
        for i in members:
            node = self.nodes[i]
            assert node.membership.selected is not None
            told[i], terms = node.membership.selected
            number = {k: int(name[1:]) for k, name in node.connection.names.items()}
            weights[i] = Weights(terms.w.own, {number[k]: value for k, value in terms.w.of.items()})
            assert set(weights[i].of) == set(self.near(i)) & set(members)
        check_conditions(told, weights)

    def settle(self, *members: int) -> None:
        until(lambda: self.settled(members), f"one epoch of nodes {members}")
        self.check(members)
