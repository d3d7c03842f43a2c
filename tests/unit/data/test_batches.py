import numpy as np
import pytest

from swiftfl.data.batches import Batches, NoSamples
from swiftfl.errors import UserError


def test_each_epoch_passes_once_over_the_clients_own_data():
    own = np.arange(100, 111)
    batches = Batches(own, batch_size=4, seed=3, client=5)
    for epoch in range(3):
        drawn = [batches(epoch * 3 + k).indices for k in (1, 2, 3)]
        assert [d.size for d in drawn] == [4, 4, 3]
        assert sorted(np.concatenate(drawn)) == list(own)


def test_a_batch_depends_on_seed_client_and_counter_only():
    own = np.arange(50)
    forward = Batches(own, 8, seed=1, client=2)
    backward = Batches(own, 8, seed=1, client=2)
    drawn = {c: forward(c).indices.copy() for c in range(1, 20)}
    for c in reversed(range(1, 20)):
        assert (backward(c).indices == drawn[c]).all()
    assert (Batches(own, 8, seed=1, client=3)(1).indices != drawn[1]).any()
    assert (Batches(own, 8, seed=2, client=2)(1).indices != drawn[1]).any()
    assert (drawn[1] != drawn[8]).any()  # another epoch, another shuffle


def test_a_batch_carries_its_key():
    batch = Batches(np.arange(3), 10, seed=0, client=7)(4)
    assert (batch.client, batch.counter, batch.indices.size) == (7, 4, 3)
    assert NoSamples(7)(4).indices.size == 0


@pytest.mark.parametrize(
    ("indices", "size", "c", "says"),
    [(3, 0, 1, "batch size"), (0, 2, 1, "client 9 has no training samples"), (3, 2, 0, "start at 1")],
)
def test_impossible_requests_are_refused(indices, size, c, says):
    with pytest.raises(UserError, match=says):
        Batches(np.arange(indices), size, seed=0, client=9)(c)
