"""What codecs save and what they cost: bytes on the wire, and accuracy, for SWIFT on 16 clients in a ring.

    python benchmarks/compression.py [--seeds 3] [--data FOLDER] [--epochs N] [--codecs none,bf16]

Digits with the recipe's MLP (80 epochs) and, with --data, CIFAR-10 of that folder with its small CNN (10
epochs); --epochs for fewer. In virtual time: the models are those of any engine, and bytes are counted as
codecs leave them. `accuracy` is that of the consensus model, `clients` the mean of the clients' own models,
each as mean and half range over seeds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import recipe
from swiftfl.experiment.run import run
from swiftfl.transports.registry import codec_named

CODECS = {"none": "identity", "bf16": "bf16", "int8": "int8", "top-k 1 %": "topk:0.01"}


def configured(name: str, codec: str, seed: int, data: Path | None, epochs: int | None) -> Config:
    codec_name, options = codec_named(codec)
    changes: dict[str, Any] = {"engine.codec": codec_name, "engine.codec_options": options, "seed": seed}
    if data is not None:
        changes["data.folder"] = str(data)
    if epochs is not None:
        changes["engine.epochs"] = epochs
    made = recipe(name).with_changes(changes)
    return made.with_changes({"evaluation.every_epochs": float(made.engine.epochs or 1)})


def table(name: str, title: str, given: argparse.Namespace, data: Path | None) -> None:
    print(f"{title}, seeds {given.seeds}")
    print(
        f"{'codec':10} {'bytes a model':>14} {'MB sent a client':>17} {'of none':>8} "
        f"{'accuracy':>15} {'clients':>15}"
    )
    for shown, codec in CODECS.items():
        if given.codecs and shown.split()[0] not in given.codecs.split(","):
            continue
        found, plain = [], 0
        for seed in range(given.seeds):
            print(f"{name}, {shown}, seed {seed}", file=sys.stderr, flush=True)
            done = run(configured(name, codec, seed, data, given.epochs))
            plain = done.models[0].nbytes
            found.append(done.summary)
        sent = float(np.mean([np.mean(each["communication"]["bytes"]) for each in found]))
        messages = float(np.mean([np.mean(each["communication"]["messages"]) for each in found]))
        accuracies = [_spread([each[key] for each in found]) for key in ("accuracy", "mean_client_accuracy")]
        print(
            f"{shown:10} {sent / messages:14,.0f} {sent / 1e6:17.2f} {sent / messages / plain:7.1%} "
            f"{accuracies[0]:>15} {accuracies[1]:>15}",
            flush=True,
        )


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.2%} ± {(max(values) - min(values)) / 2:.2%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--codecs", help="only these, such as none,int8")
    given = parser.parse_args()
    if given.data is None:
        table("digits", "digits, MLP", given, None)
    else:
        table("cifar10", "CIFAR-10, small CNN", given, given.data)


if __name__ == "__main__":
    main()
