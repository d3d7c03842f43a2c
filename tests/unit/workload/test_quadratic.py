import numpy as np
import pytest

from swiftfl.data.batches import NoSamples
from swiftfl.errors import UserError
from swiftfl.workload.quadratic import Free, Quadratic


@pytest.mark.parametrize("dense", [False, True])
def test_gradients_are_the_slopes_of_the_loss(dense):
    problem = Quadratic.random(4, 3, seed=1, dense=dense)
    x = problem.initial(0)
    for i in range(4):
        slope = problem.gradient(x, NoSamples(i)(1))
        for k, e in enumerate(np.eye(3) * 1e-5):
            rise = (
                problem.gradient(x + e, NoSamples(i)(1)).loss - problem.gradient(x - e, NoSamples(i)(1)).loss
            )
            assert rise / 2e-5 == pytest.approx(slope.g[k], rel=1e-6)


@pytest.mark.parametrize("dense", [False, True])
def test_the_minimiser_has_no_slope_and_the_least_loss(dense):
    problem = Quadratic.random(5, 4, seed=2, dense=dense)
    best = problem.minimiser
    mean = sum(p * problem.exact(best, i) for i, p in enumerate(problem.p))
    assert np.abs(mean).max() < 1e-12
    at, near = problem.evaluate([best, best + 0.01])
    assert at.loss < near.loss
    assert at.accuracy is None


def test_constants():
    problem = Quadratic(np.full((2, 3), 2.0), np.array([[1.0, 0, 0], [-1.0, 0, 0]]), noise=0.5)
    assert (problem.L, problem.zeta) == (2.0, 2.0)
    assert problem.sigma == pytest.approx(0.5 * 3**0.5)
    assert Quadratic.random(3, 2).zeta == float("inf")


def test_noise_is_keyed_unbiased_and_of_known_size():
    problem = Quadratic.random(2, 50, seed=3, noise=0.3)
    x = problem.initial(0)
    draws = [problem.gradient(x, NoSamples(0)(c)).g - problem.exact(x, 0) for c in range(1, 200)]
    assert np.mean([d @ d for d in draws]) == pytest.approx(problem.sigma**2, rel=0.05)
    assert np.abs(np.mean(draws)) < 0.01
    assert (problem.gradient(x, NoSamples(0)(1)).g == problem.gradients([x], [NoSamples(0)(1)])[0].g).all()


def test_free_gradients_are_zero():
    free = Free(7)
    assert free.initial(0).dtype == np.float32
    assert not free.gradients([free.initial(0)] * 3, [NoSamples(0)(1)] * 3)[2].g.any()


def test_shapes_are_checked():
    with pytest.raises(UserError, match="does not fit"):
        Quadratic(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(UserError, match="influence"):
        Quadratic(np.ones((2, 3)), np.ones((2, 3)), influence=[0.5, 0.6])
