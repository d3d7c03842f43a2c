"""Who holds which samples of a dataset: as it came, by groups, or by a partition that is named."""

from __future__ import annotations

from collections.abc import Sequence

from swiftfl.data.dataset import Dataset
from swiftfl.data.parse import needs_classes, partition
from swiftfl.data.partition import Partition
from swiftfl.errors import UserError

_UNEVEN = 5.0  # times as many steps per epoch as another: worth saying


def split(data: Dataset, clients: int, seed: int = 0, spec: str | None = None) -> Partition:
    """The training samples of each client.

    Without `spec`: as the data came where they are already split by client, by group where they have groups,
    and IID otherwise.
    """
    spec = usual_partition(data) if spec is None else spec
    if data.parts is not None and spec != "given":
        raise UserError(
            f"partition {spec}: {data.name} is already split by client; leave partition out, or say given"
        )
    if needs_classes(spec):
        why = data.why_no_classes() or (None if data.classes is not None else "no number of classes is given")
        if why is not None:
            raise UserError(
                f"partition {spec} deals out samples by their class, but {why}; use iid or by_size, "
                "or give groups= and by_group"
            )
    return partition(spec, data.labels, clients, seed, groups=data.groups, parts=data.parts)


def usual_partition(data: Dataset) -> str:
    """The partition of these data unless another one is asked for."""
    return "given" if data.parts is not None else "by_group" if data.groups is not None else "iid"


def uneven_work(sizes: Sequence[int], batch_size: int) -> str | None:
    """A warning if an epoch is much more work for one client than for another; None if it is not.

    >>> uneven_work([100, 90, 800], 10)
    'client 2 has 800 samples and client 1 has 90: an epoch is 80 steps and 9, 8.9 times as much work'
    >>> uneven_work([100, 90], 10)
    """
    most, least = max(range(len(sizes)), key=sizes.__getitem__), min(range(len(sizes)), key=sizes.__getitem__)
    steps = [-(-sizes[client] // batch_size) for client in (most, least)]
    factor = steps[0] / max(1, steps[1])
    if factor < _UNEVEN:
        return None
    return (
        f"client {most} has {sizes[most]} samples and client {least} has {sizes[least]}: "
        f"an epoch is {steps[0]} steps and {steps[1]}, {factor:.1f} times as much work"
    )
