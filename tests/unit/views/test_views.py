"""Replies of a run folder against its files: made-up facts, files that grow, folders that lie."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from facts_made import make_facts, make_rows
from swiftfl.cli.watching import Watcher
from swiftfl.errors import UserError
from swiftfl.record.facts import CLIENT, FACTS, NO_VERSION, ROW, FactsReader, FactsWriter
from swiftfl.views import Library, MissingError, RunView, compare, differences
from swiftfl.views.reading import LinesFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_facts(tmp_path / "run", clients=14, rows=1400, lost=(3,))


def strict(value: object) -> object:
    """What a browser gets of it."""
    return json.loads(json.dumps(value, allow_nan=False))


def add_lines(file: Path, *rows: object, end: str = "\n") -> None:
    with file.open("a") as stream:
        stream.write("\n".join(map(json.dumps, rows)) + end)


# --- one folder ----------------------------------------------------------------------------------


def test_a_run_as_it_was_asked_for(folder: Path) -> None:
    """An old configuration with weights: edges in the order of the layout, weights of the same columns."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"influence": "uniform", "algorithm": {"name": "swift", "weights": "metropolis"}}
    (folder / "config.json").write_text(json.dumps(config))
    view = RunView(folder)
    about = view.about()
    assert strict(about) == about
    layout = FactsReader(folder).layout
    assert layout is not None
    graph = about["graph"]
    assert [k for _, k in graph["edges"]] == list(layout.indices)
    assert about["layout"] == {
        "clients": 14,
        "engine": "virtual",
        "clock": "virtual",
        "total": layout.total,
        "began": layout.began,
        "names": [],
        "near": [],
    }
    # Metropolis on a regular graph: 1 / (degree + 1) everywhere.
    degree = layout.indptr[1]
    assert graph["weights"] == [pytest.approx(1 / (degree + 1), abs=1e-6)] * len(layout.indices)
    assert max(map(abs, graph["x"] + graph["y"])) == pytest.approx(1.0)
    assert len({(round(x, 3), round(y, 3)) for x, y in zip(graph["x"], graph["y"], strict=True)}) == 14
    assert (about["algorithm"], about["engine"], about["clients"]) == ("swift", "virtual", 14)
    assert about["partition"] is None


def test_now_is_what_the_tables_hold(folder: Path) -> None:
    (folder / ".lock").write_text(f"process {os.getpid()} on {platform.node()}\n")
    now = RunView(folder).now()
    assert now is not None
    assert strict(now) == now
    reader = FactsReader(folder)
    clients, edges, layout = reader.clients(), reader.edges(), reader.layout
    assert layout is not None
    columns = now["columns"]
    assert columns["c"] == clients["c"].tolist()
    assert columns["state"] == ["lost" if i == 3 else "running" for i in range(14)]
    assert columns["loss"] == [pytest.approx(value) for value in clients["loss"].tolist()]
    assert now["edges"]["version"] == edges["version"].tolist()
    for i in range(14):
        own = range(layout.indptr[i], layout.indptr[i + 1])
        behind = [int(clients["c"][layout.indices[k]]) - int(edges["version"][k]) for k in own]
        assert columns["stale"][i] == max(behind)


def test_steps_taken_again_and_rounds_before_joining_are_not_progress(folder: Path) -> None:
    view = RunView(folder)
    clients = FactsReader(folder).clients()
    assert view.now()["done"] == len(FactsReader(folder).rows())  # type: ignore[index]
    clients["c"], clients["steps"] = 51, 50
    clients["steps"][2] = 80  # 30 of them twice
    clients["c"][5] = 91  # joined in round 41
    clients["c"][6], clients["steps"][6] = 0, 2**64 - 1
    (folder / FACTS / "clients.bin").write_bytes(clients.tobytes())
    assert view.now()["done"] == 13 * 50  # type: ignore[index]


def test_staleness_of_live_clients_is_not_known(folder: Path) -> None:
    """Who writes counters and edges half a second apart would show the clocks' difference."""
    layout = json.loads((folder / FACTS / "layout.json").read_text())
    (folder / FACTS / "layout.json").write_text(json.dumps({**layout, "clock": "wall"}))
    now = RunView(folder).now()
    assert now is not None
    assert now["columns"]["stale"] == [None] * 14


