"""`swiftfl node`, `federation status` and `consensus`, metrics and health: real commands, real nodes, TLS."""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from node_processes import LIMIT, Nodes, nodes, ran, swiftfl, until
from swiftfl.errors import UserError
from swiftfl.federation.endpoint import Endpoint, metrics_text
from swiftfl.transports.ports import free_ports
from terminals import Terminal

pytest.importorskip("zenoh")

# --- the text format of Prometheus, as its documentation has it -----------------------------------------

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
_VALUE = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|Inf)|NaN"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? ({_VALUE})")


def parsed(text: str) -> dict[tuple[str, str], float]:
    """Every sample; what breaks a rule of the format fails."""
    assert text.endswith("\n")
    found: dict[tuple[str, str], float] = {}
    kinds: dict[str, str] = {}
    now = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, _, words = line[7:].partition(" ")
            assert re.fullmatch(_NAME, name)
            assert words
            assert name not in kinds, "a name's lines stand together"
            now = name
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == now
            assert kind in ("counter", "gauge")
            assert (kind == "counter") == name.endswith("_total")
            kinds[name] = kind
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample, line
            assert sample[1] == now, line
            assert sample[1] in kinds, "the type stands before the samples"
            key = sample[1], sample[2] or ""
            assert key not in found, "no sample twice"
            found[key] = float(sample[3])
            assert kinds[now] == "gauge" or found[key] >= 0
    return found


def test_the_format_of_metrics_with_awkward_names_and_numbers() -> None:
    status = {
        "step": 3, "loss": float("nan"), "steps_per_second": float("inf"), "compute_seconds": 1e-9,
        "neighbours": {'a "quoted"\n\\name': {"here": False, "weight": 0.25, "steps": None}},
        "refusals": {"b": {"STALE": 2, "FORGED": 1}},
    }  # fmt: skip
    found = parsed(metrics_text(status))
    assert found["swiftfl_step", ""] == 3
    assert found["swiftfl_steps_per_second", ""] == float("inf")
    assert found["swiftfl_refused_messages_total", 'sender="b",reason="STALE"'] == 2
    assert sum(name == "swiftfl_neighbour_step" for name, _ in found) == 0
    assert any('a \\"quoted\\"\\n\\\\name' in labels for _, labels in found)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "x", "", "²"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(UserError, match=r"give a PORT, or HOST:PORT such as 127\.0\.0\.1:9464"):
        Endpoint(address)


def test_a_port_alone_is_on_this_machine_only() -> None:
    endpoint = Endpoint("0")
    try:
        assert endpoint._server.server_address[0] == "127.0.0.1"
        assert not endpoint.beyond
        with pytest.raises(UserError, match=rf"--metrics {endpoint.port}: Address already in use"):
            Endpoint(str(endpoint.port))
    finally:
        endpoint.close()


def test_requests_that_are_idle_break_off_or_ask_otherwise(capfd: pytest.CaptureFixture[str]) -> None:
    endpoint = Endpoint("0")
    try:
        endpoint.serve(lambda: {"step": 3, "neighbours": {}})
        idle = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(40)]
        for each in idle:
            linger = struct.pack("ii", 1, 0)  # so that closing resets
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            each.close()
        until(lambda: _asked(endpoint.port, "GET", "/metrics?x=1")[0] == 200, "an answer")
        _, text = _asked(endpoint.port, "GET", "/metrics?x=1")
        assert "swiftfl_step 3" in text
        assert _asked(endpoint.port, "HEAD", "/metrics") == (200, "")
        assert _asked(endpoint.port, "GET", "/other")[0] == 404
    finally:
        endpoint.close()
    assert capfd.readouterr().err == ""


def _asked(port: int, method: str, path: str) -> tuple[int, str]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        line.request(method, path)
        answer = line.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        line.close()


@pytest.mark.parametrize(
    ("mixing", "sentence"),
    [("nonsense", "nonsense"), ("clipped:tolerate=7", "tolerate"), ("clipped:tolarate=0.1", "tolerate")],
)
def test_a_mixing_rule_is_checked_when_it_is_agreed_on(
    mixing: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from swiftfl.cli.main import run_command

    command = ["federation", "create", "trial", "--folder", str(tmp_path / "ca"), "--mixing", mixing]
    assert run_command(command) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "ca").exists()


# --- commands without a node -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["status", "consensus"])
def test_no_such_folder_and_no_node_yet(tmp_path: Path, command: str) -> None:
    from swiftfl.cli.main import run_command

    assert run_command(["federation", command, str(tmp_path / "nowhere")]) == 2
    assert run_command(["federation", command, str(tmp_path)]) == 2


def one_line(done: object, *words: str) -> None:
    """What went wrong is one line, with these words."""
    stderr = str(getattr(done, "stderr", ""))
    assert getattr(done, "returncode", 0) == 2, stderr
    assert len(stderr.splitlines()) == 1, stderr
    assert "Traceback" not in stderr
    for word in words:
        assert word in stderr


# --- three nodes on a ring, of which one never comes -----------------------------------------------------

pair_port, other_port = free_ports(2)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with nodes(tmp_path_factory.mktemp("commands") / "federation", ("a", "b", "c")) as made:
        made.start("a", "--metrics", str(pair_port))
        made.start("b")
        made.reach(2, "a", "b")
        yield made


