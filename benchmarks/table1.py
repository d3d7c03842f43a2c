"""Table 1 of the paper from counters: rounds, messages and bytes of each of its methods, beside its formulas.

A ring of 16 clients, each of which takes K = 120 steps; T of the table is K here, per client. The last two
columns are what max_j C_j and C_i are about: the seconds that the client opposite of client 0 spends on
communication and waiting, with equal links, and with both links of client 0 ten times as slow. (#C_s is the
table's |C_s|, which a table in Markdown cannot hold.)
"""

from __future__ import annotations

from dataclasses import dataclass

from swiftfl import ring
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import AdPsgd, Swift, dsgd, ldsgd, pasgd
from swiftfl.costs import Costs, Link
from swiftfl.data.batches import NoSamples
from swiftfl.engines import Setup, VirtualEngine
from swiftfl.graph import communication_coefficients
from swiftfl.schedule import CommunicationSet, alternating, constant, every
from swiftfl.verbs import Verb
from swiftfl.workload.quadratic import Quadratic

CLIENTS, STEPS, DIMENSION, OPPOSITE = 16, 120, 100, 8
LATENCY = 0.002
EQUAL = Costs(compute=0.010, send=0.00005, mix=0.00005, latency=LATENCY, bandwidth=1e9)
SLOW = Link(10 * LATENCY, 1e9)


@dataclass(frozen=True)
class Method:
    """A row of Table 1: its name and formula, what runs, and when it averages by the table."""

    name: str
    formula: str
    algorithm: Algorithm[Verb]
    rounds: CommunicationSet
    weights: str = "metropolis"
    partners: int = 2  # to whom a client sends in a round

    @property
    def count(self) -> int:
        return sum(c in self.rounds for c in range(1, STEPS + 1))


METHODS = (
    Method("D-SGD", "T max_j C_j", dsgd(), every(0)),
    Method("PA-SGD, I1 = 1", "#C_s max_j C_j", pasgd(1), every(1)),
    Method("LD-SGD, I1 = 1, I2 = 2", "#C_s max_j C_j", ldsgd(1, 2), alternating(1, 2)),
    Method("AD-PSGD", "T C_i", AdPsgd(), every(0), partners=1),
    Method("SWIFT, C_0", "#C_s C_i", Swift(every(0)), every(0), "ccs"),
    Method("SWIFT, C_1", "#C_s C_i", Swift(every(1)), every(1), "ccs"),
    Method("SWIFT, C_3", "#C_s C_i", Swift(every(3)), every(3), "ccs"),
)


def run(method: Method, costs: Costs) -> VirtualEngine:
    graph = ring(CLIENTS)
    coefficients = communication_coefficients(graph, None, method.weights)
    engine = VirtualEngine(
        Setup(
            algorithm=method.algorithm,
            workload=Quadratic.random(CLIENTS, DIMENSION, seed=0),
            weights=[coefficients.weights(i) for i in range(CLIENTS)],
            batches=[NoSamples(i, STEPS) for i in range(CLIENTS)],
            step_size=constant(0.05),
            influence=coefficients.influence.tolist(),
            costs=costs,
            epochs=1,
        )
    )
    engine.start()
    engine.advance(CLIENTS * STEPS)
    return engine


def spent(engine: VirtualEngine, i: int) -> float:
    seconds = engine.seconds()
    return seconds["communication"][i] + seconds["waiting"][i]


def main() -> None:
    print("| method | Table 1 | rounds by it | counted | messages by it | counted | bytes | "
          "seconds, equal links | seconds, slow links |")  # fmt: skip
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    uneven = Costs(**{**EQUAL.__dict__, "links": {(0, 1): SLOW, (0, CLIENTS - 1): SLOW}})
    for method in METHODS:
        engine, slowed = run(method, EQUAL), run(method, uneven)
        counted = engine.figures()["communication"]
        rounds, messages, sent = (sum(counted[name]) / CLIENTS for name in ("rounds", "messages", "bytes"))
        cells = [
            *(method.name, method.formula, method.count, f"{rounds:g}"),
            *(method.count * method.partners, f"{messages:g}", f"{sent:g}"),
            *(f"{spent(engine, OPPOSITE):.3f}", f"{spent(slowed, OPPOSITE):.3f}"),
        ]
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
