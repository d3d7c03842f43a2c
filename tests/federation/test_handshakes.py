"""The certificates of a federation with a real zenoh: mutual TLS, access control, and messages of liars.

Node a is as `swiftfl node` makes it (`Connection`, with the settings of its folder), on loopback. Whoever
attacks it has a session of its own, with whatever certificates it could have, and no scruples.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from swiftfl.federation.authority import Authority
from swiftfl.federation.connection import Connection
from swiftfl.federation.enrolled import plan_of
from swiftfl.federation.folder import NodeFolder
from swiftfl.federation.joining import init, install_all, request
from swiftfl.graph import ring
from swiftfl.transports.codec import Bytes, Identity
from swiftfl.transports.messages import newest as messages_newest
from swiftfl.transports.messages.message import Message
from swiftfl.transports.messages.wire import MODEL
from swiftfl.transports.wire import Refusal, WireTerms, frames
from swiftfl.transports.zenoh.frames import DATA, envelope
from swiftfl.transports.zenoh.settings import configuration
from swiftfl.vector import Vector

zenoh = pytest.importorskip("zenoh", reason="the extra federation is not installed")

LIMIT, A_MOMENT = 60.0, 1.0
LAYOUT, SIZE = "cd" * 32, 8
X0: Vector = np.zeros(SIZE, np.float32)


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A ring a, b, c, d: b and d are neighbours of a, c is not."""
    init(tmp_path / "demo", "demo", ["a", "b", "c", "d"], ring(4))
    return tmp_path / "demo"


@contextmanager
def node(folder: Path) -> Iterator[Connection]:
    made = Connection(plan_of(NodeFolder.read(folder), LAYOUT), X0, Identity, 1)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def intruder(folder: Path, address: str) -> Iterator[Any]:
    """A session with the certificate of this folder which dials that address and says what it likes."""
    settings = configuration(plan_of(NodeFolder.read(folder), LAYOUT).link())
    settings |= {"access_control": {"enabled": False}, "listen": {"endpoints": []}}
    settings["connect"]["endpoints"] = [address]
    made = zenoh.open(zenoh.Config.from_json5(json.dumps(settings)))
    try:
        yield made
    finally:
        made.close()


def until(condition: Callable[[], object], seconds: float = LIMIT) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def here(a: Connection) -> set[str]:
    return {a.names[k] for k in a.view()}


def connected(session: Any) -> int:
    return len(list(session.info.peers_zid()))


def refused(a: Connection, sender: str, reason: Refusal | None = None) -> int:
    return a.wire.refusals.of(sender, reason)


def newest(a: Connection, name: str) -> float | None:
    """The first number of the newest model of this neighbour."""
    k = next(k for k, each in a.names.items() if each == name)
    return a.transport.read(k, lambda x, version: float(x[0]))


class Liar:
    """Says things to a, under this name, with whatever session it has."""

    def __init__(self, session: Any, demo: Path, name: str, to: str = "a") -> None:
        self._session = session
        plan = plan_of(NodeFolder.read(demo / to), LAYOUT)
        link = plan.link()
        self._key, self._token = link.key(name, to), link.token(name)
        self.terms = WireTerms(plan.federation, LAYOUT, SIZE, "float32", plan.codec, 4096)
        self.number = plan.neighbours[name].index
        self.serial = time.time_ns()

    def appear(self) -> Any:
        return self._session.liveliness().declare_token(self._token)

    def put(self, data: bytes) -> None:
        self._session.put(self._key, data, congestion_control=zenoh.CongestionControl.BLOCK)

    def message(self, x: Vector, version: int, **other: Any) -> list[bytes]:
        """All frames of a message with this model, true but for what `other` says."""
        terms = other.pop("terms", self.terms)
        data = other.pop("data", code(x, version))
        said = {"sender": self.number, "epoch": 1, "version": version, "serial": self.serial, **other}
        self.serial = max(self.serial, said["serial"]) + 1
        head = envelope(DATA, MODEL, said["serial"])
        return [head + frame for frame in frames(terms, data=data, **said)]


def code(x: Vector, version: int) -> Bytes:
    message = Message(x.size, x.dtype)
    message.fill(x, version)
    return message.filled


def test_a_node_speaks_only_under_its_own_name(demo: Path) -> None:
    a_address = NodeFolder.read(demo / "a").listen[0]
    with node(demo / "a") as a, intruder(demo / "b", a_address) as b, intruder(demo / "c", a_address) as c:
        as_d = Liar(b, demo, "d"), Liar(c, demo, "d"), Liar(c, demo, "b")
        tokens = [each.appear() for each in as_d]
        assert until(lambda: connected(b) and connected(c)), "all have certificates of the federation"
        assert not until(lambda: here(a), A_MOMENT), "c is no neighbour of a, and b is not d"
        for liar in as_d:
            for frame in liar.message(X0, 5):
                liar.put(frame)
            liar.put(b"noise")
        assert not until(lambda: refused(a, "d") or refused(a, "b"), A_MOMENT), "nothing of it comes through"
        assert (newest(a, "b"), newest(a, "d")) == (None, None)
        with node(demo / "b") as true:
            assert until(lambda: here(a) == {"b"}), "a is none the worse"
            true.transport.publish(X0 + 3, 7)
            assert until(lambda: newest(a, "b") == 3.0)
        del tokens


