"""A callback for Hugging Face's Trainer: `Trainer(callbacks=[SwiftCallback(swiftfl.join())])`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swiftfl.errors import UserError
from swiftfl.loop.optimizer import Optimizer
from swiftfl.loop.peer import CONSENSUS_SECONDS, Peer

try:
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers import TrainerCallback
except ImportError:
    raise UserError(
        "swiftfl.integrations.transformers needs transformers: pip install 'swiftfl[transformers]'"
    ) from None

if TYPE_CHECKING:
    from torch import nn
    from transformers import TrainerControl, TrainerState, TrainingArguments


class SwiftCallback(TrainerCallback):
    """Wraps the Trainer's optimizer when training starts, and averages when it ends.

    Every process runs a Trainer of its own, on one device: the processes know each other through `peer`, not
    through torch.distributed. With `consensus=False` each keeps its own model at the end.
    """

    def __init__(self, peer: Peer, consensus: bool = True, timeout: float = CONSENSUS_SECONDS) -> None:
        self.peer, self._consensus, self._timeout = peer, consensus, timeout
        self.clients = 0  # whose models the average at the end was of

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        optimizer: object = None,
        **kwargs: Any,
    ) -> None:
        if model is None or not isinstance(optimizer, AcceleratedOptimizer):
            raise UserError(
                f"SwiftCallback found {type(optimizer).__name__} where Trainer has an AcceleratedOptimizer: "
                "this version of transformers does not fit"
            )
        if optimizer.scaler is not None:
            raise UserError(
                "SwiftCallback works with float32 and bf16=True, not with fp16=True, "
                "whose scaler calls the inner optimizer itself"
            )
        optimizer.optimizer = Optimizer(optimizer.optimizer, model, self.peer)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._consensus:
            self.clients = self.peer.consensus(self._timeout)
