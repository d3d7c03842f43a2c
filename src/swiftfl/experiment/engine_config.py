"""The section `engine`: where a run goes on, how long, and what things cost there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from swiftfl.engines.live.options import LiveOptions
from swiftfl.experiment.costs_config import CostsConfig
from swiftfl.experiment.network_config import NetworkConfig
from swiftfl.experiment.options import Tree, named
from swiftfl.experiment.section import Seconds, Section
from swiftfl.registry import options_of
from swiftfl.settings import Count, SettingError, checked_options
from swiftfl.transports.registry import CODECS, TRANSPORTS


class LiveConfig(Section):
    """Of runs with real processes: saves, record, restarts, and how often the parent evaluates.

    `gradient_seconds` replaces every gradient by a sleep: an accelerator that is not there. `transport` is
    how models travel between the processes of engine local.
    """

    save_seconds: Annotated[float, Field(gt=0)] | None = LiveOptions.save_seconds
    """Seconds between two saves of a client."""
    save_steps: Count | None = LiveOptions.save_steps
    """Steps between two saves of a client."""
    record: bool = LiveOptions.record
    """Whether clients record what they see, for replay."""
    restart_lost: bool = LiveOptions.restart_lost
    """Start lost clients again (engine local)."""
    evaluate_seconds: Annotated[float, Field(gt=0)] = 2.0
    """Seconds between evaluations."""
    gradient_seconds: Seconds | None = None
    """Sleep so long in place of computing each gradient."""
    transport: str = "shared_memory"
    """How models travel between the processes of engine local."""
    start: Literal["auto", "fork", "spawn"] = "auto"
    """How clients of engine local start: forked, or spawned as fresh processes; auto: spawned for GPUs."""

    @field_validator("transport")
    @classmethod
    def _transport_exists(cls, name: str) -> str:
        return TRANSPORTS[name].name


class EngineConfig(Section):
    name: Literal["virtual", "sampled", "local", "mpi"] = "virtual"
    """Virtual time, random draws (sampled), or real processes: local, or mpi under mpiexec."""
    barrier: Literal["neighbours", "global"] = "neighbours"
    """Algorithms in rounds wait for their neighbours, or for everybody."""
    ccs: Literal["central", "distributed"] = "central"
    """Who selects the weights: one place for all, or the clients by messages."""
    epochs: Count | None = None
    """Passes of each client over its own data."""
    iterations: Count | None = None
    """Client steps in all, after which the run ends."""
    costs: CostsConfig = CostsConfig()
    """What things cost in virtual time."""
    network: NetworkConfig = NetworkConfig()
    """How the network changes during the run."""
    live: LiveConfig = LiveConfig()
    """Of runs with real processes."""
    workers: Literal["auto"] | Count = "auto"
    """Processes in which a simulated run computes: auto (one per core where that pays), or a number."""
    codec: str = "identity"
    """How models are written for the wire."""
    codec_options: Tree = {}
    """Options of the codec."""

    @field_validator("workers", mode="before")
    @classmethod
    def _auto_or_a_number(cls, value: Any) -> Any:
        if value != "auto" and (type(value) is not int or value < 1):
            raise SettingError("engine.workers", f"must be auto or a number of processes, not {value!r}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _fill_codec(cls, tree: Any) -> Any:
        name, _ = named(tree, "codec", "identity")
        given = tree.get("codec_options", {}) if name is not None else None
        if name is None or not isinstance(given, Mapping):
            return tree
        known = options_of(CODECS[name])
        values = checked_options(f"codec {name}", known, given, "engine.codec_options.")
        return {**tree, "codec_options": values}

    @property
    def real(self) -> bool:
        """Whether clients are processes and time is real."""
        return self.name in ("local", "mpi")

    @model_validator(mode="after")
    def _needs_an_end(self) -> EngineConfig:
        if self.epochs is None and self.iterations is None:
            raise ValueError("a run needs an end: give epochs or iterations")
        return self
