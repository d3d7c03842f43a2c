"""The server without a network: every endpoint, and who may ask."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from facts_made import make_facts

pytest.importorskip("starlette", reason="the extra dashboard is not installed: make install-dashboard")
httpx = pytest.importorskip("httpx", reason="httpx, which asks the server, is not installed")

from swiftfl.dashboard.application import application  # noqa: E402
from swiftfl.dashboard.live import MOST_WATCHERS, Changes, Live  # noqa: E402
from swiftfl.dashboard.page import STATIC, PageFiles  # noqa: E402
from swiftfl.dashboard.replies import Replies, body  # noqa: E402
from swiftfl.dashboard.server import listen  # noqa: E402
from swiftfl.errors import UserError  # noqa: E402
from swiftfl.views import Library, RunView  # noqa: E402

Get = Callable[..., Any]


def in_a_thread(work: Any) -> Any:
    """The result of a coroutine; this thread may have a loop already, of the browser's tests."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_facts(folder / "a", clients=7, rows=700, lost=(2,))
    make_facts(folder / "b", clients=7, rows=700, algorithm="d-sgd", finished=True)
    (folder.parent / "secret.json").write_text("secret")
    return folder


def asker(runs: Path, base: str = "http://127.0.0.1:8484", **more: Any) -> Get:
    app = application(Library([runs]), **more)

    def get(path: str, method: str = "GET", **options: Any) -> Any:
        async def ask() -> Any:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url=base) as client:
                return await client.request(method, path, **options)

        return in_a_thread(ask())

    return get


@pytest.fixture(scope="module")
def get(runs: Path) -> Get:
    return asker(runs)


def ids(get: Get) -> dict[str, str]:
    return {card["name"]: card["id"] for card in get("/api/runs").json()}


# --- every endpoint -------------------------------------------------------------------------------


def test_every_endpoint_gives_what_its_view_says(get: Get, runs: Path) -> None:
    run = ids(get)["a"]
    view = RunView(runs / "a", "a")
    base = f"/api/runs/{run}"
    assert get(base).json() == view.about()
    assert get(f"{base}/curves").json() == view.curves()
    assert get(f"{base}/events").json() == view.events()
    assert get(f"{base}/events?after=1").json() == view.events(1)
    assert get(f"{base}/now").json() == view.now()
    assert get(f"{base}/stream").json() == view.stream()
    assert get(f"{base}/clients/2").json() == view.client(2)
    part = get(f"{base}/stream", params={"from": 0.1, "to": 0.5, "bins": 50, "first": 1, "last": 3}).json()
    assert part == view.stream(0.1, 0.5, 50, 1, 3)
    assert (part["from"], part["to"], part["bins"], part["first"], part["last"]) == (0.1, 0.5, 50, 1, 3)
    compared = get(f"/api/compare?runs={run},{ids(get)['b']}").json()
    assert compared["differences"] == [{"key": "algorithm.name", "values": ["swift", "d-sgd"]}]
    assert {card["name"]: card["state"] for card in get("/api/runs").json()} == {
        "a": "stopped",
        "b": "finished",
    }


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/runs/nothing", 404),
        ("/api/runs/nothing/stream", 404),
        ("/api/runs/RUN/nothing", 404),
        ("/api/runs/RUN/clients/7", 404),
        ("/api/runs/RUN/clients/-1", 400),
        ("/api/runs/RUN/clients/x", 400),
        ("/api/runs/RUN/clients/²", 400),
        ("/api/runs/RUN/events?after=-3", 400),
        ("/api/runs/RUN/events?after=99999999999999999999", 400),
        ("/api/runs/RUN/stream?from=nan", 400),
        ("/api/runs/RUN/stream?from=2&to=1", 400),
        ("/api/runs/RUN/stream?bins=-5", 400),
        ("/api/runs/RUN/stream?first=9", 400),
        ("/api/compare", 400),
        ("/api/compare?runs=nothing", 404),
        ("/api/" + "x" * 3000, 404),
        ("/elsewhere", 404),
        ("/?x=" + "y" * 20_000, 400),
    ],
)
def test_what_is_not_there_or_cannot_be_meant(get: Get, path: str, status: int) -> None:
    reply = get(path.replace("RUN", ids(get)["a"]))
    assert reply.status_code == status
    assert list(reply.json()) == ["error"]