def test_nobody_runs_in_a_run_that_was_killed(folder: Path) -> None:
    (folder / ".lock").write_text(f"process 999999999 on {platform.node()}\n")
    view = RunView(folder)
    now = view.now()
    assert now is not None
    assert now["columns"]["state"] == ["lost" if i == 3 else "stopped" for i in range(14)]
    assert (view.client(0)["now"]["state"], view.client(3)["now"]["state"]) == ("stopped", "lost")


def test_where_no_model_has_come_nothing_is_stale(folder: Path) -> None:
    layout = FactsReader(folder).layout
    assert layout is not None
    edges = FactsReader(folder).edges()
    own = slice(layout.indptr[0], layout.indptr[1])
    edges["version"][own] = [NO_VERSION] * (layout.indptr[1] - 1) + [7]
    edges["since"][own] = np.nan
    edges["version"][layout.indptr[5] : layout.indptr[6]] = NO_VERSION
    edges["version"][layout.indptr[6] : layout.indptr[7]] = 10**6  # newer than the record of the neighbour
    (folder / FACTS / "edges.bin").write_bytes(edges.tobytes())
    now = RunView(folder).now()
    assert now is not None
    last = layout.indices[layout.indptr[1] - 1]
    assert now["columns"]["stale"][0] == now["columns"]["c"][last] - 7
    assert now["columns"]["stale"][5] is None
    assert now["columns"]["stale"][6] == 0
    assert now["edges"]["version"][:2] == [None, None]
    assert now["edges"]["since"][0] is None


