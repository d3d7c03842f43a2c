"""Engines as users describe them in Python: `swiftfl.train(..., engine=swiftfl.Local(restart_lost=True))`.

A description holds what was chosen; the run makes the engine itself. A name ("local") is the same without
anything chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from swiftfl.costs import Costs
from swiftfl.engines.live.options import LiveOptions
from swiftfl.engines.setup import Barrier


@dataclass(frozen=True, kw_only=True)
class Virtual:
    """Virtual time: `costs` says how long things take (`swiftfl.costs.Costs`).

    `barrier` is for algorithms in rounds, which wait for their neighbours or for everybody. `workers` says
    how many processes compute. The result does not depend on it, unless code of your own (a loss, a metric, a
    module) keeps something in Python from call to call: then every process has its own, and 1 is right.
    """

    name: ClassVar[str] = "virtual"
    costs: Costs = field(default_factory=Costs)
    barrier: Barrier = "neighbours"
    workers: int | Literal["auto"] = "auto"

    def changes(self) -> dict[str, Any]:
        """The settings of a configuration that make this engine."""
        return {**_chosen(self, "engine.", skip="costs"), **_costs(self.costs)}


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """The paper's random draw of one client at a time; there is no clock. `workers` as in `Virtual`."""

    name: ClassVar[str] = "sampled"
    workers: int | Literal["auto"] = "auto"

    def changes(self) -> dict[str, Any]:
        """The settings of a configuration that make this engine."""
        return _chosen(self, "engine.")


@dataclass(frozen=True, kw_only=True)
class Local:
    """One process per client on this machine.

    Clients save every `save_seconds` or `save_steps`, `record` what they saw for a replay, and are started
    again when they are lost if `restart_lost`; models are evaluated every `evaluate_seconds`. They `start` by
    fork, or as fresh processes ("spawn"), which GPUs need and objects that are given in Python do not allow.
    """

    name: ClassVar[str] = "local"
    save_seconds: float | None = LiveOptions.save_seconds
    save_steps: int | None = LiveOptions.save_steps
    record: bool = LiveOptions.record
    restart_lost: bool = LiveOptions.restart_lost
    evaluate_seconds: float = 2.0
    transport: str = "shared_memory"
    start: Literal["auto", "fork", "spawn"] = "auto"

    def changes(self) -> dict[str, Any]:
        """The settings of a configuration that make this engine."""
        return _chosen(self, "engine.live.")


@dataclass(frozen=True, kw_only=True)
class Mpi:
    """One rank per client, under mpiexec; options as those of `Local`."""

    name: ClassVar[str] = "mpi"
    save_seconds: float | None = LiveOptions.save_seconds
    save_steps: int | None = LiveOptions.save_steps
    record: bool = LiveOptions.record
    evaluate_seconds: float = 2.0

    def changes(self) -> dict[str, Any]:
        """The settings of a configuration that make this engine."""
        return _chosen(self, "engine.live.")


Engine = Virtual | Sampled | Local | Mpi
ENGINES: Mapping[str, type[Engine]] = {kind.name: kind for kind in (Virtual, Sampled, Local, Mpi)}


def _chosen(engine: Engine, section: str, skip: str = "") -> dict[str, Any]:
    """The name, and what is not as it is without being chosen."""
    usual = type(engine)()
    values = {f.name: getattr(engine, f.name) for f in fields(engine) if f.name != skip}
    changed = {key: value for key, value in values.items() if value != getattr(usual, key)}
    return {"engine.name": engine.name, **{f"{section}{key}": value for key, value in changed.items()}}


def _costs(costs: Costs) -> dict[str, Any]:
    found = {f.name: getattr(costs, f.name) for f in fields(costs) if f.init and f.name != "seed"}
    found = {key: value for key, value in found.items() if value != getattr(Costs(), key)}
    if "slowdowns" in found:
        found["slowdowns"] = [
            {
                "client": s.client,
                "factor": s.factor,
                "start": s.start,
                "end": s.end if s.end < _EVER else None,
            }
            for s in costs.slowdowns
        ]
    if "links" in found:
        found["links"] = [
            {"edge": edge, "latency": link.latency, "bandwidth": link.bandwidth}
            for edge, link in costs.links.items()
        ]
    return {f"engine.costs.{key}": value for key, value in found.items()}


_EVER = float("inf")
