"""The transport over zenoh passes the battery that every transport passes, in processes on loopback."""

from __future__ import annotations

import pytest

from swiftfl.transports.conformance.battery import battery
from swiftfl.transports.registry import TRANSPORTS

pytest.importorskip("zenoh")

# As with MPI, ranks keep step: none is stopped for good or started again (tests/federation does that).
SKIPPED = {"killed_peers", "observers_see_models", "small_messages_never_wait", "rejoining", "cells_survive"}


@pytest.mark.slow
def test_zenoh_passes() -> None:
    for report in battery(TRANSPORTS["zenoh"]):
        assert report.passed is (None if report.name in SKIPPED else True), f"{report.name}: {report.detail}"
