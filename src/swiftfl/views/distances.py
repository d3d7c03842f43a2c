"""How far each client's model is from the average, of a run whose models are recorded."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from swiftfl.views.reading import Mark, mark_of, number

MODELS = "models.safetensors"
_MOST_BYTES = 1 << 30
"""Of the file; of larger models nobody waits for the distances."""
_log = logging.getLogger(__name__)


class Distances:
    """Read once, when the models are there, and one model at a time."""

    def __init__(self, run: Path) -> None:
        self._file = run / MODELS
        self._mark: Mark | None = None
        self._found: list[float | None] = []

    def of(self, clients: int) -> list[float | None]:
        """The distance of every client; None where it is not known."""
        mark = mark_of(self._file)
        if mark != self._mark:
            self._mark, self._found = mark, [] if mark is None or mark[1] > _MOST_BYTES else self._read()
        return self._found if len(self._found) == clients else [None] * clients

    def _read(self) -> list[float | None]:
        try:
            with safe_open(self._file, framework="numpy") as arrays:
                models, centre = arrays.get_slice("models"), arrays.get_tensor("consensus")
                count = models.get_shape()[0]
                return [number(float(np.linalg.norm(models[i] - centre))) for i in range(count)]
        except (OSError, SafetensorError, IndexError, TypeError, ValueError) as error:
            _log.debug("%s: %s", self._file, error)
            return []
