"""Costs that imitate the hardware of the SWIFT paper, calibrated on one row of its tables.

The row is D-SGD's in the baseline table (16-client ring, "ResNet-18", CIFAR-10): an epoch takes
1.558 s, of which 0.627 s is communication. One client has 50,000 / 16 samples, in batches of 32 that
is 98 steps an epoch, so one step computes for (1.558 - 0.627) / 98 = 9.5 ms and communicates for
0.627 / 98 = 6.4 ms. A message is 0.70 MB (175,818 parameters of 4 bytes: what the authors' code
trains under that name). One row gives one equation for four unknowns,

    2 send + 2 mix + latency + size / bandwidth = 0.627 / 98,

so three constants are chosen, and the fourth, the bandwidth, follows:

* `mix` = 0.15 ms: one read of two and one write of one vector of 0.70 MB at about 14 GB/s.
* `send` = 0.15 ms: the same for the copy into the transport's buffer.
* `latency` = 0.05 ms: an MPI message between processes over Ethernet.

The bandwidth that follows, 0.12 GB/s, is that of 1 Gbit/s Ethernet. No number of SWIFT, PA-SGD or
LD-SGD was used: what the simulator says of them is a prediction (docs/network.md has it beside the
printed values). The choice of `send` and `mix` decides what SWIFT is predicted to pay, since it
pays nothing else.
"""

from __future__ import annotations

import math

from swiftfl.costs import Costs

DSGD_EPOCH = 1.558
DSGD_COMMUNICATION = 0.627
NEIGHBOURS = 2
STEPS_PER_EPOCH = math.ceil(50_000 / 16 / 32)
MESSAGE_BYTES = 4 * 175_818
SEND = MIX = 0.00015
LATENCY = 0.00005


def paper_costs() -> Costs:
    """Costs under which D-SGD on the paper's baseline takes the printed times.

    >>> costs = paper_costs()
    >>> round(98 * (2 * costs.send + 2 * costs.mix + costs.transit(0, 1, MESSAGE_BYTES)), 6)
    0.627
    """
    per_step = DSGD_COMMUNICATION / STEPS_PER_EPOCH
    journey = per_step - NEIGHBOURS * (SEND + MIX)
    return Costs(
        compute=(DSGD_EPOCH - DSGD_COMMUNICATION) / STEPS_PER_EPOCH,
        send=SEND,
        mix=MIX,
        latency=LATENCY,
        bandwidth=MESSAGE_BYTES / (journey - LATENCY),
    )


def as_json() -> dict[str, float]:
    """What `swiftfl run --costs FILE` reads; `examples/costs/paper.json` holds it."""
    costs = paper_costs()
    return {name: getattr(costs, name) for name in ("compute", "send", "mix", "latency", "bandwidth")}
