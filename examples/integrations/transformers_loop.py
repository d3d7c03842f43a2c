"""Hugging Face's Trainer with peers: one argument more. A tiny GPT-2 learns to count; nothing is downloaded.

swiftfl launch -n 2 examples/integrations/transformers_loop.py
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import swiftfl
from swiftfl.integrations.transformers import SwiftCallback

peer = swiftfl.join()
torch.manual_seed(peer.rank)
model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2))
starts = torch.randint(16, (256,))
texts = [{"input_ids": row, "labels": row} for row in (starts[:, None] + torch.arange(8)) % 16]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=12,
        per_device_train_batch_size=16,
        learning_rate=2e-2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    Trainer(model, arguments, train_dataset=texts, callbacks=[SwiftCallback(peer)]).train()
model.eval()
with torch.no_grad():
    guess = model(torch.tensor([[3, 4, 5, 6]])).logits[0, -1].argmax()
print(f"client {peer.rank} of {peer.n}: after 3 4 5 6 comes {int(guess)}")
