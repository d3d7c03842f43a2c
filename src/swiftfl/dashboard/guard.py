"""Who may ask for what. Everything here is about requests before anybody has looked at a file.

- Only GET.
- The Host header is an address in digits, localhost or a name of this machine: a page of another site, whose
  name was made to point here (DNS rebinding), has its own name there.
- A script or stream that another site's page asks for is refused.
- Where there is a token, whatever tells something of runs needs it; it is compared in constant time.
- Every reply forbids scripts, styles and connections from anywhere but here, frames and guessing of types.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qs

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""What a page of ours may load: nothing from elsewhere, and nothing that stands in its own text."""
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)
_PUBLIC = "/static/"  # the page's own files are the same everywhere
_LONGEST_QUERY = 10_000


class Guard:
    """Around an application: lets through what may be asked.

    Args:
        application: what replies.
        names: host names that mean this server, beside addresses in digits and localhost.
        token: what the address has to hold; None where none is needed.
    """

    def __init__(self, application: Application, names: Iterable[str] = (), token: str | None = None) -> None:
        self._application = application
        self._names = {"localhost", *(name.lower() for name in names)}
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # there are no web sockets here
        refusal = self._refusal(scope)
        if refusal is None:
            await self._application(scope, receive, _with_headers(send))
        else:
            await _refuse(_with_headers(send), *refusal)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the reason; None where nothing is wrong."""
        headers = [(name.lower(), value) for name, value in scope["headers"]]
        if scope["method"] != "GET":
            return 405, "there is nothing here but to look: use GET"
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._is_here(hosts[0].decode("latin-1")):
            return 403, "this server does not go by that name"
        sent = dict(headers)
        if sent.get(b"sec-fetch-site") == b"cross-site" and sent.get(b"sec-fetch-mode") != b"navigate":
            return 403, "another site's page has nothing to ask here"
        if len(scope["query_string"]) > _LONGEST_QUERY:
            return 400, "the request is too long"
        if not scope["path"].startswith(_PUBLIC) and not self._has_token(scope["query_string"]):
            return 403, "the address lacks its token: use the one that was printed"
        return None

    def _is_here(self, host: str) -> bool:
        name = _without_port(host)
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower().rstrip(".") in self._names
        return True

    def _has_token(self, query: bytes) -> bool:
        if self._token is None:
            return True
        given = parse_qs(query.decode("latin-1")).get("token", [""])[0]
        return hmac.compare_digest(given.encode(errors="replace"), self._token)


def _without_port(host: str) -> str:
    """
    >>> _without_port("[::1]:80"), _without_port("localhost:8484"), _without_port("127.0.0.1")
    ('[::1]', 'localhost', '127.0.0.1')
    """
    if host.startswith("["):
        return host[: host.find("]") + 1]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _with_headers(send: Send) -> Send:
    extra = [(name.encode(), value.encode()) for name, value in HEADERS]

    async def with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *extra]
        await send(message)

    return with_headers


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 405:
        headers.append((b"allow", b"GET"))
    headers.append((b"cache-control", b"no-store"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
