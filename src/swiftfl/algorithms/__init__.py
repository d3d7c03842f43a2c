"""Algorithms: each a short file that reads like its source."""
# ruff: noqa: I001

# Lists name them in this order: SWIFT, what the paper compares it with, others.
from swiftfl.algorithms.registry import ALGORITHMS, AlgorithmEntry, Context, algorithm
from swiftfl.algorithms.swift import Swift
from swiftfl.algorithms.synchronous import Synchronous, dsgd, ldsgd, pasgd
from swiftfl.algorithms.adpsgd import AdPsgd
from swiftfl.algorithms.matcha import Matcha
from swiftfl.algorithms.gossip import Gossip
from swiftfl.algorithms.centralised import AllReduceSgd, FedAvg

__all__ = [
    "ALGORITHMS",
    "AdPsgd",
    "AlgorithmEntry",
    "AllReduceSgd",
    "Context",
    "FedAvg",
    "Gossip",
    "Matcha",
    "Swift",
    "Synchronous",
    "algorithm",
    "dsgd",
    "ldsgd",
    "pasgd",
]
