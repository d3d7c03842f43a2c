"""`as_dataset` and `split`: what is made of data of any kind, and what is refused with which sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from swiftfl.data import Batches, as_dataset, dataset, partition, split, uneven_work
from swiftfl.data.partitions import by_group, dirichlet
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.run import run

X = torch.arange(24.0).reshape(8, 3)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Samples:
    """A map-style dataset that inherits nothing."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, k: int) -> Any:
        return self.samples[k]


DatasetDict = type("DatasetDict", (dict,), {"__module__": "datasets.dataset_dict"})
NAN = X.clone()
NAN[3, 1] = float("nan")


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ((X, Y[:5]), "8 inputs but labels of shape (5,)"),
        ((X[:0], Y[:0]), "training set is empty"),
        (None, "train is None: give tensors, arrays or a dataset"),
        (DataLoader(TensorDataset(X, Y)), "is a DataLoader, which makes batches itself: give its dataset"),
        (Endless(), "is an IterableDataset, whose samples have no positions: give a map-style dataset"),
        ((pair for pair in [(X, Y)]), "is a generator, which can be read only once: give a dataset"),
        (iter([1, 2]), "is a list_iterator, which can be read only once"),
        (DatasetDict(train=1), "is a DatasetDict of several sets: give one of them"),
        (Path("here.csv"), "is the text 'here.csv': load it first"),
        (3, "is a int: give tensors, arrays or a dataset"),
        ({1, 2}, "is a set: give tensors, arrays or a dataset"),
        (TensorDataset, "is the class TensorDataset: give an object of it"),
        ({}, "is an empty dict"),
        (
            np.array([{"a": 1}, None], dtype=object),
            "holds objects, not numbers; make them",
        ),
        ((X, np.array(["cat", "dog"] * 4)), "part 1: holds text, not numbers; encode it as numbers first"),
        ((X, ["cat", "dog"] * 4), "part 1, part 0 is text: encode it as numbers first"),
        ((X, np.array(["2026-01-01"] * 8, dtype="datetime64[D]")), "holds dates, not numbers"),
        ((X, [[1], [2, 3]] * 4), "part 1: list cannot be read as numbers"),
        ((X.to_sparse(), Y), "sparse tensors are not supported; give to_dense() of them"),
        ((X, torch.tensor(3)), "train[1] is one number; the first dimension must be the samples"),
        ((NAN, Y), "training set: inputs hold NaN or infinity: fill them in"),
        ((X, NAN), "training set: labels hold NaN or infinity"),
        ((X, Y - 1), "labels go from -1 to 1, but classes are counted from 0 (targets that are numbers"),
        ((TensorDataset(X, Y), Y), "part 0 is a TensorDataset: a tuple is of columns"),
        ([], "is an empty list; it must have one dataset per client"),
        ([(X, 0), (X, 1)], "client 0: a list has one dataset per client, and this is one sample"),
        ([(X, Y), (X[:0], Y[:0])], "client 1 has no samples"),
        ([(X, Y), (X[:, :2], Y)], "clients 0 and 1 differ: (3,) torch.float32 and (2,) torch.float32"),
        ([(X, Y), X], "clients 0 and 1 differ: (input, label) and inputs only"),
        (lambda client: (X, Y), "is a function of the client: say how many there are (clients=)"),
        (Samples([]), "train is empty"),
        (
            Samples([(X[0], 1), (X[0, :2], 1)]),
            "samples 0 and 1 differ ((3,) torch.float32 and (2,)",
        ),
        (Samples([("a text", 1)]), "part 0 is text: encode it as numbers first"),
        (Samples([{"x": X[0], "labels": 1}, {"x": X[0]}]), "sample 1 has no entry 'labels'"),
        (Samples([{"labels": 1}]), "has no inputs beside 'labels'"),
    ],
)
def test_what_cannot_be_data_is_refused_in_one_sentence(train: Any, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)) as error:
        as_dataset(train)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("test", "says"),
    [
        ((X[:, :2], Y), "training and test inputs differ: (3,) torch.float32 and (2,) torch.float32"),
        ((X.double(), Y), "training and test inputs differ: (3,) torch.float32 and (3,) torch.float64"),
        ((X, Y.float()), "training and test labels differ: () torch.int64 and () torch.float32"),
        (X, "training and test samples differ: (input, label) and inputs only"),
        (({"a": X}, Y), "training and test inputs differ: one tensor and tensors at ['a']"),
        ((X, Y[:3]), "test set: 8 inputs but labels of shape (3,)"),
        ((X[:0], Y[:0]), "test set is empty"),
    ],
)
def test_a_test_set_of_another_structure_is_refused(test: Any, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        as_dataset((X, Y), test)


@pytest.mark.parametrize(
    ("train", "options", "says"),
    [
        (
            (X, Y),
            {"label": "price"},
            "label='price' names an entry, but data: train has no entries with names",
        ),
        ({"pixels": X, "labels": Y}, {"inputs": "pixel"}, "has no entry 'pixel': did you mean pixels?"),
        ({"x": X, "y": Y}, {"label": "labels"}, "has no entry 'labels'"),
        ((X, Y), {"groups": [1, 2]}, "groups must have one entry per training sample (8), not shape (2,)"),
        ({"x": X, "labels": Y}, {"groups": "user"}, "has no entry 'user'"),
        ([(X, Y), (X, Y)], {"groups": [0] * 16}, "data that are split by client have no groups="),
        ([(X, Y), (X, Y)], {"clients": 3}, "train has data for 2 clients, but there are 3 clients"),
        ((X, Y), {"memory": "1 GB"}, "memory must be a number of bytes, not '1 GB'"),
        ((X, Y), {"classes": 2}, "labels go from 0 to 2, but must be in [0, 2)"),
        (
            "digits",
            {"classes": 3},
            "train is the name 'digits', which has everything with it: leave classes=",
        ),
        (
            dataset("digits"),
            {"test": (X, Y)},
            "train is a Dataset, which has everything with it: leave test=",
        ),
        ("digit", {}, "there is no dataset 'digit': did you mean digits?"),
    ],
)
def test_options_that_cannot_be_are_refused(train: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        as_dataset(train, **options)


def test_kinds_of_labels() -> None:
    assert as_dataset((X, Y)).classes == 3
    assert as_dataset((X, Y > 0)).classes == 2
    assert as_dataset((X, Y.float())).classes is None
    assert as_dataset((X, Y), (X, Y + 1)).classes == 4  # a class that only the test set has
    assert as_dataset((X, Y), classes=10).classes == 10
    assert as_dataset((X.long(), X.long())).classes == 24
    assert as_dataset(X).first_labels is None
    assert as_dataset((X, None)).first_labels is None
    assert (as_dataset((X, Y.float())).labels == 0).all()


def test_without_a_test_set_the_training_set_is_evaluated_and_a_note_says_so() -> None:
    data = as_dataset((X, Y))
    assert data.test is data.train
    assert data.notes == ("data: there is no test set, so models are evaluated on the training set",)
    assert as_dataset((X, Y), (X, Y)).notes == ()


def test_names_and_datasets_pass_through() -> None:
    digits = dataset("digits")
    assert as_dataset(digits) is digits
    assert as_dataset("digits").size == digits.size


def test_tables() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"a": [1, 2, 3, 4], "b": [0.5, 1.0, 1.5, 2.0], "price": [1.0, 2.0, 3.0, 4.0]})
    frame["city"] = ["Bonn", "Ulm", "Bonn", "Ulm"]
    data = as_dataset(frame, label="price", groups="city")
    assert data.train_inputs.tolist() == [[1, 0.5], [2, 1.0], [3, 1.5], [4, 2.0]]
    assert (data.classes, data.train_labels.tolist()) == (None, [1.0, 2.0, 3.0, 4.0])
    assert data.groups is not None
    assert data.groups.tolist() == [0, 1, 0, 1]
    assert as_dataset(frame, label="price", inputs=["b"]).shape == (1,)
    nullable = pandas.DataFrame({"x": pandas.array([1, 2, 3, 4], dtype="Int64"), "label": [0, 1, 0, 1]})
    assert as_dataset(nullable).train_inputs.tolist() == [[1.0], [2.0], [3.0], [4.0]]
    assert as_dataset((frame[["a"]], frame["a"])).train_inputs.dtype == torch.float64
    missing = frame.assign(a=[1, None, 3, 4])
    for wrong, options, says in [
        (frame, {}, "is a table, and none of its columns is called label: name one (label='...')"),
        (frame, {"label": "prize"}, "has no column 'prize': did you mean price?"),
        (frame, {"label": "price"}, "column 'city': holds str, not numbers; encode it as numbers first"),
        (missing, {"label": "price", "inputs": ["a"]}, "column 'a': values are missing; fill them in"),
        ((frame["a"], frame["city"]), {}, "column 'city': holds str, not numbers"),
    ]:
        with pytest.raises(UserError, match=re.escape(says)):
            as_dataset(wrong, **options)


