"""From a node's folder to its plan, and from what the federation agreed on to settings of its experiment."""

from __future__ import annotations

from typing import Any

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.federation.folder import NodeFolder
from swiftfl.federation.plan import NodePlan, PlannedNeighbour
from swiftfl.settings import name_and_options
from swiftfl.transports.registry import codec_named
from swiftfl.transports.zenoh.settings import Credentials


def plan_of(folder: NodeFolder, layout: str) -> NodePlan:
    """What the node needs to connect; `layout` is the hash of its model's."""
    view = folder.manifest
    files = Credentials(folder.authority.absolute(), folder.certificate.absolute(), folder.key.absolute())
    return NodePlan(
        federation=view.id,
        name=folder.name,
        index=view.me.index,
        folder=folder.folder,
        neighbours={each.name: PlannedNeighbour(each.index, each.common_name) for each in view.neighbours},
        dial=dict(folder.dials),
        listen=folder.listen,
        influence=view.me.influence,
        layout=layout,
        codec=view.agreement.codec,
        credentials=None if folder.insecure else files,
        checkpoints=folder.checkpoints,
    )


def agreed(config: Config, folder: NodeFolder) -> Config:
    """The experiment as one client of the federation: what all agreed on replaces its own settings."""
    agreement = folder.manifest.agreement
    codec, options = codec_named(agreement.codec)
    changes: dict[str, Any] = {
        "topology.clients": 1,
        "topology.name": "complete",
        "topology.options": {},
        "engine.codec": codec,
        "engine.codec_options": dict(options),
    }
    if config.algorithm.name == "swift":
        changes["algorithm.communication_set"] = agreement.communication_set
    if agreement.mixing == "plain" and config.algorithm.mixing != "plain":
        raise UserError(
            f"{folder.path}: the federation averages plainly, the experiment says mixing "
            f"{config.algorithm.mixing}: leave that out"
        )
    if agreement.mixing != "plain":
        rule, given = name_and_options(agreement.mixing)
        changes |= {"algorithm.mixing": rule, **{f"algorithm.{key}": value for key, value in given.items()}}
    return config.with_changes(changes)


def check_layout(folder: NodeFolder, layout: str, size: int) -> None:
    """That the model is the one of the federation."""
    agreement = folder.manifest.agreement
    if agreement.layout is not None and agreement.layout != layout:
        raise UserError(
            f"{folder.path}: the experiment's model has {size} numbers, not laid out as the federation's "
            f"({agreement.size} numbers; {agreement.model or 'see its manifest'}): all nodes have the same"
        )
