"""Tables and trees of a run folder as plain values that can be shown, whatever their files hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from swiftfl.record.facts import NO_VERSION, Layout, Table
from swiftfl.views.graph import owners
from swiftfl.views.reading import number

Reply = dict[str, Any]


def steps_done(clients: Table) -> int:
    """Client steps of the run: without those that a client took again from its save (`steps` has them), and
    without rounds before it joined (its counter has them)."""
    taken = np.maximum(clients["c"].astype(np.int64), 1) - 1
    return int(np.minimum(taken, np.minimum(clients["steps"], 2**32).astype(np.int64)).sum())


def staleness(layout: Layout, clients: Table, edges: Table) -> list[int | None]:
    """By how many steps the neighbours' newest models at each client are behind those neighbours, at most.

    Known only where both tables are of one moment. Clients of a live run write their edges themselves, up to
    half a second, so any number of steps, before or after the run loop writes the counters.
    """
    if layout.clock == "wall":
        return [None] * layout.clients
    behind = clients["c"][np.asarray(layout.indices, dtype=np.int64)].astype(np.int64) - edges["version"]
    behind = np.maximum(behind, 0)  # whatever the files say
    behind[edges["version"] == NO_VERSION] = -1
    worst = np.full(layout.clients, -1, dtype=np.int64)
    owner = owners(layout)
    np.maximum.at(worst, owner, behind)
    return [None if value < 0 else value for value in worst.tolist()]


def weights_of_node(layout: Layout, status: Reply | None) -> list[float | None] | None:
    """Of a node, what it gives each neighbour's model now, in the order of the edges; None in other runs.

    What neighbours give its model it does not know.
    """
    if not layout.names:
        return None
    near = part_of(status or {}, "neighbours")
    own = [number(part_of(near, layout.names[k]).get("weight")) for k in layout.neighbours(0)]
    return own + [None] * (layout.edges - len(own))


def as_objects(rows: Table) -> list[Reply]:
    names = ("c", "steps", "start", "compute", "waiting", "communication", "loss", "age")
    columns = [finite_list(rows[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def finite_list(values: Any) -> list[Any]:
    if values.dtype.kind != "f":
        return list(values.tolist())
    there = np.isfinite(values)
    return [value if good else None for value, good in zip(values.tolist(), there.tolist(), strict=True)]


def part_of(tree: dict[str, Any], name: str) -> dict[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def entry_of(values: object, index: int) -> Any:
    return values[index] if isinstance(values, list) and index < len(values) else None
