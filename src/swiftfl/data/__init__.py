"""Data: datasets, who holds which samples, batches, augmentation."""

from swiftfl.data import cifar10, digits, fashion_mnist, partitions, synthetic  # which register themselves
from swiftfl.data.augment import Augment
from swiftfl.data.batches import Batches, NoSamples
from swiftfl.data.dataset import Dataset
from swiftfl.data.own import as_dataset
from swiftfl.data.parse import PARTITIONS, partition
from swiftfl.data.partition import Partition
from swiftfl.data.registry import DATASETS, dataset
from swiftfl.data.source import Stored
from swiftfl.data.split import split, uneven_work

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Augment",
    "Batches",
    "Dataset",
    "NoSamples",
    "Partition",
    "Stored",
    "as_dataset",
    "cifar10",
    "dataset",
    "digits",
    "fashion_mnist",
    "partition",
    "partitions",
    "split",
    "synthetic",
    "uneven_work",
]
