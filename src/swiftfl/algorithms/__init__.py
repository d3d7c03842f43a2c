"""Algorithms: each a short file that reads like its source."""

from swiftfl.algorithms.adpsgd import AdPsgd
from swiftfl.algorithms.centralised import AllReduceSgd, FedAvg
from swiftfl.algorithms.gossip import Gossip
from swiftfl.algorithms.matcha import Matcha
from swiftfl.algorithms.swift import Swift
from swiftfl.algorithms.synchronous import Synchronous, dsgd, ldsgd, pasgd

__all__ = [
    "AdPsgd",
    "AllReduceSgd",
    "FedAvg",
    "Gossip",
    "Matcha",
    "Swift",
    "Synchronous",
    "dsgd",
    "ldsgd",
    "pasgd",
]
