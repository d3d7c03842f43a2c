"""Data of any kind train a small model: in virtual time, and with real processes where structures matter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

import swiftfl
from swiftfl.algorithms import Swift
from swiftfl.data import Batches, Dataset, as_dataset, split
from swiftfl.engines import Setup, VirtualEngine
from swiftfl.engines.live.local.engine import LocalEngine
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule
from swiftfl.schedule import constant, every
from swiftfl.vector import consensus
from swiftfl.workload import ModuleWorkload

RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((120, 6)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int64) + (X[:, 2] > 1).astype(np.int64)
TARGETS = X[:, :2] @ np.array([[1.0], [-2.0]]) + 0.5
TEXT = "the quick brown fox jumps over the lazy dog and the dog does not mind at all. " * 12
LETTERS = sorted(set(TEXT))
IDS = np.array([LETTERS.index(letter) for letter in TEXT])
WINDOWS = np.stack([IDS[start : start + 13] for start in range(0, 120 * 7, 7)])
CLIENTS = 4


class Pairs(TorchDataset[tuple[object, object]]):
    """Samples one at a time, counting how often each is read."""

    def __init__(self, *columns: Any) -> None:
        self.columns, self.reads = columns, np.zeros(len(columns[0]), dtype=int)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, k: int) -> tuple[object, ...]:
        self.reads[k] += 1
        return tuple(column[k] for column in self.columns)


class TwoInputs(nn.Module):
    """x and a weight of each of its numbers; by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.layer(torch.where(mask, x, 0.0))


class NextLetter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(len(LETTERS), 8), nn.Linear(8, len(LETTERS))

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.out(torch.tanh(self.embed(ids)))
        return scores


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def setup_of(
    data: Dataset, module: Callable[[], nn.Module], rate: float = 0.2, epochs: int = 3, **options: Any
) -> Setup:
    coefficients = swiftfl.communication_coefficients(swiftfl.ring(CLIENTS))
    parts = split(data, CLIENTS, seed=1, spec=options.pop("partition", None))
    return Setup(
        algorithm=Swift(every(0), SgdRule(momentum=0.5)),
        workload=ModuleWorkload(module, data, seed=1, **options),
        weights=[coefficients.weights(i) for i in range(CLIENTS)],
        batches=[Batches(parts[i], 8, seed=1, client=i) for i in range(CLIENTS)],
        step_size=constant(rate),
        influence=coefficients.influence.tolist(),
        epochs=epochs,
        seed=1,
    )


def trained(data: Dataset, module: Callable[[], nn.Module], **options: Any) -> SimpleNamespace:
    """After a run in virtual time: the models, and what the consensus model was and is on the test set."""
    setup = setup_of(data, module, **options)
    engine = VirtualEngine(setup)
    engine.start()
    before = setup.workload.evaluate(engine.models[:1])[0]
    engine.advance(sys.maxsize)
    after = setup.workload.evaluate([consensus(engine.models)])[0]
    return SimpleNamespace(models=engine.models, before=before, after=after, workload=setup.workload)


def same(one: SimpleNamespace, other: SimpleNamespace) -> bool:
    pairs = zip(one.models, other.models, strict=True)
    return all(np.array_equal(a, b) for a, b in pairs) and one.after == other.after


def rows(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{key: value[k] for key, value in data.items()} for k in range(len(X))]


class NotQuiteHuggingFace:
    """What is used of a Hugging Face dataset: plain Python objects, unless another format is asked for."""

    def __init__(self, columns: Mapping[str, Any], format: str | None = None) -> None:
        self._columns, self.format = columns, {"type": format}

    def with_format(self, format: str) -> NotQuiteHuggingFace:
        return NotQuiteHuggingFace(self._columns, format)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, k: int) -> dict[str, Any]:
        found = {key: column[k] for key, column in self._columns.items()}
        if self.format["type"] is None:
            return {key: np.asarray(value).tolist() for key, value in found.items()}
        return found


NotQuiteHuggingFace.__module__ = "datasets.arrow_dataset"


def hugging_face(columns: Mapping[str, Any]) -> object:
    return NotQuiteHuggingFace(columns)


