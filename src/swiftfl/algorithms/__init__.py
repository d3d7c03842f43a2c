"""Algorithms: each a short file that reads like its source."""
# ruff: noqa: I001

# Lists name them in this order: SWIFT, what the paper compares it with, others.
from swiftfl.algorithms.registry import ALGORITHMS, AlgorithmEntry, Context, algorithm
from swiftfl.algorithms.swift import Swift
from swiftfl.algorithms.look_ahead import SwiftLookAhead
from swiftfl.algorithms.synchronous import Synchronous, dsgd, ldsgd, pasgd
from swiftfl.algorithms.adpsgd import AdPsgd
from swiftfl.algorithms.matcha import Matcha
from swiftfl.algorithms.gossip import Gossip
from swiftfl.algorithms.centralised import AllReduceSgd, FedAvg
from swiftfl.algorithms.swarm import Swarm
from swiftfl.algorithms.prague import Prague
from swiftfl.algorithms.gossip_async import AsyncGossip
from swiftfl.algorithms.quasi_global import QuasiGlobal, WaitFreeQuasiGlobal
from swiftfl.algorithms.sgp import OverlappedSgp, Sgp
from swiftfl.algorithms.a2cid2 import A2cid2
from swiftfl.algorithms.divshare import DivShare
from swiftfl.algorithms.softdsgd import SoftDsgd
from swiftfl.algorithms.shared_model import SharedModel

__all__ = [
    "ALGORITHMS",
    "A2cid2",
    "AdPsgd",
    "AlgorithmEntry",
    "AllReduceSgd",
    "AsyncGossip",
    "Context",
    "DivShare",
    "FedAvg",
    "Gossip",
    "Matcha",
    "OverlappedSgp",
    "Prague",
    "QuasiGlobal",
    "Sgp",
    "SharedModel",
    "SoftDsgd",
    "Swarm",
    "Swift",
    "SwiftLookAhead",
    "Synchronous",
    "WaitFreeQuasiGlobal",
    "algorithm",
    "dsgd",
    "ldsgd",
    "pasgd",
]
