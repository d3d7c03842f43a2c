"""Named hardware profiles: what things cost in virtual time.

`paper` imitates the hardware of the SWIFT paper and is calibrated on one row of its tables: D-SGD's in
the baseline table (16-client ring, "ResNet-18", CIFAR-10), where an epoch takes 1.558 s, of which
0.627 s is communication. One client has 50,000 / 16 samples, in batches of 32 that is 98 steps an
epoch, so one step computes for (1.558 - 0.627) / 98 = 9.5 ms and communicates for 0.627 / 98 = 6.4 ms. A
message is 0.70 MB (175,818 parameters of 4 bytes: what the authors' code trains under that name). One
row gives one equation for four unknowns,

    2 send + 2 mix + latency + size / bandwidth = 0.627 / 98,

so three constants are chosen, and the fourth, the bandwidth, follows:

* `mix` = 0.15 ms: one read of two and one write of one vector of 0.70 MB at about 14 GB/s.
* `send` = 0.15 ms: the same for the copy into the transport's buffer.
* `latency` = 0.05 ms: an MPI message between processes over Ethernet.

The bandwidth that follows, 0.12 GB/s, is that of 1 Gbit/s Ethernet. No number of SWIFT, PA-SGD or
LD-SGD was used: what the simulator finds for them is a prediction (docs/network.md has it beside the
printed values). The choice of `send` and `mix` decides what SWIFT's communication is predicted to cost,
since it has no other cost.

Nothing is fitted for "ResNet-50" either (2.18 MB, batches of 64): `compute` grows with the arithmetic
of a gradient, counted operation by operation, and `send` and `mix` with the bytes. That treats the
accelerator as equally busy with both networks. Small kernels leave one idle, so `compute` is
likely to be predicted too high.

`measured` is this machine, timed when asked (`reproduce/machine.py`). To repeat a run, keep the costs:
two measurements differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config, CostsConfig

HardwareName = Literal["paper", "measured"]

TRAINING_SAMPLES = 50_000
DSGD_EPOCH = 1.558
DSGD_COMMUNICATION = 0.627
NEIGHBOURS = 2
SEND = MIX = 0.00015
LATENCY = 0.00005


@dataclass(frozen=True)
class NetworkProfile:
    """What the authors trained under a name: parameters, batch, and the arithmetic of one sample.

    `flops` are those of the forward and backward pass of one 3x32x32 image, as torch's counter counts
    them (a test counts again).
    """

    trained: str
    parameters: int
    batch_size: int
    flops: int

    @property
    def message_bytes(self) -> int:
        return 4 * self.parameters


NETWORKS = {
    "resnet18": NetworkProfile("thin_resnet18", 175_818, 32, 159_059_712),
    "resnet50": NetworkProfile("thin_resnet50", 545_930, 64, 388_709_376),
}
BASELINE = NETWORKS["resnet18"]
STEPS_PER_EPOCH = math.ceil(TRAINING_SAMPLES / 16 / BASELINE.batch_size)


def network(model: str) -> NetworkProfile:
    """The network of the paper's tables that goes by this name, thin or not."""
    name = model.removeprefix("thin_")
    if name not in NETWORKS:
        raise UserError(f"the paper's hardware is known for {', '.join(NETWORKS)}, not for {model!r}")
    return NETWORKS[name]


def paper_costs(
    model: str = "resnet18", *, send: float = SEND, mix: float = MIX, latency: float = LATENCY
) -> CostsConfig:
    """Costs under which D-SGD on the paper's baseline takes the printed times, for any chosen constants.

    >>> costs = paper_costs()
    >>> journey = costs.latency + costs.message_bytes / costs.bandwidth
    >>> round(98 * (2 * costs.send + 2 * costs.mix + journey), 6)
    0.627
    """
    per_step = DSGD_COMMUNICATION / STEPS_PER_EPOCH
    journey = per_step - NEIGHBOURS * (send + mix) - latency
    if journey <= 0:
        raise UserError(
            f"send {send}, mix {mix} and latency {latency} leave no time for the journey of a model"
        )
    net = network(model)
    larger = net.message_bytes / BASELINE.message_bytes
    harder = net.flops * net.batch_size / (BASELINE.flops * BASELINE.batch_size)
    return CostsConfig(
        compute=harder * (DSGD_EPOCH - DSGD_COMMUNICATION) / STEPS_PER_EPOCH,
        send=larger * send,
        mix=larger * mix,
        latency=latency,
        bandwidth=BASELINE.message_bytes / journey,
        message_bytes=net.message_bytes,
    )


def profile(name: str, model: str = "resnet18", config: Config | None = None) -> CostsConfig:
    """The costs of a named profile.

    `paper` needs the `model` of the paper's table, "resnet18" or "resnet50"; `measured` needs the
    configuration whose gradients and messages are timed.
    """
    if name == "paper":
        return paper_costs(model)
    if name != "measured":
        raise UserError(f"hardware must be paper or measured, not {name!r}")
    if config is None:
        raise UserError("measured hardware needs the configuration that is to be measured")
    from swiftfl.reproduce.machine import measured_costs  # loads torch

    return measured_costs(config)


def as_json() -> dict[str, float]:
    """The paper's costs for `swiftfl run --costs FILE`; `examples/costs/paper.json` holds them."""
    costs: dict[str, float] = paper_costs().model_dump(exclude_defaults=True)
    return costs
