"""Which engines use which settings, so that what has no effect is refused."""

from __future__ import annotations

from collections.abc import Mapping

from swiftfl.errors import UserError

ENGINES = ("virtual", "sampled", "local", "mpi")
_USED_BY: dict[str, tuple[str, ...]] = {
    "engine.costs": ("virtual",),
    "engine.costs.slowdowns": ("virtual", "local", "mpi"),
    "engine.costs.trace": ("virtual", "local", "mpi"),
    "engine.costs.devices": ("virtual",),
    "engine.network.measure_every": ("virtual", "local", "mpi"),
    "engine.workers": ("virtual", "sampled"),
    "engine.live": ("local", "mpi"),
    "engine.live.restart_lost": ("local",),
    "engine.live.start": ("local",),
}
"""The engines that use a setting; those that are not named here are used by all."""


def check_engine(engine: object, typed: Mapping[str, str]) -> None:
    """Refuse what was typed but is not used by the engine that was chosen.

    `typed` has the settings that a user chose, and what they were called where they were chosen.
    """
    for key, name in typed.items():
        section = max((k for k in _USED_BY if f"{key}.".startswith(f"{k}.")), key=len, default=None)
        engines = _USED_BY[section] if section else ENGINES
        if engine in ENGINES and engine not in engines:
            *others, last = engines
            users = f"{', '.join(others)} or {last}" if others else last
            raise UserError(f"{name} is for engine {users}, not {engine}")
