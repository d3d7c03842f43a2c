"""A callback for Lightning: `Trainer(callbacks=[SwiftCallback(swiftfl.join())])` (docs/own-loop.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swiftfl.errors import UserError
from swiftfl.loop.optimizer import Optimizer
from swiftfl.loop.peer import CONSENSUS_SECONDS, Peer

try:
    from lightning.pytorch import Callback
except ImportError:
    raise UserError(
        "swiftfl.integrations.lightning needs Lightning: pip install 'swiftfl[lightning]'"
    ) from None

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class SwiftCallback(Callback):
    """Wraps the optimizer of a Lightning module when training starts, and averages when it ends.

    Every process runs a Trainer of its own, on one device: the processes know each other through `peer`, not
    through a strategy of Lightning. With `consensus=False` each keeps its own model at the end.
    """

    def __init__(self, peer: Peer, consensus: bool = True, timeout: float = CONSENSUS_SECONDS) -> None:
        super().__init__()
        self.peer, self._consensus, self._timeout = peer, consensus, timeout
        self.clients = 0  # whose models the average at the end was of

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.world_size > 1:
            raise UserError(
                f"this Trainer has {trainer.world_size} devices of its own: give it devices=1, num_nodes=1; "
                "swiftfl launch starts one process per client"
            )
        optimizers = trainer.optimizers
        if len(optimizers) != 1:
            raise UserError(
                f"{type(pl_module).__name__} has {len(optimizers)} optimizers: SwiftCallback works with one"
            )
        trainer.strategy.optimizers = [Optimizer(optimizers[0], pl_module, self.peer)]

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._consensus:
            self.clients = self.peer.consensus(self._timeout)
