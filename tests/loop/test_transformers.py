"""The callback for Hugging Face's Trainer, against transformers itself; nothing is downloaded."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process_peers import Shared

from swiftfl.loop.federation import federation
from swiftfl.loop.peer import Peer

os.environ.setdefault("HF_HUB_OFFLINE", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip(
        "transformers", reason="needs transformers: make install-integrations", exc_type=ImportError
    )
    pytest.importorskip(
        "accelerate", reason="needs accelerate: make install-integrations", exc_type=ImportError
    )
    from swiftfl.integrations.transformers import SwiftCallback

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 4


def model() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=8, n_positions=4, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def train(net: Any, folder: Path, *callbacks: object) -> None:
    texts = [{"input_ids": row, "labels": row} for row in torch.arange(4 * 2 * STEPS).view(2 * STEPS, 4) % 8]
    arguments = transformers.TrainingArguments(
        str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    trainer = transformers.Trainer(net, arguments, train_dataset=texts, callbacks=list(callbacks))
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("transformers").setLevel(logging.ERROR)


def weights(net: Any) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def test_alone_nothing_changes(tmp_path: Path) -> None:
    plain, own = model(), model()
    train(plain, tmp_path)
    callback = SwiftCallback(Peer())
    train(own, tmp_path, callback)
    assert torch.equal(weights(plain), weights(own))
    assert not torch.equal(weights(own), weights(model()))
    assert callback.clients == 1


def test_with_a_peer_every_step_averages_and_the_end_is_consensus(tmp_path: Path) -> None:
    shared = Shared(federation(2))
    net, plain = model(), model()
    callback = SwiftCallback(shared.peers()[0])
    train(net, tmp_path, callback)
    assert shared.plan is not None
    assert shared.plan.newest[0][1] == STEPS + 1
    assert callback.clients == 2
    train(plain, tmp_path)
    assert not torch.allclose(weights(plain), weights(net))
    assert net.lm_head.weight is net.transformer.wte.weight  # still tied
