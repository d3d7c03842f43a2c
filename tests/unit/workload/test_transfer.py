"""The order of what is asked of CUDA, on a made-up device that does everything as late as it may."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from fake_cuda import FakeCuda, FakeEvent, FakeStream, cuda, there
from swiftfl.workload import transfer
from swiftfl.workload.device_vector import DeviceVector
from swiftfl.workload.transfer import download, known_since, moment, upload

__all__ = ["cuda"]

SIZES = [1, 4, 7, 8, 23, 64]  # chunks of four: less than one, one, two, more than there are buffers


def numbers(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32) + 1


@pytest.mark.parametrize("size", SIZES)
def test_what_goes_up_is_there_for_what_is_asked_next(cuda: FakeCuda, size: int) -> None:
    x, up, seen = numbers(size), torch.zeros(size), torch.zeros(size)
    before = torch.zeros(size)
    cuda.default.queue.append(lambda: before.copy_(up))  # reads the old numbers: must not see the new ones
    upload(x, there(up))
    x[:] = -1  # the host's memory is its own again
    cuda.default.queue.append(lambda: seen.copy_(up))
    cuda.default.synchronize()
    assert seen.tolist() == numbers(size).tolist()
    assert before.tolist() == [0] * size


@pytest.mark.parametrize("size", SIZES)
def test_what_comes_down_was_computed_before(cuda: FakeCuda, size: int) -> None:
    x, host = torch.zeros(size), np.zeros(size, dtype=np.float32)
    cuda.default.queue.append(lambda: x.copy_(torch.from_numpy(numbers(size))))
    download(there(x), host)
    assert host.tolist() == numbers(size).tolist()


def test_up_and_down_one_after_the_other_share_their_buffers(cuda: FakeCuda) -> None:
    first, second, back = torch.zeros(23), torch.zeros(23), np.zeros(23, dtype=np.float32)
    upload(numbers(23), there(first))
    upload(-numbers(23), there(second))
    download(there(first), back)
    assert back.tolist() == numbers(23).tolist()
    download(there(second), back)
    assert back.tolist() == (-numbers(23)).tolist()


def test_other_types_and_shapes_are_the_same_numbers(cuda: FakeCuda) -> None:
    for size, dtype in ((9, np.float64), (9, np.float16)):
        up, back = torch.zeros(size), np.zeros(size, dtype=dtype)
        upload(numbers(size).astype(dtype), there(up))
        download(there(up), back)
        assert back.tolist() == numbers(size).tolist()
    spread, back = torch.zeros(3, 6), np.zeros((3, 3), dtype=np.float32)
    upload(numbers(9).reshape(3, 3), there(spread[:, ::2]))  # not in one piece
    download(there(spread[:, ::2]), back)
    assert back.reshape(-1).tolist() == numbers(9).tolist()
    assert spread[:, 1::2].abs().sum() == 0
    whole = torch.zeros(9)
    upload(np.array(2.0, dtype=np.float32), there(whole))  # one number for all
    cuda.default.synchronize()
    assert whole.tolist() == [2.0] * 9


def test_a_publication_in_the_background_does_not_wait_for_the_next_gradient(cuda: FakeCuda) -> None:
    """It begins when the model is there, whatever its thread's stream has been asked meanwhile."""
    x, host = torch.zeros(23), np.zeros(23, dtype=np.float32)
    begun: list[str] = []
    cuda.default.queue.append(lambda: x.copy_(torch.from_numpy(numbers(23))))
    since = moment(DeviceVector(there(x)))
    cuda.default.queue.append(lambda: begun.append("the next gradient"))

    def publish() -> None:
        with known_since(since):
            download(there(x), host)

    thread = threading.Thread(target=publish)
    thread.start()
    thread.join(60)
    assert host.tolist() == numbers(23).tolist()
    assert begun == []


def test_a_publication_knows_of_a_stream_that_is_not_its_threads(cuda: FakeCuda) -> None:
    x, host, own = torch.zeros(5), np.zeros(5, dtype=np.float32), FakeStream()
    with cuda.stream(own):
        own.queue.append(lambda: x.copy_(torch.from_numpy(numbers(5))))
        since = moment(DeviceVector(there(x)))

    def publish() -> None:
        with known_since(since):
            download(there(x), host)

    thread = threading.Thread(target=publish)
    thread.start()
    thread.join(60)
    assert host.tolist() == numbers(5).tolist()


def test_there_is_nothing_to_wait_for_on_the_host(cuda: FakeCuda) -> None:
    assert moment(DeviceVector(torch.zeros(3))) is None
    assert moment(np.zeros(3)) is None


def test_the_fake_finds_what_is_out_of_order(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: without its waits, each of them sees the wrong numbers."""
    back = np.zeros(23, dtype=np.float32)
    with monkeypatch.context() as broken:
        broken.setattr(FakeEvent, "synchronize", lambda self: None)  # nobody waits for a chunk
        download(there(torch.from_numpy(numbers(23))), back)
        assert back.tolist() != numbers(23).tolist()
    with monkeypatch.context() as broken:
        broken.setattr(FakeStream, "wait_stream", lambda self, other: None)  # or for what was asked before
        broken.setattr(transfer, "_this_thread", transfer._OfThread())
        x = torch.zeros(23)
        cuda.default.queue.append(lambda: x.copy_(torch.from_numpy(numbers(23))))
        download(there(x), back)
        assert back.tolist() != numbers(23).tolist()
