"""A program for tests, run under mpiexec: `mpi_tensor_program.py FOLDER`. Models are tensors on the cpu.

Every algorithm that processes can run, one after the other; the recorder leaves each one's models and prints
how many clients were lost.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from tensor_worlds import LIVE, setup

from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.transports.mpi import world


def main(root: Path) -> None:
    ranks, lost = world(), {}
    for name in LIVE:
        folder = root / name
        engine = MpiEngine(setup("torch", name), ranks, folder, LiveOptions(save_seconds=None))
        engine.start()
        while not engine.wait(0.1):
            pass
        engine.close()
        if engine.has_result:
            lost[name] = len(engine.supervisor.lost)
            np.save(folder / "models.npy", np.stack([np.asarray(x) for x in engine.models]))
    if lost:
        print(json.dumps(lost), flush=True)
    engine.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
