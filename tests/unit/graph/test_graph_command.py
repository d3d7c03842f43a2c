"""`swiftfl graph` and the drawings."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import swiftfl as s
from swiftfl.cli.graph import graph
from swiftfl.errors import UserError
from swiftfl.graph import drawing
from swiftfl.graph.drawing import draw
from swiftfl.graph.files import read_topology

app = typer.Typer()
app.command()(graph)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def answer(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json"))
    return found


def test_json_is_one_object_with_everything() -> None:
    found = answer("ring_of_cliques", "--clients", "16", "--clusters", "4")
    c = s.ccs(s.ring_of_cliques(16, 4))
    assert list(found) == ["clients", "edges", "influence", "method", "columns", "rho", "spectral_gap"]
    assert found["clients"] == 16
    assert found["edges"] == c.topology.edges.tolist()
    assert found["influence"] == [1 / 16] * 16
    assert found["method"] == "ccs"
    assert found["columns"] == [{str(j): w for j, w in column.items()} for column in c.columns()]
    assert (found["rho"], found["spectral_gap"]) == (c.rho, c.spectral_gap)


def test_influence_from_text_and_from_files(tmp_path: Path) -> None:
    inline = answer("ring", "--clients", "4", "--influence", "0.1,0.2,0.3,0.4")
    np.testing.assert_allclose(inline["influence"], [0.1, 0.2, 0.3, 0.4], rtol=1e-15)
    for content in ([0.1, 0.2, 0.3, 0.4], {"influence": [0.1, 0.2, 0.3, 0.4]}):
        (tmp_path / "p.json").write_text(json.dumps(content))
        assert answer("ring", "--clients", "4", "--influence", str(tmp_path / "p.json")) == inline


def test_edges_from_file_and_saving(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("0 1\n1 2\n2 0\n")
    saved = tmp_path / "out.graphml"
    found = answer("--edges", str(tmp_path / "e.txt"), "--save", str(saved), "--weights", "metropolis")
    assert found["edges"] == [[0, 1], [0, 2], [1, 2]]
    assert read_topology(saved) == s.ring(3)


def test_options_of_the_topologies() -> None:
    assert answer("barabasi_albert", "--clients", "20", "--attach", "2", "--seed", "3")["edges"] == (
        s.barabasi_albert(20, 2, 3).edges.tolist()
    )
    assert answer("grid", "--rows", "2", "--cols", "3")["clients"] == 6
    assert answer("random_regular", "--clients", "10", "--degree", "3")["clients"] == 10
    assert answer("erdos_renyi", "--clients", "10", "--probability", "0.5")["clients"] == 10


def test_summary_for_people(tmp_path: Path) -> None:
    picture = tmp_path / "g.svg"
    text = run("ring", "--clients", "40", "--draw", str(picture))
    assert "spectral gap" in text
    assert "hold" in text
    assert "8 more clients" in text
    assert picture.read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("arguments", "row"),
    [
        (["star", "--clients", "40"], ["0", "0.025", "0.025", "1: 0.025  2: 0.025  ... and 37 more"]),
        (["ring", "--clients", "4"], ["0", "0.25", "0.3333", "1: 0.3333  3: 0.3333"]),
        (["barabasi_albert", "--clients", "200", "--attach", "4"], ["0", "0.005"]),
        (["star", "--clients", "60000", "--weights", "metropolis"], ["0", "1.667e-05", "1.667e-05"]),
    ],
)
def test_every_column_is_readable_in_80_columns(
    arguments: list[str], row: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*arguments).splitlines()
    header = next(line for line in lines if "neighbours" in line)
    assert [cell.strip() for cell in header.strip("┃").split("┃")] == [
        "client",
        "influence",
        "own",
        "neighbours",
    ]
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line[0] == "│"]
    assert rows[0][: len(row)] == row
    assert [cells[0] for cells in rows] == [str(i) for i in range(len(rows))]
    assert all(cells[-1].endswith("more") or "..." not in cells[-1] for cells in rows)
    assert max(map(len, lines)) <= 80


def test_the_spectral_gap_of_large_graphs_is_computed_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swiftfl.cli.graph.GAP_UP_TO", 9)
    assert "left out (--gap computes it)" in run("ring", "--clients", "10")
    assert "left out" not in run("ring", "--clients", "9")
    assert "left out" not in run("ring", "--clients", "10", "--gap")
    assert "left out" in run("ring", "--clients", "9", "--no-gap")
    assert answer("ring", "--clients", "10")["spectral_gap"] is None
    assert answer("ring", "--clients", "10", "--gap")["spectral_gap"] > 0


BAD = [
    (["rinng", "--clients", "9"], "there is no topology 'rinng': did you mean ring?"),
    (["--edges", "/dev/zero"], "/dev/zero: not a regular file"),
    ([], "name a topology"),
    (["ring"], "needs --clients"),
    (["circle", "--clients", "3"], "no topology 'circle'"),
    (["ring", "--clients", "0"], "at least one client"),
    (["hypercube", "--clients", "6"], "power of two"),
    (["ring", "--clients", "4", "--clusters", "2"], "--clusters is for ring_of_cliques, not topology ring"),
    (["ring_of_cliques", "--clients", "4"], "--clusters is missing: topology ring_of_cliques needs it"),
    (["ring", "--clients", "3", "--edges", "x.txt"], "not both"),
    (["--edges", "missing.txt"], "missing.txt: No such file"),
    (["ring", "--clients", "3", "--weights", "best"], "no weight method 'best'"),
    (["ring", "--clients", "3", "--influence", "0.5,0.5"], "2 scores"),
    (["ring", "--clients", "3", "--influence", "0.5,nan,0.5"], "client 1"),
    (["ring", "--clients", "3", "--influence", "missing.json"], "missing.json"),
    (["ring", "--clients", "3", "--draw", "g.gif"], "g.gif"),
    (["ring", "--clients", "3", "--save", "a.json", "--draw", "g.foo"], "g.foo: drawings are written as"),
    (["ring", "--clients", "3", "--save", "a.json", "--draw", "no/g.svg"], "no/g.svg: No such file"),
    (["ring", "--clients", "3", "--draw", "g.svg", "--save", "no/a.json"], "no/a.json: No such file"),
    (["ring", "--clients", "3", "--draw", "g.svg", "--save", "."], "Is a directory"),
    (["ring", "--clients", "3", "--draw", "g.svg", "--save", "g.svg"], "the same file"),
    (["ring", "--clients", "5000", "--save", "a.json", "--draw", "g.svg"], "too many to draw"),
    (["ring", "--clients", "5000", "--draw", "g.svg"], "too many to draw"),
    (["barabasi_albert", "--clients", "5"], "--attach is missing"),
]


@pytest.mark.parametrize(("arguments", "told"), BAD)
def test_bad_requests(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        run(*arguments)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_pipes_are_not_written_over_and_nothing_else_is_written(tmp_path: Path) -> None:
    pipe, other = tmp_path / "pipe.svg", tmp_path / "a.json"
    os.mkfifo(pipe)
    for request in (["--save", str(other), "--draw", str(pipe)], ["--save", str(pipe)]):
        with pytest.raises(UserError, match="not a regular file"):
            run("ring", "--clients", "4", *request)
    with pytest.raises(UserError, match="not a regular file"):
        run("ring", "--clients", "4", "--influence", str(pipe))
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_scores_too_large_for_a_float(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(f"[1{'0' * 400}, 1]")
    with pytest.raises(UserError, match="too large"):
        run("ring", "--clients", "2", "--influence", str(tmp_path / "p.json"))


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_drawings(tmp_path: Path, suffix: str) -> None:
    for k, t in enumerate([s.ring(1), s.ring(2), s.complete(5), s.star(6), s.grid(3, 3), s.ring(250)]):
        file = tmp_path / f"{k}{suffix}"
        draw(t, s.ccs(t) if k % 2 else None, file)
        assert file.stat().st_size > 500


def legend_of(graph: s.Topology, influence: list[float] | None = None) -> list[str]:
    figure = drawing._figure(graph, s.communication_coefficients(graph, influence), None)
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_drawing_says_what_sizes_and_widths_mean() -> None:
    """The smallest and the largest of each; one where all are alike; nothing where there are no weights."""
    assert legend_of(s.ring(16)) == ["client with influence 0.0625", "edge with weight 0.333"]
    graph, influence = s.star(4), [0.4, 0.3, 0.2, 0.1]
    clients, edges = legend_of(graph, influence)[:2], legend_of(graph, influence)[2:]
    assert clients == ["client with influence 0.1", "client with influence 0.4"]
    weights = s.communication_coefficients(graph, influence)
    means = [(weights.column(i)[j] + weights.column(j)[i]) / 2 for i, j in graph.edges.tolist()]
    assert [edge.rpartition(" ")[0] for edge in edges] == ["edge with weight"] * 2
    shown = [float(edge.split()[-1]) for edge in edges]
    assert shown == pytest.approx([min(means), max(means)], abs=0.0006)
    assert drawing._figure(s.ring(4), None, None).legends == []


def test_drawings_are_reproducible(tmp_path: Path) -> None:
    t = s.ring_of_cliques(16, 4)
    for name in ("a.svg", "b.svg"):
        draw(t, s.ccs(t), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_importing_swiftfl_is_light() -> None:
    heavy = "{'torch', 'matplotlib', 'networkx', 'scipy'}"
    code = f"import sys, swiftfl; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