def test_the_age_of_a_model_does_not_depend_on_its_senders_clock(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time=lambda: time.time() - 10 * LIMIT, monotonic=time.monotonic)
    monkeypatch.setattr(messages_newest, "time", clock)
    with node(demo / "a") as a, node(demo / "b") as b:
        b.transport.publish(X0 + 3, 7)
        assert until(lambda: newest(a, "b") == 3.0)
        age = a.transport.since_published(next(k for k, name in a.names.items() if name == "b"))
        assert age is not None
        assert 0 <= age < 2 * LIMIT


@pytest.mark.slow
def test_a_foreign_certificate_does_not_get_through_the_handshake(demo: Path, tmp_path: Path) -> None:
    """Another authority's, although it calls itself the same and so does the node."""
    init(tmp_path / "evil", "demo", ["a", "b", "c", "d"], ring(4))
    with node(demo / "a") as a, node(demo / "b"):
        assert until(lambda: here(a) == {"b"})
        with intruder(tmp_path / "evil" / "b", NodeFolder.read(demo / "a").listen[0]) as foreign:
            assert not until(lambda: connected(foreign), 2.0)
            assert here(a) == {"b"}


@pytest.mark.slow
def test_a_removed_node_and_an_old_key_are_refused_from_the_next_handshake_on(demo: Path) -> None:
    authority = Authority.open(demo / "authority")
    b, d = NodeFolder.read(demo / "b"), NodeFolder.read(demo / "d")
    kept = demo / "kept"
    kept.mkdir()
    for path in (d.path, d.key, d.certificate, d.authority, d.folder / "manifest.json"):
        (kept / path.name).write_bytes(path.read_bytes())
        (kept / path.name).chmod(0o600)
    authority.remove("b")
    authority.rotate(request(demo / "d", "d", d.listen[0]))
    install_all(authority, demo)
    address = NodeFolder.read(demo / "a").listen[0]
    with node(demo / "a") as a, intruder(kept, address) as old, intruder(b.folder, address) as removed:
        liars = Liar(old, demo, "d"), Liar(removed, demo, "d")
        tokens = [liar.appear() for liar in liars]
        assert until(lambda: connected(old) and connected(removed))
        for liar in liars:
            for frame in liar.message(X0, 5):
                liar.put(frame)
        assert not until(lambda: here(a) or refused(a, "d"), A_MOMENT)
        assert newest(a, "d") is None
        with node(demo / "d"):
            assert until(lambda: here(a) == {"d"}), "with its new key it is let in"
        del tokens


def test_bad_messages_of_a_neighbour_are_refused_counted_and_logged(
    demo: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With b's own certificate and under b's name: what access control lets through must still be right."""
    with node(demo / "a") as a, intruder(demo / "b", NodeFolder.read(demo / "a").listen[0]) as session:
        b = Liar(session, demo, "b")
        token = b.appear()
        assert until(lambda: here(a) == {"b"})
        good = b.message(X0 + 1, 10)

        def sent() -> bool:
            for frame in good:  # again and again: the first may leave before a is known to listen
                b.put(frame)
            return until(lambda: newest(a, "b") == 1.0, 0.5)

        assert until(sent)
        bad: dict[Refusal, list[bytes]] = {
            Refusal.UNREADABLE: [b"noise"],
            Refusal.REPLAYED: good[:1],
            Refusal.STALE: b.message(X0, 9)[:1],
            Refusal.FORGED: b.message(X0, 11, sender=b.number + 1)[:1],
            Refusal.LAYOUT: b.message(X0, 11, terms=replace(b.terms, layout="00" * 32))[:1],
            Refusal.FEDERATION: b.message(X0, 11, terms=replace(b.terms, federation="00" * 16))[:1],
            Refusal.DTYPE: b.message(X0, 11, terms=replace(b.terms, dtype="float64"))[:1],
            Refusal.CODEC: b.message(X0, 11, terms=replace(b.terms, codec="bf16"))[:1],
            Refusal.OVERSIZED: b.message(X0, 11, data=np.zeros(1 << 20, np.uint8))[:1],
            Refusal.UNDECODABLE: b.message(X0, 11, data=np.ones(96, np.uint8)),
        }
        for reason, data in bad.items():
            before = refused(a, "b", reason)
            for frame in data:
                b.put(frame)
            assert until(lambda: refused(a, "b", reason) > before), reason  # noqa: B023 - used at once
            assert newest(a, "b") == 1.0
        for frame in b.message(X0 + 2, 12):
            b.put(frame)
        assert until(lambda: newest(a, "b") == 2.0), "what is right goes on"
        logged = [record.getMessage() for record in caplog.records]
        for reason in bad:
            assert any("of b (" in line and reason.value in line for line in logged), reason
        del token