def real_hugging_face(columns: Mapping[str, Any]) -> object:
    reason = "Hugging Face datasets is not installed (200 MB); its stand-in is tested"
    datasets = pytest.importorskip("datasets", reason=reason)
    plain = {key: np.asarray(column).tolist() for key, column in columns.items()}
    table = datasets.table.InMemoryTable.from_pydict(plain)
    # with a fingerprint of its own: to make one it pickles the table, which not every pyarrow allows
    return datasets.Dataset(table, fingerprint="the same data")


def pandas_pair() -> object:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    return pandas.DataFrame(X, columns=list("abcdef")), pandas.Series(Y)


def pandas_table() -> object:
    frame = pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(
        X, columns=list("abcdef")
    )
    frame["label"] = Y
    return frame


KINDS: dict[str, Callable[[], tuple[object, dict[str, Any]]]] = {
    "numpy": lambda: ((X, Y), {}),
    "lists": lambda: ((X.astype(float).tolist(), Y.tolist()), {}),
    "TensorDataset": lambda: (TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), {}),
    "a Dataset": lambda: (Pairs(X, Y), {}),
    "a Dataset that does not fit": lambda: (Pairs(X, Y), {"memory": 1000}),
    "a Dataset that is never kept": lambda: (Pairs(X, Y.astype(np.int32)), {"memory": 0}),
    "smaller labels, read-only arrays": lambda: ((np.broadcast_to(X, X.shape), Y.astype(np.uint16)), {}),
    "pandas pair": lambda: (pandas_pair(), {}),
    "pandas table": lambda: (pandas_table(), {}),
    "dict": lambda: ({"x": X, "labels": Y}, {"inputs": "x"}),
    "Hugging Face stand-in": lambda: (hugging_face({"x": X, "label": Y, "id": ["a"] * 120}), {"inputs": "x"}),
    "Hugging Face": lambda: (real_hugging_face({"x": X, "label": Y, "id": ["a"] * 120}), {"inputs": "x"}),
}


@pytest.fixture(scope="module")
def from_tensors() -> SimpleNamespace:
    tensors = torch.from_numpy(X), torch.from_numpy(Y)
    return trained(as_dataset(tensors, tensors), classifier, partition="dirichlet:1,min=8")


@pytest.mark.filterwarnings("ignore:Cannot (locate|pickle)")  # of dill, which Hugging Face datasets uses
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_data_are_the_same_run_however_they_are_given(
    kind: str, from_tensors: SimpleNamespace
) -> None:
    given, options = KINDS[kind]()
    found = trained(as_dataset(given, given, **options), classifier, partition="dirichlet:1,min=8")
    assert same(found, from_tensors)
    assert found.after.loss < 0.7 * found.before.loss
    assert found.workload.choices()["loss"] == "cross-entropy"


