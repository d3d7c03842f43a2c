"""Engines: worlds in which algorithms run."""

from swiftfl.engines.setup import Setup
from swiftfl.engines.simulation.sampled import Sampled
from swiftfl.engines.simulation.virtual import Virtual

__all__ = ["Sampled", "Setup", "Virtual"]
