"""How a rank leaves MPI when its part in a run is over."""

from __future__ import annotations

import time

from swiftfl.engines.live.mpi.channel import RankChannel
from swiftfl.engines.live.mpi.gather import FinalGather
from swiftfl.transports.mpi import MpiJob

_UNTIL_ENDED = 60.0  # seconds in which the recorder writes its results and ends the job


def leave_job(job: MpiJob, channel: RankChannel, gather: FinalGather, has_result: bool) -> None:
    """In good order if all are there.

    Where ranks have died, MPI_Finalize may block for ever, so each leaves by itself; where one does not
    respond, the recorder (who `has_result`) ends the job, or that one would stay.
    """
    unresponsive = channel.orders.over == 2 or bool(gather.silent)
    if unresponsive or (channel.leaderless and not job.failed()):
        if has_result:
            job.abort(0)
        time.sleep(_UNTIL_ENDED)
    elif not channel.transport.progress.gone and channel.orders.over:
        job.leave()
