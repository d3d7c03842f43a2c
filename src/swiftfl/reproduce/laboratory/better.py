"""`swiftfl reproduce better`: corrected steps and look-ahead, against SWIFT as printed and the best rivals.

Three kinds of data in four networks. Beside the step sizes that are tuned there, each network tries the one
that is best in lockstep with the same data: how well one step size serves every network. With gradients
that never change, `law.py` measures what step sizes really are.
"""

from __future__ import annotations

from swiftfl.reproduce.laboratory import digits
from swiftfl.reproduce.laboratory.methods import METHODS, labels
from swiftfl.reproduce.laboratory.plan import SCALES, Inquiry, InquiryScale, Trial

NETWORKS = ("lockstep", "spread", "slow_clients", "latency")
COMPARED = (
    "swift", "corrected", "look_ahead", "both", "dsgd", "quasi_global", "adpsgd", "fedavg", "divshare",
)  # fmt: skip
_SMOKE_DATA = ("skew",)
_WORDS = {1: "labels skewed", 3: "three kinds of data"}


def plan(scale: InquiryScale) -> Inquiry:
    data = _SMOKE_DATA if scale == SCALES["smoke"] else tuple(digits.DATA)
    cells = [(kind, network) for kind in data for network in NETWORKS]
    groups = {f"{kind}_{network}": digits.group(scale, kind, network) for kind, network in cells}
    trials = [
        Trial(f"{kind}_{network}", name, digits.world(kind, network, METHODS[name].changes))
        for kind, network in cells
        for name in COMPARED
    ]
    carried = {f"{kind}_{network}": f"{kind}_{NETWORKS[0]}" for kind, network in cells}
    return Inquiry(
        "better",
        f"A better SWIFT: 8-client ring, {_WORDS[len(data)]}, four networks",
        scale,
        groups,
        labels(COMPARED),
        tuple(trials),
        digits.LEARNER,
        carried,
    )