MASKS = RANDOM.random(X.shape) < 0.8
STRUCTURES: dict[str, Any] = {
    "tuple": (X, MASKS, Y),
    "pair with a tuple": ((X, MASKS), Y),
    "pair with a dict": ({"x": X, "mask": MASKS}, Y),
    "dict": {"x": X, "mask": MASKS, "labels": Y},
    "Dataset of tuples": Pairs(X, MASKS, Y),
    "Dataset of dicts": rows({"mask": MASKS, "x": X, "labels": Y}),
}


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize("batching", ["off", "on"])
def test_structured_inputs_are_arguments_of_the_model(kind: str, batching: str) -> None:
    given = STRUCTURES[kind]
    data = as_dataset(Pairs2(given) if isinstance(given, list) else given)
    found = trained(data, TwoInputs, batching=batching)
    joint = trained(
        as_dataset((np.where(MASKS, X, 0.0).astype(np.float32), Y)), lambda: nn.Linear(6, 3), batching="off"
    )
    assert found.workload.choices()["form"] == "vmap"
    for a, b in zip(found.models, joint.models, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert found.after.accuracy == joint.after.accuracy


class Pairs2(Pairs):
    """Samples that are there already."""

    def __init__(self, samples: list[Any]) -> None:
        super().__init__(samples)

    def __getitem__(self, k: int) -> Any:
        return self.columns[0][k]


def test_a_language_model_of_letters_with_its_perplexity() -> None:
    data = as_dataset((WINDOWS[:, :-1], WINDOWS[:, 1:]))
    found = trained(
        data, NextLetter, rate=1.0, epochs=6, metrics=["perplexity", "accuracy", "top5", "f1_macro"]
    )
    assert data.classes == len(LETTERS)
    assert found.workload.choices()["loss"] == "cross-entropy of each position"
    assert found.after.metrics["perplexity"] == pytest.approx(np.exp(found.after.loss), rel=1e-5)
    assert found.after.metrics["accuracy"] == pytest.approx(found.after.accuracy, abs=1e-9)
    assert found.before.metrics["perplexity"] > 0.7 * len(LETTERS)
    assert found.after.metrics["perplexity"] < 0.4 * len(LETTERS)
    assert found.after.metrics["accuracy"] <= found.after.metrics["top5"]
    again = trained(data, NextLetter, rate=1.0, epochs=6, batching="on", metrics=["perplexity"])
    assert again.workload.choices()["form"] == "vmap"
    assert again.after.loss == pytest.approx(found.after.loss, rel=1e-3)


def test_labels_that_do_not_count_are_left_out_of_loss_and_metrics() -> None:
    labels = WINDOWS[:, 1:].copy()
    labels[:, 5:] = -100
    masked = as_dataset((WINDOWS[:, :-1], labels), classes=len(LETTERS))
    short = as_dataset((WINDOWS[:, :5], WINDOWS[:, 1:6]), classes=len(LETTERS))
    found = [
        ModuleWorkload(NextLetter, data, metrics=["perplexity", "f1_macro"]).evaluate(
            [ModuleWorkload(NextLetter, data).initial(3)]
        )[0]
        for data in (masked, short)
    ]
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-5)
    assert found[0].accuracy == found[1].accuracy
    assert found[0].metrics["perplexity"] == pytest.approx(found[1].metrics["perplexity"], rel=1e-5)


def test_scores_of_classes_may_stand_second_as_torch_has_them() -> None:
    class Second(NextLetter):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids).transpose(1, 2)

    data = as_dataset((WINDOWS[:, :-1], WINDOWS[:, 1:]))
    assert same(trained(data, NextLetter, batching="off"), trained(data, Second, batching="off"))


def test_regression_by_default_and_by_hand() -> None:
    data = as_dataset((X, TARGETS))
    found = trained(data, lambda: nn.Linear(6, 1), rate=0.05, metrics=["mse"])
    assert found.workload.choices()["loss"] == "mean squared error"
    assert found.after.accuracy is None
    assert found.after.loss < 0.05 < found.before.loss
    assert found.after.metrics["mse"] == pytest.approx(found.after.loss, rel=1e-5)
    flat = trained(as_dataset((X, TARGETS[:, 0])), lambda: nn.Linear(6, 1), rate=0.05)
    assert flat.after.loss == found.after.loss  # (samples, 1) and (samples,) are not spread to a square
    own = trained(data, lambda: nn.Linear(6, 1), rate=0.05, loss=nn.MSELoss())
    assert same(own, trained(data, lambda: nn.Linear(6, 1), rate=0.05))


def reconstruction(model: nn.Module, batch: Tensor) -> Tensor:
    return functional.mse_loss(model(batch), batch)


