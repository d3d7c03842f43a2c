"""Engines: worlds in which algorithms run."""

from swiftfl.engines.sampled import Sampled
from swiftfl.engines.setup import Setup
from swiftfl.engines.virtual import Virtual

__all__ = ["Sampled", "Setup", "Virtual"]
