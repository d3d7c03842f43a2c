"""Five hospitals, each with handwritten digits of its own: two of the ten classes, few of the others.

Every function is the experiment of one node (`experiment:` in its node.yaml): arguments of `swiftfl.train`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

import swiftfl
from swiftfl.data.digits import digits

HOSPITALS = ("aarhus", "basel", "cordoba", "dublin", "evora")
EPOCHS = 3000


def data_of(place: int) -> dict[str, Any]:
    """Of its own two classes two thirds of the images, of the others one in a hundred."""
    data = digits()
    labels = np.asarray(data.labels)
    chance = np.random.default_rng(place).random(labels.size)
    own = np.isin(labels, (2 * place, 2 * place + 1))
    mine = np.flatnonzero(np.where(own, chance < 0.67, chance < 0.01))
    inputs, targets = data.train.inputs, data.train.labels
    return {
        "model": "logistic",
        "train": (inputs[mine], targets[mine]),
        "test": (data.test.inputs, data.test.labels),
        "optimizer": swiftfl.SGD(lr=0.2),
        "batch_size": 16,
        "epochs": EPOCHS,
    }


def aarhus() -> dict[str, Any]:
    return data_of(0)


def basel() -> dict[str, Any]:
    return data_of(1)


def cordoba() -> dict[str, Any]:
    return data_of(2)


def dublin() -> dict[str, Any]:
    return data_of(3)


def evora() -> dict[str, Any]:
    return data_of(4)


def alone(epochs: int) -> dict[str, dict[str, float]]:
    """What each hospital reaches by itself: the same model and rule, on its own data only."""
    found = {}
    for place, name in enumerate(HOSPITALS):
        result = swiftfl.train(**{**data_of(place), "epochs": epochs}, clients=1, progress=False)
        found[name] = {"loss": result.summary["loss"], "accuracy": result.summary["accuracy"]}
    return found


if __name__ == "__main__":
    print(json.dumps(alone(int(sys.argv[1]))))
