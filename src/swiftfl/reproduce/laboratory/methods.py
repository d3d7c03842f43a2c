"""The methods that are compared, as settings of a run."""

from __future__ import annotations

from typing import Any, NamedTuple

MESSAGE_BYTES = 1_000_000
"""Of a model of the common task."""


class Method(NamedTuple):
    """How tables call it, and what is set."""

    label: str
    changes: dict[str, Any]


def _named(algorithm: str, **options: Any) -> dict[str, Any]:
    return {"algorithm.name": algorithm, **{f"algorithm.{key}": value for key, value in options.items()}}


_CORRECTED = {"algorithm.step_size.corrected": True}
_TWICE_AS_LARGE = {"engine.costs.message_bytes": 2 * MESSAGE_BYTES}
"""Push-sum sends double-precision sums of single-precision models."""

METHODS: dict[str, Method] = {
    "swift": Method("SWIFT", _named("swift")),
    "corrected": Method("SWIFT corrected", {**_named("swift"), **_CORRECTED}),
    "look_ahead": Method("SWIFT look-ahead", _named("swift", look_ahead=True)),
    "both": Method("SWIFT with both", {**_named("swift", look_ahead=True), **_CORRECTED}),
    "dsgd": Method("D-SGD", _named("dsgd")),
    "adpsgd": Method("AD-PSGD", _named("adpsgd", averaging="background")),
    "fedavg": Method("FedAvg", _named("fedavg")),
    "fedavg_half": Method("FedAvg, half of them", _named("fedavg", participation=0.5)),
    "swarm": Method("SwarmSGD", _named("swarm")),
    "prague": Method("Prague", _named("prague")),
    "gossip_async": Method("asynchronous gossip", _named("gossip_async")),
    "quasi_global": Method("quasi-global momentum", _named("quasi_global")),
    "sgp": Method("SGP, overlapped", {**_named("sgp"), **_TWICE_AS_LARGE}),
    "a2cid2": Method("A²CiD²", _named("a2cid2")),
    "divshare": Method("DivShare", _named("divshare")),
    "softdsgd": Method("Soft-DSGD, 10 % lost", {**_named("softdsgd"), "engine.costs.loss": 0.1}),
    "hogwild": Method("HOGWILD!", _named("hogwild")),
    "asysg": Method("AsySG-Con", _named("asysg")),
}


def labels(names: tuple[str, ...]) -> dict[str, str]:
    return {name: METHODS[name].label for name in names}