def test_large_replies_are_packed_for_those_who_can_unpack(get: Get, runs: Path) -> None:
    run = ids(get)["a"]
    path = f"/api/runs/{run}/stream?bins=3000"
    packed = get(path, headers={"accept-encoding": "gzip"})
    plain = get(path, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json() == RunView(runs / "a", "a").stream(bins=3000)


def test_a_failure_of_ours_is_told_without_its_details(
    get: Get, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = ids(get)["a"]
    monkeypatch.setattr(RunView, "events", lambda self, after: 1 / 0)
    reply = get(f"/api/runs/{run}/events?after=777")
    assert reply.status_code == 500
    assert "ZeroDivision" not in reply.text
    assert "ZeroDivisionError" in caplog.text


# --- the page ---------------------------------------------------------------------------------------


def test_the_page_and_its_files(get: Get) -> None:
    page = get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.content == (STATIC / "index.html").read_bytes()
    types = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
    for path in STATIC.rglob("*"):
        if path.is_file():
            reply = get(f"/static/{path.relative_to(STATIC).as_posix()}")
            assert reply.content == path.read_bytes()
            assert reply.headers["x-content-type-options"] == "nosniff"
            if path.suffix in types:
                assert reply.headers["content-type"] == types[path.suffix]


def test_a_browser_that_has_a_file_is_told_so(get: Get, tmp_path: Path) -> None:
    first = get("/")
    again = get("/", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    (tmp_path / "x.js").write_text("1")
    files = PageFiles(tmp_path)
    before = files.get("x.js")
    (tmp_path / "x.js").write_text("22")
    after = files.get("x.js")
    assert before is not None
    assert after is not None
    assert (before.content, after.content) == (b"1", b"22")
    assert before.tag != after.tag


@pytest.mark.parametrize(
    "path",
    [
        "/static/../run.py",
        "/static/..%2frun.py",
        "/static/%2e%2e/%2e%2e/__init__.py",
        "/static//etc/passwd",
        "/static/uplot/../../run.py",
        "/static/",
        "/static/uplot",
        "/static/index.html%00.js",
        "/api/runs/..%2f..%2fsecret.json",
        "/api/runs/%2e%2e",
        "/..%2fsecret.json",
    ],
)
def test_no_path_leads_out(get: Get, path: str) -> None:
    reply = get(path)
    assert reply.status_code == 404
    assert "secret" not in reply.text


def test_links_in_the_folder_of_the_page_are_not_followed(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "index.html").write_text("page")
    (tmp_path / "link").symlink_to("/etc/passwd")
    get = asker(runs, page=PageFiles(tmp_path))
    assert get("/").text == "page"
    assert get("/static/link").status_code == 404


# --- who may ask --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/runs/x", "/static/app.js", "/nothing"])
def test_every_reply_has_a_strict_policy(get: Get, path: str) -> None:
    headers = get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    for name in ("set-cookie", "access-control-allow-origin", "server"):
        assert name not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "LINK"])
@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/live"])
def test_only_get(get: Get, method: str, path: str) -> None:
    reply = get(path, method)
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8484", True),
        ("localhost:9999", True),
        ("LOCALHOST", True),
        ("[::1]:8484", True),
        ("192.168.1.7", True),
        ("mine.example", True),
        ("evil.example", False),
        ("evil.example:8484", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1@evil.example", False),
        ("", False),
        ("[::1", False),
    ],
)
def test_the_name_of_the_host(runs: Path, host: str, allowed: bool) -> None:
    get = asker(runs, names=["mine.example"])
    for path in ("/", "/api/runs", "/static/app.js"):
        assert get(path, headers={"host": host}).status_code == (200 if allowed else 403)


