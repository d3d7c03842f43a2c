import numpy as np
import pytest
import torch

from swiftfl.data.dataset import Dataset
from swiftfl.data.digits import digits
from swiftfl.data.partitions import iid
from swiftfl.data.source import Stored
from swiftfl.errors import UserError


def tiny(**change):
    fields = {
        "name": "tiny",
        "train_inputs": torch.zeros(4, 3),
        "train_labels": torch.tensor([0, 1, 0, 1]),
        "test_inputs": torch.zeros(2, 3),
        "test_labels": torch.tensor([0, 1]),
        "classes": 2,
    }
    fields |= change
    parts = [fields.pop(f"{part}_{kind}") for part in ("train", "test") for kind in ("inputs", "labels")]
    return Dataset(fields.pop("name"), Stored(*parts[:2]), Stored(*parts[2:]), **fields)


def test_digits_are_all_there_scaled_and_split_by_class():
    data = digits()
    assert (data.size, len(data.test_labels), data.shape, data.classes) == (1437, 360, (64,), 10)
    assert float(data.train_inputs.min()) == 0.0
    assert float(data.train_inputs.max()) == 1.0
    share = torch.bincount(data.test_labels) / torch.bincount(
        torch.cat([data.train_labels, data.test_labels])
    )
    assert bool(((share > 0.19) & (share < 0.21)).all())
    assert torch.equal(digits().test_inputs, data.test_inputs)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train_inputs": torch.full((4, 3), float("nan"))}, "tiny training set: inputs hold NaN"),
        ({"train_labels": torch.tensor([0, 1])}, "4 inputs but labels of shape"),
        ({"test_labels": torch.tensor([0, 2])}, r"test set: labels go from 0 to 2, but must be in \[0, 2\)"),
        ({"test_inputs": torch.zeros(2, 4)}, "test inputs"),
        ({"test_labels": torch.tensor([0.0, 1.0])}, "int64"),
        ({"train_inputs": torch.zeros(4, 3, dtype=torch.int32)}, r"inputs differ: \(3,\) torch.int32 and"),
        ({"train_labels": torch.tensor([0, -1, 0, 1])}, "classes are counted from 0"),
        ({"mean": (0.1,), "std": (1.0,)}, "one number per channel"),
    ],
)
def test_a_bad_dataset_is_refused_by_name(change, says):
    with pytest.raises(UserError, match=says):
        tiny(**change)


def test_iid_deals_out_everything_once():
    labels = digits().labels
    parts = iid(labels, 16, seed=0)
    assert sorted(np.concatenate(parts.parts)) == list(range(1437))
    assert max(parts.sizes) - min(parts.sizes) <= 1
    assert all((np.diff(part) > 0).all() for part in parts.parts)
    with pytest.raises(UserError, match="2000 clients cannot share 1437"):
        iid(labels, 2000, seed=0)
