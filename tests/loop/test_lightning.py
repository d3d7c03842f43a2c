"""The callback for Lightning, against Lightning itself."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from in_process_peers import Shared
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import swiftfl
from swiftfl.errors import UserError
from swiftfl.loop.federation import federation
from swiftfl.loop.peer import Peer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pl = pytest.importorskip(
        "lightning.pytorch", reason="needs Lightning: make install-integrations", exc_type=ImportError
    )
    from swiftfl.integrations.lightning import SwiftCallback

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 6


class Module(pl.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self, optimizers: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.count = nn.Linear(3, 2), optimizers
        self.automatic_optimization = optimizers == 1

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        made = [torch.optim.AdamW(self.parameters(), lr=0.1) for _ in range(self.count)]
        if self.count > 1:
            return made
        return made, [torch.optim.lr_scheduler.StepLR(made[0], 1, gamma=0.5)]


def fit(module: Module, *callbacks: object, **options: Any) -> Any:
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(4 * STEPS // 2, 3), torch.randint(2, (4 * STEPS // 2,)))
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **{"devices": 1, **options},
    )
    trainer.fit(module, DataLoader(data, batch_size=4))
    return trainer


def test_alone_nothing_changes() -> None:
    plain, own = Module(), Module()
    fit(plain)
    callback = SwiftCallback(Peer())
    trainer = fit(own, callback)
    assert isinstance(trainer.optimizers[0], swiftfl.Optimizer)
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.025  # the scheduler has worked
    assert torch.equal(plain.net.weight, own.net.weight)
    assert callback.clients == 1


def test_with_a_peer_every_step_averages_and_the_end_is_consensus() -> None:
    shared = Shared(federation(2))
    peers, module = shared.peers(), Module()
    callback = SwiftCallback(peers[0])
    fit(module, callback)
    assert shared.plan is not None
    assert shared.plan.newest[0][1] == STEPS + 1  # a model was published before every step
    assert callback.clients == 2
    plain = Module()
    fit(plain)
    assert not torch.allclose(plain.net.weight, module.net.weight)  # the other client is where it was


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="Module has 2 optimizers: SwiftCallback works with one"):
        fit(Module(optimizers=2), SwiftCallback(Peer()))
