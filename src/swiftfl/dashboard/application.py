"""Requests become views. The table of ARCHITECTURE.md ("Seeing a run") says what they are."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from swiftfl.dashboard.guard import Application, Guard
from swiftfl.dashboard.live import Live
from swiftfl.dashboard.page import PageFiles
from swiftfl.dashboard.replies import Body, Replies, body
from swiftfl.errors import UserError
from swiftfl.views import Library, MissingError, compare

_AT_ONCE = 3  # replies that are computed at the same time
_MOST_COMPARED = 50
_LARGEST = 10**9
_PARTS = {
    "run": ("run",),
    "curves": ("curves", "steps", "run"),
    "events": ("events",),
    "now": ("now", "run"),
    "stream": ("steps", "events", "now", "run"),
    "client": ("steps", "events", "now", "run"),
}
"""Which parts of a run a reply shows: while they are the same, so is the reply."""
_log = logging.getLogger(__name__)


def application(
    library: Library,
    names: Iterable[str] = (),
    token: str | None = None,
    stopping: Callable[[], bool] = lambda: False,
    page: PageFiles | None = None,
) -> Application:
    """The whole server, to be run by uvicorn.

    Args:
        library: the runs that are shown.
        names: host names of this machine.
        token: what an address has to hold.
        stopping: whether the server is about to end, so that those who watch are let go.
        page: the files of the page.
    """
    return Guard(_Dashboard(library, stopping, page or PageFiles()).routes(), names, token)


class _Dashboard:
    """The endpoints."""

    def __init__(self, library: Library, stopping: Callable[[], bool], page: PageFiles) -> None:
        self._library, self._page = library, page
        self._live = Live(library, stopping)
        self._replies = Replies()
        self._busy = asyncio.Semaphore(_AT_ONCE)

    def routes(self) -> Application:
        one = "/api/runs/{run}"
        table: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": partial(self._file, name="index.html"),
            "/static/{name:path}": self._file,
            "/api/live": self._watch,
            "/api/runs": self._reply(self._runs),
            "/api/compare": self._reply(self._compare),
            one: self._reply(partial(self._of_run, "run")),
            f"{one}/clients/{{client}}": self._reply(partial(self._of_run, "client")),
            **{
                f"{one}/{kind}": self._reply(partial(self._of_run, kind))
                for kind in ("curves", "events", "now", "stream")
            },
        }
        routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in table.items()]
        starlette: Application = Starlette(routes=routes, exception_handlers={404: _not_found})
        return starlette

    # --- the page ----------------------------------------------------------------------------------

    async def _file(self, request: Request, name: str | None = None) -> Response:
        found = await run_in_threadpool(self._page.get, name or request.path_params["name"])
        if found is None:
            return _error(404, "there is no such file")
        headers = {"etag": found.tag, "cache-control": "no-cache"}
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers={**headers, "content-type": found.type})

    # --- data ----------------------------------------------------------------------------------------

    def _reply(self, make: Callable[[Request], Body]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that computes its reply in a thread; a mistake in a request is one sentence."""

        async def endpoint(request: Request) -> Response:
            try:
                async with self._busy:
                    made = await run_in_threadpool(make, request)
            except MissingError as error:
                return _error(404, str(error))
            except UserError as error:
                return _error(400, str(error))
            except Exception:
                _log.exception("no reply to %s", request.url.path)
                return _error(500, "the server could not make this reply: its log says why")
            headers = {"content-type": "application/json", "cache-control": "no-store"}
            if made.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
                return Response(made.packed, headers={**headers, "content-encoding": "gzip"})
            return Response(made.plain, headers=headers)

        return endpoint

    def _runs(self, request: Request) -> Body:
        return body(self._library.cards())

    def _compare(self, request: Request) -> Body:
        ids = [name for name in request.query_params.get("runs", "").split(",") if name]
        if not 1 <= len(ids) <= _MOST_COMPARED:
            raise UserError(f"name 1 to {_MOST_COMPARED} runs: runs=ID,ID")
        return body(compare([self._library.run(name) for name in ids]))

    def _of_run(self, kind: str, request: Request) -> Body:
        run, query = self._library.run(request.path_params["run"]), request.query_params
        asked: tuple[object, ...] = ()
        make: Callable[[], object]
        if kind == "events":
            asked = (_whole(query.get("after", "0"), "after"),)
            make = partial(run.events, *asked)
        elif kind == "stream":
            asked = tuple(query.get(name) for name in ("from", "to", "bins", "first", "last"))
            make = partial(run.stream, *asked)
        elif kind == "client":
            asked = (_whole(request.path_params["client"], "client"),)
            make = partial(run.client, *asked)
        else:
            make = {"run": run.about, "curves": run.curves, "now": run.now}[kind]
        return self._replies.of(run, _PARTS[kind], (kind, *asked), make)

    async def _watch(self, request: Request) -> Response:
        if self._live.full:
            return _error(503, "too many are watching already")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._live.events(), media_type="text/event-stream", headers=headers)


def _whole(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) < _LARGEST:
        return int(text)
    raise UserError(f"{name}={text[:40]!r} is not a whole number")


def _error(status: int, reason: str) -> Response:
    return Response(
        json.dumps({"error": reason}),
        status,
        headers={"content-type": "application/json", "cache-control": "no-store"},
    )


async def _not_found(request: Request, error: Exception) -> Response:
    return _error(404, "there is nothing of that name")
