"""With no peer, `swiftfl.Optimizer` is the wrapped optimizer, bit for bit; and it is a torch optimizer."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

import swiftfl
from swiftfl.errors import UserError
from swiftfl.loop.peer import Peer

Make = Callable[[nn.Module], torch.optim.Optimizer]

MAKES: dict[str, Make] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3),
    "nesterov": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "foreach": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, foreach=True),
    "fused": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, fused=True),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=1e-2),
    "adam-fused": lambda m: torch.optim.Adam(m.parameters(), lr=1e-2, fused=True),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.1),
    "groups": lambda m: torch.optim.AdamW(
        [{"params": m[0].parameters(), "lr": 1e-3}, {"params": m[2].parameters()}]
    ),
}


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def train(
    net: nn.Module, optimizer: torch.optim.Optimizer, closure: bool = False, schedule: bool = False
) -> None:
    torch.manual_seed(1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5) if schedule else None
    for _ in range(8):
        x, y = torch.randn(16, 4), torch.randint(3, (16,))

        def loss(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            optimizer.zero_grad()
            value = nn.functional.cross_entropy(net(x), y)
            value.backward()
            return value

        if closure:
            assert optimizer.step(loss) is not None
        else:
            loss()
            optimizer.step()
        if scheduler is not None:
            scheduler.step()


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(
        torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize("closure", [False, True])
def test_alone_it_is_the_wrapped_optimizer_bit_for_bit(name: str, closure: bool) -> None:
    plain, own = model(), model()
    train(plain, MAKES[name](plain), closure, schedule=True)
    train(own, swiftfl.Optimizer(MAKES[name](own), own, Peer()), closure, schedule=True)
    assert same(plain, own)
    assert not same(plain, model())


def test_lbfgs_works_alone() -> None:
    plain, own = model(), model()
    train(plain, torch.optim.LBFGS(plain.parameters(), lr=0.1), closure=True)
    train(own, swiftfl.Optimizer(torch.optim.LBFGS(own.parameters(), lr=0.1), own, Peer()), closure=True)
    assert same(plain, own)


def test_join_without_a_launcher_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SWIFTFL_LAUNCHED"):
        monkeypatch.delenv(name, raising=False)
    peer = swiftfl.join()
    assert (peer.rank, peer.n, peer.neighbours, peer.consensus()) == (0, 1, (), 1)
    assert swiftfl.join() is peer
    with peer:
        pass
    peer.close()


def test_it_is_a_torch_optimizer_with_the_groups_and_the_state_of_the_wrapped_one() -> None:
    net = model()
    wrapped = torch.optim.AdamW(net.parameters(), lr=1e-2)
    optimizer = swiftfl.Optimizer(wrapped, net, Peer())
    assert isinstance(optimizer, torch.optim.Optimizer)
    train(net, optimizer)
    assert optimizer.param_groups is wrapped.param_groups
    assert optimizer.state is wrapped.state
    assert len(optimizer.state) == 4
    optimizer.param_groups[0]["lr"] = 0.5
    assert wrapped.param_groups[0]["lr"] == 0.5

    saved = copy.deepcopy(optimizer.state_dict())
    again = swiftfl.Optimizer(torch.optim.AdamW(net.parameters()), net, Peer())
    again.load_state_dict(saved)
    assert again.param_groups[0]["lr"] == 0.5
    assert again.state_dict()["state"][0]["step"] == saved["state"][0]["step"] == 8
    plain = torch.optim.AdamW(net.parameters())
    plain.load_state_dict(saved)  # a checkpoint is the same with and without swiftfl

    extra = nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [extra], "lr": 0.1})
    assert wrapped.param_groups[1]["params"][0] is extra


def test_hooks_and_zero_grad() -> None:
    net, seen = model(), []
    optimizer = swiftfl.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1), net, Peer())
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.register_state_dict_pre_hook(lambda *_: seen.append("state"))
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.state_dict()
    assert seen == ["before", "after", "state"]
    assert all(p.grad is None for p in net.parameters())


def test_a_gradient_scaler_takes_it() -> None:
    plain, own = model(), model()
    for net, wrap in ((plain, False), (own, True)):
        wrapped = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer = swiftfl.Optimizer(wrapped, net, Peer()) if wrap else wrapped
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step in range(4):
            optimizer.zero_grad()
            scale = float("inf") if step == 2 else 1.0  # which the scaler leaves out
            scaler.scale(net(torch.ones(2, 4)).sum() * scale).backward()
            scaler.step(optimizer)
            scaler.update()
    assert same(plain, own)


def test_a_schedule_does_not_warn() -> None:
    net = model()
    optimizer = swiftfl.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1), net, Peer())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(net, optimizer, schedule=True)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (lambda net: (0.1, net, Peer()), "optimizer must be a torch.optim.Optimizer, not float"),
        (
            lambda net: (torch.optim.SGD(net.parameters()), "net", Peer()),
            "model must be a torch.nn.Module, not str",
        ),
        (
            lambda net: (torch.optim.SGD(net.parameters()), net, 3),
            "peer must be what swiftfl.join.. gives, not int",
        ),
        (
            lambda net: (torch.optim.SGD(model().parameters()), net, Peer()),
            "optimizer moves no parameter of Sequential: make it from model.parameters",
        ),
    ],
)
def test_wrong_arguments_are_named(
    arguments: Callable[[nn.Module], tuple[object, ...]], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        swiftfl.Optimizer(*arguments(model()))  # type: ignore[arg-type]
