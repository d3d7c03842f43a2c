"""What a user should know at once, while a run goes on: one line on standard error."""

from __future__ import annotations

import contextlib
import sys

from swiftfl.experiment.stages import clear_stages


def notice(text: str) -> None:
    """Print it; a standard error that nobody reads any more does not end a run."""
    clear_stages()
    with contextlib.suppress(OSError, ValueError):
        print(f"swiftfl: {' '.join(text.split())}", file=sys.stderr, flush=True)
