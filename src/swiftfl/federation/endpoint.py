"""Metrics for Prometheus and a health check over HTTP: read only, on this machine unless said otherwise."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from swiftfl.errors import UserError
from swiftfl.federation.folder import is_loopback

LOOPBACK = "127.0.0.1"
_AT_ONCE, _PATIENCE = 16, 10.0  # requests, and seconds that one may take to be said
_NODE = {
    "step": ("swiftfl_step", "gauge", "The step that the node is taking"),
    "steps_per_second": ("swiftfl_steps_per_second", "gauge", "Steps per second, lately"),
    "seconds_since_step": ("swiftfl_seconds_since_step", "gauge", "Time since the newest step began"),
    "longest_gap_seconds": ("swiftfl_longest_gap_seconds", "gauge", "Longest time between two steps"),
    "loss": ("swiftfl_loss", "gauge", "Loss of the newest batch"),
    "nodes": ("swiftfl_nodes", "gauge", "Nodes that can reach each other, this one included"),
    "own_weight": ("swiftfl_own_weight", "gauge", "Weight of the node's own model"),
    "compute_seconds": ("swiftfl_compute_seconds_total", "counter", "Time spent computing"),
    "communication_seconds": ("swiftfl_communication_seconds_total", "counter", "Time spent communicating"),
    "renewals": ("swiftfl_renewals_total", "counter", "How often the node has taken new weights"),
    "discarded": ("swiftfl_discarded_steps_total", "counter", "Steps that were not finite"),
}
_NEIGHBOUR = {
    "here": ("swiftfl_neighbour_here", "gauge", "Whether the neighbour is there"),
    "weight": ("swiftfl_neighbour_weight", "gauge", "Weight of the neighbour's model"),
    "steps": ("swiftfl_neighbour_step", "gauge", "Step of the newest model of the neighbour"),
    "age_seconds": (
        "swiftfl_neighbour_model_age_seconds",
        "gauge",
        "Age of the newest model of the neighbour",
    ),
}
_REFUSED = ("swiftfl_refused_messages_total", "counter", "Messages that were refused, by sender and reason")
_HEALTH = ("name", "phase", "step", "seconds_since_step", "nodes", "loss")
Labels = dict[str, str]


def metrics_text(status: dict[str, Any]) -> str:
    """The status in the text format of Prometheus.

    >>> print(metrics_text({"step": 7, "neighbours": {"b": {"here": True}}}), end="")
    # HELP swiftfl_step The step that the node is taking
    # TYPE swiftfl_step gauge
    swiftfl_step 7
    # HELP swiftfl_neighbour_here Whether the neighbour is there
    # TYPE swiftfl_neighbour_here gauge
    swiftfl_neighbour_here{neighbour="b"} 1
    """
    return "".join(f"{line}\n" for line in _lines(status))


def _lines(status: dict[str, Any]) -> Iterator[str]:
    for key, about in _NODE.items():
        yield from _family(about, [({}, status.get(key))])
    for key, about in _NEIGHBOUR.items():
        near = status["neighbours"].items()
        yield from _family(about, [({"neighbour": name}, values.get(key)) for name, values in near])
    refusals = status.get("refusals", {})
    yield from _family(
        _REFUSED,
        [
            ({"sender": sender, "reason": reason}, count)
            for sender, reasons in refusals.items()
            for reason, count in reasons.items()
        ],
    )


def _family(about: tuple[str, str, str], rows: list[tuple[Labels, float | None]]) -> Iterator[str]:
    """The samples of one name; nothing where none has a number."""
    name, kind, text = about
    there = [(labels, value) for labels, value in rows if value is not None]
    if there:
        yield from (f"# HELP {name} {text}", f"# TYPE {name} {kind}")
    for labels, value in there:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    r"""A label's value.

    >>> _escaped('a "b" c')
    'a \\"b\\" c'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    """A number as Prometheus reads it.

    >>> _number(True), _number(0.25), _number(math.inf), _number(-math.inf), _number(math.nan)
    ('1', '0.25', '+Inf', '-Inf', 'NaN')
    """
    if math.isfinite(value):
        return f"{float(value):.12g}"
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


class _MetricsServer(ThreadingHTTPServer):
    """Serves a few at a time, and says nothing of clients that break off."""

    def __init__(self, *given: Any) -> None:
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """It is their affair."""


class Endpoint:
    """GET /metrics and /health, from `serve` until `close`; that an address cannot be had is known before."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]") or LOOPBACK
        if not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise UserError(f"--metrics {address}: give a PORT, or HOST:PORT such as 127.0.0.1:9464")
        try:
            self._server = _MetricsServer((host, int(port)), BaseHTTPRequestHandler)
        except OSError as error:
            raise UserError(f"--metrics {address}: {error.strerror or error}") from None
        self.beyond = not is_loopback(host)
        """Whether others than this machine can read it."""
        self.port: int = self._server.server_address[1]
        self._thread: threading.Thread | None = None

    def serve(self, status: Callable[[], dict[str, Any]]) -> None:
        self._server.RequestHandlerClass = _handler(status)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="swiftfl-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join(2.0)
        self._server.server_close()


def _handler(status: Callable[[], dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._reply(200, "text/plain; version=0.0.4", metrics_text(status()))
            elif path == "/health":
                about = status()
                short = {key: about[key] for key in _HEALTH}
                healthy = about["phase"] != "failed"
                self._reply(200 if healthy else 503, "application/json", json.dumps(short) + "\n")
            else:
                self._reply(404, "text/plain", "/metrics or /health\n")

        def _reply(self, code: int, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *values: object) -> None:
            """Nothing is logged of requests."""

    return Handler
