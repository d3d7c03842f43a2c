"""One of every algorithm, with small options, for whatever is tested of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swiftfl.algorithms import (
    A2cid2,
    AdPsgd,
    AllReduceSgd,
    AsyncGossip,
    DivShare,
    FedAvg,
    Gossip,
    Matcha,
    OverlappedSgp,
    Prague,
    QuasiGlobal,
    Sgp,
    SharedModel,
    SoftDsgd,
    Swarm,
    Swift,
    SwiftLookAhead,
    WaitFreeQuasiGlobal,
    dsgd,
    ldsgd,
    pasgd,
)
from swiftfl.graph import Topology
from swiftfl.graph.acceleration import acceleration
from swiftfl.graph.directed import directed
from swiftfl.graph.matchings import matching_plan
from swiftfl.rules import SgdRule
from swiftfl.schedule import every

MAKERS: dict[str, Callable[[Topology, SgdRule], Any]] = {
    "swift": lambda graph, rule: Swift(every(0), rule),
    "swift C_2": lambda graph, rule: Swift(every(2), rule),
    "swift, corrected": lambda graph, rule: Swift(every(0), rule, corrected=True),
    "swift, look-ahead": lambda graph, rule: SwiftLookAhead(rule=rule if rule.momentum else SgdRule(0.3)),
    "dsgd": lambda graph, rule: dsgd(rule),
    "pasgd": lambda graph, rule: pasgd(2, rule),
    "ldsgd": lambda graph, rule: ldsgd(2, 2, rule),
    "adpsgd": lambda graph, rule: AdPsgd(rule, seed=4),
    "adpsgd, background": lambda graph, rule: AdPsgd(rule, seed=4, averaging="background"),
    "matcha": lambda graph, rule: Matcha(matching_plan(graph, 0.5), rule, seed=4),
    "gossip": lambda graph, rule: Gossip(graph, rule, seed=4),
    "allreduce": lambda graph, rule: AllReduceSgd(rule),
    "fedavg": lambda graph, rule: FedAvg(every(3), rule),
    "fedavg, half": lambda graph, rule: FedAvg(every(3), rule, participation=0.5, clients=graph.n, seed=6),
    "swarm": lambda graph, rule: Swarm(2, rule, seed=4),
    "prague": lambda graph, rule: Prague(graph, 3, rule, seed=4),
    "gossip_async": lambda graph, rule: AsyncGossip(1.0, rule, seed=4),
    "quasi_global": lambda graph, rule: QuasiGlobal(rule if rule.momentum else SgdRule(0.3)),
    "quasi_global, swift": lambda graph, rule: WaitFreeQuasiGlobal(SgdRule(0.3, rule.weight_decay), age=0.5),
    "sgp": lambda graph, rule: Sgp(directed(graph, "both"), rule),
    "sgp, overlapped": lambda graph, rule: OverlappedSgp(directed(graph, "both"), rule),
    "a2cid2": lambda graph, rule: A2cid2(acceleration(graph, 1.0) if graph.m else None, 1.0, rule, seed=4),
    "divshare": lambda graph, rule: DivShare(3, 2, 1, rule, seed=4),
    "softdsgd": lambda graph, rule: SoftDsgd(2, rule),
    "hogwild": lambda graph, rule: SharedModel(1, rule),
    "asysg": lambda graph, rule: SharedModel(1 if graph.n == 1 else 2, rule, "asysg"),
}
