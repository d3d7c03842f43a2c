"""What `swiftfl.Optimizer` does with peers: averages, buffers, unusual parameters, losses, refusals."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from in_process_peers import Shared
from torch import nn

import swiftfl
from swiftfl.errors import UserError
from swiftfl.loop.federation import federation
from swiftfl.loop.meeting import Meeting
from swiftfl.loop.module_vector import ModuleVector
from swiftfl.loop.peer import Peer
from swiftfl.loop.wrapped_rule import WrappedRule
from swiftfl.recycled import Vector, like
from swiftfl.transports import memory

X = torch.linspace(-1, 1, 12).view(6, 2)


def linear(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(2, 1, bias=False)


def optimizer(net: nn.Module, peer: Peer, lr: float = 0.1) -> swiftfl.Optimizer:
    return swiftfl.Optimizer(torch.optim.SGD(net.parameters(), lr=lr), net, peer)


def step(net: nn.Module, opt: torch.optim.Optimizer, scale: float = 1.0) -> None:
    opt.zero_grad()
    (net(X).sum() * scale).backward()
    opt.step()


def test_a_step_averages_then_moves_by_the_gradient_taken_before() -> None:
    """Two clients, weights 1/2 each: x <- (x + y)/2 - lr g(x), and everybody starts from the first model."""
    shared = Shared(federation(2))
    nets = [linear(seed=i) for i in range(2)]
    first = nets[0].weight.detach().clone()
    opts = [optimizer(net, peer) for net, peer in zip(nets, shared.peers(), strict=True)]
    assert torch.equal(nets[1].weight, first)
    g = X.sum(0)
    step(nets[0], opts[0])
    assert torch.allclose(nets[0].weight, first - 0.1 * g)
    step(nets[1], opts[1], scale=3.0)
    assert torch.allclose(nets[1].weight, (2 * first - 0.1 * g) / 2 - 0.3 * g)
    step(nets[0], opts[0], scale=0.0)
    expected = (first - 0.1 * g + (2 * first - 0.1 * g) / 2 - 0.3 * g) / 2
    assert torch.allclose(nets[0].weight, expected)


OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.001),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.001),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_in_steady_state_makes_no_vector(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(x: Vector) -> Vector:  # as real transports do: into memory that is there already
        out = like(x)
        np.copyto(out, x)
        return out

    monkeypatch.setattr(memory, "_copy", copied)
    nets, inputs = [nn.Linear(300, 500) for _ in range(2)], torch.randn(2, 300)
    peers = Shared(federation(2)).peers()
    make = OPTIMIZERS[name]
    opts = [swiftfl.Optimizer(make(net.parameters()), net, p) for net, p in zip(nets, peers, strict=True)]

    def move(i: int) -> None:
        opts[i].zero_grad()
        nets[i](inputs).square().mean().backward()
        opts[i].step()

    for i in (0, 1) * 4:
        move(i)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(3):
            move(0)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 300 * 500 * 4 / 4


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_large_models_move_in_one_pass_with_the_same_bits(
    make: type[torch.optim.Optimizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the parameters straight into the average, or by way of a move: the same model."""

    def trained() -> list[torch.Tensor]:
        torch.manual_seed(3)
        nets = [nn.Sequential(nn.Linear(300, 200), nn.BatchNorm1d(200)) for _ in range(2)]
        inputs = torch.randn(8, 300)
        peers = Shared(federation(2)).peers()
        opts = [
            swiftfl.Optimizer(make(net.parameters(), lr=0.01), net, peer)  # type: ignore[call-arg]
            for net, peer in zip(nets, peers, strict=True)
        ]
        for turn in range(6):
            net, opt = nets[turn % 2], opts[turn % 2]
            opt.zero_grad()
            (net(inputs) ** 2).sum().backward()
            opt.step()
        return [tensor.clone() for net in nets for tensor in net.state_dict().values()]

    passes = []
    own = WrappedRule.moved

    def counted(*given: object) -> object:
        passes.append(own(*given))  # type: ignore[arg-type]
        return passes[-1]

    monkeypatch.setattr(WrappedRule, "moved", counted)
    in_one_pass = trained()
    assert len(passes) == 6
    assert all(found is not None for found in passes)
    monkeypatch.setattr(WrappedRule, "moved", lambda *given: None)
    assert all(map(torch.equal, in_one_pass, trained()))


