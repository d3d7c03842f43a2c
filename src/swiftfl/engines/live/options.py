"""Options of a live run that do not change what is trained: saves, record, restarts, and patience."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LiveOptions:
    """The defaults of live runs are written here and nowhere else."""

    save_seconds: float | None = 30.0
    """Seconds between two saves of a client; None: only when the run stops or ends."""
    save_steps: int | None = None
    """Steps between two saves of a client."""
    record: bool = True
    """Whether clients keep the journal that a replay needs."""
    restart_lost: bool = False
    """Whether a client whose process has ended is started again."""
    most_restarts: int = 5
    """How often one client is started again."""
    patience: float = 10.0
    """Seconds that a client may take to stop, or may make no progress when all others have finished."""
    stall_seconds: float = 60.0
    """Seconds without progress after which a client is reported."""
