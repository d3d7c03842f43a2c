"""The label histogram of a recorded run as a picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from swiftfl.data.picture import draw_histogram


def draw_partition(folder: Path) -> None:
    """Draw what partition.json of a run folder tells, if the data have classes."""
    described = json.loads((folder / "partition.json").read_text())
    if "histogram" in described:
        histogram = np.array(described["histogram"], dtype=np.int64)
        draw_histogram(folder / "partition.png", described["partition"], histogram)
