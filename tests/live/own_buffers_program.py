"""Under mpiexec: the models of runs whose running buffers stay each client's own, as JSON."""

from __future__ import annotations

import json
import sys

import numpy as np
from live_worlds import tagged_setup

from swiftfl.algorithms import AdPsgd, AllReduceSgd, Swift, dsgd
from swiftfl.engines.live.mpi.engine import MpiEngine
from swiftfl.engines.live.options import LiveOptions
from swiftfl.transports.mpi import world

ALGORITHMS = {
    "swift": Swift(),
    "dsgd": dsgd(),
    "adpsgd": AdPsgd(),
    "adpsgd_background": AdPsgd(averaging="background"),
    "allreduce": AllReduceSgd(),
}


def main() -> None:
    ranks = world()
    for name, algorithm in ALGORITHMS.items():
        setup = tagged_setup(algorithm, ranks.size, epochs=2)
        engine = MpiEngine(setup, ranks, None, LiveOptions(save_seconds=None))
        engine.start()
        while not engine.wait(0.1):
            pass
        engine.close()
        if engine.has_result:
            print(json.dumps([name, np.stack(engine.models).tolist()]), flush=True)
    engine.leave()


if __name__ == "__main__":
    sys.exit(main())