def test_a_table_whose_text_is_of_type_object_is_refused_too() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"a": pandas.Series(["x", "y"], dtype=object), "label": [0, 1]})
    with pytest.raises(UserError, match="column 'a': holds object, not numbers"):
        as_dataset(frame)


def test_uint8_images_stay_as_they_are() -> None:
    images = np.arange(8 * 4, dtype=np.uint8).reshape(8, 1, 2, 2)
    data = as_dataset((images, Y))
    assert data.train_inputs.dtype == torch.uint8
    assert data.train_inputs.data_ptr() == images.ctypes.data  # not copied


def test_a_sample_that_cannot_be_read_is_named() -> None:
    class Broken(Samples):
        def __getitem__(self, k: int) -> Any:
            if k == 2:
                raise OSError("disk on fire")
            return super().__getitem__(k)

    with pytest.raises(UserError, match="train: sample 2 cannot be read: OSError: disk on fire"):
        as_dataset(Broken([(X[k], k) for k in range(4)]))
    late = as_dataset(Broken([(X[k], k) for k in range(4)]), (X, Y), memory=0, classes=4)
    with pytest.raises(UserError, match="sample 2 cannot be read"):
        late.train.take(np.array([1, 2]))


def test_nan_in_samples_that_are_read_later_is_found_when_they_are() -> None:
    data = as_dataset(Samples([(NAN[k], 0) for k in range(8)]), (X, Y), memory=0, classes=3)
    assert data.train.take(np.array([0, 2]))[0].shape == (2, 3)  # type: ignore[union-attr]
    with pytest.raises(UserError, match="hold NaN or infinity"):
        data.train.take(np.array([2, 3]))


