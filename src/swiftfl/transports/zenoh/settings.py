"""What a zenoh session is told: where it listens, whom it dials, who may say what to it.

A session is a peer that is connected with its neighbours and with nobody else: it looks for no one by
multicast or gossip, and passes nothing on. Keys are `swiftfl/FEDERATION/SENDER/RECEIVER`, for messages, and
`swiftfl/FEDERATION/NAME/alive`, for the token that tells neighbours who is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError

LEASE_MS = 2000
"""After so long without a sign of life a neighbour counts as gone; one that dies is noticed at once."""
_WAIT_BEFORE_CLOSE_US = 10_000_000  # a chunk may take so long to leave: 0.2 Mbit/s; see also `link`
_SEND_BUFFER = 1 << 20  # bytes of the kernel's buffer: what waits in it is a model that gets old
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_OUTGOING = ("put", "liveliness_token", "declare_queryable")
_READING = ("declare_subscriber", "declare_liveliness_subscriber", "liveliness_query")


@dataclass(frozen=True)
class Credentials:
    """Files of one end: the federation's certificate, its own one, and its key."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class LinkSettings:
    """One end. Addresses are as zenoh writes them, tls/HOST:PORT; without credentials all is plain TCP on
    this machine, tcp/127.0.0.1:PORT. `neighbours` are names, and what the certificates call them."""

    federation: str
    name: str
    neighbours: Mapping[str, str]
    listen: Sequence[str] = ()
    dial: Sequence[str] = ()
    credentials: Credentials | None = None

    def key(self, sender: str, receiver: str) -> str:
        return f"swiftfl/{self.federation}/{sender}/{receiver}"

    def token(self, name: str) -> str:
        return self.key(name, "alive")


def configuration(settings: LinkSettings) -> dict[str, Any]:
    """The configuration of the session, as JSON values."""
    for address in (*settings.listen, *settings.dial):
        _check(address, settings.credentials is not None)
    link: dict[str, Any] = {
        "tx": {
            "lease": LEASE_MS,
            "queue": {"congestion_control": {"block": {"wait_before_close": _WAIT_BEFORE_CLOSE_US}}},
        },
        "tcp": {"so_sndbuf": _SEND_BUFFER},
    }
    found: dict[str, Any] = {
        "mode": "peer",
        "listen": {"endpoints": list(settings.listen)},
        "connect": {
            "endpoints": list(settings.dial),
            "exit_on_failure": False,
            "timeout_ms": -1,
            "retry": {"period_init_ms": 200, "period_max_ms": 1000, "period_increase_factor": 1.5},
        },
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "open": {"return_conditions": {"connect_scouted": False, "declares": False}},
        "transport": {"shared_memory": {"enabled": False}, "link": link},
    }
    if settings.credentials is not None:
        link["tls"] = _tls(settings.credentials)
        found["access_control"] = access_control(settings)
    return found


def _check(address: str, secure: bool) -> None:
    protocol, _, place = address.partition("/")
    if secure and protocol != "tls":
        raise UserError(f"{address} is without TLS, which only --insecure allows, on one machine")
    if not secure and (protocol != "tcp" or place.rpartition(":")[0] not in _LOOPBACK):
        raise UserError(f"--insecure is for one machine: {address} is not tcp/127.0.0.1:PORT")


def _tls(files: Credentials) -> dict[str, Any]:
    return {
        "root_ca_certificate": str(files.authority),
        "listen_certificate": str(files.certificate),
        "listen_private_key": str(files.key),
        "connect_certificate": str(files.certificate),
        "connect_private_key": str(files.key),
        "enable_mtls": True,
        "verify_name_on_connect": True,
        "close_link_on_expiration": True,
        "so_sndbuf": _SEND_BUFFER,
    }


def access_control(settings: LinkSettings) -> dict[str, Any]:
    """Nothing is allowed but: a neighbour speaks under its own name, to us, and reads what is meant for it.

    Who a neighbour is, its certificate says (the common name).
    """
    rules: list[dict[str, Any]] = []
    subjects, policies = [], []
    me = settings.name

    def allow(name: str, flow: str, messages: Sequence[str], keys: Sequence[str]) -> str:
        rule = f"{name}-{len(rules)}"
        rules.append(
            {
                "id": rule,
                "permission": "allow",
                "flows": [flow],
                "messages": list(messages),
                "key_exprs": list(keys),
            }
        )
        return rule

    for name, common_name in settings.neighbours.items():
        theirs = [settings.key(name, me), settings.token(name)]
        mine = [settings.key(me, name), settings.token(me)]
        subjects.append({"id": name, "cert_common_names": [common_name]})
        own = [
            allow(name, "ingress", _OUTGOING, theirs),
            allow(name, "egress", _OUTGOING, mine),
            allow(name, "ingress", _READING, mine),
            allow(name, "egress", _READING, theirs),
        ]
        policies.append({"rules": own, "subjects": [name]})
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }
