"""The address and the process of a dashboard: uvicorn with our application, until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swiftfl.errors import UserError
from swiftfl.views import Library

LOCAL = "127.0.0.1"
PORT = 8484
"""Where a dashboard is if nothing else is said; if that is taken, the next free one."""
_TOKEN_BYTES = 24
_GRACE = 3  # seconds for replies that are on their way when the server ends


@dataclass(frozen=True)
class Address:
    """Where a dashboard is, with the token that its address needs."""

    listening: socket.socket
    host: str
    token: str | None

    @property
    def port(self) -> int:
        return int(self.listening.getsockname()[1])

    @property
    def names(self) -> tuple[str, ...]:
        """What this server may be called."""
        return (self.host, socket.gethostname(), socket.getfqdn()) if self.token else (self.host,)

    @property
    def url(self) -> str:
        """What to type into a browser."""
        shown = self.host
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(shown).is_unspecified:
                shown = socket.gethostname()
            elif ":" in shown:
                shown = f"[{shown}]"
        query = "" if self.token is None else f"?token={self.token}"
        return f"http://{shown}:{self.port}/{query}"


def listen(host: str = LOCAL, port: int | None = None, with_token: bool = False) -> Address:
    """Take an address; on any but this machine's own, and where asked for, with a random token.

    Raises:
        UserError: The host or the port cannot be had.
    """
    try:
        family, _, _, _, resolved = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host}: {getattr(error, 'strerror', None) or error}") from None
    local = ipaddress.ip_address(str(resolved[0]).partition("%")[0]).is_loopback
    ports = [PORT, 0] if port is None else [port]
    for last, wanted in zip([False] * (len(ports) - 1) + [True], ports, strict=True):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((resolved[0], wanted))
            listening.listen(128)
        except OSError as error:
            listening.close()
            if last or error.errno != errno.EADDRINUSE:
                raise UserError(f"cannot serve at {host}, port {wanted}: {error.strerror or error}") from None
        else:
            token = secrets.token_urlsafe(_TOKEN_BYTES) if with_token or not local else None
            return Address(listening, host, token)
    raise AssertionError("a free port was found or refused")


def serve(
    roots: Sequence[Path], address: Address, later: bool = False, show: bool = False, beside: bool = False
) -> None:
    """Serve the runs of some folders until Ctrl-C or SIGTERM.

    Args:
        roots: run folders, and folders of runs.
        address: where.
        later: whether folders that are not there yet may appear.
        show: open it in a browser.
        beside: end when standard input does, which the process of a run holds.
    """
    import uvicorn

    from swiftfl.dashboard.application import application

    library = Library(roots, later)
    ended = threading.Event()
    app = application(library, address.names, address.token, lambda: server.should_exit or ended.is_set())
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,  # it would show the token
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE,
    )
    server = uvicorn.Server(config)
    print(address.url, flush=True)
    if beside:

        def end_with_the_run() -> None:
            sys.stdin.buffer.read()
            ended.set()
            server.should_exit = True

        threading.Thread(target=end_with_the_run, daemon=True).start()
    else:
        print("Ctrl-C ends the dashboard.", file=sys.stderr, flush=True)
    if show:
        threading.Thread(target=webbrowser.open, args=(address.url,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):  # that is how it ends
        server.run(sockets=[address.listening])
    address.listening.close()
    if beside:
        os._exit(0)  # the thread that waits for the end of standard input cannot be awaited
