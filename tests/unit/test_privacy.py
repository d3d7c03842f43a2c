"""Gradients that hide a sample: what one sample can change, how much noise there is, what is claimed."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from swiftfl.cli.main import run_command
from swiftfl.data import as_dataset
from swiftfl.data.batches import Batches
from swiftfl.errors import UserError
from swiftfl.sample import Batch
from swiftfl.vector import Vector
from swiftfl.workload.module import ModuleWorkload
from swiftfl.workload.private import Private

pytest.importorskip("opacus", reason="the extra privacy is not installed")

from swiftfl.experiment.accountant import epsilon_spent, spent

pytestmark = pytest.mark.usefixtures("without_pictures")

CLIP = 1.5


def workload(model: torch.nn.Module | None = None, samples: int = 40) -> ModuleWorkload:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 6, generator=draw) * torch.linspace(0.1, 5, samples)[:, None]
    y = (x.sum(dim=1) > 0).long()
    torch.manual_seed(1)
    net = model or torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    return ModuleWorkload(net, as_dataset((x, y), (x, y)))


def batch(*indices: int, counter: int = 1, client: int = 0) -> Batch:
    return Batch(client, counter, np.array(indices, dtype=np.int64))


def by_hand(inner: ModuleWorkload, x: Vector, indices: tuple[int, ...]) -> Vector:
    """One autograd call per sample, and the formula."""
    total = np.zeros(x.size)
    for k in indices:
        g = inner.gradient(x, batch(k)).g.astype(float)
        total += g * min(1.0, CLIP / np.linalg.norm(g))
    return total / len(indices)


def test_clipping_is_by_sample() -> None:
    inner = workload()
    x, some = inner.initial(0), (0, 3, 17, 39, 25)
    slope = Private(inner, CLIP, 0.0, seed=0).gradient(x, batch(*some))
    np.testing.assert_allclose(slope.g, by_hand(inner, x, some), rtol=1e-4, atol=1e-7)
    norms = [np.linalg.norm(inner.gradient(x, batch(k)).g) for k in some]
    assert min(norms) < CLIP < max(norms), "some are clipped and some are not"
    assert slope.loss == pytest.approx(inner.gradient(x, batch(*some)).loss, rel=1e-5)


def test_it_is_the_per_sample_gradient_of_opacus() -> None:
    """Clipped sums of Opacus's own per-sample gradients (GradSampleModule)."""
    grad_sample = pytest.importorskip("opacus.grad_sample")
    inner = workload()
    x, some = inner.initial(0), tuple(range(0, 40, 3))
    net = inner.recorded().module(
        torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)), x
    )
    wrapped = grad_sample.GradSampleModule(net.train(), loss_reduction="sum")
    inputs, labels = inner.dataset.train.inputs[list(some)], inner.dataset.train.labels[list(some)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the hooks of Opacus
        torch.nn.functional.cross_entropy(wrapped(inputs), labels, reduction="sum").backward()
    each = torch.cat([p.grad_sample.flatten(1) for p in wrapped.parameters()], dim=1).double().numpy()
    norms = np.linalg.norm(each, axis=1, keepdims=True)
    expected = (each * np.minimum(1, CLIP / norms)).mean(axis=0)
    found = Private(inner, CLIP, 0.0, seed=0).gradient(x, batch(*some)).g
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_one_sample_moves_the_sum_by_at_most_the_clipping_norm() -> None:
    """Also one whose gradient is not a number, which would otherwise move it without bound."""
    inner = workload()
    private, x = Private(inner, CLIP, 0.0, seed=0), inner.initial(0)
    rest = (1, 2, 3, 4, 5)
    without = private.gradient(x, batch(*rest)).g.astype(float) * 5
    for k in (0, 10, 38, 39):
        with_it = private.gradient(x, batch(*rest, k)).g.astype(float) * 6
        assert np.linalg.norm(with_it - without) <= CLIP * (1 + 1e-5)
    inner.dataset.train.inputs[7] = math.nan
    with_it = private.gradient(x, batch(*rest, 7)).g.astype(float) * 6
    np.testing.assert_allclose(with_it, without, atol=1e-5)


def test_the_noise_has_the_standard_deviation_that_is_accounted_for() -> None:
    inner, noise, size = workload(), 1.3, 4
    quiet, noisy = Private(inner, CLIP, 0.0, seed=0), Private(inner, CLIP, noise, seed=0)
    x = inner.initial(0)
    exact = quiet.gradient(x, batch(0, 1, 2, 3)).g
    drawn = np.concatenate([noisy.gradient(x, batch(0, 1, 2, 3, counter=c)).g - exact for c in range(1, 401)])
    wanted = noise * CLIP / size
    assert drawn.std() == pytest.approx(wanted, rel=4 / math.sqrt(2 * drawn.size))
    assert abs(drawn.mean()) < 4 * wanted / math.sqrt(drawn.size)


def test_noise_is_the_same_only_for_the_same_question() -> None:
    """The same can be repeated (replay); at another model it is fresh, so that nothing can be subtracted."""
    inner = workload()
    private, x = Private(inner, CLIP, 1.0, seed=0), inner.initial(0)
    near = x.copy()
    near[0] += np.float32(1e-6)
    one = private.gradient(x, batch(0, 1)).g
    np.testing.assert_array_equal(one, private.gradient(x, batch(0, 1)).g)
    np.testing.assert_array_equal(one, private.gradients([x], [batch(0, 1)])[0].g)
    for other in (
        private.gradient(near, batch(0, 1)).g,
        private.gradient(x, batch(0, 1, counter=2)).g,
        private.gradient(x, batch(0, 1, client=1)).g,
        Private(inner, CLIP, 1.0, seed=1).gradient(x, batch(0, 1)).g,
        Private(inner, CLIP, 1.0, seed=0, secret=True).gradient(x, batch(0, 1)).g,
    ):
        assert np.abs(other - one).mean() > 0.1 * CLIP


def test_a_model_with_running_statistics_is_refused() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2))
    with pytest.raises(UserError, match="running statistics, which would leave without noise"):
        Private(workload(net), CLIP, 1.0, seed=0)


