"""Topologies in files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import swiftfl as s
from swiftfl.errors import UserError
from swiftfl.graph.files import read_topology, write_topology


@pytest.mark.parametrize("name", ["g.txt", "g.edges", "g.json", "g.graphml", "G.JSON"])
@pytest.mark.parametrize("t", [s.ring(2), s.ring_of_cliques(16, 4), s.star(5), s.barabasi_albert(60, 2)])
def test_round_trip(tmp_path: Path, name: str, t: s.Topology) -> None:
    file = tmp_path / name
    write_topology(t, file)
    assert read_topology(file) == t
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_single_client_in_json_and_graphml(tmp_path: Path) -> None:
    for name in ("g.json", "g.graphml"):
        write_topology(s.ring(1), tmp_path / name)
        assert read_topology(tmp_path / name) == s.ring(1)


def test_edge_list_with_comments_blank_lines_and_duplicates(tmp_path: Path) -> None:
    file = tmp_path / "g.txt"
    file.write_text("# a ring\n\n0 1  # first\n 2\t1\n0 2\n2 0\n", encoding="utf-8")
    assert read_topology(file) == s.ring(3)


def test_graphml_names_are_numbered_in_file_order(tmp_path: Path) -> None:
    import networkx

    file = tmp_path / "g.graphml"
    networkx.write_graphml(networkx.Graph([("b", "a"), ("a", "b"), ("a", "c")]), file)
    assert read_topology(file).edges.tolist() == [[0, 1], [1, 2]]


def test_a_byte_order_mark_is_no_part_of_the_edges(tmp_path: Path) -> None:
    for name, text in [("g.txt", "0 1\n1 2\n"), ("g.json", '{"clients": 3, "edges": [[0, 1], [1, 2]]}')]:
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert read_topology(tmp_path / name) == s.path(3)


def test_directed_files_are_refused(tmp_path: Path) -> None:
    import networkx

    file = tmp_path / "g.graphml"
    networkx.write_graphml(networkx.DiGraph([(0, 1), (1, 2)]), file)
    with pytest.raises(UserError, match="directed"):
        read_topology(file)


BAD = [
    ("g.txt", "0 1\n1 x\n", "g.txt: line 2: '1 x' is not two client numbers"),
    ("g.txt", "0 1 2\n", "line 1"),
    ("g.txt", "0 -1\n", "line 1"),
    ("g.txt", "0 1.5\n", "line 1"),
    ("g.txt", "0 1\n\n2 2\n", "line 3: edge (2, 2) is a self-loop"),
    ("g.txt", "0 1000000000000\n", "client 1000000000000 is named, but 1 edges"),
    ("g.txt", "0 " + "9" * 5000 + "\n", "is named, but 1 edges"),
    ("g.txt", "", "no edges"),
    ("g.txt", "0 1\n2 3\n0 1\n", "not connected: client 2 cannot be reached"),
    ("g.txt", "0 ²\n", "line 1"),
    (
        "g.txt",
        "1 2\n2 3\n3 1\n",
        "counted from 0; this file seems to count from 1: it names clients 1 to 3",
    ),
    ("g.txt", "1 5\n", "this file seems to count from 1"),
    ("g.json", '{"clients": 3, "edges": [[1, 2], [2, 3]]}', "this file seems to count from 1"),
    ("g.json", "{", "not JSON"),
    ("g.json", "[]", "expected"),
    ("g.json", '{"clients": 1.5, "edges": []}', "clients: 1.5"),
    ("g.json", '{"clients": true, "edges": []}', "clients: True"),
    ("g.json", '{"clients": 2, "edges": [[0, "1"]]}', '[0, "1"] is not a pair'),
    ("g.json", '{"clients": 2, "edges": 5}', "not a list"),
    ("g.json", '{"clients": 1000000000000, "edges": [[0, 1]]}', "cannot connect 1000000000000 clients"),
    ("g.json", '{"clients": 2, "edges": [[0, 2]]}', "client 2 is not in 0..1"),
    ("g.json", '{"clients": 0, "edges": []}', "at least one client"),
    ("g.json", "[" * 100_000, "not JSON"),
    ("g.graphml", "<graphml>", "not GraphML"),
    ("g.graphml", "hello", "not GraphML"),
]


@pytest.mark.parametrize(("name", "text", "told"), BAD)
def test_bad_files_are_told_in_one_line(tmp_path: Path, name: str, text: str, told: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        read_topology(file)
    assert told in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_binary_and_unwritable_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.txt: No such file"):
        read_topology(tmp_path / "nothing.txt")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text file"):
        read_topology(tmp_path / "b.txt")
    with pytest.raises(UserError, match="No such file"):
        write_topology(s.ring(3), tmp_path / "no" / "g.txt")
    with pytest.raises(UserError, match="Is a directory"):
        read_topology(tmp_path)


def test_links_are_followed_and_stay_links(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    for name in ("old.txt", "new.txt"):
        real, link = tmp_path / "far" / name, tmp_path / name
        link.symlink_to(real)
        if name == "old.txt":
            real.write_text("before")
        write_topology(s.ring(3), link)
        assert link.is_symlink()
        assert read_topology(real) == s.ring(3)
    assert sorted(path.name for path in (tmp_path / "far").iterdir()) == ["new.txt", "old.txt"]


def test_what_is_not_a_regular_file_is_neither_replaced_nor_read(tmp_path: Path) -> None:
    pipe, link, loop = tmp_path / "pipe", tmp_path / "link", tmp_path / "loop"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    loop.symlink_to(loop)
    for file in (pipe, link):
        with pytest.raises(UserError, match="not a regular file"):
            write_topology(s.ring(3), file)
        with pytest.raises(UserError, match="not a regular file"):
            read_topology(file)
    with pytest.raises(UserError, match="loop"):
        write_topology(s.ring(3), loop)
    with pytest.raises(UserError, match="Is a directory"):
        write_topology(s.ring(3), tmp_path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "loop", "pipe"]
