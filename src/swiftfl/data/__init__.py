"""Data: datasets, who holds which samples, batches, augmentation."""

from swiftfl.data import cifar10, digits, fashion_mnist, partitions, synthetic  # which register themselves
from swiftfl.data.augment import Augment
from swiftfl.data.batches import Batches, NoSamples
from swiftfl.data.dataset import Dataset
from swiftfl.data.parse import PARTITIONS, partition
from swiftfl.data.partition import Partition
from swiftfl.data.registry import DATASETS, dataset
from swiftfl.data.tensors import from_tensors, from_torch_dataset

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Augment",
    "Batches",
    "Dataset",
    "NoSamples",
    "Partition",
    "cifar10",
    "dataset",
    "digits",
    "fashion_mnist",
    "from_tensors",
    "from_torch_dataset",
    "partition",
    "partitions",
    "synthetic",
]
