"""Seconds per epoch on the paper's hardware: predicted by costs that only know D-SGD, beside the print.

16-client ring, 98 steps an epoch, messages of 0.70 MB (docs/network.md). Gradients cost nothing here,
because virtual time does not depend on what they are.
"""

from __future__ import annotations

import numpy as np

import swiftfl
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import Swift, dsgd, ldsgd, pasgd
from swiftfl.data.batches import NoSamples
from swiftfl.engines import Setup, Virtual
from swiftfl.experiment.measure import times_per_epoch
from swiftfl.graph import communication_coefficients
from swiftfl.recipes.hardware import MESSAGE_BYTES, STEPS_PER_EPOCH, paper_costs
from swiftfl.schedule import constant, every
from swiftfl.verbs import Verb
from swiftfl.workload.quadratic import Free

# name: (algorithm, weights, printed epoch, printed communication), from the paper's baseline table
ROWS: dict[str, tuple[Algorithm[Verb], str, float, float]] = {
    "D-SGD C_0 (calibrated)": (dsgd(), "metropolis", 1.558, 0.627),
    "SWIFT C_0": (Swift(every(0)), "ccs", 1.019, 0.086),
    "SWIFT C_1": (Swift(every(1)), "ccs", 1.016, 0.064),
    "PA-SGD I1=1": (pasgd(1), "metropolis", 1.281, 0.358),
    "LD-SGD I1=1, I2=2": (ldsgd(1, 2), "metropolis", 1.320, 0.428),
}


def predicted(name: str) -> dict[str, float]:
    algorithm, method, _, _ = ROWS[name]
    coefficients = communication_coefficients(swiftfl.ring(16), None, method)
    setup = Setup(
        algorithm=algorithm,
        workload=Free(MESSAGE_BYTES // 4, np.float32),
        weights=[coefficients.weights(i) for i in range(16)],
        batches=[NoSamples(i, STEPS_PER_EPOCH) for i in range(16)],
        step_size=constant(0.1),
        influence=coefficients.influence.tolist(),
        costs=paper_costs(),
        epochs=1,
    )
    engine = Virtual(setup)
    engine.start()
    engine.advance(10**9)
    return times_per_epoch(engine)


def main() -> None:
    print(f"{'':24}{'epoch':>20}{'communication':>24}")
    print(f"{'':24}{'predicted  printed':>20}{'predicted  printed':>24}")
    for name, (_, _, epoch, communication) in ROWS.items():
        times = predicted(name)
        mine = times["communication_seconds_per_epoch"]
        whole = times["compute_seconds_per_epoch"] + mine
        print(f"{name:24}{whole:11.3f}{epoch:9.3f}{mine:15.3f}{communication:9.3f}")


if __name__ == "__main__":
    main()