def test_consensus_is_the_mean_and_training_goes_on_from_it() -> None:
    shared = Shared(federation(3))
    peers, nets = shared.peers(), [linear() for _ in range(3)]
    opts = [optimizer(net, peer) for net, peer in zip(nets, peers, strict=True)]
    for i in range(3):
        step(nets[i], opts[i], scale=float(i))
    mean = torch.stack([net.weight.detach() for net in nets]).mean(0)
    assert peers[0].consensus() == 3
    assert torch.allclose(nets[0].weight, mean)
    model = shared.plan.newest[0][0] if shared.plan is not None else None
    assert np.allclose(model, mean.numpy().ravel())  # the neighbours see it, too
    before = nets[0].weight.detach().clone()
    step(nets[0], opts[0], scale=0.0)
    assert not torch.equal(nets[0].weight, before)  # averaged with the others, who are where they were


def test_a_lost_neighbour_is_left_out_and_nothing_raises_or_waits() -> None:
    shared = Shared(federation(3))
    peers, nets = shared.peers(), [linear() for _ in range(3)]
    opts = [optimizer(net, peer) for net, peer in zip(nets, peers, strict=True)]
    for i in range(3):
        step(nets[i], opts[i], scale=float(10 * i))
    assert peers[0].neighbours == (1, 2)
    assert shared.plan is not None
    shared.plan.mark_gone(1)
    assert peers[0].neighbours == (2,)
    x = [net.weight.detach().clone() for net in nets]
    step(nets[0], opts[0], scale=0.0)
    assert torch.allclose(nets[0].weight, (2 * x[0] + x[2]) / 3)  # its weight stays with client 0
    shared.plan.mark_gone(2)
    before = nets[0].weight.detach().clone()
    step(nets[0], opts[0], scale=0.0)
    assert torch.allclose(nets[0].weight, before)


def test_a_step_that_is_not_finite_is_left_out_and_the_memory_stays() -> None:
    shared = Shared(federation(2))
    net = linear()
    wrapped = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    opt = swiftfl.Optimizer(wrapped, net, shared.peers()[0])
    step(net, opt)
    before, buffer = net.weight.detach().clone(), wrapped.state[net.weight]["momentum_buffer"].clone()
    step(net, opt, scale=float("nan"))
    assert torch.equal(net.weight, before)
    assert torch.equal(wrapped.state[net.weight]["momentum_buffer"], buffer)
    assert "not finite" in shared.links[0].control.warnings[0]
    step(net, opt)
    assert not torch.equal(net.weight, before)


def test_running_statistics_follow_the_average() -> None:
    """(1-m) half + m statistic, half being the average of both clients' buffers; two passes count twice."""
    shared = Shared(federation(2))
    nets = [nn.Sequential(nn.BatchNorm1d(2, momentum=0.25), linear()) for _ in range(2)]
    opts = [optimizer(net, peer) for net, peer in zip(nets, shared.peers(), strict=True)]
    with torch.no_grad():
        nets[1][0].running_mean.copy_(torch.tensor([4.0, 8.0]))  # as if it had seen other data
    nets[1].eval()
    step(nets[1], opts[1])  # publishes that; no pass in training mode
    published = torch.tensor([4.0, 8.0])
    assert torch.equal(nets[1][0].running_mean, published)
    nets[0](X)
    step(nets[0], opts[0])  # the second pass of this step
    batch = X.mean(0)
    half = published / 2  # its own was 0
    once = 0.75 * half + 0.25 * batch
    assert torch.allclose(nets[0][0].running_mean, 0.75 * once + 0.25 * batch, atol=1e-6)