def test_curves_of_clients_are_means_and_percentiles_of_their_steps(folder: Path) -> None:
    curves = RunView(folder).curves()
    assert strict(curves) == curves
    assert curves["columns"]["time"][0] == 0.0
    assert "mean_client_accuracy" not in curves["columns"]  # nobody has measured it
    clients = curves["clients"]
    assert {len(column) for column in clients.values()} == {len(clients["time"])}
    assert len(clients["time"]) <= 200
    rows = FactsReader(folder).rows()
    width = 2 * clients["time"][0]
    took = rows["compute"].astype(float) + rows["waiting"] + rows["communication"]
    for bin_number in (3, len(clients["time"]) // 4):
        begin, end = bin_number * width, (bin_number + 1) * width
        covered = np.clip(np.minimum(rows["start"] + took, end) - np.maximum(rows["start"], begin), 0, None)
        there = np.bincount(rows["client"], covered, 14)
        losses = np.bincount(rows["client"], covered * rows["loss"], 14)[there > 0] / there[there > 0]
        rates = np.bincount(rows["client"], covered / took, 14)[there > 0] / there[there > 0]
        for name, values in (("loss", losses), ("rate", rates)):
            assert clients[name][bin_number] == pytest.approx(values.mean(), rel=1e-3)
            assert clients[f"{name}_low"][bin_number] == pytest.approx(np.percentile(values, 10), rel=1e-3)
            assert clients[f"{name}_high"][bin_number] == pytest.approx(np.percentile(values, 90), rel=1e-3)
        ages = (covered * rows["age"]).sum() / covered.sum()
        assert clients["age"][bin_number] == pytest.approx(ages, rel=1e-3)
        share = clients["time"][bin_number] / curves["columns"]["time"][-1]
        assert clients["epoch"][bin_number] == pytest.approx(10 * share, rel=1e-3)


def test_one_client(folder: Path) -> None:
    (folder / "partition.json").write_text(json.dumps({"sizes": list(range(14)), "histogram": [[1, 2]] * 14}))
    view = RunView(folder)
    one = view.client(3)
    assert strict(one) == one
    rows = FactsReader(folder).rows()
    mine = np.sort(rows[rows["client"] == 3], order="start")[-200:]
    assert [row["c"] for row in one["rows"]] == mine["c"].tolist()
    assert [row["start"] for row in one["rows"]] == mine["start"].tolist()
    assert (one["samples"], one["labels"], one["now"]["state"]) == (3, [1, 2], "lost")
    assert [event["event"] for event in one["events"]] == ["crash"]
    layout = FactsReader(folder).layout
    assert layout is not None
    assert tuple(neighbour["client"] for neighbour in one["neighbours"]) == layout.neighbours(3)
    for wrong in (-1, 14, 10**9):
        with pytest.raises(MissingError):
            view.client(wrong)


def test_marks_are_the_events_in_view(folder: Path) -> None:
    view = RunView(folder)
    whole = view.stream()
    assert whole is not None
    assert [(mark["event"], mark["client"]) for mark in whole["marks"]] == [("crash", 3), ("renew", None)]
    early = view.stream(end=whole["end"] / 4)
    assert early is not None
    assert early["marks"] == []
    others = view.stream(first=4)
    assert others is not None
    assert [mark["event"] for mark in others["marks"]] == ["renew"]


# --- without facts, and while files grow ------------------------------------------------------------


def test_a_run_without_facts_still_shows_curves_and_events(folder: Path) -> None:
    shutil.rmtree(folder / FACTS)
    view = RunView(folder)
    assert view.now() is None
    assert view.stream() is None
    assert view.curves()["clients"] is None
    assert len(view.curves()["columns"]["loss"]) == 41
    assert view.events()["total"] == 3
    about = view.about()
    assert about["layout"] is None
    assert about["graph"] is None
    assert about["clients"] == 14


def test_growing_files_are_followed(folder: Path) -> None:
    view = RunView(folder)
    before = {"curves": view.curves(), "events": view.events(), "stream": view.stream()}
    marks = view.marks()
    assert view.marks() == marks
    add_lines(folder / "metrics.jsonl", {"time": 99.0, "loss": 0.5, "metrics": {"f1": 0.25}})
    assert view.marks()["curves"] != marks["curves"]
    assert view.marks()["events"] == marks["events"]
    columns = view.curves()["columns"]
    assert columns["loss"] == [*before["curves"]["columns"]["loss"], 0.5]
    assert columns["metrics.f1"] == [None] * 41 + [0.25]
    # A line is taken when it is complete.
    add_lines(folder / "events.jsonl", {"event": "crash", "client": 1, "time": 1.0}, end="")
    assert view.events()["total"] == 3
    add_lines(folder / "events.jsonl", end="\n")
    news = view.events(before["events"]["next"])
    assert (news["first"], news["next"], [e["client"] for e in news["events"]]) == (3, 4, [1])
    # Rows of steps, of which the last one is not complete.
    rows = make_rows(14, 280, False, seed=1)
    rows["start"] += before["stream"]["end"]
    newest = sorted((folder / FACTS).glob("steps-*.bin"))[-1]
    with newest.open("ab") as stream:
        stream.write(rows.tobytes() + b"\1" * 17)
    assert view.marks()["steps"] != marks["steps"]
    took = sum(rows[name].astype(float) for name in ("compute", "waiting", "communication"))
    grown = view.stream()
    assert grown is not None
    assert grown["end"] == pytest.approx(float((rows["start"] + took).max()))
    with newest.open("ab") as stream:
        stream.write(rows[:1].tobytes()[17:])


def test_events_of_a_resumed_run_replace_those_that_were_known(folder: Path) -> None:
    view = RunView(folder)
    assert view.events()["next"] == 3
    fresh = folder / "fresh"
    fresh.write_text(json.dumps({"event": "resume", "time": 0.0}) + "\n")
    fresh.replace(folder / "events.jsonl")
    again = view.events(3)
    assert (again["first"], again["next"], again["total"]) == (0, 1, 1)
    # A file of the same name that is longer, but another one, is read from its beginning, too.
    fresh.write_text("".join(json.dumps({"event": "other", "time": k}) + "\n" for k in range(9)))
    fresh.replace(folder / "events.jsonl")
    assert [event["event"] for event in view.events()["events"]] == ["other"] * 9


def test_a_run_that_is_resumed_is_read_anew(folder: Path) -> None:
    """A later session has other rows: nothing of the first is shown."""
    view = RunView(folder)
    assert view.stream() is not None
    layout = FactsReader(folder).layout
    assert layout is not None
    for file in (folder / FACTS).glob("steps-*.bin"):
        file.unlink()
    again = {**json.loads((folder / FACTS / "layout.json").read_text()), "session": 2}
    (folder / FACTS / "layout.json").write_text(json.dumps(again))
    writer = FactsWriter(folder, type(layout)(**{**layout.__dict__, "session": 2}), 1 << 20)
    steps = writer.steps()
    rows = np.zeros(1, ROW)
    rows["steps"], rows["compute"], rows["start"] = 1, 2.0, 1.0
    steps.write(rows)
    steps.close()
    writer.close()
    shown = view.stream(first=0, last=0)
    assert shown is not None
    assert [step[:4] for step in shown["steps"]] == [[0, 0, 1.0, 2.0]]


def test_many_events_come_in_parts(tmp_path: Path) -> None:
    folder = make_facts(tmp_path / "run", clients=3, rows=30)
    add_lines(folder / "events.jsonl", *({"event": "x", "time": k} for k in range(4500)))
    view = RunView(folder)
    found, after = [], 0
    while True:
        part = view.events(after)
        assert part["first"] == after
        found += part["events"]
        after = part["next"]
        if after == part["total"]:
            break
    assert len(found) == 4501


def test_states(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = RunView(folder)
    assert view.state() == "stopped"
    (folder / ".lock").write_text(f"process {os.getpid()} on {platform.node()}\n")
    assert view.state() == "running"
    long_ago = [(path, 10.0) for path in [*folder.iterdir(), *(folder / FACTS).iterdir()]]
    for path, at in long_ago:
        os.utime(path, (at, at))
    assert view.state() == "running"
    (folder / ".lock").write_text("process 1 on some-other-host\n")
    assert view.state() == "silent"
    (folder / ".lock").write_text(f"process 999999999 on {platform.node()}\n")
    assert view.state() == "stopped"
    add_lines(folder / "events.jsonl", {"event": "failed", "reason": "no client is left"})
    os.utime(folder / "events.jsonl", (10, 10))
    assert view.state() == "failed"
    (folder / "summary.json").write_text('{"diverged": true}')
    assert view.state() == "diverged"
    (folder / "summary.json").write_text('{"diverged": false, "loss": 1}')
    assert view.state() == "finished"


# --- folders that lie ---------------------------------------------------------------------------


def all_replies(view: RunView) -> list[object]:
    found: list[object] = [view.card(), view.about(), view.curves(), view.events(), view.now(), view.stream()]
    assert set(view.marks()) == {"now", "curves", "events", "steps", "run"}
    with contextlib.suppress(MissingError):
        found.append(view.client(0))
    return found


HOSTILE: dict[str, dict[str, bytes]] = {
    "nothing but garbage": {
        name: os.urandom(300) for name in ("config.json", "metrics.jsonl", "events.jsonl")
    },
    "deep nesting": {"config.json": b'{"a":' * 50_000, "metrics.jsonl": b"[" * 100_000 + b"\n"},
    "nesting that parses": {"config.json": b'{"a":' * 300 + b"1" + b"}" * 300},
    "numbers that are none": {
        "metrics.jsonl": b'{"time": NaN, "loss": Infinity, "n": 1' + b"0" * 400 + b'}\n{"time": true}\n[1]\n',
        "events.jsonl": b'{"event": 3, "time": "x", "client": "../.."}\n{"time": 1e400}\n{"event":{}}\nx\n',
        "config.json": b'{"topology": {"clients": -NaN}, "engine": [], "algorithm": 7}',
        "partition.json": b'{"sizes": {"a": 1}, "histogram": 3}',
        "summary.json": b"[]",
    },
    "other types": {
        "config.json": b'{"algorithm": {"weights": 3}, "influence": {"a": "b"}, "topology": "x"}',
        "partition.json": b'{"sizes": [1]}',
        "versions.json": b'"x"',
    },
    "a layout of another kind": {"facts/layout.json": b'{"format": 1, "clients": 1e9}'},
    "a layout that is torn": {"facts/layout.json": b'{"format": 1, "cli'},
    "half tables": {"facts/clients.bin": b"\xff" * 100, "facts/edges.bin": b"\xff" * 50},
    "rows that cannot be": {"facts/steps-all-1-1.bin": b"\xff" * 4000},
    "huge times": {"facts/steps-all-1-1.bin": b""},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_whatever_a_folder_holds_there_are_replies(folder: Path, what: str) -> None:
    for name, data in HOSTILE[what].items():
        (folder / name).write_bytes(data)
    if what == "huge times":
        rows = np.zeros(4, ROW)
        rows["steps"], rows["compute"] = 1, 1.0
        rows["start"] = [1e300, -1e300, 9e11, 0.5]
        rows["compute"] = [1, 1, 3e38, 1]
        signalling = np.uint32(0x7FA00000).tobytes()
        data = bytearray(rows.tobytes())
        for name in ("loss", "age"):
            at = 3 * ROW.itemsize + ROW.fields[name][1]  # type: ignore[index]
            data[at : at + 4] = signalling
        (folder / "facts/steps-all-1-1.bin").write_bytes(bytes(data))
    replies = all_replies(RunView(folder))
    assert strict(replies) == replies


def test_pipes_devices_and_links_are_not_followed_into_trouble(folder: Path) -> None:
    for name in ("config.json", "metrics.jsonl", "facts/layout.json", "facts/clients.bin"):
        (folder / name).unlink()
    os.mkfifo(folder / "config.json")
    os.mkfifo(folder / "metrics.jsonl")
    os.mkfifo(folder / "facts/clients.bin")
    (folder / "facts/layout.json").symlink_to("layout.json")
    replies = all_replies(RunView(folder))
    assert strict(replies) == replies


@pytest.mark.parametrize(
    "name",
    ["config.json", "versions.json", "partition.json", "summary.json", "metrics.jsonl", "events.jsonl",
     "facts/layout.json", "facts"],
)  # fmt: skip
def test_what_a_link_points_to_is_not_shown(folder: Path, tmp_path: Path, name: str) -> None:
    other = make_facts(tmp_path / "other", clients=5, rows=50, finished=True)
    for file in ("config.json", "versions.json", "partition.json", "summary.json"):
        (other / file).write_text('{"secret": 1}')
    for file in ("metrics.jsonl", "events.jsonl"):
        (other / file).write_text('{"event": "secret", "secret": 1, "time": 0.1}\n')
    target = folder / name
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    target.symlink_to(other / name)
    view = RunView(folder)
    assert "secret" not in json.dumps(all_replies(view))
    assert view.card()["clients"] in (14, None)


@pytest.mark.parametrize("kind", ["pipe", "link", "huge"])
def test_a_forged_lock_is_not_waited_for(folder: Path, tmp_path: Path, kind: str) -> None:
    lock = folder / ".lock"
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "link":
        (tmp_path / "lock").write_text(f"process {os.getpid()} on {platform.node()}\n")
        lock.symlink_to(tmp_path / "lock")
    else:
        with lock.open("wb") as stream:
            stream.truncate(1 << 40)  # bytes, in a file without any
    found: list[str] = []
    look = threading.Thread(target=lambda: found.append(RunView(folder).state()), daemon=True)
    look.start()
    look.join(20)
    assert found == ["running" if kind == "huge" else "stopped"]


def test_tables_that_cannot_be_read_cost_only_what_they_hold(folder: Path) -> None:
    known = RunView(folder).now()
    assert known is not None
    (folder / "facts/edges.bin").unlink()
    (folder / "facts/edges.bin").mkdir()
    view = RunView(folder)
    now = view.now()
    assert now is not None
    assert now["columns"]["c"] == known["columns"]["c"]
    assert set(now["edges"]["version"]) == {None}
    assert view.client(0)["neighbours"][0]["version"] is None
    (folder / "facts/clients.bin").unlink()
    (folder / "facts/clients.bin").mkdir()
    now = view.now()
    assert now is not None
    assert now["columns"]["c"] == [0] * 14
    assert view.stream() is not None


def test_times_of_nonsense_are_watched_too(folder: Path) -> None:
    clients = np.fromfile(folder / "facts/clients.bin", CLIENT)
    clients["compute"][:3] = [np.nan, np.inf, -np.inf]
    clients.tofile(folder / "facts/clients.bin")
    seen = Watcher(RunView(folder)).look()
    assert sum(seen.shares.values()) == pytest.approx(1)


def test_another_run_at_the_same_place_is_another_run(folder: Path, tmp_path: Path) -> None:
    view = RunView(folder)
    before = view.stream(), view.curves(), view.events()
    other = make_facts(tmp_path / "other", clients=14, rows=700, algorithm="d-sgd", seed=1)
    shutil.rmtree(folder)
    other.rename(folder)
    fresh = RunView(folder)
    after = view.stream(), view.curves(), view.events()
    assert after == (fresh.stream(), fresh.curves(), fresh.events())
    assert after[0] != before[0]
    shutil.rmtree(folder / FACTS)  # and one that was made with --facts off
    assert view.now() is None
    assert view.stream() is None


def test_lines_of_another_file_with_the_same_inode(tmp_path: Path) -> None:
    """As file systems give them to the next file; here the same file is written anew, and longer."""
    file = tmp_path / "events.jsonl"
    add_lines(file, {"event": "start"}, {"event": "lost", "client": 1})
    lines = LinesFile(file)
    assert lines.poll()
    add_lines(file, {"event": "lost", "client": 2})
    assert lines.poll()
    assert [row.get("client") for row in lines.rows] == [None, 1, 2]
    anew: list[dict[str, Any]] = [{"event": "start"}, *({"event": "join", "client": i} for i in range(9))]
    file.write_text("".join(json.dumps(row) + "\n" for row in anew))
    assert lines.poll()
    assert lines.rows == anew


def test_a_folder_that_goes_away_has_replies(folder: Path) -> None:
    view = RunView(folder)
    all_replies(view)
    shutil.rmtree(folder)
    assert strict(all_replies(view)) is not None


# --- several runs -------------------------------------------------------------------------------


def test_the_library_finds_runs_below_the_folders_that_were_named(tmp_path: Path) -> None:
    for name in ("runs/a", "runs/sweep/lr=1/seed-0", "elsewhere/b", "runs/.hidden/c"):
        make_facts(tmp_path / name, clients=3, rows=30)
    (tmp_path / "runs/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs/a/deeper").mkdir()
    library = Library([tmp_path / "runs"])
    assert {card["name"] for card in library.cards()} == {"a", "sweep/lr=1/seed-0"}
    card = library.cards()[0]
    assert library.run(card["id"]).path == Path(card["path"])
    for wrong in ("", "../elsewhere/b", str(tmp_path / "elsewhere/b"), "0" * 16):
        with pytest.raises(MissingError):
            library.run(wrong)
    with pytest.raises(UserError, match="not a folder"):
        Library([tmp_path / "nowhere"])
    later = Library([tmp_path / "nowhere"], later=True)
    assert later.cards() == []
    shutil.copytree(tmp_path / "elsewhere/b", tmp_path / "nowhere")
    later._looked = -100.0
    assert [card["name"] for card in later.cards()] == ["nowhere"]


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    paths = [make_facts(tmp_path / name, clients=3, rows=30) for name in ("a/x", "b/x", "b/y")]
    library = Library(paths)
    assert {card["name"] for card in library.cards()} == {str(paths[0]), str(paths[1]), "y"}


def test_only_a_few_runs_keep_their_steps_in_memory(tmp_path: Path) -> None:
    for k in range(9):
        make_facts(tmp_path / f"r{k}", clients=3, rows=30)
    library = Library([tmp_path])
    for card in library.cards():
        assert library.run(card["id"]).stream() is not None
    assert sum(run.loaded for run in library.runs()) <= 7


def test_differences_of_configurations(tmp_path: Path) -> None:
    tree: dict[str, Any] = {
        "seed": 1,
        "engine": {"name": "virtual", "costs": {"compute": 1}},
        "sources": {"a": 1},
    }
    other = {"seed": 1, "engine": {"name": "local"}, "sources": {"a": 2}}
    assert differences([tree, other, tree]) == [
        {"key": "engine.name", "values": ["virtual", "local", "virtual"]},
        {"key": "engine.costs.compute", "values": [1, None, 1]},
    ]
    runs = [
        RunView(make_facts(tmp_path / name, clients=3, rows=30, algorithm=name, finished=name == "d-sgd"))
        for name in ("swift", "d-sgd")
    ]
    found = compare(runs)
    assert found["differences"] == [{"key": "algorithm.name", "values": ["swift", "d-sgd"]}]
    assert found["runs"][0]["summary"] is None
    assert found["runs"][1]["summary"]["loss"] == 0.1
    assert [run["state"] for run in found["runs"]] == ["stopped", "finished"]
