"""What a report has of its runs: the replies of `views`, as the page's `EmbeddedSource` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swiftfl.record.facts import Table
from swiftfl.views.comparing import differences, without_folders
from swiftfl.views.curves import measured
from swiftfl.views.reading import number, sane
from swiftfl.views.run import RunView
from swiftfl.views.steps import Steps
from swiftfl.views.tables import Reply

MOST_STEPS = 40_000
"""Of one run; with more of them, the stream is zoomed as far as its bins go."""
MOST_CELLS = 800_000
"""Rows times bins of a stream."""
MOST_EVENTS = 10_000
_MOST_BINS = 4000


def embedded(runs: Sequence[RunView]) -> Reply:
    """Everything that the page may ask for."""
    of = {run.id: _run(run) for run in runs}
    abouts = [part["about"] for part in of.values()]
    return {
        "runs": [_card(about) for about in abouts],
        "compare": {
            "runs": [{**_card(about), "summary": about["summary"]} for about in abouts],
            "differences": differences([about["config"] for about in abouts]),
        },
        "of": of,
    }


def embedded_result(
    title: str,
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    curve: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    partition: Mapping[str, Any],
) -> Reply:
    """The same of a run that was never recorded: what is known of it without facts."""
    card = {
        "id": "run",
        "name": title,
        "path": None,
        "state": "diverged" if summary.get("diverged") else "finished",
        "engine": config["engine"]["name"],
        "algorithm": config["algorithm"]["name"],
        "clients": config["topology"]["clients"],
        "updated": None,
    }
    about = {
        **card,
        "config": without_folders(dict(config)),
        "versions": None,
        "partition": dict(partition),
        "summary": dict(summary),
        "layout": None,
        "graph": None,
    }
    run = {
        "about": about,
        "curves": {"columns": measured([dict(row) for row in curve]), "clients": None},
        "events": {"first": 0, "next": len(events), "total": len(events), "events": list(events)},
        "now": None,
        "stream": None,
        "steps": None,
    }
    reply: Reply = sane({"runs": [card], "compare": {"runs": [card], "differences": []}, "of": {"run": run}})
    return reply


def _run(run: RunView) -> Reply:
    about = {**run.about(), "path": None}  # a report is shared: folders of this machine are nobody's business
    about.update(
        {name: without_folders(about[name]) for name in ("config", "versions", "partition", "summary")}
    )
    if about["state"] == "running":
        about["state"] = "unfinished"  # as it was when this was written; nobody follows a file
    rows = about["layout"]["clients"] if about["layout"] is not None else 1
    stream = run.stream(bins=max(50, min(_MOST_BINS, MOST_CELLS // max(1, rows))))
    if stream is not None:
        stream.pop("steps")
    return {
        "about": about,
        "curves": run.curves(),
        "events": _events(run),
        "now": run.now(),
        "stream": stream,
        "steps": _steps(run),
    }


def _card(about: Reply) -> Reply:
    names = ("id", "name", "path", "state", "engine", "algorithm", "clients", "updated")
    return {name: about[name] for name in names}


def _events(run: RunView) -> Reply:
    """The newest ones, all in one reply."""
    events: list[Any] = []
    reply = run.events()
    while reply["events"]:
        events += reply["events"]
        reply = run.events(reply["next"])
    events = events[-MOST_EVENTS:]
    return {"first": 0, "next": len(events), "total": len(events), "events": events}


def _steps(run: RunView) -> list[list[Any]] | None:
    """Every step, where there are not too many."""
    steps = Steps(run.path)
    if steps.layout is None:
        return None
    steps.poll()
    if steps.count == 0 or steps.count > MOST_STEPS:
        return None
    return [row for rows in steps.since(steps.generation, 0) for row in _as_lists(rows)]


def _as_lists(rows: Table) -> list[list[Any]]:
    """With as many digits as a picture can show."""
    whole = [rows[name].tolist() for name in ("client", "c", "steps")]
    start = [round(value, 9) for value in rows["start"].tolist()]
    parts = [
        [_short(value) for value in rows[name].tolist()]
        for name in ("compute", "waiting", "communication", "loss", "age")
    ]
    return [
        [client, c, begin, *times, steps, age]
        for client, c, steps, begin, *times, age in zip(*whole, start, *parts, strict=True)
    ]


def _short(value: float) -> float | None:
    return None if number(value) is None else float(f"{value:.6g}")