def test_frozen_and_shared_parameters() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.frozen, self.last = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
            self.last.weight = self.first.weight
            self.frozen.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.last(self.frozen(self.first(x)))
            return out

    torch.manual_seed(0)
    nets, shared = [Tied(), Tied()], Shared(federation(2))
    assert ModuleVector(nets[0]).size == 4 + 2 + 2  # one weight, two biases
    frozen = [net.frozen.weight.detach().clone() for net in nets]
    assert ModuleVector(nets[0]).frozen() != ModuleVector(nets[1]).frozen()
    opts = [optimizer(net, peer) for net, peer in zip(nets, shared.peers(), strict=True)]
    for net, opt in zip(nets, opts, strict=True):
        step(net, opt)
    for net, kept in zip(nets, frozen, strict=True):
        assert torch.equal(net.frozen.weight, kept)
        assert net.last.weight is net.first.weight
    nets[0].frozen.requires_grad_(True)
    with pytest.raises(UserError, match=r"was frozen when swiftfl.Optimizer was made"):
        step(nets[0], opts[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_averaged_in_float32(dtype: torch.dtype) -> None:
    shared = Shared(federation(2))
    nets = [linear().to(dtype) for _ in range(2)]
    with torch.no_grad():
        nets[0].weight.fill_(1.0)
    opts = [optimizer(net, peer, lr=1.0) for net, peer in zip(nets, shared.peers(), strict=True)]
    nets[1].weight.grad = torch.full_like(nets[1].weight, 2.0**-8)
    opts[1].step()  # 1 - 2^-8 fits
    assert shared.plan is not None
    assert shared.plan.newest[0][0].dtype == np.float32
    nets[0].weight.grad = torch.zeros_like(nets[0].weight)
    opts[0].step()
    assert shared.plan.newest[0][0].tolist() == [1 - 2.0**-9] * 2  # which bfloat16 cannot hold
    assert nets[0].weight.dtype == dtype


def test_what_others_do_to_the_parameters_survives() -> None:
    """A model that is changed between two steps (a checkpoint that is loaded, a clamp) is not undone."""
    shared = Shared(federation(2))
    net = linear()
    opt = optimizer(net, shared.peers()[0])
    first = net.weight.detach().clone()
    net.load_state_dict({"weight": first + 8})
    step(net, opt, scale=0.0)
    assert torch.allclose(net.weight, first + 8)


def test_waiting_algorithms_can_be_driven() -> None:
    """D-SGD with two clients is the average of both after each step: the same model for both."""
    shared = Shared(federation(2, algorithm="dsgd"))
    nets = [linear() for _ in range(2)]
    opts = [optimizer(net, peer) for net, peer in zip(nets, shared.peers(), strict=True)]
    first, g = nets[0].weight.detach().clone(), X.sum(0)

    def train(i: int) -> None:
        for _ in range(3):
            step(nets[i], opts[i], scale=1.0 + i)

    threads = [threading.Thread(target=train, args=(i,), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for net in nets:
        assert torch.allclose(net.weight, first - 3 * 0.15 * g, atol=1e-5)


def test_a_closed_peer_leaves_the_wrapped_optimizer() -> None:
    shared = Shared(federation(2))
    peer = shared.peers()[0]
    net, plain = linear(), linear()
    opt = optimizer(net, peer)
    peer.close()
    peer.close()
    assert shared.links[0].closed
    assert shared.plan is not None
    assert 0 in shared.plan.finished
    step(net, opt)
    step(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    assert torch.equal(net.weight, plain.weight)


def test_refusals() -> None:
    peer = Shared(federation(2)).peers()[0]
    net, other = linear(), linear()
    with pytest.raises(UserError, match="LBFGS learns the curvature"):
        swiftfl.Optimizer(torch.optim.LBFGS(net.parameters()), net, peer)
    with pytest.raises(UserError, match="moves no parameter of Linear"):
        optimizer(other, peer) and swiftfl.Optimizer(torch.optim.SGD(net.parameters()), other, peer)
    peer = Shared(federation(2)).peers()[0]
    opt = optimizer(net, peer)
    with pytest.raises(UserError, match=r"one swiftfl.Optimizer per process"):
        optimizer(net, peer)
    with pytest.raises(UserError, match=r"a parameter of shape \(3,\) is not among those"):
        opt.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    with pytest.raises(UserError, match="give it seconds above 0"):
        peer.consensus(timeout=0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"topology": "rign"}, "did you mean ring"),
        ({"algorithm": "swfit"}, "did you mean swift"),
        ({"weights": "css"}, "did you mean ccs"),
        ({"algorithm": "swift:speed=2"}, "algorithm speed: there is no such setting"),
        ({"topology": [(0, 1)]}, "connected"),
        ({"topology": swiftfl.ring(5)}, "the topology has 5 clients, and 4 were started"),
        ({"topology": 3}, "topology must be a name, a file, a graph or edges, not int"),
    ],
)
def test_a_federation_that_cannot_be(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        federation(4, **arguments)  # type: ignore[arg-type]


def test_a_meeting_is_of_all_who_are_there_or_of_those_who_came_in_time() -> None:
    now, said = [0.0], []
    meeting = Meeting(said.append, lambda: now[0])
    assert meeting.due({0, 1}) == []
    meeting.come(1, 60)
    assert meeting.due({0, 1, 2}) == []
    now[0] = 11.0
    assert meeting.due({0, 1, 2}) == []
    assert said == ["swiftfl: consensus() waits for clients 0, 2"]
    meeting.come(0, 60)
    assert meeting.due({0, 1}) == [0, 1]  # client 2 was lost
    meeting.come(1, 60)
    meeting.come(2, 60)
    meeting.leave(2)
    now[0] = 72.0
    assert meeting.due({0, 1}) == [1]
    assert "without client 0" in said[-1]
