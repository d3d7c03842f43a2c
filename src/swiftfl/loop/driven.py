"""A live client whose gradients come from outside: a step is parked at its Gradient until it is brought."""

from __future__ import annotations

import math

import numpy as np

from swiftfl.client import State
from swiftfl.engines.live.client import LiveClient
from swiftfl.sample import Slope
from swiftfl.vector import Vector
from swiftfl.verbs import Gradient, Overlapped


class DrivenClient:
    """Runs the steps of a client; `x` is the model at which the next gradient is to be taken."""

    def __init__(self, client: LiveClient) -> None:
        self.client = client
        self._begin()
        self.x = self._run_on(None)

    def go_on(self, slope: Slope) -> None:
        """The gradient at `x`: the step goes on to its end, and the next one up to its Gradient."""
        tally, asked = self.client.tally, self._asked
        tally.loss = slope.loss  # which is not known where the loop does not tell
        if math.isfinite(slope.loss):
            tally.loss_sum += slope.loss
            tally.loss_count += 1
        if isinstance(asked, Overlapped):  # the averaging has no gradient here to hide behind
            self.x = self._run_on((slope, self.client.server.serve(asked.averaging)))
        else:
            self.x = self._run_on(slope)

    def start_from(self, x: Vector) -> None:
        """Give up the step that is parked, and begin it again with another model."""
        client = self.client
        self._step.close()
        client.state = State(x, client.state.c, client.state.memory)
        if client.server.shares_cell:
            client.transport.set_cell(x)
        self._begin()
        self.x = self._run_on(None)

    def finish(self) -> None:
        """No further step: the last model stays with the neighbours, and nobody waits for this client."""
        self._step.close()
        self.client.finish()

    def _begin(self) -> None:
        self._step = self.client.begin_step()

    def _run_on(self, reply: object) -> Vector:
        with np.errstate(all="ignore"):  # models that are not finite are refused, counted and reported
            while True:
                try:
                    verb = self._step.send(reply)
                except StopIteration as end:
                    self.client.end_step(end.value)
                    self._begin()
                    reply = None
                    continue
                if isinstance(verb, Gradient | Overlapped):
                    self._asked = verb
                    return verb.x if isinstance(verb, Gradient) else verb.gradient.x
                reply = self.client.server.serve(verb)
