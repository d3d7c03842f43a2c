"""Metrics for Prometheus and a health check over HTTP: read only, on this machine unless said otherwise."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from swiftfl.errors import UserError

_GAUGES = {
    "step": ("swiftfl_step", "counter", "Steps that the node has begun"),
    "steps_per_second": ("swiftfl_steps_per_second", "gauge", "Steps per second, lately"),
    "loss": ("swiftfl_loss", "gauge", "Loss of the newest batch"),
    "nodes": ("swiftfl_nodes", "gauge", "Nodes that can reach each other, this one included"),
    "longest_gap_seconds": ("swiftfl_longest_gap_seconds", "gauge", "Longest time between two steps"),
    "compute_seconds": ("swiftfl_compute_seconds", "counter", "Time spent computing"),
    "communication_seconds": ("swiftfl_communication_seconds", "counter", "Time spent communicating"),
    "renewals": ("swiftfl_renewals", "counter", "How often the node has taken new weights"),
    "discarded": ("swiftfl_discarded", "counter", "Steps that were not finite"),
    "own_weight": ("swiftfl_own_weight", "gauge", "Weight of the node's own model"),
}
_OF_NEIGHBOURS = {
    "here": ("swiftfl_neighbour_here", "gauge", "Whether the neighbour is there"),
    "weight": ("swiftfl_neighbour_weight", "gauge", "Weight of the neighbour's model"),
    "steps": ("swiftfl_neighbour_step", "gauge", "Steps behind the newest model of the neighbour"),
    "refused": ("swiftfl_neighbour_refused", "counter", "Messages of the neighbour that were refused"),
}


def metrics_text(status: dict[str, Any]) -> str:
    """The status in the text format of Prometheus.

    >>> print(metrics_text({"step": 7, "neighbours": {"b": {"here": True}}}).splitlines()[2])
    swiftfl_step 7
    """
    return "\n".join(_lines(status)) + "\n"


def _lines(status: dict[str, Any]) -> Iterator[str]:
    for key, (name, kind, text) in _GAUGES.items():
        if status.get(key) is not None:
            yield from (f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {_number(status[key])}")
    for key, (name, kind, text) in _OF_NEIGHBOURS.items():
        rows = {who: about[key] for who, about in status["neighbours"].items() if about.get(key) is not None}
        if rows:
            yield from (f"# HELP {name} {text}", f"# TYPE {name} {kind}")
            yield from (f'{name}{{neighbour="{who}"}} {_number(value)}' for who, value in rows.items())


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{float(value):.10g}"


class Endpoint:
    """GET /metrics and /health, until `close`."""

    def __init__(self, address: str, status: Callable[[], dict[str, Any]]) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UserError(f"--metrics {address}: give HOST:PORT, such as 127.0.0.1:9464")
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(status))
        except (OSError, OverflowError) as error:
            raise UserError(f"--metrics {address}: {error}") from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="swiftfl-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)


def _handler(status: Callable[[], dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._reply(200, "text/plain; version=0.0.4", metrics_text(status()))
            elif self.path == "/health":
                about = status()
                short = {key: about[key] for key in ("name", "phase", "step", "nodes", "loss")}
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
            self.wfile.write(data)

        def log_message(self, format: str, *values: object) -> None:
            """Nothing is logged of requests."""

    return Handler