def test_pages_of_other_sites_get_nothing(get: Get) -> None:
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert get("/api/runs", headers=foreign).status_code == 403
    assert get("/", headers={**foreign, "sec-fetch-mode": "navigate"}).status_code == 200
    assert get("/api/runs", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_a_token_is_needed_for_all_that_tells_of_runs(runs: Path) -> None:
    get = asker(runs, token="right-token")
    run = RunView(runs / "a").id
    paths = ["/", "/api/runs", f"/api/runs/{run}", f"/api/runs/{run}/stream", "/api/live", "/api/no", "/x"]
    wrongs = ("", "?token=", "?token=wrong", "?token=right-toke", "?token=right-token2", "?token=%ff%fe")
    for path in paths:
        for wrong in wrongs:
            reply = get(path + wrong)
            assert reply.status_code == 403, path + wrong
            assert "right-token" not in reply.text
        assert get(path, headers={"authorization": "Bearer right-token"}).status_code == 403
    assert get("/static/app.js").status_code == 200
    assert get(f"/api/runs/{run}/now?token=right-token").status_code == 200
    assert get("/?token=right-token").status_code == 200


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own without a token, any other with one; a port that is taken."""
    local = listen(port=0)
    everywhere = listen("0.0.0.0", 0)
    asked = listen(port=0, with_token=True)
    try:
        assert local.url == f"http://127.0.0.1:{local.port}/"
        assert local.token is None
        assert everywhere.token is not None
        assert len(everywhere.token) >= 32
        assert everywhere.url.endswith(f":{everywhere.port}/?token={everywhere.token}")
        assert asked.token not in (None, everywhere.token)
        with pytest.raises(UserError, match=f"port {local.port}"):
            listen(port=local.port)
        monkeypatch.setattr("swiftfl.dashboard.server.PORT", local.port)
        other = listen()
        assert other.port != local.port
        other.listening.close()
        with pytest.raises(UserError, match="--host"):
            listen("no such host.invalid", 0)
    finally:
        for address in (local, everywhere, asked):
            address.listening.close()


# --- what changes ------------------------------------------------------------------------------------


def test_replies_are_kept_until_something_has_changed(tmp_path: Path) -> None:
    view = RunView(make_facts(tmp_path / "run", clients=3, rows=30))
    made: list[int] = []

    def make() -> object:
        made.append(1)
        return view.events()

    replies = Replies()
    for _ in range(3):
        assert json.loads(replies.of(view, ("events",), "events", make).plain)["total"] == 1
    assert len(made) == 1
    with (tmp_path / "run/events.jsonl").open("a") as stream:
        stream.write('{"event": "crash", "client": 1, "time": 1.0}\n')
    assert json.loads(replies.of(view, ("events",), "events", make).plain)["total"] == 2
    assert len(made) == 2


def test_replies_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swiftfl.dashboard.replies._MOST_KEPT", 1000)
    view = RunView(make_facts(tmp_path / "run", clients=3, rows=30))
    replies = Replies()
    for k in range(50):
        replies.of(view, ("events",), k, lambda: "x" * 100)
    assert replies._size <= 1000
    assert replies._size == sum(len(kept) for _, kept in replies._kept.values())
    with pytest.raises(ValueError, match="JSON"):
        body(float("nan"))


def test_changes_name_the_parts_that_have_changed(tmp_path: Path) -> None:
    make_facts(tmp_path / "a", clients=3, rows=30)
    (tmp_path / "a/.lock").write_text(f"process {os.getpid()} on {os.uname().nodename}")
    library = Library([tmp_path])
    changes = Changes(library)
    run = library.runs()[0]
    assert changes.look() == {}
    assert changes.look() == {}
    with (tmp_path / "a/metrics.jsonl").open("a") as stream:
        stream.write('{"time": 5.0, "loss": 0.1}\n')
    assert changes.look() == {run.id: {"curves"}}
    with (tmp_path / "a/facts/clients.bin").open("r+b") as table:
        table.write(b"\1")
    (tmp_path / "a/facts/steps-all-9-9.bin").write_bytes(b"\0" * 80)
    assert changes.look() == {run.id: {"now", "steps"}}
    (tmp_path / "a/summary.json").write_text('{"loss": 1}')
    assert changes.look() == {run.id: {"run"}, None: {"runs"}}
    make_facts(tmp_path / "b", clients=3, rows=30)
    library._looked = -100.0
    assert changes.look() == {None: {"runs"}}


def test_a_slow_watcher_costs_nothing_and_the_others_get_everything(tmp_path: Path) -> None:
    """One look for all; news that were not taken are put together."""
    make_facts(tmp_path / "a", clients=3, rows=30)
    looks: list[int] = []

    class Counted(Library):
        def runs(self) -> list[RunView]:
            looks.append(1)
            return super().runs()

    async def watch() -> tuple[list[str], int]:
        ending = False
        live = Live(Counted([tmp_path]), lambda: ending)
        streams = [live.events() for _ in range(20)]
        for stream in streams:
            assert await anext(stream) == b"retry: 1000\n\n"
        run = RunView(tmp_path / "a").id
        all_parts = ["curves", "events", "now", "run", "steps"]
        for stream in streams:  # whoever begins to watch is told all that is new
            first = [await asyncio.wait_for(anext(stream), 30) for _ in range(2)]
            assert [json.loads(text[6:]) for text in first] == [
                {"run": None, "changed": ["runs"]},
                {"run": run, "changed": all_parts},
            ]
        before = len(looks)
        with (tmp_path / "a/metrics.jsonl").open("a") as file:
            file.write('{"time": 5.0, "loss": 0.1}\n')
        got = [(await asyncio.wait_for(anext(stream), 30)).decode() for stream in streams]
        ending = True
        for stream in streams:
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(anext(stream), 30)
        assert not live.full
        live._watchers.update(object() for _ in range(MOST_WATCHERS))  # type: ignore[misc]
        assert live.full
        return got, len(looks) - before

    got, looked = in_a_thread(watch())
    assert len(set(got)) == 1
    assert json.loads(got[0].removeprefix("data: "))["changed"] == ["curves"]
    assert looked < 100  # not one for each of the watchers, each time
