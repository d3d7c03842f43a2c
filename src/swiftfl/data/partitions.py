"""Ways to deal out the training samples: every sample to exactly one client, but for `bootstrap`."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from swiftfl.data.parse import PARTITIONS
from swiftfl.data.partition import Indices, Partition, check_request, even_sizes, make
from swiftfl.errors import UserError
from swiftfl.files import not_too_deep, read_text_file
from swiftfl.memory import require_memory
from swiftfl.settings import NotNegative
from swiftfl.streams import stream

_REDRAWS = 1000  # of shares that leave somebody with too little


@PARTITIONS.add("iid")
def iid(labels: Indices, clients: int, seed: int) -> Partition:
    """Samples dealt out uniformly at random, in equal numbers (give or take one)."""
    check_request(labels.size, clients)
    return make("iid", np.array_split(_shuffled(labels.size, seed), clients))


@PARTITIONS.add("by_size")
def by_size(labels: Indices, clients: int, seed: int, shares: Sequence[float]) -> Partition:
    """IID, but of unequal sizes: everybody gets one sample, and the others are shared out by `shares`."""
    check_request(labels.size, clients)
    if len(shares) != clients:
        raise UserError(f"by_size: {len(shares)} shares for {clients} clients")
    given = np.asarray(shares, dtype=np.float64)
    if not np.isfinite(given).all() or bool((given <= 0).any()):
        raise UserError(f"by_size: shares must be positive numbers, not {list(shares)}")
    with np.errstate(over="ignore"):
        total = given.sum()
    if not np.isfinite(total):  # each share is finite, but not their sum
        given = given / given.max()
        total = given.sum()
    exact = given / total * (labels.size - clients)
    sizes = np.floor(exact).astype(np.int64)
    largest_remainders = np.argsort(sizes - exact, kind="stable")[: labels.size - clients - sizes.sum()]
    sizes[largest_remainders] += 1
    return make("by_size", np.split(_shuffled(labels.size, seed), np.cumsum(sizes + 1)[:-1]))


@PARTITIONS.add("cyclic_classes")
def cyclic_classes(labels: Indices, clients: int, seed: int, classes: int | None = None) -> Partition:
    """Appendix A.2 of the SWIFT paper: each client sees a few classes only.

    (1) Each client has n_c = ceil(c / n) classes, each 1 / n_c of its samples. (2) Classes are assigned
    cyclically: the first n_c to the first client, the next to the second, and after the last class the
    first again. (3) Clients are filled in turn; what a class no longer has comes from the next class.
    """
    check_request(labels.size, clients)
    pools = _pools(labels, seed, classes)
    c = len(pools)
    n_c = -(-c // clients)
    parts: list[Indices] = []
    for i, size in enumerate(even_sizes(labels.size, clients)):
        taken: list[Indices] = []
        for j, quota in enumerate(even_sizes(size, n_c)):
            taken += _take(pools, (i * n_c + j) % c, quota)
        parts.append(np.concatenate(taken))
    return make("cyclic_classes", parts)


@PARTITIONS.add("label_skew")
def label_skew(
    labels: Indices, clients: int, seed: int, degree: float, classes: int | None = None
) -> Partition:
    """`degree` of client i's samples have label i mod c, the rest is dealt out at random (equal sizes)."""
    check_request(labels.size, clients)
    if not 0.0 <= degree <= 1.0:
        raise UserError(f"label_skew: the degree must be in [0, 1], not {degree}")
    pools = _pools(labels, seed, classes)
    sizes = even_sizes(labels.size, clients)
    own = [int(degree * size + 1e-9) for size in sizes]
    _check_supply([pool.size for pool in pools], own, sizes, degree)
    parts: list[Indices] = []
    for i, quota in enumerate(own):
        k = i % len(pools)
        parts.append(pools[k][:quota])
        pools[k] = pools[k][quota:]
    rest = stream(seed, "partition-rest").permutation(np.concatenate(pools))
    ends = np.cumsum([size - quota for size, quota in zip(sizes, own, strict=True)])[:-1]
    pairs = zip(parts, np.split(rest, ends), strict=True)
    return make(f"label_skew:{degree:g}", [np.concatenate(pair) for pair in pairs])