def of_the_batch(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return functional.cross_entropy(model(batch["x"], mask=batch["mask"]), batch["labels"])


def test_a_loss_of_the_whole_batch() -> None:
    found = trained(as_dataset(X), lambda: nn.Linear(6, 6), loss=reconstruction)
    assert found.after.loss < 0.7 * found.before.loss
    assert found.after.accuracy is None
    assert found.workload.choices()["reason"] == "its loss takes the model itself, one client at a time"
    assert found.workload.choices()["loss"] == "reconstruction(model, batch)"
    data = as_dataset({"x": X, "mask": MASKS, "labels": Y})
    whole = trained(data, TwoInputs, loss=of_the_batch, metrics=["accuracy"])
    usual = trained(data, TwoInputs, batching="off", metrics=["accuracy"])
    assert all(np.array_equal(a, b) for a, b in zip(whole.models, usual.models, strict=True))
    assert whole.after.loss == pytest.approx(usual.after.loss, rel=1e-6)
    assert whole.after.metrics == usual.after.metrics


def test_metrics_of_ones_own_by_name() -> None:
    def second_class(outputs: Tensor, labels: Tensor) -> float:
        return float((outputs.argmax(1) == 1)[labels == 1].double().mean())

    found = trained(as_dataset((X, Y)), classifier, metrics={"recall": second_class, "f1": "f1_macro"})
    assert list(found.after.metrics) == ["recall", "f1"]
    assert 0 < found.after.metrics["recall"] <= 1


def cut(given: Any, positions: Any) -> Any:
    return tuple(column[positions] for column in given)


def test_data_split_by_client_are_the_same_run_as_that_partition() -> None:
    """The list has clients' samples one after the other, and so has a partition into consecutive ranges."""
    bounds = [0, 40, 64, 88, 120]
    each = [cut((X, Y), slice(a, b)) for a, b in pairwise(bounds)]
    listed = trained(as_dataset(each, (X, Y)), classifier)
    called = trained(as_dataset(lambda client: each[client], (X, Y), clients=CLIENTS), classifier)
    whole = as_dataset((X, Y), (X, Y))
    setup = setup_of(whole, classifier)
    ranges = [np.arange(a, b) for a, b in pairwise(bounds)]
    batches = [Batches(part, 8, seed=1, client=i) for i, part in enumerate(ranges)]
    engine = VirtualEngine(Setup(**{**vars(setup), "batches": batches}))
    engine.start()
    engine.advance(sys.maxsize)
    assert all(np.array_equal(a, b) for a, b in zip(listed.models, engine.models, strict=True))
    assert same(listed, called)
    mixed = [Pairs(*part) if k % 2 else part for k, part in enumerate(each)]
    assert same(listed, trained(as_dataset(mixed, (X, Y)), classifier))
    read = trained(as_dataset(mixed, (X, Y), memory=0), classifier)
    assert same(listed, read)


def test_groups_stay_together_and_train() -> None:
    writers = [f"writer {k % 11}" for k in range(len(X))]
    data = as_dataset((X, Y), groups=writers)
    parts = split(data, CLIENTS, seed=1)
    owners = [{writers[k] for k in part} for part in parts.parts]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 11
    assert trained(data, classifier).after.loss < 1.0


def test_a_cache_is_bounded_and_used() -> None:
    """Room for 30 of 120 samples: these are read once, all others once per epoch."""
    samples = Pairs(X, Y)
    data = as_dataset(samples, (X, Y), memory=30 * (6 * 4 + 8), classes=3)
    at_first = samples.reads.copy()
    trained(data, classifier, epochs=4, partition="iid")
    reads = samples.reads - at_first
    assert data.train.kept == 30  # type: ignore[attr-defined]
    assert sorted(np.bincount(reads, minlength=5)[:2].tolist())[1] >= 28
    assert (np.sort(reads)[-90:] >= 4).all()
    assert len(data.notes) == 1
    assert "120 samples of 32 bytes do not fit in 960 bytes" in data.notes[0]


def test_a_dataset_that_fits_is_read_once() -> None:
    samples = Pairs(X, Y)
    data = as_dataset(samples, (X, Y))
    reads = samples.reads.copy()
    trained(data, classifier, epochs=4)
    assert (samples.reads == reads).all()
    assert (reads[1:] == 1).all()


@pytest.mark.parametrize("kind", ["dict", "letters", "whole batch", "read by position"])
def test_structures_with_real_processes(kind: str) -> None:
    options: dict[str, Any] = {}
    data, module = as_dataset({"x": X, "mask": MASKS, "labels": Y}), TwoInputs
    if kind == "letters":
        data, module = as_dataset((WINDOWS[:, :-1], WINDOWS[:, 1:])), NextLetter  # type: ignore[assignment]
        # On a busy machine clients may run one after the other, and average with models that have not moved
        # yet. In virtual time the loss then falls to 0.97 of the first at a rate of 0.2, to 0.89 at 1.0.
        options["rate"] = 1.0
    if kind == "whole batch":
        options["loss"] = of_the_batch
    if kind == "read by position":
        data = as_dataset(Pairs(X, MASKS, Y), memory=1000)
    setup = setup_of(data, module, **options)
    before = setup.workload.evaluate([setup.workload.initial(1)])[0]
    engine = LocalEngine(setup)
    try:
        engine.start()
        assert engine.wait(120)
        after = setup.workload.evaluate([consensus(engine.models)])[0]
    finally:
        engine.close()
    assert engine.iteration == 3 * sum(batches.steps_per_epoch for batches in setup.batches)
    assert after.loss < 0.95 * before.loss


def test_outputs_with_logits_are_taken_for_their_logits() -> None:
    class Wrapped(TwoInputs):
        def forward(self, x: Tensor, mask: Tensor) -> Any:
            return SimpleNamespace(logits=super().forward(x, mask))

    data = as_dataset((X, MASKS, Y))
    assert same(trained(data, TwoInputs, batching="off"), trained(data, Wrapped, batching="off"))


def first_gradient(module: Callable[[], nn.Module], data: Dataset, **options: Any) -> None:
    workload = ModuleWorkload(module, data, **options)
    workload.gradient(workload.initial(0), Batches(np.arange(8), 8, 0, 0)(1))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"loss": "mse"}, "loss must be a function of .* not str"),
        ({"loss": nn.MSELoss}, r"loss is the class MSELoss: give an object of it, MSELoss\(\)"),
        ({"loss": lambda outputs, labels: outputs.sum(1)}, r"returned \(8,\) numbers; it must be one"),
        ({"loss": lambda outputs, labels: 3.0}, "returned a float, not a tensor"),
        ({"loss": lambda outputs, labels: torch.zeros(())}, "does not depend on the model's parameters"),
        ({"loss": lambda model, batch: model(batch["x"])}, "fails on client 0's batch of 8 at step 1"),
        ({"metrics": "accuracy"}, "metrics must be a list of names or a dict, not the text 'accuracy'"),
        ({"metrics": ["mse"]}, "metric 'mse' compares numbers, but the labels of this dataset are classes"),
        ({"metrics": {"f1": 3}}, r"metric 'f1' must be a function of \(outputs, labels\), not 3"),
    ],
)
def test_a_loss_or_metric_that_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        first_gradient(classifier, as_dataset((X, Y)), **options)


