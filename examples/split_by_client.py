"""Data that are already split: a list with the data of each hospital, which stay where they are.

Run it with `python examples/split_by_client.py`.
"""

import numpy as np
from torch import nn

import swiftfl


def hospital(number: int, patients: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Measurements of patients, which differ from place to place; the question is the same everywhere."""
    draw = np.random.default_rng([number, seed])
    measured = draw.normal(loc=0.5 * number - 1, size=(patients, 5)).astype(np.float32)
    noise = draw.normal(size=patients)
    return measured, (measured @ np.array([1.0, -1.0, 0.5, 0.0, 2.0]) + noise > 0).astype(np.int64)


hospitals = [hospital(number, 40 + 30 * number, seed=1) for number in range(6)]
test = [hospital(number, 100, seed=2) for number in range(6)]
result = swiftfl.train(lambda: nn.Linear(5, 2), hospitals, test, topology="complete", epochs=5)
print(result)
print("samples:", result.partition["sizes"])
