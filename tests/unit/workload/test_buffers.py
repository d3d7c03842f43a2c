import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from swiftfl.data.batches import Batches
from swiftfl.data.digits import digits
from swiftfl.errors import UserError
from swiftfl.vector import advance
from swiftfl.workload.module import ModuleWorkload

DIGITS = digits()


class Centred(nn.Module):
    """An own EMA, assigned anew or written in place, and a constant and a counter beside it."""

    def __init__(self, in_place=True, late=None):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(64), nn.Linear(64, 10)
        self.in_place, self.late = in_place, late
        self.register_buffer("scale", torch.ones(64))
        self.register_buffer("ema", torch.zeros(64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.calls = 0

    def forward(self, x):
        if self.training:
            self.calls += 1
            self.steps += 1
            if self.in_place:
                self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1)
            else:
                self.ema = 0.9 * self.ema + 0.1 * x.mean(0)
            if self.calls == self.late:
                self.scale.mul_(2)
        return self.head(self.norm(x * self.scale) - self.ema)


def clients(workload, count):
    xs = [workload.initial(0) + np.float32(0.001 * k) for k in range(count)]
    return xs, [Batches(np.arange(40 * k, 40 * k + 40), 16, 0, k)(1) for k in range(count)]


@pytest.mark.parametrize("in_place", [True, False])
def test_an_own_floating_buffer_is_carried(in_place):
    workload = ModuleWorkload(lambda: Centred(in_place), DIGITS, batching="on")
    assert (workload.parameters, workload.buffers) == (128 + 650, 128 + 64)
    torch.manual_seed(0)
    module, x = Centred(in_place), workload.initial(3)
    nn.utils.vector_to_parameters(torch.from_numpy(x[: workload.parameters].copy()), module.parameters())
    for c in range(1, 6):
        batch = Batches(np.arange(100), 32, seed=0, client=0)(c)
        slope = workload.gradient(x, batch)
        x = advance(x, -0.1 * slope.g, slope.statistics)
        module.zero_grad()
        inputs, labels = DIGITS.train_inputs[batch.indices], DIGITS.train_labels[batch.indices]
        nn.functional.cross_entropy(module(inputs), labels).backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad
        expected = torch.cat([module.norm.running_mean, module.norm.running_var, module.ema])
        np.testing.assert_allclose(x[workload.parameters :], expected.numpy(), rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(module.eval()(DIGITS.test_inputs), DIGITS.test_labels).item()
    assert workload.evaluate([x])[0].loss == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize(
    "factory",
    [
        Centred,
        lambda: Centred(in_place=False),
        lambda: spectral_norm(nn.Linear(64, 10)),
        lambda: torch.nn.utils.spectral_norm(nn.Linear(64, 10)),
    ],
)
def test_clients_do_not_share_them_and_take_the_loop(factory):
    workload = ModuleWorkload(factory, DIGITS, batching="on")
    xs, batches = clients(workload, 4)
    slopes = workload.gradients(xs, batches)
    workload.evaluate(xs)
    for x, batch, slope in zip(xs, batches, slopes, strict=True):
        again = workload.gradient(x, batch)
        assert (again.g == slope.g).all()
        assert (again.statistics.values == slope.statistics.values).all()
    assert workload.choices()["form"] is None
    assert "changes the buffer" in workload.choices()["reason"]


class Counting(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.steps += 1
        return super().forward(x) * self.steps


def test_an_integer_counter_is_left_out():
    workload = ModuleWorkload(Counting, DIGITS)
    xs, batches = clients(workload, 2)
    assert workload.buffers == 0
    first = workload.gradient(xs[0], batches[0])
    workload.evaluate(xs)
    assert (workload.gradient(xs[0], batches[0]).g == first.g).all()
    assert "changes the buffer steps" in workload.choices()["reason"]


def test_a_buffer_that_changes_later_is_named():
    workload = ModuleWorkload(lambda: Centred(late=3), DIGITS)
    xs, batches = clients(workload, 1)
    workload.gradient(xs[0], batches[0])
    workload.gradient(xs[0], batches[0])
    with pytest.raises(UserError, match="buffer scale begins to change after the first"):
        workload.gradient(xs[0], batches[0])


def test_a_buffer_that_stays_is_not_in_the_vector():
    def factory():
        module = nn.Sequential(nn.Linear(64, 10), nn.Softplus())
        module.register_buffer("constant", torch.ones(5))
        return module

    workload = ModuleWorkload(factory, DIGITS, batching="on")
    xs, batches = clients(workload, 2)
    workload.gradients(xs, batches)
    assert (workload.buffers, workload.choices()["form"]) == (0, "vmap")
