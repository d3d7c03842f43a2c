"""`swiftfl reproduce rivals`: SWIFT and the systems it is compared with, in three networks, labels skewed."""

from __future__ import annotations

from swiftfl.reproduce.laboratory import digits
from swiftfl.reproduce.laboratory.methods import METHODS, labels
from swiftfl.reproduce.laboratory.plan import Inquiry, InquiryScale, Trial

NETWORKS = ("spread", "slow_clients", "slow_links")
DATA = "skew"
RIVALS = tuple(name for name in METHODS if name not in ("corrected", "look_ahead", "both"))


def plan(scale: InquiryScale) -> Inquiry:
    groups = {n: digits.group(scale, DATA, n, digits.NETWORKS[n][0]) for n in NETWORKS}
    trials = [
        Trial(network, name, digits.world(DATA, network, METHODS[name].changes))
        for network in NETWORKS
        for name in RIVALS
    ]
    title = "Rivals: 8-client ring, labels skewed"
    return Inquiry("rivals", title, scale, groups, labels(RIVALS), tuple(trials), digits.LEARNER)
