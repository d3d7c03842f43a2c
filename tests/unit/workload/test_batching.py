"""Gradients taken together equal those taken one by one."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from swiftfl.data.augment import Augment
from swiftfl.data.batches import Batches
from swiftfl.data.digits import digits
from swiftfl.data.synthetic import synthetic
from swiftfl.errors import UserError
from swiftfl.workload.choice import Choice
from swiftfl.workload.models import model
from swiftfl.workload.module import ModuleWorkload

DIGITS = digits()
IMAGES = synthetic(60, (1, 12, 12), 10, seed=1)


def normalised():
    return nn.Sequential(nn.Linear(64, 12), nn.BatchNorm1d(12, momentum=0.3), nn.ReLU(), nn.Linear(12, 10))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.code = nn.Linear(64, 64, bias=False)
        self.decode = nn.Linear(64, 64, bias=False)
        self.decode.weight = self.code.weight
        self.head = nn.Linear(64, 10)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.decode(torch.tanh(self.code(x))))


def deep():
    layers = [
        nn.Identity(),
        nn.Linear(64, 9, bias=False),
        nn.Tanh(),
        nn.Sequential(nn.Linear(9, 8), nn.ReLU()),
    ]
    return nn.Sequential(*layers, nn.Linear(8, 11))


def dropping():
    layers = [nn.Dropout(0.2), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(nn.Sequential(*layers), nn.Linear(12, 10))


def dropping_channels():
    layers = [nn.Conv2d(1, 6, 3), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(600, 10)]
    return nn.Sequential(*layers)


class Forgetful(nn.Linear):
    def forward(self, x):
        return super().forward(functional.dropout(x, 0.5))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.line = nn.Dropout(0.5), nn.Linear(64, 10)

    def forward(self, x):
        return self.drop(self.line(self.drop(x)))


def square(outputs, labels):
    return ((outputs - functional.one_hot(labels, outputs.shape[1])) ** 2).mean()


def clients(workload, count, batch_size=32, counter=1):
    start = workload.initial(0)
    draw = np.random.default_rng(0)
    xs = [start + draw.normal(0, 0.05, start.size).astype(start.dtype) for _ in range(count)]
    for x in xs:
        x[workload.parameters :] = np.abs(x[workload.parameters :]) + 0.5
    own = np.array_split(np.arange(workload.dataset.size), count)
    return xs, [Batches(own[i], batch_size, 0, i)(counter) for i in range(count)]


CASES = {
    "logistic": (model("logistic", (64,), 10), DIGITS, {}, "by hand"),
    "mlp": (model("mlp", (64,), 10), DIGITS, {}, "by hand"),
    "deep chain": (deep, DIGITS, {}, "by hand"),
    "logistic on images": (model("logistic", (1, 12, 12), 10), IMAGES, {}, "by hand"),
    "double": (model("mlp", (64,), 10), DIGITS, {"dtype": torch.float64}, "by hand"),
    "own loss": (model("mlp", (64,), 10), DIGITS, {"loss": square}, "vmap"),
    "batch norm": (normalised, DIGITS, {}, "vmap"),
    "tied and unused": (Tied, DIGITS, {}, "vmap"),
    "cnn": (model("cnn", (1, 12, 12), 10, width=4), IMAGES, {}, "vmap"),
    "cnn-batch": (model("cnn", (1, 12, 12), 10, norm="batch", width=4), IMAGES, {}, "vmap"),
    "cnn-group": (model("cnn", (1, 12, 12), 10, norm="group", width=16), IMAGES, {}, "vmap"),
    "dropout": (dropping, DIGITS, {"seed": 5}, "vmap"),
    "dropped channels": (dropping_channels, IMAGES, {}, "vmap"),
    "augmented": (model("cnn", (1, 12, 12), 10, width=4), IMAGES, {"augment": Augment(2)}, "vmap"),
}


@pytest.mark.parametrize("case", CASES)
def test_batched_gradients_equal_the_loop(case):
    factory, data, options, form = CASES[case]
    loop = ModuleWorkload(factory, data, batching="off", **options)
    batched = ModuleWorkload(factory, data, batching="on", **options)
    xs, batches = clients(loop, 7, batch_size=8 if data is IMAGES else 32)
    before = [x.copy() for x in xs]
    expected, got = loop.gradients(xs, batches), batched.gradients(xs, batches)
    assert batched.choices()["form"] == form
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_allclose(other.g, one.g, atol=1e-5)
        assert other.g.dtype == one.g.dtype
        assert other.loss == pytest.approx(one.loss, rel=1e-5)
        assert (one.statistics is None) == (other.statistics is None)
        if one.statistics is not None:
            np.testing.assert_allclose(other.statistics.values, one.statistics.values, rtol=1e-4, atol=1e-5)
            assert np.all(other.statistics.rate == one.statistics.rate)
    assert all((x == y).all() for x, y in zip(xs, before, strict=True))
    for one, other in zip(loop.evaluate(xs), batched.evaluate(xs), strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-5)
        assert other.accuracy == one.accuracy


@pytest.mark.parametrize("factory", [model("mlp", (64,), 10), normalised])
def test_unequal_batches_and_many_chunks(factory):
    loop = ModuleWorkload(factory, DIGITS, batching="off")
    batched = ModuleWorkload(factory, DIGITS, batching="on")
    xs, full = clients(loop, 300, batch_size=3)
    _, last = clients(loop, 300, batch_size=3, counter=2)  # 4 or 5 samples each: the rest is 1 or 2
    mixed = [a if i % 3 else b for i, (a, b) in enumerate(zip(full, last, strict=True))]
    mixed = [b if b.indices.size > 1 else a for a, b in zip(full, mixed, strict=True)]  # BatchNorm needs 2
    assert len({b.indices.size for b in mixed}) == 2
    for one, other in zip(loop.gradients(xs, mixed), batched.gradients(xs, mixed), strict=True):
        np.testing.assert_allclose(other.g, one.g, atol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 3, 16, 31, 32])
@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][3] == "by hand"])
def test_by_hand_a_gradient_has_the_same_bits_in_any_company(case, batch_size):
    """So that helpers may compute whoever is parked, whatever group that is (`Form.separable`)."""
    factory, data, options, _ = CASES[case]
    batched = ModuleWorkload(factory, data, **options)
    xs, batches = clients(batched, 64 if data is DIGITS else 15, batch_size=1)
    draw = np.random.default_rng(1)
    for batch in batches:
        batch.indices = draw.choice(data.size, batch_size, replace=False)
    assert not batched.separable  # not known before the first group
    together = batched.gradients(xs, batches)
    assert batched.separable
    for size in (1, 2, 3, 4, 8, 25, 63):
        for start in range(0, len(xs), size):
            some = slice(start, start + size)
            apart = batched.piece("batched", xs[some], batches[some])
            for alone, one in zip(apart, together[some], strict=True):
                assert alone.g.tobytes() == one.g.tobytes()
                assert alone.loss == one.loss


def test_which_gradients_depend_on_their_group():
    """By vmap, and where loop or batch is a question of size."""
    for factory, batching, separable in (
        (model("mlp", (64,), 10), "auto", True),
        (model("mlp", (64,), 10), "off", True),
        (model("mlp", (64,), 10), "measure", False),
        (model("mlp", (64,), 10), {"4": "loop"}, False),
        (normalised, "on", False),
        (normalised, "auto", False),
        (normalised, "off", True),
        (Twice, "auto", True),  # which cannot be batched
    ):
        workload = ModuleWorkload(factory, DIGITS, batching=batching)
        xs, batches = clients(workload, 20)
        workload.gradients(xs, batches)
        assert workload.separable == separable, (factory, batching)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("factory", [model("mlp", (64,), 10), normalised])
@pytest.mark.parametrize("bad", [np.inf, np.nan, 1e30])
def test_a_diverged_client_disturbs_nobody_and_warns_nobody(factory, bad):
    batched = ModuleWorkload(factory, DIGITS, batching="on")
    xs, batches = clients(batched, 5)
    good = batched.gradients(xs, batches)
    xs[2] = np.full_like(xs[2], bad)
    slopes = batched.gradients(xs, batches)
    single = batched.gradient(xs[2], batches[2])
    assert np.isfinite(slopes[2].loss) == np.isfinite(single.loss)
    for k in (0, 1, 3, 4):
        np.testing.assert_allclose(slopes[k].g, good[k].g, atol=1e-6)
    assert not np.isfinite(batched.evaluate(xs)[2].loss) or bad == 1e30


def test_off_is_the_loop_bit_for_bit():
    workload = ModuleWorkload(model("mlp", (64,), 10), DIGITS, batching="off")
    xs, batches = clients(workload, 3)
    for x, batch, slope in zip(xs, batches, workload.gradients(xs, batches), strict=True):
        single = workload.gradient(x, batch)
        assert (single.g == slope.g).all()
        assert single.loss == slope.loss
    assert workload.gradients([], []) == []


def test_auto_asks_no_clock():
    """The same seed gives the same run: which way a group goes depends on the model and its size only."""
    by_hand = ModuleWorkload(model("mlp", (64,), 10), DIGITS)
    xs, batches = clients(by_hand, 20)
    for count in (1, 3, 20):
        together = by_hand._form().gradients(xs[:count], batches[:count])
        slopes = by_hand.gradients(xs[:count], batches[:count])
        assert all((a.g == b.g).all() for a, b in zip(slopes, together, strict=True))
    assert by_hand.choices()["speedups"] == {}
    assert [Choice("auto", bar=1.15).known(n) for n in (1, 15, 16, 400)] == [
        "loop",
        "loop",
        "batched",
        "batched",
    ]


def test_measuring_is_once_per_group_size_and_can_be_repeated():
    workload = ModuleWorkload(model("logistic", (64,), 10), DIGITS, batching="measure")
    xs, batches = clients(workload, 40)
    workload.gradients(xs, batches)
    workload.gradients(xs[:5], batches[:5])
    choices = json.loads(json.dumps(workload.choices()))
    assert set(choices["groups"]) == {"32", "4"}
    assert choices["speedups"]["32"] > 0
    again = ModuleWorkload(model("logistic", (64,), 10), DIGITS, batching=choices["groups"])
    expected = workload.gradients(xs, batches)
    assert all((a.g == b.g).all() for a, b in zip(again.gradients(xs, batches), expected, strict=True))
    assert again.choices()["groups"] == choices["groups"]


class Undecided(nn.Linear):
    def forward(self, x):
        return (
            super().forward(x)
            if float((x.sum() + self.weight.sum()).detach()) > 0
            else super().forward(2 * x)
        )


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (lambda: Forgetful(64, 10), "draws random numbers"),
        (Twice, "a dropout layer is used twice"),
        (lambda: Undecided(64, 10), "vmap refuses it"),
    ],
)
def test_what_cannot_be_batched_falls_back_and_says_so(factory, reason):
    workload = ModuleWorkload(factory, DIGITS, batching="on")
    xs, batches = clients(workload, 3)
    slopes = workload.gradients(xs, batches)
    assert (slopes[1].g == workload.gradient(xs[1], batches[1]).g).all()
    assert reason in workload.choices()["reason"]
    assert workload.choices()["form"] is None
    assert len(workload.evaluate(xs)) == 3


def test_large_models_are_not_even_measured():
    data = synthetic(64, (3, 32, 32), 10)
    workload = ModuleWorkload(model("thin_resnet18", data.shape, 10), data, batching="measure")
    x, batch = workload.initial(0), Batches(np.arange(32), 16, 0, 0)(1)
    assert len(workload.evaluate([x, x])) == 2
    assert len(workload.gradients([x], [batch])) == 1
    assert "so that there is no overhead to save" in workload.choices()["reason"]
    assert workload.choices()["speedups"] == {}


def test_evaluation_is_measured_once_per_size():
    workload = ModuleWorkload(model("logistic", (64,), 10), DIGITS, batching="measure")
    xs, _ = clients(workload, 100)
    workload.evaluate(xs)
    seen = dict(workload._group._evaluation.speedups)
    assert set(seen) == {"64"}
    workload.evaluate(xs)
    assert workload._group._evaluation.speedups == seen


def test_choice_prefers_the_safe_side_of_its_bar():
    choice = Choice("measure", bar=1.15)
    assert choice.known(100) is None
    assert choice.settle(100, 1.1) == "loop"
    assert choice.settle(16, 1.2) == "batched"
    assert (choice.known(127), choice.known(31), choice.known(128)) == ("loop", "batched", None)
    for bad in ("yes", {"4": "maybe"}):
        with pytest.raises(UserError, match="must be"):
            Choice(bad, 1.0)