def get(path: str, port: int) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.mark.slow
def test_status_by_name_and_as_json(pair: Nodes) -> None:
    until(lambda: (pair.status("a")["neighbours"]["b"]["steps"] or 0) > 5, "models of b")
    done = ran("federation", "status", pair.folder("a"))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert re.match(r"a: running; step [\d,]+ of [\d,]+, [\d.e+]+ a second, loss ", lines[0])
    assert "2 nodes can reach each other; own weight 0.5" in lines[1]
    assert re.match(r"  b: here, weight 0.5, model of step [\d,]+ \([\d.e-]+ s old\)$", lines[2])
    assert lines[3] == "  c: not here yet"
    told = json.loads(ran("federation", "status", pair.folder("a") / "node.yaml", "--json").stdout)
    assert (told["name"], told["silent"], told["nodes"]) == ("a", False, 2)


@pytest.mark.slow
def test_metrics_and_health(pair: Nodes) -> None:
    code, kind, text = get("/metrics", pair_port)
    assert (code, kind) == (200, "text/plain; version=0.0.4")
    found = parsed(text)
    assert found["swiftfl_nodes", ""] == 2
    assert found["swiftfl_step", ""] > 1
    assert found["swiftfl_neighbour_here", 'neighbour="b"'] == 1
    assert found["swiftfl_neighbour_here", 'neighbour="c"'] == 0
    assert found["swiftfl_neighbour_weight", 'neighbour="b"'] == 0.5
    assert 0 <= found["swiftfl_neighbour_model_age_seconds", 'neighbour="b"'] < LIMIT
    until(lambda: pair.status("a")["step"] > found["swiftfl_step", ""], "further steps")
    later = parsed(get("/metrics", pair_port)[2])
    for key in found:
        if key[0].endswith("_total"):
            assert later[key] >= found[key]
    code, kind, text = get("/health", pair_port)
    assert (code, kind) == (200, "application/json")
    health = json.loads(text)
    assert (health["name"], health["phase"], health["nodes"]) == ("a", "running", 2)
    assert get("/", pair_port)[0] == 404
    assert get("/../key.pem", pair_port)[0] == 404
    with socket.create_connection(("127.0.0.1", pair_port), timeout=LIMIT) as wire:
        wire.sendall(b"POST /metrics HTTP/1.0\r\n\r\n")
        assert b" 501 " in wire.recv(1000)


@pytest.mark.slow
def test_consensus_while_a_neighbour_is_away(pair: Nodes) -> None:
    done = ran("federation", "consensus", pair.folder("b"))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    where = pair.folder("b") / "consensus.safetensors"
    assert first == f"The average of 2 nodes is in {where}, and likewise at the others."
    measured = r"loss [\d.]+, accuracy [\d.]+"
    assert re.fullmatch(rf"On held-out data here: {measured}; the node's own model: {measured}", second)
    until(lambda: (pair.status("a")["consensus"] or {}).get("evaluation"), "the consensus at a")
    models = [load_file(pair.folder(name) / "consensus.safetensors")["consensus"] for name in ("a", "b")]
    np.testing.assert_array_equal(models[0], models[1])
    assert pair.status("a")["consensus"]["epoch"] == pair.status("b")["consensus"]["epoch"]
    assert '"consensus"' in (pair.folder("a") / "events.jsonl").read_text()


@pytest.mark.slow
def test_wrong_uses_are_one_line(pair: Nodes) -> None:
    for command in ("status", "consensus"):
        one_line(ran("federation", command, pair.folder("c")), "no node has run in", "swiftfl node")
    node = pair.folder("c") / "node.yaml"
    one_line(ran("node", node, "--metrics", str(pair_port)), f"--metrics {pair_port}: Address already in use")
    one_line(ran("node", node, "--metrics", "nowhere.invalid:9"), "--metrics nowhere.invalid:9: ")
    one_line(ran("node", pair.folder("a") / "node.yaml"), "is in use by process")
    one_line(ran("node", pair.root / "d" / "node.yaml"), "d/node.yaml")
    one_line(ran("node", pair.folder("c"), "--insecure"), "is of a node with TLS: leave --insecure out")
    assert "PRIVATE" not in pair.log("a") + pair.log("b")


@pytest.mark.slow
def test_watch_shows_a_neighbour_that_is_killed_and_returns(tmp_path: Path) -> None:
    here = re.compile(r"basel +here +weight 0\.50  at step")
    with nodes(tmp_path / "federation", ("aarhus", "basel"), "path") as made:
        for name in ("aarhus", "basel"):
            made.start(name)
        made.reach(2, "aarhus", "basel")
        with Terminal(swiftfl("watch", made.folder("aarhus")), 80) as terminal:
            terminal.until(lambda text: bool(here.search(text)), LIMIT)
            made.kill("basel")
            text = terminal.until(lambda text: bool(re.search(r"basel +lost", text)), LIMIT)
            assert "node with 1 neighbour " in text
            terminal.until(lambda text: "basel lost: it cannot be reached" in text, LIMIT)
            about = ("federation", "status", made.folder("basel"))
            until(lambda: "basel: does not run; step" in ran(*about).stdout, "its silence")
            one_line(ran("federation", "consensus", made.folder("basel")), "basel does not run: start it")
            made.start("basel")
            terminal.until(lambda text: bool(re.search(r"basel +back +weight 0\.50", text)), LIMIT)
            assert made.stop("aarhus") == 0
            text = terminal.to_end(LIMIT)
        assert "aarhus  swift, node with 1 neighbour  stopped" in text
        lines = (made.folder("basel") / "events.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        assert [row["event"] for row in events if row.get("client") == 0] == ["lost", "join"]  # it was killed
        done = ran("report", made.folder("aarhus"))
        assert done.returncode == 0, done.stderr
        assert "PRIVATE" not in (made.folder("aarhus") / "report.html").read_text() + made.log("basel")
