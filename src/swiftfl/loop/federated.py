"""A client's link to the others when it is a node of a federation: `swiftfl.join("node.yaml")`."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from pathlib import Path

from swiftfl.engines.live.client import LiveClient
from swiftfl.errors import UserError
from swiftfl.federation.enrolled import plan_of
from swiftfl.federation.folder import NodeFolder
from swiftfl.federation.manifest import Agreement
from swiftfl.federation.node import Node
from swiftfl.federation.plan import NodePlan
from swiftfl.federation.record import NodeRecord
from swiftfl.federation.service import NodeService
from swiftfl.loop.federation import Federation
from swiftfl.loop.module_vector import ModuleVector
from swiftfl.loop.wrapped_rule import WrappedRule
from swiftfl.mixing import mixing_named
from swiftfl.transports.registry import make_codec
from swiftfl.vector import Vector
from swiftfl.workload.recorded_model import shapes_hash

_OPEN_LAYOUT = "0" * 64
_LOOK_EVERY = 0.05


def federated_link(path: Path) -> FederatedLink:
    """The link of the node whose folder or node.yaml this is."""
    folder = NodeFolder.read(path)
    if folder.insecure:
        raise UserError(f"{path} says insecure, which only `swiftfl node --insecure` allows")
    agreement = folder.manifest.agreement
    plan = plan_of(folder, agreement.layout or _OPEN_LAYOUT)
    return FederatedLink(plan, agreement)


class FederatedLink:
    """One node's end; it is client 0, its neighbours are the next ones, in the order of their names."""

    def __init__(self, plan: NodePlan, agreement: Agreement | None = None) -> None:
        self._plan, self._agreement = plan, agreement or Agreement(codec=plan.codec)
        self._node: Node | None = None
        self._service: NodeService | None = None
        self.rank = 0

    @property
    def n(self) -> int:
        """How many nodes can reach each other, with this one; before they are counted, those it knows of."""
        selected = None if self._node is None else self._node.membership.selected
        return 1 + len(self._plan.neighbours) if selected is None else selected[0].n

    @property
    def counted(self) -> bool:
        """Whether this node has its first weights."""
        return self._node is not None and self._node.membership.selected is not None

    @property
    def neighbours(self) -> tuple[int, ...]:
        return tuple(self._plan.names())

    def connect(self, module: ModuleVector, rule: WrappedRule) -> LiveClient:
        agreed = self._agreement
        if agreed.size and module.size != agreed.size:
            raise UserError(
                f"the model has {module.size} numbers, the federation's {agreed.size}: all have the same"
            )
        shapes = shapes_hash(module.shapes, module.trainable, str(module.dtype))
        if agreed.shapes is not None and shapes != agreed.shapes:
            raise UserError(
                f"the model has the {module.size} numbers of the federation's ({agreed.model}), in tensors "
                f"of other shapes, in another order or of another type (here {module.dtype}): "
                "all have the same"
            )
        options = {"communication_set": agreed.communication_set}
        alone = Federation(1, [], "ccs", "swift", options, *mixing_named(agreed.mixing))
        setup = alone.setup(rule, module.trainable, module.size - module.trainable)
        setup = replace(setup, codec=make_codec(agreed.codec))
        config = {"algorithm": {"name": "swift", **options}}
        record = NodeRecord(self._plan, config, math.inf, self._say)
        try:
            self._node = Node(self._plan, setup, self._say, facts=record.steps, x0=module.read(), rate=1.0)
        except BaseException as error:
            record.give_up(str(error) or type(error).__name__)
            raise
        self._service = NodeService(self._node, record)
        return self._node.client

    def consensus(self, client: LiveClient, x: Vector, seconds: float) -> tuple[Vector, int]:
        """The average of all who can be reached, whether or not they ask for it."""
        assert self._node is not None
        membership, end = self._node.membership, time.monotonic() + seconds
        before = membership.consensus.newest
        client.server.send(x, client.state.c)
        membership.want_consensus()
        while (found := membership.consensus.newest) is before or found is None:
            if time.monotonic() > end:
                raise UserError(f"consensus(timeout={seconds:g}): none came about in time; ask again")
            time.sleep(_LOOK_EVERY)
        return found.x, found.nodes

    def close(self) -> None:
        if self._service is not None:
            self._service.close("finished")
        if self._node is not None:
            self._node.close()

    def _say(self, text: str) -> None:
        print(f"swiftfl: {self._plan.name}: {text}", file=sys.stderr, flush=True)
