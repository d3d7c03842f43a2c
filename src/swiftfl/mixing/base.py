"""What a mixing rule is, and rules by name.

`Mix` without a rule is the weighted average (`vector.mix`). A rule takes its place where a neighbour may be
broken or malicious: it is given the client's weights, its model and the neighbours' models, as one snapshot,
and says what they come to. It is a pure function of these, so that every engine and a replay give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np

from swiftfl.registry import Registry, options_of
from swiftfl.settings import checked_options, name_and_options
from swiftfl.vector import Vector, Weights


class MixRule(Protocol):
    """A rule writes into none of its arguments.

    It may have a method `check(client, w)`, which is asked before a run, and raises a `UserError` where the
    rule can do nothing with the weights of this client.
    """

    def mix(self, w: Weights, x: Vector, models: Mapping[int, Vector]) -> Vector:
        """What own model `x` and the neighbours' `models` come to; who is not there has no model."""


MakeMixRule = Callable[..., MixRule | None]
Make = TypeVar("Make", bound=MakeMixRule)
MIXINGS: Registry[MakeMixRule] = Registry("mixing rule")
"""Rules by name: functions whose keyword-only parameters are the options of a configuration. One that makes
None is the plain average."""


def mixing_rule(name: str) -> Callable[[Make], Make]:
    """Register a function that makes a rule."""

    def register(make: Make) -> Make:
        MIXINGS.register(name, make)
        return make

    return register


def mixing_named(text: str) -> tuple[str, dict[str, Any]]:
    """Name and options of a rule as users write it, such as clipped:tolerate=0.1; both are checked."""
    name, written = name_and_options(text)
    options = checked_options(f"mixing {name}", options_of(MIXINGS[name]), written, "mixing ")
    MIXINGS[name](**options)
    return name, options


@mixing_rule("plain")
def plain() -> None:
    """The weighted average, which trusts every neighbour."""


def mix_by(rule: MixRule, w: Weights, x: Vector, inbox: Mapping[int, Vector], buffers: int) -> Vector:
    """What a rule makes of a model and an inbox: of parameters and of running buffers, each on their own.

    Running buffers (of BatchNorm) are the last numbers of a vector. They are of another size than parameters:
    in one norm, a wild buffer would be hidden among many parameters, or a large one would hide them.
    """
    models = {k: inbox[k] for k in w.of if k in inbox}
    if not 0 < buffers < x.size:
        return rule.mix(w, x, models)
    parts = (slice(None, -buffers), slice(-buffers, None))
    return np.concatenate([rule.mix(w, x[part], {k: y[part] for k, y in models.items()}) for part in parts])
