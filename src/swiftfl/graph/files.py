"""Topologies in files: edge lists, GraphML and JSON, chosen by the suffix.

- `.graphml`: as networkx reads and writes it; nodes named 0..n-1 keep their number
- `.json`: {"clients": n, "edges": [[i, j], ...]}
- anything else: one edge `i j` per line; `#` starts a comment; blank lines are skipped

What is read must be connected, and is checked before anything as large as its numbers is allocated.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.files import read_text_file, write_atomically
from swiftfl.graph.generators import from_edges, from_networkx
from swiftfl.graph.topology import Topology


def read_topology(file: str | os.PathLike[str]) -> Topology:
    """The connected topology in a file; errors name the file, and the line of an edge list."""
    path = Path(file)
    text = read_text_file(path)
    read = {".graphml": _read_graphml, ".json": _read_json}.get(path.suffix.lower(), _read_edge_list)
    try:
        return read(text).require_connected()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def write_topology(topology: Topology, file: str | os.PathLike[str]) -> None:
    """Write a topology; the file appears complete or not at all."""
    path = Path(file)
    write = {".graphml": _graphml, ".json": _json}.get(path.suffix.lower(), _edge_list)
    write_atomically(path, write(topology))


def _read_edge_list(text: str) -> Topology:
    edges = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split("#", 1)[0].split()
        if fields:
            edges.append(_edge(fields, number, line))
    if not edges:
        raise UserError("no edges")
    _refuse_counting_from_one(edges)
    return _connectable(1 + max(max(edge) for edge in edges), edges)


def _edge(fields: list[str], number: int, line: str) -> tuple[int, int]:
    if len(fields) != 2 or not all(field.isascii() and field.isdigit() for field in fields):
        raise UserError(f"line {number}: {line.strip()[:60]!r} is not two client numbers")
    i, j = int(fields[0][:30]), int(fields[1][:30])
    if i == j:
        raise UserError(f"line {number}: edge ({i}, {i}) is a self-loop: a client is not its own neighbour")
    return i, j


def _refuse_counting_from_one(edges: Sequence[Sequence[int]]) -> None:
    """A connected graph names client 0; a file whose lowest number is 1 counts in another way."""
    if edges and min(map(min, edges)) == 1:
        highest = max(map(max, edges))
        raise UserError(
            f"clients are counted from 0; this file seems to count from 1: it names clients 1 to {highest}, "
            "and no client 0 (subtract 1 from every number)"
        )


def _connectable(n: int, edges: list[tuple[int, int]]) -> Topology:
    """A graph of n clients has at least n - 1 edges; this is known before anything is allocated."""
    if n - 1 > len(edges):
        raise UserError(f"client {n - 1} is named, but {len(edges)} edges cannot connect {n} clients")
    return from_edges(edges, n)


def _edge_list(topology: Topology) -> str:
    lines = [f"# {topology.n} clients, {topology.m} edges\n"]
    lines += [f"{i} {j}\n" for i, j in topology.edges.tolist()]
    return "".join(lines)


def _read_json(text: str) -> Topology:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}") from None
    if not isinstance(data, dict) or not {"clients", "edges"} <= set(data):
        raise UserError('expected {"clients": n, "edges": [[i, j], ...]}')
    clients, edges = data["clients"], data["edges"]
    if not _is_int(clients):
        raise UserError(f"clients: {clients!r} is not a whole number")
    if not isinstance(edges, list):
        raise UserError("edges: not a list")
    for edge in edges:
        if not (isinstance(edge, list) and len(edge) == 2 and all(_is_int(k) for k in edge)):
            raise UserError(f"edges: {json.dumps(edge)[:60]} is not a pair of client numbers")
    _refuse_counting_from_one(edges)
    if clients - 1 > len(edges):
        raise UserError(f"{len(edges)} edges cannot connect {clients} clients")
    return from_edges(edges, clients)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _json(topology: Topology) -> str:
    return json.dumps({"clients": topology.n, "edges": topology.edges.tolist()}) + "\n"


def _read_graphml(text: str) -> Topology:
    import networkx

    try:
        graph = networkx.read_graphml(io.BytesIO(text.encode()))
    except Exception as error:  # the parser raises many kinds, all of which mean a bad file
        reason = str(error).splitlines()
        raise UserError(f"not GraphML: {reason[0] if reason else type(error).__name__}") from None
    names = list(graph.nodes)
    if all(isinstance(k, str) and k.isascii() and k.isdigit() and len(k) < 19 for k in names):
        graph = networkx.relabel_nodes(graph, {k: int(k) for k in names})
    return from_networkx(graph)


def _graphml(topology: Topology) -> str:
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(topology.n))
    graph.add_edges_from(topology.edges.tolist())
    out = io.BytesIO()
    networkx.write_graphml(graph, out)
    return out.getvalue().decode()
