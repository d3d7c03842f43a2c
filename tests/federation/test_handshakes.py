"""The certificates of a federation with a real zenoh: mutual TLS, and access control by common names.

Each node has a session of its own, as over a network, on loopback.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from swiftfl.federation.authority import Authority
from swiftfl.federation.folder import NodeFolder
from swiftfl.federation.joining import init, install_all, request
from swiftfl.graph import ring

zenoh = pytest.importorskip("zenoh", reason="the extra federation is not installed")

# Ends sometimes do not find each other within a minute while two tests run side by side.
pytestmark = pytest.mark.slow
LIMIT = 30.0


def settings_of(node: NodeFolder, dial: str | None, guarded: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "listen/endpoints": [] if dial else list(node.listen),
        "connect/endpoints": [dial] if dial else [],
        "transport/shared_memory/enabled": False,
        "transport/link/tls": {
            "root_ca_certificate": str(node.authority),
            "listen_certificate": str(node.certificate),
            "listen_private_key": str(node.key),
            "connect_certificate": str(node.certificate),
            "connect_private_key": str(node.key),
            "enable_mtls": True,
            "verify_name_on_connect": True,
        },
    }
    if guarded:
        beside = node.manifest.neighbours
        found["access_control"] = {
            "enabled": True,
            "default_permission": "deny",
            "rules": [
                {
                    "id": each.name,
                    "messages": ["put", "declare_subscriber"],
                    "flows": ["ingress", "egress"],
                    "permission": "allow",
                    "key_exprs": [f"from/{each.name}"],
                }
                for each in beside
            ],
            "subjects": [{"id": each.name, "cert_common_names": [each.common_name]} for each in beside],
            "policies": [{"rules": [each.name], "subjects": [each.name]} for each in beside],
        }
    return found


@contextmanager
def session(node: NodeFolder, dial: str | None = None, guarded: bool = False) -> Iterator[Any]:
    config = zenoh.Config()
    for key, value in settings_of(node, dial, guarded).items():
        config.insert_json5(key, json.dumps(value))
    opened = zenoh.open(config)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def listening(node: NodeFolder) -> Iterator[tuple[Any, list[str]]]:
    """A node that listens, and what it has received, from whoever may send under a neighbour's name."""
    received: list[str] = []
    with session(node, guarded=True) as own:
        subscribers = [
            own.declare_subscriber(f"from/{each.name}", lambda s: received.append(bytes(s.payload).decode()))
            for each in node.manifest.neighbours
        ]
        yield own, received
        for each in subscribers:
            each.undeclare()


def sent(peer: Any, received: list[str], key: str, text: str, seconds: float = LIMIT) -> bool:
    """Send it again and again until it is there, or the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        peer.put(key, text)
        if text in received:
            return True
        time.sleep(0.05)
    return False


def connected(peer: Any) -> int:
    return len(list(peer.info.peers_zid()))


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and not condition():
        time.sleep(0.05)
    return condition()


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    init(tmp_path / "demo", "demo", ["a", "b", "c", "d"], ring(4))
    return tmp_path / "demo"


def test_neighbours_reach_each_other_under_their_own_names_only(demo: Path) -> None:
    a, b, c = (NodeFolder.read(demo / name) for name in "abc")
    with (
        listening(a) as (own, received),
        session(b, a.listen[0]) as peer,
        session(c, a.listen[0]) as stranger,
    ):
        assert sent(peer, received, "from/b", "mine")
        assert until(lambda: connected(own) == 2), "c has a certificate of the federation"
        assert not sent(peer, received, "from/d", "b as d", 1.0)
        assert not sent(stranger, received, "from/b", "c as b", 1.0), "c is no neighbour of a"
        assert not sent(stranger, received, "from/c", "c as c", 1.0)
        assert sent(peer, received, "from/b", "mine again"), "a is none the worse"
        assert set(received) == {"mine", "mine again"}


def test_a_foreign_certificate_does_not_get_through_the_handshake(demo: Path, tmp_path: Path) -> None:
    """Another authority's, although it calls itself the same and so does the node."""
    init(tmp_path / "evil", "demo", ["a", "b", "c", "d"], ring(4))
    a, b, evil = (NodeFolder.read(path) for path in (demo / "a", demo / "b", tmp_path / "evil" / "b"))
    with listening(a) as (own, received), session(b, a.listen[0]) as peer:
        assert sent(peer, received, "from/b", "mine")
        with session(evil, a.listen[0]) as foreign:
            assert not sent(foreign, received, "from/b", "foreign", 2.0)
            assert connected(foreign) == 0
            assert connected(own) == 1


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
    a = NodeFolder.read(demo / "a")
    with (
        listening(a) as (_, received),
        session(NodeFolder.read(demo / "d"), a.listen[0]) as renewed,
        session(NodeFolder.read(kept), a.listen[0]) as old,
        session(b, a.listen[0]) as removed,
    ):
        assert sent(renewed, received, "from/d", "with the new key")
        assert not sent(old, received, "from/d", "with the old key", 1.0)
        assert not sent(removed, received, "from/b", "removed", 1.0)
        assert not sent(removed, received, "from/d", "removed as d", 1.0)
        assert set(received) == {"with the new key"}
