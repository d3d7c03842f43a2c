"""The transport over zenoh passes the battery that every transport passes, in processes on loopback."""

from __future__ import annotations

import pytest

from swiftfl.transports.conformance.battery import CHECKS, battery
from swiftfl.transports.registry import TRANSPORTS

pytest.importorskip("zenoh")

QUICK = (
    "newest_wins",
    "never_torn",
    "stopped_peers",
    "small_messages_arrive",
    "rounds_in_order",
    "loss_is_noticed",
)
SKIPPED = {"killed_peers", "observers_see_models", "small_messages_never_wait", "rejoining", "cells_survive"}


@pytest.mark.parametrize(
    "names",
    [QUICK, pytest.param(tuple(check.__name__ for check in CHECKS), marks=pytest.mark.slow)],
    ids=["quick", "all"],
)
def test_zenoh_passes(names: tuple[str, ...]) -> None:
    checks = tuple(check for check in CHECKS if check.__name__ in names)
    for report in battery(TRANSPORTS["zenoh"], checks):
        assert report.passed is (None if report.name in SKIPPED else True), f"{report.name}: {report.detail}"
