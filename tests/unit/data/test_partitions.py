import errno
import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftfl.data import partition
from swiftfl.data.partitions import bootstrap, by_size, cyclic_classes, dirichlet, from_file, iid, label_skew
from swiftfl.errors import UserError


@st.composite
def requests(draw):
    """Labels, clients (no more than samples) and a seed."""
    labels = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=120)))
    return labels, draw(st.integers(1, min(30, labels.size))), draw(st.integers(0, 9))


shares_of_30 = st.lists(st.floats(0.01, 5), min_size=30, max_size=30)
balanced = np.repeat(np.arange(10), 50)


def check_all_once(parts, labels, clients):
    assert len(parts) == clients
    assert sorted(np.concatenate(parts.parts)) == list(range(labels.size))
    for part in parts.parts:
        assert part.dtype == np.int64
        assert part.size > 0
        assert (np.diff(part) > 0).all()
    assert (parts.histogram(labels).sum(axis=0) == np.bincount(labels)).all()
    assert tuple(parts.histogram(labels).sum(axis=1)) == parts.sizes


@given(request=requests(), alpha=st.floats(1e-3, 100), shares=shares_of_30)
@settings(max_examples=60, deadline=None)
def test_no_sample_is_lost_or_used_twice(request, alpha, shares):
    labels, clients, seed = request
    for parts in (iid(labels, clients, seed), cyclic_classes(labels, clients, seed)):
        check_all_once(parts, labels, clients)
        assert max(parts.sizes) - min(parts.sizes) <= 1
    check_all_once(dirichlet(labels, clients, seed, alpha), labels, clients)
    check_all_once(by_size(labels, clients, seed, shares[:clients]), labels, clients)


@given(request=requests(), degree=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_label_skew_gives_the_share_or_says_which_share_it_can(request, degree):
    labels, clients, seed = request
    classes = int(labels.max()) + 1
    try:
        parts = label_skew(labels, clients, seed, degree)
    except UserError as error:
        possible = float(str(error).split("at most ")[1].split()[0])
        assert possible < degree
        parts, degree = label_skew(labels, clients, seed, possible), possible
    check_all_once(parts, labels, clients)
    assert max(parts.sizes) - min(parts.sizes) <= 1
    for i, own in enumerate(parts.histogram(labels)):
        assert own[i % classes] >= int(degree * parts.sizes[i] + 1e-9)


def test_label_skew_of_degree_half_on_balanced_classes():
    own = label_skew(balanced, 10, 0, 0.5).histogram(balanced)
    assert (own.sum(axis=1) == 50).all()
    share = np.diag(own) / 50
    assert (share >= 0.5).all()
    assert share.mean() == pytest.approx(0.55, abs=0.05)  # half, and a tenth of the random half
    assert (np.diag(label_skew(balanced, 10, 0, 1.0).histogram(balanced)) == 50).all()


def test_cyclic_classes_is_appendix_a2():
    # fewer clients than classes: n_c = ceil(10 / 4) = 3 classes each, a third of the 125 samples each
    own = cyclic_classes(balanced, 4, 0).histogram(balanced)
    assert list(own[0]) == [42, 42, 41, 0, 0, 0, 0, 0, 0, 0]
    assert list(own[1]) == [0, 0, 0, 42, 42, 41, 0, 0, 0, 0]
    assert list(own[2]) == [0, 0, 0, 0, 0, 0, 42, 42, 41, 0]
    # classes 9, 0, 1: 42 of 9; of 0 the last 8, of 1 the last 8, then on to 2, 3, ... as they have left
    assert list(own[3]) == [8, 8, 9, 8, 8, 9, 8, 8, 9, 50]
    # as many clients as classes: one class each; twice as many: each class goes to i and i + 10
    assert (cyclic_classes(balanced, 10, 0).histogram(balanced) == np.eye(10) * 50).all()
    twice = cyclic_classes(balanced, 20, 0).histogram(balanced)
    assert (twice == np.vstack([np.eye(10), np.eye(10)]) * 25).all()


def test_cyclic_classes_fills_from_the_next_class():
    labels = np.array([0] * 2 + [1] * 6 + [2] * 4)
    own = cyclic_classes(labels, 3, 0).histogram(labels)  # one class each, four samples each
    assert own.tolist() == [[2, 2, 0], [0, 4, 0], [0, 0, 4]]


def test_dirichlet_goes_from_one_label_to_iid():
    few = dirichlet(balanced, 10, 0, 0.01).histogram(balanced)
    even = dirichlet(balanced, 10, 0, 1000.0).histogram(balanced)
    assert (few > 0).sum() < 30
    assert (even > 0).all()
    assert even.max() <= 8


def test_by_size_follows_the_shares():
    assert by_size(balanced, 3, 0, [1, 1, 2]).sizes == (125, 125, 250)
    assert by_size(np.zeros(4, int), 3, 0, [1e-9, 1, 1e-9]).sizes == (1, 2, 1)


def test_shares_whose_sum_overflows_are_shares_all_the_same():
    assert by_size(balanced, 2, 0, [1e308, 1e308]).sizes == (250, 250)
    assert by_size(balanced, 3, 0, [1e308, 1e308, 5e307]).sizes == (200, 200, 100)


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "folder"])
def test_a_file_that_is_none_is_refused(tmp_path, kind):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"not a regular file|Is a directory"):
        from_file(balanced, 2, tmp_path / kind)


