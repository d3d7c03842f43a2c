"""How much privacy was spent, by Opacus's accountant (extra `privacy`): the one file that knows the library.

A client goes through its data in passes: in each epoch a sample is in at most one batch, and all later steps
only process what that batch's gradient gave away. So E epochs are E uses of the Gaussian mechanism on a
sample, whichever batches it was in, and (epsilon, delta) follows from their composition. What is compared is
a client's data with a sample, and with one in its place whose gradient is zero.

Nothing is claimed from the chance that a sample is not in a batch (amplification by subsampling): its proof
needs batches that are drawn independently, and passes are not.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from swiftfl.engines.engine import Engine
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config


def require_accountant() -> None:
    """Say at once, before anything is trained, that the library is missing."""
    _accountant()


def epsilon_spent(noise: float, uses: int, delta: float) -> float:
    """The epsilon of so many uses of the Gaussian mechanism with this noise multiplier."""
    if uses == 0:
        return 0.0
    accountant = _accountant()
    for _ in range(uses):
        accountant.step(noise_multiplier=noise, sample_rate=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a finer grid of orders could prove a little less
        return float(accountant.get_epsilon(delta))


def spent(noise: float, delta: float, steps: Sequence[int], steps_per_epoch: Sequence[int]) -> list[float]:
    """Each client's epsilon after so many of its steps; a part of an epoch counts as a whole one."""
    uses = [math.ceil(done / each) for done, each in zip(steps, steps_per_epoch, strict=True)]
    known = {count: epsilon_spent(noise, count, delta) for count in set(uses)}
    return [known[count] for count in uses]


def privacy_figures(config: Config, engine: Engine, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a run has spent; None where real clients may have repeated steps, which nobody counts."""
    about = config.privacy
    if not about.noise:
        return {}
    repeated = config.engine.real and any(event["event"] in ("restart", "resume") for event in events)
    each = [batches.steps_per_epoch for batches in engine.setup.batches]
    steps = engine.client_records()["steps"].tolist()
    found = None if repeated else spent(about.noise, about.delta, steps, each)
    most = None if found is None else max(found)
    return {"privacy": {"delta": about.delta, "epsilon": most, "epsilon_of_clients": found}}


def _accountant() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries about themselves
            from opacus.accountants import RDPAccountant
    except ImportError:
        raise UserError("privacy needs a library that is not here: pip install 'swiftfl[privacy]'") from None
    return RDPAccountant()
