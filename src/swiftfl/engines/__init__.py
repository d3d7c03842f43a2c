"""Engines: worlds in which algorithms run."""

from swiftfl.engines.setup import Setup
from swiftfl.engines.simulation.sampled import SampledEngine
from swiftfl.engines.simulation.virtual import VirtualEngine

__all__ = ["SampledEngine", "Setup", "VirtualEngine"]
