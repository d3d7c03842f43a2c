"""Workloads: a model and its data behind flat vectors."""

from swiftfl.workload import basic_models, resnet  # which register their models
from swiftfl.workload.base import Evaluation, Workload
from swiftfl.workload.metrics import METRICS
from swiftfl.workload.models import MODELS, model
from swiftfl.workload.module import ModuleWorkload
from swiftfl.workload.quadratic import Free, Quadratic

__all__ = [
    "METRICS",
    "MODELS",
    "Evaluation",
    "Free",
    "ModuleWorkload",
    "Quadratic",
    "Workload",
    "basic_models",
    "model",
    "resnet",
]
