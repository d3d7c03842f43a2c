"""What neighbours get of the models that clients send: each client has a codec of its own."""

from __future__ import annotations

from collections.abc import Callable

from swiftfl.engines.saved import Pool, Saved, Tree
from swiftfl.transports.codec import MakeCodec, arrived, encode, is_exact, tell_whose
from swiftfl.vector import Vector


class Senders:
    """The sending ends of all clients; `place` says where the models that arrive are to be."""

    def __init__(self, n: int, make: MakeCodec, place: Callable[[Vector], Vector] = lambda x: x) -> None:
        self._place = place
        self._codecs = [tell_whose(make(), i) for i in range(n)]
        self._exact = is_exact(self._codecs[0])

    def most_bytes(self, x: Vector) -> int:
        """How many bytes a message with a model like x carries, at most."""
        return self._codecs[0].most_bytes(x.size, x.dtype)

    def send(self, i: int, x: Vector) -> tuple[Vector, int]:
        """What arrives of a model that client i publishes or exchanges, and in how many bytes.

        What a codec has made is put where models are here, at once and not once for each who averages it.
        """
        if self._exact:
            return x, x.nbytes
        data = encode(self._codecs[i], x)
        return self._place(arrived(self._codecs[i], data, x)), data.size

    def state(self, pool: Pool) -> Tree:
        return {"codecs": [{k: pool.put(a) for k, a in codec.state().items()} for codec in self._codecs]}

    def restore(self, saved: Saved) -> None:
        parts = saved["codecs"].items(len(self._codecs))
        for codec, part in zip(self._codecs, parts, strict=True):
            codec.restore({name: array.array() for name, array in part.entries().items()})
