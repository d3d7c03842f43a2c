import numpy as np
import pytest
import torch

from swiftfl.data.augment import Augment
from swiftfl.data.dataset import Dataset
from swiftfl.data.source import Stored
from swiftfl.errors import UserError
from swiftfl.sample import Batch
from swiftfl.workload.samples import Samples

IMAGES = torch.arange(1, 1 + 12 * 2 * 5 * 6, dtype=torch.float32).view(12, 2, 5, 6)


def crop(image, padding, down, right, mirrored):
    padded = torch.nn.functional.pad(image, (padding,) * 4)
    out = padded[:, down : down + image.shape[1], right : right + image.shape[2]]
    return out.flip(-1) if mirrored else out


def test_every_image_is_a_crop_of_itself_drawn_by_client_and_counter():
    augment = Augment(padding=2, seed=4)
    batch = Batch(3, 5, np.arange(12))
    seen = set()
    for image, out in zip(IMAGES, augment(IMAGES, [batch]), strict=True):
        fits = [
            (down, right, mirrored)
            for down in range(5)
            for right in range(5)
            for mirrored in (False, True)
            if torch.equal(out, crop(image, 2, down, right, mirrored))
        ]
        assert len(fits) == 1
        seen.add(fits[0])
    assert len(seen) > 6
    assert {mirrored for _, _, mirrored in seen} == {False, True}
    assert torch.equal(augment(IMAGES, [batch]), augment(IMAGES, [batch]))
    assert not torch.equal(augment(IMAGES, [batch]), augment(IMAGES, [Batch(3, 6, np.arange(12))]))


def test_a_group_is_augmented_as_its_batches_alone():
    augment = Augment(padding=4)
    batches = [Batch(i, 7, np.arange(4)) for i in range(3)]
    together = augment(IMAGES, batches)
    alone = [augment(IMAGES[4 * i : 4 * i + 4], [batch]) for i, batch in enumerate(batches)]
    assert torch.equal(together, torch.cat(alone))


def test_raw_images_are_padded_black_then_normalised():
    raw = torch.full((4, 2, 6, 6), 255, dtype=torch.uint8)
    labels = torch.zeros(4, dtype=torch.int64)
    data = Dataset("d", Stored(raw, labels), Stored(raw, labels), classes=1, mean=(0.5, 0.25), std=(0.5, 0.5))
    samples = Samples(data, torch.device("cpu"), torch.float32, Augment(padding=4))
    inputs, _ = samples.train([Batch(0, 1, np.arange(4)), Batch(1, 1, np.arange(2))])
    assert inputs.shape == (6, 2, 6, 6)
    assert inputs[:, 0].unique().tolist() == pytest.approx([-1.0, 1.0])
    assert inputs[:, 1].unique().tolist() == pytest.approx([-0.5, 1.5])
    ((test, _),) = samples.test(10)
    assert test[:, 0].unique().tolist() == pytest.approx([1.0])


def test_only_images_can_be_augmented():
    with pytest.raises(UserError, match="needs images"):
        Augment()(torch.zeros(3, 64), [Batch(0, 1, np.arange(3))])
