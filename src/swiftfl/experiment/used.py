"""Which engines and algorithms use which settings, so that what has no effect is refused.

Only what a user chose is refused: a recipe, a file or a recorded run keeps its settings for another engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from swiftfl.errors import UserError

if TYPE_CHECKING:
    from swiftfl.experiment.config import Config

ENGINES = ("virtual", "sampled", "local", "mpi")
_USED_BY: dict[str, tuple[str, ...]] = {
    "engine.costs": ("virtual",),
    "engine.costs.slowdowns": ("virtual", "local", "mpi"),
    "engine.costs.trace": ("virtual", "local", "mpi"),
    "engine.costs.devices": ("virtual",),
    "engine.network.measure_every": ("virtual", "local", "mpi"),
    "engine.workers": ("virtual", "sampled"),
    "engine.live": ("local", "mpi"),
    "engine.live.restart_lost": ("local",),
    "engine.live.start": ("local",),
    "engine.live.transport": ("local",),
    "evaluation.every_epochs": ("virtual", "sampled"),
}
"""The engines that use a setting; those that are not named here are used by all."""
_INSTEAD = {"evaluation.every_epochs": "engine.live.evaluate_seconds"}
"""What the other engines use in place of a setting."""


def check_engine(engine: object, typed: Mapping[str, str]) -> None:
    """Refuse what was typed but is not used by the engine that was chosen.

    `typed` has the settings that a user chose, and what they were called where they were chosen.
    """
    for key, name in typed.items():
        section = max((k for k in _USED_BY if f"{key}.".startswith(f"{k}.")), key=len, default=None)
        engines = _USED_BY[section] if section else ENGINES
        if engine in ENGINES and engine not in engines:
            *others, last = engines
            users = f"{', '.join(others)} or {last}" if others else last
            told = f"; {engine} has {_INSTEAD[section]}" if section in _INSTEAD else ""
            raise UserError(f"{name} is for engine {users}, not {engine}{told}")


def check_used(config: Config, typed: Mapping[str, str]) -> None:
    """Refuse what was typed but is not used by the algorithm and topology that were chosen."""
    from swiftfl.algorithms import ALGORITHMS

    entry = ALGORITHMS[config.algorithm.name]
    if "engine.barrier" in typed and entry.in_rounds is False:
        raise UserError(
            f"{typed['engine.barrier']} is for algorithms that meet in rounds, and {entry.name} does not"
        )
    if "engine.barrier" in typed and entry.edges == "none":
        raise UserError(
            f"{typed['engine.barrier']} has no effect: all clients of {entry.name} meet whenever they average"
        )
    if "algorithm.weights" in typed and not entry.weighted:
        raise UserError(f"{typed['algorithm.weights']} has no effect: {entry.name} has weights of its own")
    drawn_by_it = config.engine.name == "sampled"
    if "influence" in typed and not (entry.influenced or drawn_by_it or config.objective == "as_given"):
        raise UserError(f"{typed['influence']} has no effect: to {entry.name} all clients count the same")
    if "engine.network.measure_every" in typed and config.influence != "measured":
        raise UserError(f"{typed['engine.network.measure_every']} has no effect without influence measured")
    if "topology.edges" in typed and isinstance(config.topology.edges, str):
        for key in ("topology.name", "topology.clients", "topology.clusters"):
            edges = typed["topology.edges"]
            if typed.get(key, edges) != edges:
                raise UserError(f"{typed[key]} has no effect with {edges}: the file is the topology")
