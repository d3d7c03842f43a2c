"""Datasets from files: what is right is read, what is wrong is refused before it is believed."""

import functools
import gzip
import hashlib
import http.server
import io
import os
import struct
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from swiftfl.data import cifar10 as cifar
from swiftfl.data import dataset
from swiftfl.data import fashion_mnist as fashion
from swiftfl.data.download import Archive, fetch
from swiftfl.errors import UserError
from swiftfl.files import cache_folder


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_fashion(folder, zipped=False, **change):
    draw = np.random.default_rng(0)
    for prefix, count in (("train", 30), ("t10k", 10)):
        images = draw.integers(0, 256, (count, 28, 28)).astype(np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 10
        for name, array in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
            body = change.get(name.replace("-", "_"), idx(array))
            path = folder / (f"{name}.gz" if zipped else name)
            path.write_bytes(gzip.compress(body) if zipped else body)


@pytest.mark.parametrize("zipped", [False, True])
def test_fashion_mnist_from_a_folder(tmp_path, zipped):
    write_fashion(tmp_path, zipped)
    data = dataset("fashion_mnist", tmp_path)
    assert (data.size, data.shape, data.train_inputs.dtype) == (30, (1, 28, 28), torch.uint8)
    first = np.random.default_rng(0).integers(0, 256, (30, 28, 28)).astype(np.uint8)
    assert (data.train_inputs[:, 0].numpy() == first).all()
    assert list(data.test_labels) == list(range(10))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (idx(np.zeros((30, 28, 28), np.uint8))[:-1], "promises 23520 bytes, the file has 23519"),
        (idx(np.zeros((30, 28, 28), np.uint8)) + b"x", "the file has more"),
        (bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**32 - 1, 28, 28), "holds 4294967295 items"),
        (idx(np.zeros((30, 27, 28), np.uint8)), r"items of \(27, 28\), not up to 60000"),
        (b"\x00\x00\x0d\x03" + bytes(12), "not an IDX file"),
        (b"", "not an IDX file"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_bad_idx_file_is_refused(tmp_path, zipped, body, says):
    write_fashion(tmp_path, zipped, train_images_idx3_ubyte=body)
    with pytest.raises(UserError, match=says):
        dataset("fashion_mnist", tmp_path)


def test_a_broken_archive_and_a_missing_one(tmp_path):
    write_fashion(tmp_path, zipped=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match="cannot be read"):
        dataset("fashion_mnist", tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=r"no train-images-idx3-ubyte or .*gz in .*dataset-fashion-mnist"):
        dataset("fashion_mnist", tmp_path)


@pytest.mark.skipif(not fashion.DEBIAN.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_the_real_fashion_mnist():
    data = dataset("fashion_mnist")
    assert (data.size, len(data.test_labels)) == (60_000, 10_000)
    assert data.train_inputs.float().mean().item() / 255 == pytest.approx(data.mean[0], abs=1e-3)


def cifar_file(seed, top=10):
    draw = np.random.default_rng(seed)
    table = draw.integers(0, 256, (20, cifar.RECORD)).astype(np.uint8)
    table[:, 0] = np.arange(20) % top
    return table.tobytes()


@pytest.fixture
def small(monkeypatch):
    """CIFAR-10 with 20 images per file."""
    monkeypatch.setattr(cifar, "IMAGES", 20)
    return {name: cifar_file(k) for k, name in enumerate((*cifar.TRAIN, cifar.TEST))}


def test_cifar10_from_a_folder(tmp_path, small):
    inner = tmp_path / cifar.FOLDER
    inner.mkdir()
    for name, body in small.items():
        (inner / name).write_bytes(body)
    for folder in (tmp_path, inner):
        data = dataset("cifar10", folder, download=False)
        assert (data.size, data.shape, len(data.test_labels)) == (100, (3, 32, 32), 20)
        raw = np.frombuffer(small["data_batch_2.bin"], np.uint8).reshape(20, -1)
        assert (data.train_inputs[20].numpy().ravel() == raw[0, 1:]).all()
        assert data.train_labels[23] == 3
    (inner / cifar.TEST).write_bytes(small[cifar.TEST][:-5])
    with pytest.raises(UserError, match=r"test_batch.bin: has 61455 bytes, the official file has 61460"):
        dataset("cifar10", tmp_path)
    (inner / cifar.TEST).write_bytes(cifar_file(9, top=11))
    with pytest.raises(UserError, match="label above 9"):
        dataset("cifar10", tmp_path)


def packed(files):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return target.getvalue()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A web server for one folder; its `asked` counts the downloads."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            served.asked += 1
            super().do_GET()

        def log_message(self, *arguments):
            pass

    (tmp_path / "offered").mkdir()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    handler = functools.partial(Handler, directory=tmp_path / "offered")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        served.asked = 0
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


def offer(monkeypatch, server, tmp_path, files, md5=None, most=10**7):
    path = tmp_path / "offered" / "cifar.tar.gz"
    path.write_bytes(packed(files))
    md5 = md5 or hashlib.md5(path.read_bytes()).hexdigest()
    address = f"http://127.0.0.1:{server.server_port}/cifar.tar.gz"
    members = {f"{cifar.FOLDER}/{name}": 20 * cifar.RECORD for name in (*cifar.TRAIN, cifar.TEST)}
    monkeypatch.setattr(cifar, "OFFICIAL", Archive(address, md5, most, members))


def test_cifar10_is_downloaded_checked_and_unpacked(tmp_path, small, server, monkeypatch):
    files = {f"{cifar.FOLDER}/{name}": body for name, body in small.items()}
    offer(monkeypatch, server, tmp_path, {"../evil": b"x", **files, f"{cifar.FOLDER}/extra": b"y"})
    folder = tmp_path / "data" / "here"
    assert dataset("cifar10", folder).size == 100
    assert sorted(p.name for p in folder.iterdir()) == [cifar.FOLDER]
    assert sorted(p.name for p in (folder / cifar.FOLDER).iterdir()) == sorted(small)
    assert not (tmp_path / "data" / "evil").exists()
    assert dataset("cifar10", folder).size == 100
    assert server.asked == 1  # no second download


def test_two_at_once_download_once(tmp_path, small, server, monkeypatch):
    offer(monkeypatch, server, tmp_path, {f"{cifar.FOLDER}/{name}": body for name, body in small.items()})
    start = threading.Barrier(2)

    def load(_):
        start.wait(timeout=30)
        return fetch("cifar10", cifar.OFFICIAL, tmp_path / "data")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(load, range(2)))
    assert server.asked == 1
    assert dataset("cifar10", tmp_path / "data", download=False).size == 100
    assert [p.name for p in (tmp_path / "data").iterdir()] == [cifar.FOLDER]


def test_a_download_without_end_is_stopped(tmp_path, small, server, monkeypatch):
    files = {f"{cifar.FOLDER}/{name}": body for name, body in small.items()}
    offer(monkeypatch, server, tmp_path, files, most=1000)
    with pytest.raises(UserError, match="is not the official file"):
        dataset("cifar10", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_the_cache_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("cifar10") == tmp_path / "swiftfl" / "cifar10"


def test_a_false_archive_leaves_nothing_behind(tmp_path, small, server, monkeypatch):
    files = {f"{cifar.FOLDER}/{name}": body for name, body in small.items()}
    offer(monkeypatch, server, tmp_path, files, md5="0" * 32)
    with pytest.raises(UserError, match="checksum differs"):
        dataset("cifar10", tmp_path / "data")
    files.pop(f"{cifar.FOLDER}/{cifar.TEST}")
    offer(monkeypatch, server, tmp_path, files)
    with pytest.raises(UserError, match=r"no file cifar-10-batches-bin/test_batch.bin of 61460 bytes"):
        dataset("cifar10", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_no_network_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "OFFICIAL", Archive("http://127.0.0.1:9/cifar.tar.gz", "0", 1, {}))
    with pytest.raises(UserError, match=r"cifar10: its files are not in .* could not be fetched") as caught:
        dataset("cifar10", tmp_path / "new" / "folder")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []  # the folders that were made for it are gone again


@pytest.mark.skipif("SWIFTFL_CIFAR10" not in os.environ, reason="SWIFTFL_CIFAR10 names no folder")
def test_the_real_cifar10():
    data = dataset("cifar10", os.environ["SWIFTFL_CIFAR10"], download=False)
    assert data.size == 50_000
    assert (torch.bincount(data.train_labels) == 5000).all()
    assert (torch.bincount(data.test_labels) == 1000).all()
    for k in range(3):
        counts = np.bincount(data.train_inputs[:, k].numpy().ravel(), minlength=256) / (50_000 * 1024)
        values = np.arange(256) / 255
        mean = counts @ values
        assert mean == pytest.approx(data.mean[k], abs=1e-3)
        assert (counts @ (values - mean) ** 2) ** 0.5 == pytest.approx(data.std[k], abs=1e-3)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("imagenet", {}, "no dataset 'imagenet': choose from cifar10, digits"),
        ("digits", {"folder": "/tmp"}, "digits comes from no folder"),
        ("digits", {"size": 3}, "option size: there is no such setting"),
        ("synthetic", {}, "option samples is missing: dataset synthetic needs it"),
        ("synthetic", {"samples": 10**12}, r"10{12} samples of 20 numbers needs 192 TB of memory"),
        ("synthetic", {"samples": 10**30}, "samples"),
        ("synthetic", {"samples": 10, "shape": [10**6, 10**6]}, "needs .* of memory"),
        ("synthetic", {"samples": 10, "classes": 10**12}, "needs .* of memory"),
        ("synthetic", {"samples": "many"}, "samples must be a whole number"),
        ("synthetic", {"samples": 10, "shape": "ab"}, "shape"),
        ("synthetic", {"samples": 0}, "positive sizes"),
    ],
)
def test_unknown_requests_are_refused(name, options, says):
    with pytest.raises(UserError, match=says):
        dataset(name, **options)


def test_synthetic_is_seeded_balanced_and_separable():
    data = dataset("synthetic", samples=500, shape=8, classes=4, seed=3, separation=6.0)
    again = dataset("synthetic", samples=500, shape=8, classes=4, seed=3, separation=6.0)
    assert torch.equal(data.train_inputs, again.train_inputs)
    assert (torch.bincount(data.train_labels) == 125).all()
    centres = torch.stack([data.train_inputs[data.train_labels == k].mean(0) for k in range(4)])
    nearest = torch.cdist(data.test_inputs, centres).argmin(1)
    assert (nearest == data.test_labels).float().mean() > 0.95
