"""Pictures of README.md and the docs: `.venv/bin/python tools/pictures.py docs/pictures`."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from fractions import Fraction
from pathlib import Path

import networkx as nx
from gallery import draw_gallery
from matplotlib.figure import Figure

import swiftfl
from swiftfl.cli.main import run_command
from swiftfl.engines.simulation.clocks import Interval
from swiftfl.engines.simulation.virtual import VirtualEngine
from swiftfl.experiment.build import build, resolve
from swiftfl.experiment.config import Config
from swiftfl.palette import BLUE, EDGE, GROUND
from swiftfl.report.run_figures import write_figure
from swiftfl.report.stream_figure import stream_figure

CLIENTS, SLOW, FACTOR, SECONDS = 6, 2, 4.0, 0.26
ALGORITHMS = {"swift": "SWIFT: nobody waits", "dsgd": "D-SGD: neighbours wait for each other"}


def timeline(algorithm: str) -> list[Interval]:
    """What each client of a ring did in the first moments of a run in virtual time; one is slow."""
    config = Config().with_changes(
        {
            "model.name": "logistic",
            "topology.clients": CLIENTS,
            "algorithm.name": algorithm,
            "engine.epochs": 10,
            "engine.costs.send": 0.001,
            "engine.costs.mix": 0.001,
            "engine.costs.slowdowns": [{"client": SLOW, "factor": FACTOR}],
        }
    )
    engine = VirtualEngine(build(resolve(config)).setup)
    watched = engine.watch(range(CLIENTS), SECONDS)
    engine.start()
    while not engine.over and engine.now < 2 * SECONDS:  # intervals are noted when they end
        engine.advance(CLIENTS)
    return watched.intervals


def draw_timelines(file: Path) -> None:
    streams = {title: timeline(algorithm) for algorithm, title in ALGORITHMS.items()}
    names = {i: f"client {i}{' (slow)' if i == SLOW else ''}" for i in range(CLIENTS)}
    write_figure(stream_figure(streams, (0.0, SECONDS), clients=names, width=8.0, row=0.22), file)


def draw_coefficients(file: Path) -> None:
    """A graph with the weight of every edge, and in every client what it keeps for its own model."""
    graph = swiftfl.from_edges([(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (3, 4), (4, 5), (5, 6)])
    weights = swiftfl.communication_coefficients(graph)
    drawn = nx.Graph(list(graph.edges))
    places = nx.kamada_kawai_layout(drawn)
    shares = {(i, j): Fraction(float(weights.column(i)[j])).limit_denominator(100) for i, j in graph.edges}
    own = {i: Fraction(float(weights.column(i)[i])).limit_denominator(100) for i in range(graph.n)}
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    widths = [14 * float(shares[tuple(sorted(edge))]) for edge in drawn.edges]
    nx.draw_networkx_edges(drawn, places, ax=axes, width=widths, edge_color=EDGE.light)
    nx.draw_networkx_nodes(drawn, places, ax=axes, node_size=1300, node_color=BLUE.light)
    names = {i: f"{i}\n({share})" for i, share in own.items()}
    nx.draw_networkx_labels(drawn, places, names, ax=axes, font_color=GROUND.light, font_size=8)
    nx.draw_networkx_edge_labels(
        drawn, places, {edge: str(w) for edge, w in shares.items()}, ax=axes, rotate=False
    )
    axes.set_axis_off()
    figure.savefig(file, dpi=150)


def draw_demo(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        assert run_command(["demo", "--json", "--out", f"{place}/demo"]) == 0
        for name in ("loss", "stream"):
            shutil.copyfile(f"{place}/demo/{name}.png", folder / f"demo-{name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder = parser.parse_args().folder
    draw_timelines(folder / "timeline.png")
    draw_coefficients(folder / "coefficients.png")
    draw_demo(folder)
    draw_gallery(folder)


if __name__ == "__main__":
    main()
