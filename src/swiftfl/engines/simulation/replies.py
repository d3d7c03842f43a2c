"""What clients are sent in reply to their verbs, as plain values and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from swiftfl.engines.ages import FetchedModels
from swiftfl.engines.saved import Pool, Saved, Tree, pack_number
from swiftfl.sample import Slope
from swiftfl.vector import Statistics, Vector
from swiftfl.verbs import Exchange, Fetch, Gather, Gradient, Overlapped, Publish, Scatter, Verb


def pack_slope(slope: Slope, pool: Pool) -> Tree:
    s = slope.statistics
    packed: Tree = {"g": pool.put(slope.g), "loss": pack_number(slope.loss)}
    if s is not None:
        packed["statistics"] = pool.put(s.values)
        constant = isinstance(s.rate, float)
        packed["rate"] = s.rate if constant else pool.put(cast(Vector, s.rate))
    return packed


def unpack_slope(saved: Saved) -> Slope:
    g = saved["g"].vector()
    statistics = None
    if "statistics" in saved:
        values, rate = saved["statistics"].array(), saved["rate"]
        if not (values.ndim == 1 and 0 < values.size <= g.size):
            saved["statistics"].fail(f"is an array of shape {values.shape}, longer than the model")
        constant = not isinstance(rate.value, str)
        statistics = Statistics(values, rate.number(0.0) if constant else rate.array_like(values))
    return Slope(g, saved["loss"].any_number(), statistics)


def pack_reply(reply: object, pool: Pool) -> Any:
    if reply is None:
        return None
    if isinstance(reply, Slope):
        return {"slope": pack_slope(reply, pool)}
    if isinstance(reply, np.ndarray):
        return {"vector": pool.put(reply)}
    if isinstance(reply, tuple):
        slope, cell = reply
        if isinstance(slope, np.ndarray):  # what was gathered
            return {"gathered": [pool.put(slope), pool.put(cell)]}
        return {"both": [pack_slope(slope, pool), pool.put(cell)]}
    if isinstance(reply, FetchedModels):
        models = [[k, pool.put(x)] for k, x in reply.items()]
        return {"fetched": models, "ages": [[k, pack_number(age)] for k, age in reply.ages.items()]}
    if isinstance(reply, Mapping):
        return {"inbox": [[k, pool.put(x)] for k, x in reply.items()]}
    raise TypeError(f"a reply of type {type(reply).__name__} cannot be saved")


def unpack_reply(saved: Saved, n: int) -> object:
    if saved.missing:
        return None
    if "slope" in saved:
        return unpack_slope(saved["slope"])
    if "gathered" in saved:
        total, count = saved["gathered"].items(2)
        return total.finite(), count.finite()
    if "both" in saved:
        slope, cell = saved["both"].items(2)
        return unpack_slope(slope), cell.vector()
    if "fetched" in saved:
        ages = {k: age.number(0.0) for k, age in saved["ages"].pairs(n)}
        inbox = FetchedModels({k: x.message() for k, x in saved["fetched"].pairs(n)})
        inbox.ages = ages
        return inbox
    if "inbox" in saved:
        return {k: x.message() for k, x in saved["inbox"].pairs(n)}
    return saved["vector"].vector()


def answers(reply: object, verb: Verb) -> bool:
    """Whether this is what such a verb is replied with."""
    if isinstance(verb, Publish | Scatter):
        return reply is None
    if isinstance(verb, Gradient):
        return isinstance(reply, Slope)
    if isinstance(verb, Overlapped | Gather):
        return isinstance(reply, tuple)
    if isinstance(verb, Fetch | Exchange):
        return isinstance(reply, Mapping) and set(reply) <= set(verb.neighbours)
    return isinstance(reply, np.ndarray)