def test_bootstrap_may_reuse_and_serves_more_clients_than_samples():
    parts = bootstrap(np.arange(5), 40, 0, samples=8)
    assert parts.sizes == (8,) * 40
    assert all(len(set(part)) < 8 for part in parts.parts)
    assert (parts[0] == bootstrap(np.arange(5), 3, 0, samples=8)[0]).all()  # its own stream
    assert parts.histogram(np.arange(5)).shape == (40, 5)


def test_from_file(tmp_path):
    path = tmp_path / "parts.json"
    path.write_text(json.dumps([[2, 0], [1, 3]]))
    assert [list(part) for part in from_file(np.zeros(4, int), 2, path).parts] == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[[0, 1], [1, 2, 3]]", "sample 1 is used 2 times"),
        ("[[0, 1], [2]]", "sample 3 is used 0 times"),
        ("[[0, 1, 2, 3], []]", "client 1 must have a list"),
        ("[[0, 1, 2], [3.5]]", "client 1 must have a list"),
        ("[[0, 1, 2], [4]]", r"client 1 has positions outside \[0, 4\)"),
        ("[[0, 1, 2, 3]]", "must be a JSON list of 2 lists"),
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, content, says):
    path = tmp_path / "parts.json"
    path.write_text(content)
    with pytest.raises(UserError, match=says):
        partition(f"from_file:{path}", np.zeros(4, int), 2, 0)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("label_skew:1.5", r"degree must be in \[0, 1\], not 1.5"),
        ("label_skew:nan", r"degree must be in \[0, 1\]"),
        ("label_skew:x", "written label_skew:DEGREE, and degree must be a number"),
        ("label_skew", "degree is missing"),
        ("iid:3", "it is written iid"),
        ("dirichlet:0", "alpha must be positive"),
        ("by_size:1,2", "2 shares for 7 clients"),
        ("by_size:1,1,1,1,1,1,-1", "shares must be positive"),
        ("bootstrap:99999999999", "bootstrap:99999999999 for 7 clients needs 5.6 TB of memory"),
        ("bootstrap:0", "at least 1 client and 1 sample"),
        ("sorted", "no partition 'sorted'"),
        ("label_skew:1", "clients want 91 samples of label 0, there are 50; a degree of at most 0.549"),
    ],
)
def test_impossible_requests_are_refused(spec, says):
    with pytest.raises(UserError, match=says):
        partition(spec, balanced, 7 if spec != "label_skew:1" else 11, 0)


def test_more_clients_than_samples_are_refused():
    for spec in ("iid", "cyclic_classes", "label_skew:0.5", "dirichlet:1"):
        with pytest.raises(UserError, match="501 clients cannot share 500"):
            partition(spec, balanced, 501, 0)


@pytest.mark.parametrize("clients", [5, 60])
def test_the_histogram_is_drawn(tmp_path, clients):
    path = tmp_path / "labels.png"
    partition("dirichlet:0.3", balanced, clients, 0).draw_histogram(path, balanced)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_does_not_fit_on_the_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(figure, path, **options):
        path.write_bytes(b"half a picture")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(UserError, match=r"cannot write .*parts.png: No space left on device"):
        partition("iid", balanced, 4, 0).draw_histogram(tmp_path / "parts.png", balanced)
    assert list(tmp_path.iterdir()) == []
