"""What a node writes of itself and its neighbours, and what watch, dashboard and report make of it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zenoh")

from written_nodes import WrittenNode

from swiftfl.cli.main import run_command
from swiftfl.cli.watch_picture import Pen, plain_line
from swiftfl.cli.watching import Watcher
from swiftfl.errors import UserError
from swiftfl.record.facts import FactsReader, Layout
from swiftfl.views import RunView, is_run
from terminals import Terminal


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def kinds(folder: Path) -> list[tuple[str, int | None]]:
    return [(row["event"], row.get("client")) for row in events(folder)]


@pytest.fixture
def node(tmp_path: Path) -> WrittenNode:
    """basel is here, cordoba was and is lost."""
    made = WrittenNode(tmp_path / "aarhus").written()
    for name in ("basel", "cordoba"):
        made.comes(name)
    made.agrees(1, 3)
    made.steps(40)
    made.sends("basel", 37)
    made.sends("cordoba", 12)
    made.written()
    made.goes("cordoba")
    made.agrees(2, 2)
    return made.written()


def test_states_counters_and_names(node: WrittenNode) -> None:
    view = RunView(node.plan.folder)
    assert is_run(node.plan.folder)
    assert view.state() == "running"
    layout, now = view.layout(), view.now()
    assert layout is not None
    assert now is not None
    assert (layout["engine"], layout["names"]) == ("node", ["aarhus", "basel", "cordoba"])
    columns = now["columns"]
    assert columns["state"] == ["running", "running", "lost"]
    assert columns["c"] == [41, 37, 12]
    assert columns["steps"] == [40, 0, 0]
    assert now["done"] == 40
    assert columns["compute"][0] == pytest.approx(0.32)
    assert columns["age"][0] == pytest.approx(1.5)
    assert columns["loss"][1:] == [None, None]
    assert now["edges"]["version"][:2] == [37, 12]
    assert kinds(node.plan.folder) == [
        ("start", None), ("join", 1), ("join", 2), ("renew", None), ("lost", 2), ("renew", None),
    ]  # fmt: skip
    node.comes("cordoba")
    node.written()
    assert RunView(node.plan.folder).now()["columns"]["state"] == ["running", "running", "back"]  # type: ignore[index]
    node.ends()
    assert RunView(node.plan.folder).state() == "stopped"
    assert RunView(node.plan.folder).now()["columns"]["state"] == ["stopped", "running", "back"]  # type: ignore[index]


def test_a_quick_restart_of_a_neighbour_is_a_loss_and_a_return(node: WrittenNode) -> None:
    node.comes("basel")  # it was here before, too
    node.written()
    assert kinds(node.plan.folder)[-2:] == [("lost", 1), ("join", 1)]


def test_refused_messages_are_counted_and_told_once_in_a_while(node: WrittenNode) -> None:
    for _ in range(3):
        node.sends_rubbish("basel")
    node.written()
    for _ in range(5):
        node.sends_rubbish("basel")
    node.sends_rubbish("nobody")
    node.written()
    told = [row for row in events(node.plan.folder) if row["event"] == "refused"]
    assert [(row.get("client"), row["messages"], row["reason"]) for row in told] == [
        (1, 3, "REPLAYED"),
        (None, 1, "REPLAYED"),
    ]
    assert RunView(node.plan.folder).now()["columns"]["refused"] == [0, 8, 0]  # type: ignore[index]
    assert [line for line in node.said if line.startswith("refused")] == [
        "refused 3 messages of basel: it was sent before (REPLAYED)",
        "refused a message of nobody: it was sent before (REPLAYED)",
    ]


def test_a_node_goes_on_with_its_files(node: WrittenNode) -> None:
    node.ends()
    again = WrittenNode(node.plan.folder).goes_on_from(node.control.tally)
    again.steps(10)
    again.written()
    reader = FactsReader(node.plan.folder)
    assert reader.layout is not None
    assert reader.layout.session == 2
    again.killed()
    assert reader.rows()["c"].tolist() == list(range(1, 51))
    assert "resume" in [event for event, _ in kinds(node.plan.folder)]
    third = WrittenNode(node.plan.folder)
    assert kinds(node.plan.folder)[-3:] == [("lost", 0), ("join", 0), ("resume", None)]  # it was killed
    assert events(node.plan.folder)[-3]["time"] <= events(node.plan.folder)[-2]["time"]
    third.ends("finished", loss=0.25)
    assert RunView(node.plan.folder).state() == "finished"
    WrittenNode(node.plan.folder)
    assert RunView(node.plan.folder).state() == "running"


def test_a_node_that_dies_while_it_starts(tmp_path: Path) -> None:
    node = WrittenNode(tmp_path / "aarhus")
    now = RunView(node.plan.folder).now()
    assert now is not None
    assert now["columns"]["state"] == ["starting"] * 3
    node.killed()
    WrittenNode(node.plan.folder).killed()
    lost = [row["time"] for row in events(node.plan.folder) if row["event"] == "lost"]
    assert [0 < at < 60 for at in lost] == [True]


def test_neighbours_keep_their_places_when_the_manifest_changes(node: WrittenNode) -> None:
    node.ends()
    again = WrittenNode(node.plan.folder, ("athens", "basel"))
    again.comes("athens")
    again.sends("athens", 5)
    again.written()
    view = RunView(node.plan.folder)
    layout, now = view.layout(), view.now()
    assert layout is not None
    assert now is not None
    assert layout["names"] == ["aarhus", "basel", "cordoba", "athens"]
    assert layout["near"] == [1, 3]
    assert now["columns"]["state"] == ["starting", "starting", "stopped", "running"]
    assert kinds(node.plan.folder)[-1] == ("join", 3)
    assert [each["client"] for each in view.client(0)["neighbours"]] == [1, 3]
    assert [each.name for each in Watcher(view).look().neighbours] == ["basel", "athens"]


def test_one_process_at_a_time(node: WrittenNode) -> None:
    with pytest.raises(UserError, match=r"aarhus is in use by process \d+ on"):
        WrittenNode(node.plan.folder)


def test_a_full_disk_is_told_once_and_training_goes_on(
    node: WrittenNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*rows: object) -> None:
        raise UserError("cannot write: No space left on device")

    monkeypatch.setattr(node.record._folder, "append", full)
    node.comes("cordoba")
    node.written()
    node.goes("cordoba")
    node.written()
    assert [line for line in node.said if "No space" in line] == [
        "records no more of what happens: cannot write: No space left on device; training goes on"
    ]


# --- how it looks ------------------------------------------------------------------------------------


def picture(folder: Path, columns: int, fancy: bool = True) -> str:
    watcher = Watcher(RunView(folder))
    lines = [line.plain for line in Pen(columns, fancy).picture(watcher.look(), watcher.lanes(40, 16, True))]
    assert max(map(len, lines)) <= columns
    return "\n".join(lines)


def with_weights(node: WrittenNode) -> Path:
    near = {"basel": {"weight": 0.25}, "cordoba": {"weight": 0.0}}
    (node.plan.folder / "status.json").write_text(json.dumps({"neighbours": near}))
    return node.plan.folder


def test_the_picture_names_neighbours(node: WrittenNode) -> None:
    node.sends_rubbish("cordoba")
    node.written()
    folder = with_weights(node)
    text = picture(folder, 120)
    assert "aarhus  swift, node with 2 neighbours  running" in text
    assert re.search(r"basel +here +weight 0.25  at step 37 [\d.]+ s ago", text)
    assert re.search(r"cordoba +lost +at step 12 .* s ago  1 refused", text)
    assert "cordoba lost: it cannot be reached" in text
    assert "weights renewed among 2 nodes" in text
    assert "client" not in text
    for columns in (60, 80):
        assert "basel" in picture(folder, columns, fancy=False)
    line = plain_line(Watcher(RunView(folder)).look())
    assert "with basel, 1 lost (cordoba)" in line


def test_names_in_a_file_do_not_command_the_terminal(node: WrittenNode) -> None:
    layout = node.plan.folder / "facts" / "layout.json"
    layout.write_text(layout.read_text().replace("basel", "ba\\u001b[2Jsel"))
    assert "\x1b" not in picture(node.plan.folder, 100)


@pytest.mark.parametrize("names", ['["a"]', "[1, 2, 3]", '"abc"', '["a", "", "c"]', "[null, null, null]"])
def test_names_that_are_none_are_refused(node: WrittenNode, names: str) -> None:
    text = (node.plan.folder / "facts" / "layout.json").read_text()
    with pytest.raises(UserError, match="names"):
        Layout.from_json(re.sub(r'"names": \[.*?\]', f'"names": {names}', text), "layout.json")


def test_watch_on_a_terminal_and_in_a_pipe(node: WrittenNode, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_weights(node)
    with Terminal([sys.executable, "-m", "swiftfl", "watch", str(folder), "--once"], 80) as terminal:
        text = terminal.to_end()
    assert "node with 2 neighbours" in text
    assert re.search(r"basel +here +weight 0.25", text)
    node.ends()
    assert run_command(["watch", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "aarhus: " in told
    assert "cordoba lost: it cannot be reached" in told
    assert "\x1b" not in told


def test_a_report_holds_names_and_no_keys(node: WrittenNode, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_weights(node)
    (folder / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nsecret\n")
    node.ends()
    assert run_command(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "secret" not in page
    assert str(folder) not in page