# --- who holds what --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ((X, X[:, 0]), "the labels are float32 numbers, not classes"),
        ((X, X.long()), "each sample has (3,) labels, not one class"),
        (X, "there are no labels"),
        ((X, {"a": Y, "b": Y}), "a label is not one number"),
    ],
)
@pytest.mark.parametrize("spec", ["dirichlet:0.3", "label_skew:0.5", "cyclic_classes"])
def test_a_partition_by_classes_needs_classes(data: Any, why: str, spec: str) -> None:
    says = (
        f"partition {spec} deals out samples by their class, but {why}; use iid or by_size, or give groups="
    )
    with pytest.raises(UserError, match=re.escape(says)):
        split(as_dataset(data), 2, spec=spec)
    assert sorted(np.concatenate(split(as_dataset(data), 2).parts)) == list(range(8))


def test_groups_are_dealt_out_whole_balanced_and_by_the_seed() -> None:
    random = np.random.default_rng(3)
    groups = np.repeat(np.arange(60), random.integers(1, 30, 60))
    random.shuffle(groups)
    labels = np.zeros(groups.size, dtype=np.int64)
    parts = by_group(labels, 7, seed=0, groups=groups)
    assert sorted(np.concatenate(parts.parts)) == list(range(groups.size))
    holders = [set(groups[part]) for part in parts.parts]
    assert sum(map(len, holders)) == 60
    # longest-first dealing: nobody has more than the mean and one smallest group that was dealt last
    assert max(parts.sizes) - min(parts.sizes) <= np.bincount(groups).min() + 1
    again, other = by_group(labels, 7, 0, groups), by_group(labels, 7, 1, groups)
    assert all((a == b).all() for a, b in zip(parts.parts, again.parts, strict=True))
    assert [set(groups[part]) for part in other.parts] != holders
    with pytest.raises(UserError, match="60 groups cannot be dealt out to 61 clients"):
        by_group(labels, 61, 0, groups)
    with pytest.raises(UserError, match=r"these data have no groups \(give groups=\)"):
        split(as_dataset((X, Y)), 2, spec="by_group")
    grouped = as_dataset((X, Y), groups=[3, 3, 7, 7, 7, 3, 9, 9])
    assert split(grouped, 3).name == "by_group"
    assert split(grouped, 2, spec="iid").name == "iid"


