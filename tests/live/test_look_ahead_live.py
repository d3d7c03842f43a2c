"""SWIFT with look-ahead between real processes: what clients publish is not the model that they have."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from live_worlds import LIMIT, check_replay, events, live_setup, running

from swiftfl.algorithms import SwiftLookAhead
from swiftfl.client import Client, State
from swiftfl.engines.live.announced import first_published
from swiftfl.engines.live.journal import needed, read_incarnations, split
from swiftfl.verbs import Publish, WaitFree

TESTS = os.getpid()
"""Here a run is replayed, and nobody is killed."""
KILLED = mmap.mmap(-1, 1)
"""Shared with the clients' processes: whether it has happened."""


class KilledAfterSending(SwiftLookAhead):
    """Client 1 publishes in its sixth step, lets the others take that, and is killed before it fetches."""

    def step(self, me: Client, s: State) -> Generator[WaitFree, object, State]:
        steps, reply = super().step(me, s), None
        while True:
            try:
                verb = steps.send(reply)
            except StopIteration as end:
                return cast(State, end.value)
            reply = yield verb
            here = (me.index, s.c) == (1, 6) and os.getpid() != TESTS
            if isinstance(verb, Publish) and here and not KILLED[0]:
                time.sleep(0.5)
                KILLED[0] = 1
                os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("save_steps", [None, 2], ids=["from a neighbour's model", "from a save"])
def test_a_run_is_replayed_from_which_a_client_was_killed_after_it_had_published(
    save_steps: int | None, tmp_path: Path
) -> None:
    """That step is on no record of its own; what it published is not the model with which it began."""
    KILLED[0] = 0
    setup, folder = live_setup(KilledAfterSending(), seconds=0.02, epochs=20), tmp_path / "clients"
    with running(setup, folder, restart_lost=True, save_steps=save_steps) as engine:
        assert engine.wait(LIMIT)
        assert [row["client"] for row in events(engine, "lost")] == [1]
        assert events(engine, "join")
        live = engine.models
    used = needed([each for i in range(4) for each in read_incarnations(folder, i, 4)])
    assert any(client == 1 and split(name) == (0, 6) for client, name in used)
    check_replay(setup, folder, live)


def test_who_has_taken_all_steps_starts_again_with_its_last_model() -> None:
    """It takes no step that could publish anything else: under one version goes one model."""
    setup = live_setup(SwiftLookAhead(), epochs=2)
    x = setup.workload.initial(0)
    last = int(setup.steps_of(0))
    at_last, after_it = (State(x, c, {"momentum": np.ones_like(x)}) for c in (last, last + 1))
    me = setup.client(0)
    ahead, begins = first_published(setup, me, at_last)
    assert begins
    assert not np.array_equal(ahead, x)
    stays, begins = first_published(setup, me, after_it)
    assert stays is x
    assert not begins
