"""A small Transformer that learns text letter by letter with AdamW: in virtual time, then with processes.

Run it with `python examples/language_model.py`.
"""

import torch
from torch import Tensor, nn

import swiftfl

WORDS = ["the", "client", "sends", "its", "model", "and", "never", "waits", "for", "a", "slow", "neighbour"]
LENGTH = 24


def text(words: int, seed: int) -> str:
    chosen = torch.randint(0, len(WORDS), (words,), generator=torch.Generator().manual_seed(seed))
    return " ".join(WORDS[k] for k in chosen.tolist())


LETTERS = sorted(set("".join(WORDS) + " "))


def pieces(words: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pieces of text as numbers, and of each letter the one that follows it."""
    numbers = torch.tensor([LETTERS.index(letter) for letter in text(words, seed)])
    cut = numbers[: (len(numbers) - 1) // LENGTH * LENGTH + 1]
    return cut[:-1].reshape(-1, LENGTH), cut[1:].reshape(-1, LENGTH)


class Transformer(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), width), nn.Embedding(LENGTH, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, len(LETTERS))

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        hidden = self.letters(x) + self.places(torch.arange(x.shape[1]))
        return self.out(self.layer(hidden, src_mask=mask, is_causal=True))


for engine in ("virtual", "local"):
    result = swiftfl.train(
        Transformer, pieces(2400, seed=1), pieces(300, seed=2), engine=engine, clients=4, epochs=4,
        optimizer=swiftfl.AdamW(lr=0.005), metrics=["perplexity"],
    )  # fmt: skip
    print(f"{engine}: {result}")