def test_data_already_split_keep_their_split() -> None:
    data = as_dataset([(X, Y), (X[:3], Y[:3])], (X, Y))
    assert split(data, 2).sizes == (8, 3)
    with pytest.raises(UserError, match="data is already split by client; leave partition out, or say given"):
        split(data, 2, spec="iid")
    with pytest.raises(UserError, match="split for 2 clients, not 5"):
        split(data, 5)
    with pytest.raises(UserError, match="these data are not split by client; give a list of datasets"):
        split(as_dataset((X, Y)), 2, spec="given")


def test_a_minimum_share_is_drawn_until_it_holds() -> None:
    labels = np.repeat(np.arange(10), 40)
    plain = dirichlet(labels, 8, 0, 0.3)
    held = partition("dirichlet:0.3,min=20", labels, 8, 0)
    assert min(plain.sizes) < 20 <= min(held.sizes)
    assert sorted(np.concatenate(held.parts)) == list(range(400))
    assert held.name == "dirichlet:0.3,min=20"
    low = partition("dirichlet:0.3,min=1", labels, 8, 0)  # holds at the first draw: the same partition
    assert all((a == b).all() for a, b in zip(low.parts, plain.parts, strict=True))
    with pytest.raises(UserError, match=r"in 1000 draws the smallest client had at most \d+ samples"):
        partition("dirichlet:0.05,min=49", labels, 8, 0)
    with pytest.raises(UserError, match="8 clients cannot have 51 of 400 samples each"):
        partition("dirichlet:0.3,min=51", labels, 8, 0)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("dirichlet:0.3,10", "it is written dirichlet:ALPHA[,min=MIN], and '10' must be option=value"),
        ("dirichlet:0.3,mim=10", "did you mean min?"),
        ("dirichlet:0.3,min=-1", "min must be at least 0"),
        ("dirichlet:min=3", "alpha is missing"),
    ],
)
def test_a_partition_that_cannot_be_read_is_refused(spec: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        partition(spec, np.zeros(10, dtype=np.int64), 2, 0)


def test_the_last_batch_can_be_left_out() -> None:
    batches = Batches(np.arange(10), 4, seed=0, client=3, drop_last=True)
    assert (batches.steps_per_epoch, [batches(c).indices.size for c in range(1, 6)]) == (2, [4] * 5)
    whole = Batches(np.arange(10), 4, seed=0, client=3)
    assert (batches(3).indices == whole(4).indices).all()  # the second epoch begins the same
    with pytest.raises(UserError, match="client 3 has 3 training samples, less than one batch of 4"):
        Batches(np.arange(3), 4, seed=0, client=3, drop_last=True)


def test_very_uneven_work_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert uneven_work([40, 100], 10) is None
    config = Config().with_changes(
        {"data.partition": "by_size:1,20,20,20", "topology.clients": 4, "engine.epochs": 1}
    )
    run(config)
    told = r"client 1 has 471 samples and client 0 has 24: an epoch is 30 steps and 2, 15.0 times"
    assert re.search(told, capsys.readouterr().err)
    run(config.with_changes({"engine.epochs": None, "engine.iterations": 8}))
    assert capsys.readouterr().err == ""


def test_a_run_can_leave_out_last_batches() -> None:
    config = Config().with_changes({"topology.clients": 4, "engine.epochs": 1, "data.batch_size": 50})
    assert run(config).summary["iterations"] == 4 * 8
    assert run(config.with_changes({"data.drop_last": True})).summary["iterations"] == 4 * 7


def test_samples_of_several_clients_come_in_the_order_that_is_asked_for() -> None:
    each = [Samples([(X[k], int(Y[k])) for k in range(a, b)]) for a, b in ((0, 3), (3, 4), (4, 8))]
    positions = np.array([7, 0, 3, 5, 1, 0])
    inputs, labels = as_dataset(each, memory=0).train.take(positions)
    assert torch.equal(inputs, X[positions])  # type: ignore[arg-type]
    assert torch.equal(labels, Y[positions])  # type: ignore[arg-type]
