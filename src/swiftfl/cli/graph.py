"""`swiftfl graph`: a topology, its communication coefficients, and how fast they mix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.table import Table

from swiftfl.cli.best_influence import best_influence, influence_rows, influence_summary
from swiftfl.cli.names import Imports
from swiftfl.cli.theory import read_constants, theory_of, theory_rows, theory_summary
from swiftfl.errors import UserError
from swiftfl.files import checked_target, read_text_file
from swiftfl.graph import Coefficients, Topology, communication_coefficients, given, topology, uniform
from swiftfl.graph.files import read_topology, write_topology
from swiftfl.graph.influence import Influence
from swiftfl.graph.methods import method_names
from swiftfl.graph.registry import TOPOLOGIES, topology_options
from swiftfl.settings import SettingError, name_and_options

ROWS_SHOWN = 32
NEIGHBOURS_SHOWN = 8
OTHER_COLUMNS = 38
"""The width of everything in the table but the neighbours."""
JSON_MOST_EDGES = 5_000_000
GAP_UP_TO = 200_000
"""With more clients the spectral gap, which can take half a minute, is computed only if asked for."""


def graph(
    name: Annotated[
        str | None,
        typer.Argument(
            help=f"The topology: {', '.join(TOPOLOGIES)}; with options as in random_regular:degree=4.",
            show_default=False,
        ),
    ] = None,
    clients: Annotated[int | None, typer.Option(help="The number of clients.")] = None,
    clusters: Annotated[int | None, typer.Option(help="Cliques of ring_of_cliques.")] = None,
    degree: Annotated[int | None, typer.Option(help="Of random_regular and watts_strogatz.")] = None,
    probability: Annotated[float | None, typer.Option(help="Of erdos_renyi and watts_strogatz.")] = None,
    attach: Annotated[int | None, typer.Option(help="Edges of a newcomer of barabasi_albert.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of grid and torus.")] = None,
    cols: Annotated[int | None, typer.Option(help="Columns of grid and torus.")] = None,
    edges: Annotated[Path | None, typer.Option(help="Read a topology: lines `i j`, .json, .graphml.")] = None,
    influence: Annotated[
        str | None, typer.Option(help="Scores 0.1,0.2,... or a JSON file (default: uniform).")
    ] = None,
    weights: Annotated[str, typer.Option(help=f"{', '.join(method_names())}.")] = "ccs",
    theory: Annotated[
        str | None,
        typer.Option(help="Numbers of the paper's theorem for L,M,sigma,zeta,delta (such as 1,32,1,0.5,2)."),
    ] = None,
    optimise_influence: Annotated[
        bool,
        typer.Option(
            "--optimise-influence",
            help="Choose the influence for --rates, --sizes and the constants of --theory (docs/graphs.md).",
        ),
    ] = False,
    rates: Annotated[
        str | None, typer.Option(help="With --optimise-influence: steps per second, 1,0.5,... (default: 1).")
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(help="With --optimise-influence: data per client, 100,50,... (default: equal)."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="With --optimise-influence: the length of the run (default: 1000)."),
    ] = None,
    gap: Annotated[
        bool | None,
        typer.Option(
            help=f"Compute the spectral gap (default: up to {GAP_UP_TO:,} clients).", show_default=False
        ),
    ] = None,
    draw: Annotated[Path | None, typer.Option(help="Draw into an .svg, .png or .pdf file.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the topology: edge list, .json, .graphml.")] = None,
    seed: Annotated[int, typer.Option(help="Of random topologies.")] = 0,
    imports: Imports = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Show a topology with its communication coefficients and spectral gap.

    swiftfl graph ring_of_cliques --clients 16 --clusters 4

    swiftfl graph --edges mine.txt --influence 0.5,0.3,0.2 --draw mine.svg
    """
    options = {"degree": degree, "probability": probability, "attach": attach, "rows": rows, "cols": cols}
    asked = _named(name, clients, clusters, seed, options) if edges is None else _read(edges, name, clients)
    _check_targets(asked, save, draw)
    constants = None if theory is None else read_constants(theory)
    told: dict[str, Any] = {}
    more_rows: list[tuple[str, str]] = []
    if optimise_influence:
        if influence is not None or weights != "ccs":
            raise UserError(
                "--optimise-influence chooses the influence for CCS weights: no --influence, no --weights"
            )
        found, assumed = best_influence(asked, rates, sizes, constants, seconds)
        p = found["optimal"].influence
        told["optimised"] = influence_summary(found, assumed)
        more_rows = influence_rows(found, assumed)
    elif (rates, sizes, seconds) != (None, None, None):
        raise UserError("--rates, --sizes and --seconds are for --optimise-influence")
    else:
        p = _influence(influence, asked.n)
    coefficients = communication_coefficients(asked, p, weights)
    numbers = None if constants is None else (theory_of(coefficients, constants), constants)
    with_gap = (asked.n <= GAP_UP_TO or theory is not None) if gap is None else gap
    if as_json and asked.m > JSON_MOST_EDGES:
        raise UserError(f"{asked.m} edges are too many for --json: use --save")
    if save is not None:
        write_topology(asked, save)
    if draw is not None:
        _draw(coefficients, draw)
    if as_json:
        if numbers is not None:
            told["theory"] = theory_summary(*numbers)
        print(json.dumps(_summary(coefficients, with_gap) | told))
    else:
        more_rows += [] if numbers is None else theory_rows(*numbers)
        _show(coefficients, with_gap, more_rows, [file for file in (save, draw) if file is not None])


