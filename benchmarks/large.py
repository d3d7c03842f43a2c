"""The host's part of one live step of a large model, in copies of the model; and live rings of ResNet-18.

    python benchmarks/large.py [--steps 15] [--millions 0.1 1 11.2 23.5] [--rings] [--gradients]

Part 1: one client of a ring in this process, whose two neighbours have published, takes steps of SWIFT C_0
with momentum over shared memory. Its module has 20 layers and running buffers, and a loss whose gradient is
next to nothing, so that what is left is the host's part: publish; the gradient, without what bare autograd
takes (the model into the module, the gradient out of it); fetch and mix; and the rest (update rule, move,
check, bookkeeping). CPU time of this thread, medians over the steps, each taken in turn with one copy of
the model: what else runs on the machine slows both. Target at 11.2 million: 8 copies in all, 1.1 to publish.

Part 2 (`--rings`): real gradients, a process per client: 16 clients with thin ResNet-18, 4 with the
real one, against the same steps without communication. Target: 1.05.

`--gradients`, alone: ways to have the gradient in one vector, each with its own module, in turn: CPU time
(medians), the most memory that torch holds meanwhile in copies of the model, and whether the bits are those
of the first way.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import mean

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

import swiftfl
from live import Alone
from swiftfl.algorithm import Algorithm
from swiftfl.algorithms import Swift
from swiftfl.data.synthetic import synthetic
from swiftfl.engines import Setup
from swiftfl.engines.live.by_hand import first_client
from swiftfl.engines.live.client import LiveClient
from swiftfl.experiment.build import build
from swiftfl.experiment.recipes import recipe
from swiftfl.graph import communication_coefficients
from swiftfl.recycled import like
from swiftfl.reproduce.live_baseline import Spent, run_locally
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch
from swiftfl.schedule import constant, every
from swiftfl.vector import Vector
from swiftfl.verbs import Fetch, Gradient, Mix, Publish, Verb
from swiftfl.workload.collected import CollectedGradient
from swiftfl.workload.flat import layout
from swiftfl.workload.memory import keep_freed_memory
from swiftfl.workload.models import model as model_of
from swiftfl.workload.module import ModuleWorkload

LAYERS = 20
PARTS = {Publish: "publish", Gradient: "gradient", Fetch: "mix", Mix: "mix"}


class Layers(nn.Module):
    """So many parameters in layers of equal size, and a normalisation that has running buffers."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.layers = nn.ParameterList(
            [nn.Parameter(torch.zeros(parameters // LAYERS)) for _ in range(LAYERS)]
        )
        self.norm = nn.BatchNorm1d(8)


def nearly_nothing(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A loss of one number of each layer: what its gradient costs is memory that is set to 0."""
    assert isinstance(model, Layers)
    picked = torch.stack([layer[:1].sum() for layer in model.layers]).sum()
    total: Tensor = picked + model.norm(batch[0]).sum()
    return total


class Few:
    """The same four samples at each step."""

    steps_per_epoch = 1 << 30

    def __call__(self, c: int) -> Batch:
        return Batch(0, c, np.arange(4))


def timed(act: Callable[[], object]) -> float:
    began = time.thread_time()
    act()
    return time.thread_time() - began


def one_client(parameters: int) -> tuple[LiveClient, Callable[[], object]]:
    """A client whose neighbours have published, and what bare autograd does for a gradient."""
    data = synthetic(64, (8,), 2, seed=0)
    workload = ModuleWorkload(lambda: Layers(parameters), data, loss=nearly_nothing)
    coefficients = communication_coefficients(swiftfl.ring(4), None, "ccs")
    weights = [coefficients.weights(i) for i in range(4)]
    batches, influence = [Few() for _ in range(4)], [0.25] * 4
    setup = Setup(
        Swift(every(0), SgdRule(0.9)), workload, weights, batches, constant(0.1), influence, epochs=1
    )
    alone = Layers(parameters).train()
    inputs, owned = torch.randn(4, 8), list(alone.parameters())
    return first_client(setup), lambda: torch.autograd.grad(nearly_nothing(alone, (inputs, inputs)), owned)


def host_part(parameters: int, steps: int) -> None:
    """Print one row."""
    client, bare = one_client(parameters)
    spent: defaultdict[str, float] = defaultdict(float)

    def metered(serve: Callable[[object], object], part: str) -> Callable[[object], object]:
        def metered_serve(verb: object) -> object:
            began = time.thread_time()
            reply = serve(verb)
            spent[part] += time.thread_time() - began
            return reply

        return metered_serve

    for verb, part in PARTS.items():
        client.server._serve[verb] = metered(client.server._serve[verb], part)
    x, to = client.state.x.copy(), np.zeros_like(client.state.x)
    taken: defaultdict[str, list[float]] = defaultdict(list)
    with np.errstate(all="ignore"):
        for step in range(steps + 3):
            spent.clear()
            row = {"copy": timed(lambda: np.copyto(to, x)), "bare": timed(bare), "step": timed(client.step)}
            for name, seconds in {**row, **spent}.items():
                if step >= 3:  # the first touch memory that will be used again
                    taken[name].append(seconds)
    middle = {name: statistics.median(values) for name, values in taken.items()}
    parts = {part: middle[part] for part in ("publish", "gradient", "mix")}
    parts["rest"] = middle["step"] - sum(parts.values())
    parts["gradient"] -= middle["bare"]
    parts["all"] = sum(parts.values())
    copies = "".join(f"{seconds / middle['copy']:9.2f}" for seconds in parts.values())
    milliseconds = "".join(f"{1e3 * seconds:9.2f}" for seconds in parts.values())
    print(f"{parameters / 1e6:6.1f} {1e3 * middle['copy']:8.3f}{copies}   {milliseconds}", flush=True)


def ring(clients: int, model: str, batch: int, samples: int) -> None:
    """Print what a ring of live clients spends against the same steps without communication."""
    data = {"samples": samples, "shape": [3, 32, 32], "classes": 10}
    changes = {
        "data.options": data,
        "data.batch_size": batch,
        "model.name": model,
        "engine.name": "local",
        "engine.epochs": 1,
        "topology.clients": clients,
    }
    setup = build(recipe("synthetic").with_changes(changes)).setup
    rule = SgdRule(0.9)
    ways: dict[str, Algorithm[Verb]] = {
        "floor": Alone(rule),
        "SWIFT C_0": Swift(every(0), rule),
        "floor again": Alone(rule),
    }
    rows: dict[str, Spent] = {}
    steps = setup.batches[0].steps_per_epoch
    size = setup.workload.parameters + setup.workload.buffers
    print(f"\n{clients} clients, ring, {model} ({size:,} numbers), {steps} steps of {batch}")
    coefficients = communication_coefficients(swiftfl.ring(clients), None, "ccs")
    weights = [coefficients.weights(i) for i in range(clients)]
    for name, algorithm in ways.items():
        rows[name] = run_locally(replace(setup, algorithm=algorithm, weights=weights, network=None))
        row = rows[name]
        each = [1e3 * part / steps for part in (row.total, row.communication, row.cpu)]
        told = f"ms per step {each[0]:9.1f}  communication {each[1]:7.2f}  CPU {each[2]:9.1f}"
        print(f"{name:12} {told}", flush=True)
    floor = [rows["floor"], rows["floor again"]]
    spent = rows["SWIFT C_0"]
    ratio, of_cpu = spent.total / mean(row.total for row in floor), spent.cpu / mean(row.cpu for row in floor)
    print(f"SWIFT C_0 against the floors: time {ratio:.3f}, CPU {of_cpu:.3f}")


Loss = Callable[[nn.Module], Tensor]
Take = Callable[[Vector], Vector]
"""The gradient of a module at its present values; like this vector, which has its size."""


def joined(module: nn.Module, loss: Loss) -> Take:
    """As workloads did it before: all pieces, then one vector of them, whose tail for buffers is 0."""
    owned, count = list(module.parameters()), layout(module).trainable

    def take(x: Vector) -> Vector:
        grads = torch.autograd.grad(loss(module), owned, allow_unused=True, materialize_grads=True)
        pieces = [grad.reshape(-1) for grad in grads]
        g = like(x)
        assert pieces[0].device.type == "cpu"
        torch.cat(pieces, out=torch.from_numpy(g)[:count])
        g[count:] = 0
        return g

    return take


def into_views(module: nn.Module, loss: Loss) -> Take:
    """The vector is set to 0, and the backward pass adds to views of it."""
    owned, pieces = list(module.parameters()), layout(module).parameters

    def take(x: Vector) -> Vector:
        g = like(x)
        flat = torch.from_numpy(g).zero_()
        for parameter, piece in zip(owned, pieces, strict=True):
            parameter.grad = flat[piece.start : piece.stop].view(piece.shape)
        torch.autograd.backward(loss(module))
        module.zero_grad()
        return g

    return take


def collected(module: nn.Module, loss: Loss) -> Take:
    """As workloads do it: large pieces are copied while the backward pass goes on, small ones after it."""
    way = CollectedGradient(list(module.parameters()), layout(module).parameters)
    return lambda x: way.of(loss(module), x)


def compare_gradients(name: str, make: Callable[[], nn.Module], loss: Loss, steps: int) -> None:
    """Print a row for each way; each has a module of its own with the same values."""
    ways: dict[str, Take] = {}
    for way in (joined, into_views, collected):
        torch.manual_seed(0)
        ways[way.__name__] = way(make().train(), loss)
    x = np.zeros(layout(make()).trainable, np.float32)
    taken: defaultdict[str, list[float]] = defaultdict(list)
    for step in range(steps + 3):
        order = list(ways)[step % 3 :] + list(ways)[: step % 3]  # whom each comes after matters, too
        for way_name in order:
            seconds = timed(partial(ways[way_name], x))
            if step >= 3:
                taken[way_name].append(seconds)
    first = ways["joined"](x)
    for way_name, take in ways.items():
        held = most_held(partial(take, x))
        bits = "same" if bytes(take(x)) == bytes(first) else "others"
        middle = 1e3 * statistics.median(taken[way_name])
        print(
            f"{name:18} {x.size:12,}  {way_name:12}{middle:9.3f} {held / x.nbytes:9.2f}   {bits}", flush=True
        )


def gradient_ways(steps: int) -> None:
    """Print the comparison: layers with next to no gradient, an MLP, and ResNet-18, whose pass is long."""
    keep_freed_memory()  # as workloads do
    few, images = torch.randn(4, 8), torch.randn(4, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    digits = torch.randn(32, 784)
    print(f"{'module':18} {'parameters':>12}  {'way':12}{'ms':>9} {'held':>9}   bits")
    for size, times in ((100_000, 40), (11_200_000, 1)):
        make = partial(Layers, size)
        compare_gradients("layers", make, lambda m: nearly_nothing(m, (few, few)), times * steps)
    mlp, resnet = model_of("mlp", (784,), 10), model_of("resnet18", (3, 32, 32), 10)
    zeros = torch.zeros(32, dtype=torch.long)
    compare_gradients("mlp", mlp, lambda m: functional.cross_entropy(m(digits), zeros), 40 * steps)
    compare_gradients("resnet18", resnet, lambda m: functional.cross_entropy(m(images), zeros[:4]), steps)


def most_held(act: Callable[[], object]) -> int:
    """Bytes of torch's memory that are held at once, beside what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        act()
    kineto = profiled.profiler
    assert kineto is not None
    assert kineto.kineto_results is not None
    events = [each for each in kineto.kineto_results.events() if each.name() == "[memory]"]
    held: npt.NDArray[np.int64] = np.cumsum(
        [each.nbytes() for each in sorted(events, key=lambda each: each.start_ns())]
    )
    return int(held.max(initial=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--millions", type=float, nargs="*", default=[0.1, 1, 11.2, 23.5])
    parser.add_argument("--rings", action="store_true", help="part 2 as well: some minutes")
    parser.add_argument("--gradients", action="store_true", help="only ways to have a gradient in one vector")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.gradients:
        gradient_ways(given.steps)
        return
    heads = "".join(f"{head:>9}" for head in ("publish", "gradient", "mix", "rest", "all"))
    print("The host's part of one live step (SWIFT C_0 on a ring, momentum): CPU time, medians")
    print(f"{'':15}{'copies of the model':^45}   {'milliseconds':^45}")
    print(f"{'mill.':>6} {'copy ms':>8}{heads}   {heads}")
    for millions in given.millions:
        host_part(int(1e6 * millions), given.steps)
    if given.rings:
        ring(16, "thin_resnet18", batch=16, samples=16 * 16 * 12)
        ring(4, "resnet18", batch=16, samples=4 * 16 * 12)


if __name__ == "__main__":
    main()