@PARTITIONS.add("dirichlet")
def dirichlet(
    labels: Indices,
    clients: int,
    seed: int,
    alpha: float,
    min: NotNegative = 0,
    classes: int | None = None,
) -> Partition:
    """Each class is split among the clients in proportions drawn from Dirichlet(alpha).

    Small alpha: few clients share a class and sizes differ much. A client left with nothing is given
    one sample of the client that has the most. With `min`, shares are drawn anew until every client has so
    many samples.
    """
    check_request(labels.size, clients)
    if not (np.isfinite(alpha) and alpha > 0):
        raise UserError(f"dirichlet: alpha must be positive, not {alpha}")
    if min * clients > labels.size:
        raise UserError(f"dirichlet: {clients} clients cannot have {min} of {labels.size} samples each")
    pools = _pools(labels, seed, classes)
    name = f"dirichlet:{alpha:g}" + (f",min={min}" if min else "")
    best = 0
    for attempt in range(_REDRAWS):
        draw = stream(seed, "partition-dirichlet", counter=attempt)
        parts = make(name, _nobody_empty(_dirichlet_parts(pools, clients, alpha, draw)))
        best = max(best, smallest := np.min(parts.sizes))
        if smallest >= min:
            return parts
    raise UserError(
        f"{name}: in {_REDRAWS} draws the smallest client had at most {best} samples; "
        "use a larger alpha, a smaller min or fewer clients"
    )


