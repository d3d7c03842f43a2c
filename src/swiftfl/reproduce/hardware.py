"""Named hardware profiles: what things cost in virtual time.

`paper` imitates the hardware of the SWIFT paper. The authors' scripts ask for 16 tasks on 4 GPUs, which we
read as one host, and their synchronous exchange has a barrier over all clients before and after it. Between
the two, every client passes models to its neighbours and averages them: all of it through the memory of one
host. So the model of an exchange is

    seconds = latency + (bytes of all messages) / shared_bandwidth,

which grows with the number of clients and edges. SWIFT has no barrier; what it pays is its own copying and
averaging, `send` + `mix` per neighbour and step, in proportion to the bytes. Messages have 0.70 MB for
"ResNet-18" (175,818 parameters of 4 bytes: what the authors' code trains under that name) and 2.18 MB for
"ResNet-50". Printed numbers fix four constants; a client has 50,000 / 16 samples, which is 98 steps an epoch
in batches of 32 and 49 in batches of 64:

* `compute` of ResNet-18: D-SGD in the baseline table, (1.558 - 0.627) s / 98 = 9.5 ms.
* `shared_bandwidth`: the same row, 0.627 s / 98 = 6.4 ms for 32 messages, less the latency: 3.5 GB/s.
* `send` + `mix`: SWIFT C_0 in the baseline table, 0.086 s / 98 / 2 neighbours = 0.44 ms.
* `compute` of ResNet-50: D-SGD on the ring of the topology table, (2.241 - 0.962) s / 49 = 26.1 ms. It cannot
  be predicted from ResNet-18's, of which it is 2.7 times: the arithmetic of a batch is 4.9 times as much, and
  small kernels leave a GPU idle.

Two things had to be chosen: `latency` = 0.05 ms (an MPI message between processes of a host), and that
sending is half of `send` + `mix`. `bandwidth`, for a message that travels alone, is that of the shared
medium. No other number was used, so every other cell of the paper's tables is a prediction (docs/network.md
has them with their errors); `CALIBRATED` names the cells that are not.

`measured` is this machine, timed when asked (`reproduce/machine.py`). To repeat a run, keep the costs:
two measurements differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.costs_config import CostsConfig
from swiftfl.reproduce.printed import printed

TRAINING_SAMPLES = 50_000
NEIGHBOURS, CLIENTS = 2, 16
"""Of the ring of the baseline table."""
LATENCY = 0.00005
SEND_SHARE = 0.5
CALIBRATED = {
    ("baseline", "ring16", "dsgd_c0"): ("epoch", "comm"),
    ("baseline", "ring16", "swift_c0"): ("epoch", "comm"),
    ("clients", "16", "dsgd_c0"): ("epoch", "comm"),
    ("clients", "16", "swift_c0"): ("epoch", "comm"),
    ("topologies", "ring", "dsgd_c0"): ("epoch",),
}
"""The printed cells that the calibration fixes, by experiment, group and method.

The table of clients repeats the baseline's rows. SWIFT's epoch is D-SGD's compute and its own calibrated
communication; D-SGD's epoch on ResNet-50 is its calibrated compute and a predicted communication.
"""


@dataclass(frozen=True)
class NetworkProfile:
    """What the authors trained under a name: parameters, batch, and the printed row that gives its compute.

    `row` is D-SGD's on a ring of 16 clients.
    """

    trained: str
    parameters: int
    batch_size: int
    row: tuple[str, ...]

    @property
    def message_bytes(self) -> int:
        return 4 * self.parameters

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(TRAINING_SAMPLES / CLIENTS / self.batch_size)

    @property
    def compute(self) -> float:
        """Seconds of one gradient."""
        row = _row(*self.row)
        return (row["epoch"] - row["comm"]) / self.steps_per_epoch


def _row(*path: str) -> dict[str, float]:
    """The printed numbers at a place of the tables."""
    place: dict[str, Any] = printed()
    for name in path:
        place = place[name]
    return place


BASELINE_TABLE = "baseline_ring16_resnet18"
NETWORKS = {
    "resnet18": NetworkProfile("thin_resnet18", 175_818, 32, (BASELINE_TABLE, "dsgd_c0")),
    "resnet50": NetworkProfile("thin_resnet50", 545_930, 64, ("topologies_16_resnet50", "ring", "dsgd_c0")),
}
BASELINE = NETWORKS["resnet18"]


def network(model: str) -> NetworkProfile:
    """The network of the paper's tables that goes by this name, thin or not."""
    name = model.removeprefix("thin_")
    if name not in NETWORKS:
        raise UserError(f"the paper's hardware is known for {', '.join(NETWORKS)}, not for {model!r}")
    return NETWORKS[name]


def paper_costs(
    model: str = "resnet18", *, send_share: float = SEND_SHARE, latency: float = LATENCY
) -> CostsConfig:
    """Costs under which D-SGD and SWIFT on the paper's baseline take the printed times.

    >>> costs = paper_costs()
    >>> round(98 * (costs.latency + 32 * costs.message_bytes / costs.shared_bandwidth), 6)
    0.627
    >>> round(98 * 2 * (costs.send + costs.mix), 6)
    0.086
    """
    exchange, own = (
        _row(BASELINE_TABLE, method)["comm"] / BASELINE.steps_per_epoch for method in ("dsgd_c0", "swift_c0")
    )
    if latency >= exchange:
        raise UserError(
            f"latency {latency} leaves no time for the messages of an exchange ({exchange:.4f} s)"
        )
    net = network(model)
    per_neighbour = own / NEIGHBOURS * net.message_bytes / BASELINE.message_bytes
    rate = CLIENTS * NEIGHBOURS * BASELINE.message_bytes / (exchange - latency)
    return CostsConfig(
        compute=net.compute,
        send=send_share * per_neighbour,
        mix=(1 - send_share) * per_neighbour,
        latency=latency,
        bandwidth=rate,
        message_bytes=net.message_bytes,
        shared_bandwidth=rate,
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
