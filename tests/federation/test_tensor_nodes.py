"""Nodes whose models are tensors: they meet others, whatever those have, save, come back and add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nodes import Federation, until

from swiftfl.vector import Vector
from swiftfl.workload.device_vector import DeviceVector

pytest.importorskip("zenoh")


def settings(kind: str) -> dict[str, Any]:
    return {"settings": {"model.vectors": kind}}


@pytest.mark.parametrize("kinds", [("torch", "torch"), ("torch", "numpy")], ids=" and ".join)
def test_two_nodes_with_tensors_train_together(kinds: tuple[str, str], tmp_path: Path) -> None:
    pair = Federation(tmp_path, 2, ((0, 1),))
    try:
        nodes = [pair.start(i, **settings(kind)) for i, kind in enumerate(kinds)]
        pair.settle(0, 1)
        starts = [node.setup.workload.evaluate([node.setup.workload.initial(0)])[0].loss for node in nodes]
        steps = [node.control.c for node in nodes]
        until(
            lambda: all(node.control.c > c + 60 for node, c in zip(nodes, steps, strict=True)),
            "steps of both",
        )
        for node, kind, start in zip(nodes, kinds, starts, strict=True):
            x: Vector = node.x
            assert isinstance(x, DeviceVector if kind == "torch" else np.ndarray)
            assert node.setup.workload.evaluate([x])[0].loss < 0.5 * start
            assert not node.connection.wire.refusals.by_sender()

        nodes[0].membership.want_consensus()  # of numbers that come from either kind
        until(lambda: all(node.membership.consensus.newest for node in nodes), "the consensus")
        means = [node.membership.consensus.newest for node in nodes]
        assert means[0] is not None
        assert means[1] is not None
        assert np.asarray(means[0].x).tobytes() == np.asarray(means[1].x).tobytes()

        pair.stop(0)
        back = pair.start(0, **settings("numpy"))  # a save does not tell which kind it was
        assert back.client.state.c > 60
        assert isinstance(back.x, np.ndarray)
        pair.settle(0, 1)
    finally:
        pair.close()