def _dirichlet_parts(
    pools: list[Indices], clients: int, alpha: float, draw: np.random.Generator
) -> list[Indices]:
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for pool in pools:
        share = draw.dirichlet(np.full(clients, alpha))
        if not np.isfinite(share).all():  # alpha so small that every gamma variate underflowed
            share = np.eye(clients)[draw.integers(clients)]
        ends = np.minimum(np.round(np.cumsum(share) * pool.size).astype(np.int64), pool.size)[:-1]
        for part, piece in zip(parts, np.split(pool, ends), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


@PARTITIONS.add("by_group")
def by_group(labels: Indices, clients: int, seed: int, groups: Indices | None = None) -> Partition:
    """All samples of a group (a user, a hospital) go to one client; clients get about equally many.

    Groups are dealt out from the largest to the smallest, each to the client that has the fewest samples so
    far; among groups of one size, and clients with equally many, the seed decides.
    """
    if groups is None:
        raise UserError("by_group: these data have no groups (give groups=)")
    sizes = np.bincount(groups)
    present = np.flatnonzero(sizes)
    if clients < 1 or present.size < clients:
        raise UserError(f"by_group: {present.size} groups cannot be dealt out to {clients} clients")
    shuffled = stream(seed, "partition-groups").permutation(present)
    largest_first = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    order = stream(seed, "partition-clients").permutation(clients).tolist()
    heap = [(0, rank, client) for rank, client in enumerate(order)]
    owner = np.empty(sizes.size, dtype=np.int64)
    for group in largest_first:
        held, rank, client = heapq.heappop(heap)
        owner[group] = client
        heapq.heappush(heap, (held + int(sizes[group]), rank, client))
    holder = owner[groups]
    ends = np.cumsum(np.bincount(holder, minlength=clients))[:-1]
    return make("by_group", np.split(np.argsort(holder, kind="stable"), ends))


@PARTITIONS.add("given")
def given(labels: Indices, clients: int, seed: int, parts: Partition | None = None) -> Partition:
    """What each client holds of data that come already split by client."""
    if parts is None:
        raise UserError("partition given: these data are not split by client; give a list of datasets")
    if len(parts) != clients:
        raise UserError(f"partition given: the data are split for {len(parts)} clients, not {clients}")
    return parts


@PARTITIONS.add("bootstrap")
def bootstrap(labels: Indices, clients: int, seed: int, samples: int) -> Partition:
    """Each client draws its own `samples` with replacement: more clients than data, at the cost of reuse."""
    if clients < 1 or samples < 1:
        raise UserError(f"bootstrap needs at least 1 client and 1 sample, not {clients} and {samples}")
    require_memory(f"bootstrap:{samples} for {clients} clients", 8 * samples * clients)
    draws = (stream(seed, "bootstrap", i).integers(0, labels.size, samples) for i in range(clients))
    return make(f"bootstrap:{samples}", draws)


def from_file(labels: Indices, clients: int, path: str | Path) -> Partition:
    """A JSON list with one list of sample positions per client."""
    try:
        with not_too_deep(Path(path), "JSON"):
            lists = json.loads(read_text_file(Path(path)))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(lists, list) or len(lists) != clients:
        raise UserError(f"{path}: must be a JSON list of {clients} lists, one per client")
    for i, entry in enumerate(lists):
        if not isinstance(entry, list) or not entry or any(type(k) is not int for k in entry):
            raise UserError(f"{path}: client {i} must have a list of at least one sample position")
        if min(entry) < 0 or max(entry) >= labels.size:
            raise UserError(f"{path}: client {i} has positions outside [0, {labels.size})")
    parts = [np.asarray(entry, dtype=np.int64) for entry in lists]
    uses = np.bincount(np.concatenate(parts), minlength=labels.size)
    if bool((uses != 1).any()):
        k = int(np.flatnonzero(uses != 1)[0])
        raise UserError(f"{path}: sample {k} is used {uses[k]} times; each must be used once")
    return make("from_file", parts)


@PARTITIONS.add("from_file")
def _from_file(labels: Indices, clients: int, seed: int, path: str) -> Partition:
    """A JSON list with one list of sample numbers per client."""
    return from_file(labels, clients, path)


def _shuffled(samples: int, seed: int) -> Indices:
    return stream(seed, "partition").permutation(samples)


def _pools(labels: Indices, seed: int, classes: int | None) -> list[Indices]:
    """The samples of each class, shuffled."""
    classes = int(labels.max()) + 1 if classes is None else classes
    order = _shuffled(labels.size, seed)
    return [order[labels[order] == k] for k in range(classes)]


def _take(pools: list[Indices], k: int, quota: int) -> list[Indices]:
    """`quota` samples of class k, then of the classes after it; what is taken leaves the pools."""
    taken: list[Indices] = []
    for step in range(len(pools)):
        pool = (k + step) % len(pools)
        piece, pools[pool] = pools[pool][:quota], pools[pool][quota:]
        taken.append(piece)
        quota -= piece.size
        if quota == 0:
            break
    return taken


def _check_supply(supply: list[int], own: list[int], sizes: list[int], degree: float) -> None:
    """Every class must have what its clients want of it; if not, name the degree that would do."""
    c = len(supply)
    short = [k for k in range(c) if sum(own[k::c]) > supply[k]]
    if short:
        k = short[0]
        most = min(supply[k] / sum(sizes[k::c]) for k in short)
        raise UserError(
            f"label_skew: clients want {sum(own[k::c])} samples of label {k}, there are {supply[k]}; "
            f"a degree of at most {int(most * 1000) / 1000:g} is possible here, not {degree:g}"
        )


def _nobody_empty(parts: list[Indices]) -> list[Indices]:
    sizes = np.array([part.size for part in parts])
    for i in np.flatnonzero(sizes == 0):
        richest = int(sizes.argmax())
        parts[i], parts[richest] = parts[richest][:1], parts[richest][1:]
        sizes[i], sizes[richest] = 1, sizes[richest] - 1
    return parts
