"""Local data that shift: what clients see, what the test set becomes, and that keys decide it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from swiftfl.cli.flags import collect_some
from swiftfl.data.dataset import Dataset
from swiftfl.data.shift import Drift, Shift
from swiftfl.data.source import Stored
from swiftfl.engines import SampledEngine, VirtualEngine
from swiftfl.errors import UserError
from swiftfl.experiment.build import build
from swiftfl.experiment.config import Config
from swiftfl.experiment.measure import measure
from swiftfl.experiment.recipes import recipe
from swiftfl.sample import Batch
from worlds import resumed, run_to_end

DRAW = np.random.default_rng(0)
X = torch.from_numpy(DRAW.standard_normal((400, 6)).astype(np.float32))
Y = torch.from_numpy(DRAW.integers(0, 5, 400))
DATA = Dataset("drawn", Stored(X, Y), Stored(X, Y), classes=5)


def drift(*shifts: Shift, sizes: tuple[int, ...] = (300, 100)) -> Drift:
    return Drift(shifts, DATA, sizes, [10] * len(sizes), seed=3)


def seen(found: Drift, client: int, counter: int) -> tuple[torch.Tensor, torch.Tensor]:
    indices = np.arange(40, 60)
    return found.of_batches(X[indices], Y[indices], [Batch(client, counter, indices)])


def test_labels_turn_at_their_epochs_and_only_where_they_should() -> None:
    found = drift(Shift("label_rotation", at=2, every=1, clients=(1,)))
    for counter, turns in ((20, 0), (21, 1), (30, 1), (31, 2), (71, 6)):  # ten steps are an epoch
        assert (seen(found, 1, counter)[1] == (Y[40:60] + turns) % 5).all()
        assert (seen(found, 0, counter)[1] == Y[40:60]).all()
    swapped = seen(drift(Shift("class_swap", at=0, classes=(1, 4))), 0, 1)[1]
    wanted = np.array([0, 4, 2, 3, 1])[Y[40:60].numpy()]
    assert (swapped.numpy() == wanted).all()


def test_noise_is_keyed_and_has_its_scale() -> None:
    found = drift(Shift("input_noise", at=1, scale=2.0))
    assert (seen(found, 0, 10)[0] == X[40:60]).all()
    once, again = seen(found, 0, 11)[0], seen(found, 0, 11)[0]
    assert (once == again).all()
    assert not (once == seen(found, 0, 12)[0]).any()
    many = torch.cat([seen(found, 0, c)[0] - X[40:60] for c in range(11, 61)])
    assert float(many.std()) == pytest.approx(2.0, rel=0.03)


def test_batches_together_are_batches_alone() -> None:
    found = drift(Shift("input_noise", at=0), Shift("label_rotation", at=1, every=1, clients=(0,)))
    batches = [Batch(k % 2, 15 + k, np.arange(7 * k, 7 * k + 7)) for k in range(5)]
    joined = np.concatenate([batch.indices for batch in batches])
    x, y = found.of_batches(X[joined], Y[joined], batches)
    for k, batch in enumerate(batches):
        alone = found.of_batches(X[batch.indices], Y[batch.indices], [batch])
        assert (x[7 * k : 7 * k + 7] == alone[0]).all()
        assert (y[7 * k : 7 * k + 7] == alone[1]).all()


def test_the_test_set_is_the_mixture_of_what_clients_see() -> None:
    found = drift(Shift("label_rotation", at=5, clients=(1,)))
    found.epochs = [9.0, 4.0]
    assert (found.of_test(X, Y, 0)[1] == Y).all()
    found.epochs = [4.0, 5.0]
    changed = (found.of_test(X, Y, 0)[1] != Y).numpy()
    assert changed.mean() == pytest.approx(0.25, abs=0.05)  # client 1 holds a quarter of the data
    parts = torch.cat([found.of_test(X[s : s + 100], Y[s : s + 100], s)[1] for s in range(0, 400, 100)])
    assert ((parts != Y).numpy() == changed).all()  # whatever the pieces are
    everywhere = drift(Shift("label_rotation", at=5))
    everywhere.epochs = [9.0, 9.0]
    assert (everywhere.of_test(X, Y, 0)[1] == (Y + 1) % 5).all()


SHIFTED: dict[str, Any] = {
    "topology.clients": 4, "engine.epochs": 3, "algorithm.momentum": 0.0,
    "data.shift": [{"kind": "label_rotation", "at": 1}, {"kind": "input_noise", "at": 2, "clients": [1]}],
}  # fmt: skip


@pytest.mark.parametrize("engine", [VirtualEngine, SampledEngine])
def test_a_pause_changes_nothing(engine: Any) -> None:
    setup = build(recipe("digits").with_changes(SHIFTED)).setup
    whole = run_to_end(engine(setup))
    paused = engine(setup)
    paused.start()
    paused.advance(130)
    going_on = resumed(paused, engine(setup))
    going_on.advance(10**9)
    assert all((x == y).all() for x, y in zip(whole.models, going_on.models, strict=True))


def test_a_run_learns_what_its_data_have_become() -> None:
    """Labels turn at epoch 1 of 8: at the end the model knows the new names, and is asked for them."""
    changes = {"topology.clients": 4, "engine.epochs": 8, "data.shift": [{"kind": "label_rotation", "at": 1}]}
    config = recipe("digits").with_changes(changes)
    engine = run_to_end(VirtualEngine(build(config).setup))
    assert (measure(engine, clients=0).accuracy or 0.0) > 0.8
    without: Any = build(config.with_changes({"data.shift": []})).workload
    (old_names,) = without.evaluate([np.mean(engine.models, axis=0).astype(np.float32)])
    assert old_names.accuracy < 0.1


def test_what_is_typed() -> None:
    typed = [
        "label_rotation:at=5,every=2.5,clients=0-2+7",
        "class_swap:at=1,classes=3+4",
        "input_noise:at=0,scale=2",
    ]
    config = Config().with_changes(collect_some({"shift": typed})[0])
    assert [one.make() for one in config.data.shift] == [
        Shift("label_rotation", 5, 2.5, (0, 1, 2, 7)),
        Shift("class_swap", 1, classes=(3, 4)),
        Shift("input_noise", 0, scale=2),
    ]
    for wrong, told in {
        "label_rotation:at=1,clients=a": "clients and classes are numbers such as 0-3 or 0",
        "label_rotation:5": "options are written",
        "upside_down:at=1": "data.shift.0.kind",
        "label_rotation:every=1": "data.shift.0.at",
        "label_rotation:at=1,scale=3": "scale is for input_noise, not label_rotation",
    }.items():
        with pytest.raises(UserError, match=told):
            Config().with_changes(collect_some({"shift": [wrong]})[0])


def test_what_does_not_fit_the_data() -> None:
    with pytest.raises(UserError, match="there is no client 2 among 2"):
        drift(Shift("label_rotation", at=1, clients=(2,)))
    with pytest.raises(UserError, match=r"classes \(0, 5\) are not in \[0, 5\)"):
        drift(Shift("class_swap", at=1, classes=(0, 5)))
    numbers = Dataset("numbers", Stored(X, X[:, 0]), Stored(X, X[:, 0]), classes=None)
    with pytest.raises(UserError, match="needs classes"):
        Drift([Shift("label_rotation", at=1)], numbers, [400], [10], 0)