@pytest.mark.parametrize(
    ("data", "module", "says"),
    [
        (
            (X, TARGETS),
            lambda: nn.Linear(6, 3),
            r"outputs of shape \(8, 3\) do not fit labels",
        ),
        ((WINDOWS, WINDOWS), lambda: nn.Embedding(40, 5), r"has 5 outputs, but data has \d+ classes"),
        ((WINDOWS, WINDOWS), lambda: nn.Embedding(3, 40), "fails on client 0's batch .* index out of range"),
        (
            X,
            lambda: nn.Linear(6, 3),
            r"data has no labels: name their entry \(label=...\), or give a loss\(model, batch\)",
        ),
        ({"a": X, "labels": Y}, TwoInputs, "unexpected keyword argument 'a'"),
        (((X, Y), {"a": Y, "b": Y}), classifier, "labels of several parts"),
    ],
)
def test_a_model_that_does_not_fit_its_data_is_told_why(data: Any, module: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        first_gradient(module, as_dataset(data))


def test_accuracy_is_a_share_of_all_labels_whatever_the_loss() -> None:
    """With a loss of the user's own, too; labels that do not count are not answers."""
    ids = torch.randint(5, (24, 7), generator=torch.Generator().manual_seed(1))
    wanted = ids.clone()
    wanted[:3, :4] = -100

    def own(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())

    found = [
        swiftfl.train(
            lambda: torch.nn.Embedding(5, 5),
            (ids, wanted),
            (ids, wanted),
            loss=loss,
            metrics=["accuracy"],
            clients=2,
            epochs=1,
            progress=False,
        )
        for loss in (None, own)
    ]
    for result in found:
        assert result.accuracy == pytest.approx(result.summary["metrics"]["accuracy"], abs=1e-12)
        assert 0 < result.accuracy <= 1