# --- the accountant -------------------------------------------------------------------------------


def exact_epsilon(noise: float, uses: int, delta: float) -> float:
    """Of the Gaussian mechanism used so often, exactly (Balle and Wang 2018, with mu = sqrt(uses)/noise)."""
    mu = math.sqrt(uses) / noise

    def excess(epsilon: float) -> float:
        return float(
            ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)) - delta
        )

    return float(brentq(excess, 0.0, 1000.0))


def renyi_epsilon(noise: float, uses: int, delta: float) -> float:
    """The best bound of Renyi's divergence, over a fine grid of orders (Canonne, Kamath and Steinke 2020)."""
    a = 1 + np.exp(np.linspace(math.log(0.001), math.log(1000), 200_000))
    return float(
        (uses * a / (2 * noise**2) + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1)).min()
    )


@pytest.mark.parametrize("noise", [0.8, 1.1, 4.0])
@pytest.mark.parametrize("uses", [1, 10, 80])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_epsilon_is_never_below_the_exact_one_and_near_the_best_bound(
    noise: float, uses: int, delta: float
) -> None:
    found = epsilon_spent(noise, uses, delta)
    assert found >= exact_epsilon(noise, uses, delta)
    assert found == pytest.approx(renyi_epsilon(noise, uses, delta), rel=0.02)
    assert found >= renyi_epsilon(noise, uses, delta) * (1 - 1e-9)


def test_a_part_of_an_epoch_counts_as_a_whole_one() -> None:
    one, two = epsilon_spent(1.0, 1, 1e-5), epsilon_spent(1.0, 2, 1e-5)
    assert spent(1.0, 1e-5, [0, 1, 5, 6, 10], [5, 5, 5, 5, 5]) == [0.0, one, one, two, two]


def test_in_an_epoch_a_sample_is_in_at_most_one_batch() -> None:
    """On which the account rests."""
    for drop_last in (False, True):
        batches = Batches(np.arange(100, 123), 5, seed=3, client=0, drop_last=drop_last)
        for epoch in range(4):
            steps = range(epoch * batches.steps_per_epoch + 1, (epoch + 1) * batches.steps_per_epoch + 1)
            used = np.concatenate([batches(c).indices for c in steps])
            assert np.unique(used).size == used.size


# --- in runs --------------------------------------------------------------------------------------

TINY = ["run", "digits", "--clients", "3", "--epochs", "2", "--model", "logistic"]


def test_a_run_shows_what_it_spent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = ["--privacy", "noise=1.5,clip=0.5,delta=1e-4", "--out", str(tmp_path / "x")]
    assert run_command([*TINY, *private]) == 0
    wanted = epsilon_spent(1.5, 2, 1e-4)
    assert f"Privacy of each sample: epsilon {wanted:.3g} at delta 0.0001." in capsys.readouterr().out
    summary = json.loads((tmp_path / "x" / "summary.json").read_text())["privacy"]
    assert summary == {"delta": 1e-4, "epsilon": wanted, "epsilon_of_clients": [wanted] * 3}


def test_what_cannot_be_accounted_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for more, said in {
        ("--privacy", "noise"): "it is written noise=1.1,clip=1,delta=1e-5",
        ("--privacy", "nose=1"): "did you mean noise?",
        ("--privacy", "noise=-1"): "must be at least 0",
        ("--privacy", "noise=1", "--partition", "bootstrap:50"): "uses samples more than once",
        ("--privacy", "noise=1", "--set", "engine.network.crash_rate=0.1"): "a network that does not change",
    }.items():
        assert run_command([*TINY, *more]) == 2
        assert said in capsys.readouterr().err, more
