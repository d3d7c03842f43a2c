"""Algorithms: each a short file that reads like its source."""

from swiftfl.algorithms.swift import Swift
from swiftfl.algorithms.synchronous import Synchronous, dsgd, ldsgd, pasgd

__all__ = ["Swift", "Synchronous", "dsgd", "ldsgd", "pasgd"]
