"""Settings of what a run writes while it goes on, for whoever looks at it."""

from __future__ import annotations

from swiftfl.experiment.section import Section
from swiftfl.settings import Count


class RecordConfig(Section):
    facts: bool = True
    """Whether every client's steps and state are written while the run goes on, for watch and dashboard."""
    facts_megabytes: Count = 64
    """How much room they may take; of longer runs the past is coarser."""