def _named(
    name: str | None, clients: int | None, clusters: int | None, seed: int, options: dict[str, Any]
) -> Topology:
    if name is None:
        raise UserError(f"name a topology ({', '.join(TOPOLOGIES)}) or give --edges FILE")
    flag_names = {"clusters", *options}
    flags = {option: value for option, value in options.items() if value is not None}
    name, options = name_and_options(name)
    options |= flags
    if clients is None:
        rows, cols = flags.get("rows"), flags.get("cols")
        if "rows" not in topology_options(name) or rows is None or cols is None:
            raise UserError(f"topology {name} needs --clients")
        clients = rows * cols
    try:
        return topology(name, clients, clusters=clusters, seed=seed, **options)
    except SettingError as error:
        option = error.key.removeprefix("option ")
        typed = f"--{option}" if option in flag_names else error.key
        raise error.renamed(typed) from None


def _read(file: Path, name: str | None, clients: int | None) -> Topology:
    if name is not None:
        raise UserError(f"give either the topology {name!r} or --edges {file}, not both")
    read = read_topology(file)
    if clients is not None and clients != read.n:
        raise UserError(f"{file} has {read.n} clients, not {clients}")
    return read


def _influence(text: str | None, n: int) -> Influence:
    """Numbers with commas between, or a JSON file with a list (or an object with "influence")."""
    if text is None:
        return uniform(n)
    try:
        return given([float(part) for part in text.split(",")], n)
    except UserError:
        raise
    except ValueError:
        return given(_influence_file(Path(text)), n)


def _influence_file(file: Path) -> list[float]:
    try:
        values = json.loads(read_text_file(file))
    except UserError as error:
        raise UserError(f"--influence takes numbers with commas between, or a file: {error}") from None
    except (ValueError, RecursionError):
        raise UserError(f"--influence {file}: not JSON") from None
    if isinstance(values, dict):
        values = values.get("influence")
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise UserError(f"--influence {file}: expected a JSON list of numbers")
    try:
        return [float(value) for value in values]
    except OverflowError:
        raise UserError(f"--influence {file}: a number is too large") from None


def _check_targets(asked: Topology, save: Path | None, draw: Path | None) -> None:
    """Both or neither: whatever cannot be written is refused before anything is."""
    from swiftfl.graph.drawing import check_drawing

    saved = None if save is None else checked_target(save)
    drawn = None if draw is None else check_drawing(asked, draw)
    if saved is not None and saved == drawn:
        raise UserError(f"--save and --draw name the same file, {saved}")


def _draw(coefficients: Coefficients, file: Path) -> None:
    from swiftfl.graph.drawing import draw

    draw(coefficients.topology, coefficients, file)


def _summary(c: Coefficients, with_gap: bool) -> dict[str, Any]:
    return {
        "clients": c.topology.n,
        "edges": c.topology.edges.tolist(),
        "influence": c.influence.tolist(),
        "method": c.method,
        "columns": [{str(j): weight for j, weight in column.items()} for column in c.columns()],
        "rho": c.rho if with_gap else None,
        "spectral_gap": c.spectral_gap if with_gap else None,
    }


def _show(c: Coefficients, with_gap: bool, theory: list[tuple[str, str]], written: list[Path]) -> None:
    console = Console(highlight=False)
    t, report = c.topology, c.report()
    summary = Table(show_header=False, box=None, pad_edge=False)
    for key, value in [
        ("clients", f"{t.n}"),
        ("edges", f"{t.m}"),
        ("degree", f"{t.degrees.min()} to {t.degrees.max()}"),
        ("influence", f"{c.influence.min():.6g} to {c.influence.max():.6g}"),
        ("weights", c.method),
        ("own weight", f"{c.own.min():.6g} to {c.own.max():.6g}"),
        ("expected row sums", _span(np.asarray(c.expected_matrix().sum(axis=1)))),
        *_gap_rows(c, with_gap),
        ("conditions (a)-(d)", "hold" if report.violation is None else report.violation),
        *theory,
    ]:
        summary.add_row(key, value)
    console.print(summary)
    _show_columns(console, c)
    for file in written:
        console.print(f"written: {file}", soft_wrap=True)


def _gap_rows(c: Coefficients, with_gap: bool) -> list[tuple[str, str]]:
    if not with_gap:
        return [("spectral gap", "left out (--gap computes it)")]
    return [("rho", f"{c.rho:.10g}"), ("spectral gap", f"{c.spectral_gap:.6g}")]


def _span(sums: npt.NDArray[np.float64]) -> str:
    """Row sums of the expected matrix: all 1 if it is doubly stochastic, since its columns sum to 1."""
    low, high = (f"{bound:.6g}" for bound in (sums.min(), sums.max()))
    return low if low == high else f"{low} to {high}"


def _show_columns(console: Console, c: Coefficients) -> None:
    table = Table(title="columns w_i")
    for name in ("client", "influence", "own"):
        table.add_column(name, justify="right", no_wrap=True, min_width=9 if name != "client" else 6)
    table.add_column("neighbours", overflow="fold")
    room = console.width - OTHER_COLUMNS
    for i in range(min(c.topology.n, ROWS_SHOWN)):
        w = c.weights(i)
        table.add_row(f"{i}", f"{c.influence[i]:.4g}", f"{w.own:.4g}", _neighbours(w.of, room))
    console.print(table)
    if c.topology.n > ROWS_SHOWN:
        console.print(f"... and {c.topology.n - ROWS_SHOWN} more clients (--json shows all)")


def _neighbours(of: Mapping[int, float], room: int) -> str:
    """As many of the first few as there is room for, and the number of the others."""
    few = [f"{j}: {weight:.4g}" for j, weight in islice(of.items(), NEIGHBOURS_SHOWN)]
    while True:
        left = len(of) - len(few)
        text = "  ".join([*few, f"... and {left} more"] if left else few)
        if len(text) <= room or len(few) <= 1:
            return text
        few.pop()
