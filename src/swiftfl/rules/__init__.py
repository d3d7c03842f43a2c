"""Update rules: from a gradient to a move. What a rule remembers are named arrays, any number of them.

    memory_0 = init(x);   move, memory <- update(g, x, step_size, memory);   the model moves by `move`

A rule is a registered function that makes an object with these two methods; engines save, send and
replay whatever arrays its memory holds. A test holds each beside torch's own optimizer. Running buffers, the
tail of a model's vector, have gradient 0; whatever a rule does to them is replaced by what the batch says
(`vector.advance`).
"""

from swiftfl.rules.adam import AdamRule
from swiftfl.rules.applied import Applied, applied
from swiftfl.rules.base import RULES, Moments, UpdateRule, update_rule, updated
from swiftfl.rules.clipped import Clipped
from swiftfl.rules.lion import LionRule
from swiftfl.rules.remembering import Remembering, first_memory
from swiftfl.rules.rmsprop import RmspropRule
from swiftfl.rules.sgd import SgdRule

__all__ = [
    "RULES",
    "AdamRule",
    "Applied",
    "Clipped",
    "LionRule",
    "Moments",
    "Remembering",
    "RmspropRule",
    "SgdRule",
    "UpdateRule",
    "applied",
    "first_memory",
    "update_rule",
    "updated",
]
