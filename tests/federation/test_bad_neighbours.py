"""A neighbour with a certificate that says what cannot be: nobody is harmed, and it is counted."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from nodes import Federation, until

from swiftfl.graph.census import FIRST_KIND, Agreed, Count, Explore, Sums, Totals, sound
from swiftfl.transports.base import SmallMessage

pytest.importorskip("zenoh")

EXPLORE = FIRST_KIND
IMPOSSIBLE = [
    SmallMessage(EXPLORE, math.nan, 0.0, 0.0),  # type: ignore[arg-type]
    SmallMessage(EXPLORE, math.inf, 0.0, 0.0),  # type: ignore[arg-type]
    SmallMessage(EXPLORE, 1e300, 0.0, 0.0),  # type: ignore[arg-type]
    SmallMessage(EXPLORE, 1.5, 0.0, 0.0),  # type: ignore[arg-type]
    SmallMessage(EXPLORE, -7, 0.0, 0.0),
    SmallMessage(EXPLORE, (1 << 53) - 1, 0.0, 0.0),
    SmallMessage(EXPLORE, 1 << 40, math.nan, 0.0),
]


@pytest.mark.parametrize(
    ("message", "can_be"),
    [
        (Explore(1, 0.0), True),
        (Explore(1, 2.0), False),
        (Explore(1, math.nan), False),
        (Count(1, 3.0, math.nan), True),
        (Count(1, 0.0, 0.5), False),
        (Count(1, math.inf, 0.5), False),
        (Count(1, 2.0, -0.5), False),
        (Agreed(1, 4.0, 1.0), True),
        (Agreed(1, math.nan, 1.0), False),
        (Agreed(1, 2.5, 1.0), False),
        (Sums(1, 0.5, 0.5), True),
        (Sums(1, math.inf, 0.5), False),
        (Totals(1, 1.0, 0.0), False),
    ],
)
def test_what_a_census_can_say(message: Explore | Count | Sums | Agreed | Totals, can_be: bool) -> None:
    assert sound(message) == can_be


def test_messages_that_cannot_be_harm_nobody(tmp_path: Path) -> None:
    line = Federation(tmp_path, 3, ((0, 1), (1, 2)))
    try:
        for i in range(3):
            line.start(i)
        line.settle(0, 1, 2)
        bad = line.nodes[1].connection
        for message in IMPOSSIBLE:
            for k in bad.names:
                bad.transport.tell(k, message)
            time.sleep(0.2)
        until(lambda: all(_refused(line, i) for i in (0, 2)), "refusals")
        line.stop(1)
        line.settle(0)
        line.settle(2)
        line.start(1)
        line.settle(0, 1, 2)
        steps = {i: line.nodes[i].control.c for i in range(3)}
        until(lambda: all(line.nodes[i].control.c > c + 5 for i, c in steps.items()), "further steps")
    finally:
        line.close()


def _refused(line: Federation, i: int) -> int:
    return line.nodes[i].connection.wire.refusals.by_sender().get("n1", {}).get("UNDECODABLE", 0)


def test_who_comes_back_with_its_clock_set_back_is_a_neighbour_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Federation(tmp_path, 2, ((0, 1),))
    try:
        for i in range(2):
            pair.start(i)
        pair.settle(0, 1)
        pair.stop(1)
        pair.settle(0)
        now = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: now - 600 * 10**9)
        pair.start(1)
        pair.settle(0, 1)
    finally:
        pair.close()
