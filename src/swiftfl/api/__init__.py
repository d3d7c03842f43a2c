"""What users call: `swiftfl.train`, `swiftfl.compare`, `swiftfl.load`, and engines as they describe them."""

from swiftfl.api.comparing import Comparison, compare
from swiftfl.api.engines import Local, Mpi, Sampled, Virtual
from swiftfl.api.result import Result, load
from swiftfl.api.training import train

__all__ = ["Comparison", "Local", "Mpi", "Result", "Sampled", "Virtual", "compare", "load", "train"]
