"""Lightning with peers: one argument more for the Trainer.

swiftfl launch -n 4 examples/integrations/lightning_loop.py
"""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import swiftfl
from swiftfl.data.digits import digits
from swiftfl.integrations.lightning import SwiftCallback


class Digits(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


peer = swiftfl.join()
data = digits()
mine = slice(peer.rank, None, peer.n)
own = TensorDataset(data.train_inputs[mine], data.train_labels[mine])
model = Digits()
trainer = pl.Trainer(
    max_epochs=40,  # so long that processes which start apart train beside each other
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[SwiftCallback(peer)],
)
trainer.fit(model, DataLoader(own, batch_size=32, shuffle=True))
with torch.no_grad():
    right = model.net(data.test_inputs).argmax(1) == data.test_labels
print(f"client {peer.rank} of {peer.n}: accuracy {right.float().mean():.3f}")
