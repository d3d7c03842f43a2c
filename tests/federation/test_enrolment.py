"""Joining a federation, changing who belongs to it, and what must not happen on the way."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from swiftfl.cli.main import run_command
from swiftfl.errors import UserError
from swiftfl.federation.authority import Authority
from swiftfl.federation.blocks import JoinRequest, block, code_of, read_reply, read_requests
from swiftfl.federation.certificates import fingerprint, new_key, new_request
from swiftfl.federation.folder import NodeFolder
from swiftfl.federation.joining import init, install, install_all, request
from swiftfl.federation.manifest import Agreement
from swiftfl.graph import ring


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    init(tmp_path / "demo", "demo", ["a", "b", "c", "d"], ring(4), [1, 2, 3, 4])
    return tmp_path / "demo"


def secrets_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]


def test_the_whole_way_by_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four hosts that exchange nothing but blocks of text with the authority."""
    assert run_command(["federation", "create", "trial", "--folder", str(tmp_path / "ca")]) == 0
    authority_code = capsys.readouterr().out.split()[-1]
    files = []
    for number, name in enumerate("abc"):
        place = ["--folder", str(tmp_path / name), "--address", f"tls/{name}.example:{7000 + number}"]
        assert run_command(["federation", "request", name, *place]) == 0
        shown = capsys.readouterr()
        mail = tmp_path / f"{name}.mail"
        mail.write_text(f"Dear authority,\n\n{shown.out}\nRegards\n")
        files.append(str(mail))
        assert "PRIVATE" not in shown.out
        assert code_of(read_requests(mail.read_text(), "mail")[0]) in shown.err
    assert run_command(["federation", "sign", str(tmp_path / "ca"), *files, "--influence", "1,1,2"]) == 0
    assert "trial has version 1 and 3 nodes" in capsys.readouterr().out
    for name in "abc":
        reply = str(tmp_path / "ca" / "replies" / f"{name}.txt")
        ending = ["--folder", str(tmp_path / name), "--authority", authority_code]
        assert run_command(["federation", "install", reply, *ending]) == 0
        assert f"{name} is a node of trial, version 1" in capsys.readouterr().out
    node = NodeFolder.read(tmp_path / "b" / "node.yaml")
    assert node.neighbours == ("a", "c")
    assert node.endpoints == {"a": "tls/a.example:7000", "c": "tls/c.example:7002"}
    assert [each.influence for each in node.manifest.neighbours] == [0.25, 0.5]
    assert node.listen == ("tls/b.example:7001",)


def test_init_makes_all_folders_and_they_fit(demo: Path) -> None:
    for name, beside in (("a", ("b", "d")), ("b", ("a", "c")), ("c", ("b", "d")), ("d", ("a", "c"))):
        node = NodeFolder.read(demo / name)
        assert node.neighbours == beside
        assert node.manifest.nodes == 4
        assert set(node.endpoints) == set(beside)
        assert all(
            address.startswith("tls/127.0.0.1:") for address in (*node.listen, *node.endpoints.values())
        )


def test_of_two_that_can_dial_each_other_one_does(demo: Path) -> None:
    dialled = {name: dict(NodeFolder.read(demo / name).dials) for name in "abcd"}
    assert {name: set(those) for name, those in dialled.items()} == {
        "a": set(),
        "b": {"a"},
        "c": {"b"},
        "d": {"a", "c"},
    }
    elsewhere = "tls/127.0.0.1:7999"
    with (demo / "a" / "node.yaml").open("a") as file:
        file.write(f"endpoints: {{b: {elsewhere}}}\n")
    assert NodeFolder.read(demo / "a").dials == {"b": elsewhere}, "what its owner says is dialled"
    settings = demo / "b" / "node.yaml"
    lines = settings.read_text().splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if not line.startswith("listen")))
    assert set(NodeFolder.read(demo / "b").dials) == {"a", "c"}, "nobody can dial who does not listen"


def test_keys_are_for_their_owner_only_and_stay_where_they_are(demo: Path) -> None:
    found = secrets_in(demo)
    assert {str(path.relative_to(demo)) for path in found} == {
        "authority/authority.key",
        *(f"{name}/key.pem" for name in "abcd"),
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}


def test_nothing_secret_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert run_command(["federation", "init", str(tmp_path / "x"), "--nodes", "a,b"]) == 0
    said = caplog.text + "".join(capsys.readouterr())
    for path in secrets_in(tmp_path / "x"):
        for line in path.read_text().splitlines()[1:-1]:
            assert line not in said
    replies = (tmp_path / "x" / "authority" / "replies").iterdir()
    assert all("PRIVATE KEY" not in read_reply(path.read_text(), "r").model_dump_json() for path in replies)


def test_no_node_learns_of_others_than_its_neighbours(demo: Path) -> None:
    beyond = {"a": "c", "b": "d", "c": "a", "d": "b"}
    for name, stranger in beyond.items():
        other = NodeFolder.read(demo / stranger)
        reply = read_reply((demo / "authority" / "replies" / f"{name}.txt").read_text(), "r")
        for text in (reply.manifest, *(p.read_text() for p in (demo / name).iterdir() if p.is_file())):
            assert other.manifest.me.fingerprint not in text
            assert other.listen[0] not in text


def test_add_and_remove_renew_everybodys_manifest(demo: Path) -> None:
    authority = Authority.open(demo / "authority")
    asked = request(demo / "e", "e", "tls/127.0.0.1:9999")
    authority.add(asked, ["a", "b"], influence=10.0)
    install_all(authority, demo)
    joined = NodeFolder.read(demo / "e")
    assert (joined.neighbours, joined.manifest.version, joined.manifest.nodes) == (("a", "b"), 2, 5)
    assert joined.manifest.me.index == 4
    assert joined.manifest.me.influence == 0.5
    assert NodeFolder.read(demo / "a").neighbours == ("b", "d", "e")
    gone = NodeFolder.read(demo / "e").manifest.me.fingerprint
    authority.remove("e")
    for name in "abcd":
        install(demo / name, authority.reply(name).read_text(), "reply")
        view = NodeFolder.read(demo / name).manifest
        assert view.version == 3
        assert view.revoked == (gone,)
        assert not view.admits("e", gone)
    assert not authority.reply("e").exists()
    again = request(demo / "f", "f", "tls/127.0.0.1:9998")
    assert authority.add(again, ["c"]).member("f").index == 5  # type: ignore[union-attr] # numbers are not used twice


def test_a_removed_node_does_not_come_back_with_its_key(demo: Path) -> None:
    authority = Authority.open(demo / "authority")
    old = read_requests((demo / "b" / "request.txt").read_text(), "r")[0]
    authority.remove("d")
    with pytest.raises(UserError, match="connected"):
        authority.remove("b")
    assert authority.manifest().version == 2  # the refused one changed nothing
    authority.remove("b", [("a", "c")])
    with pytest.raises(UserError, match="the key in the request of b was used before"):
        authority.add(old, ["a"])


def test_a_rotated_key_is_another_common_name_and_the_old_one_is_revoked(demo: Path) -> None:
    authority = Authority.open(demo / "authority")
    before = NodeFolder.read(demo / "a")
    old, kept = before.manifest.me, read_requests((demo / "a" / "request.txt").read_text(), "r")[0]
    asked = request(demo / "a", "a", before.listen[0])
    assert NodeFolder.read(demo / "a") == before  # until the reply is here
    authority.rotate(asked)
    install_all(authority, demo)
    new = NodeFolder.read(demo / "a").manifest.me
    assert new.common_name != old.common_name
    view = NodeFolder.read(demo / "b").manifest
    assert not view.admits("a", old.fingerprint)
    assert view.admits("a", new.fingerprint)
    assert not (demo / "a" / "key.next.pem").exists()
    with pytest.raises(UserError, match="was revoked: make a new one"):
        authority.rotate(kept)


def test_an_old_reply_is_not_installed_over_a_newer_one(demo: Path) -> None:
    """Or a removed node could be brought back by whoever kept the reply."""
    authority = Authority.open(demo / "authority")
    kept = authority.reply("a").read_text()
    authority.remove("b")
    install(demo / "a", authority.reply("a").read_text(), "reply")
    with pytest.raises(UserError, match="the reply has version 1; version 2 is installed"):
        install(demo / "a", kept, "reply")
    install(demo / "a", authority.reply("a").read_text(), "reply")  # the same again does no harm


def test_replies_of_others_and_of_other_authorities_are_refused(demo: Path, tmp_path: Path) -> None:
    authority = Authority.open(demo / "authority")
    with pytest.raises(UserError, match="is not for this node"):
        install(demo / "a", authority.reply("b").read_text(), "reply")
    init(tmp_path / "evil", "demo", ["a", "b", "c", "d"], ring(4))
    foreign = Authority.open(tmp_path / "evil" / "authority").reply("a").read_text()
    with pytest.raises(UserError, match="another authority"):
        install(demo / "a", foreign, "reply")
    with pytest.raises(UserError, match="another authority than 0000"):
        install(demo / "a", authority.reply("a").read_text(), "reply", "0000-0000-0000-0000")


def test_changed_requests_are_refused(demo: Path) -> None:
    authority = Authority.open(demo / "authority")
    asked = request(demo / "e", "e", "tls/127.0.0.1:9999")
    with pytest.raises(UserError, match="the request of x was changed"):
        authority.add(asked.model_copy(update={"name": "x"}), ["a"])
    with pytest.raises(UserError, match="the request of e was changed"):
        authority.add(asked.model_copy(update={"address": "tls/evil.example:9999"}), ["a"])
    own = new_request("e", (), new_key()).decode()
    for damaged in (own.replace(own[200:204], "AAAA", 1), own[:100], ""):
        with pytest.raises(UserError, match="request"):
            authority.add(JoinRequest(name="e", request=damaged), ["a"])
    with pytest.raises(UserError, match="there is a node a already"):
        authority.add(request(demo / "copy", "a", "tls/127.0.0.1:1"), ["b"])
    assert authority.manifest().version == 1


def test_one_side_of_an_edge_must_be_reachable(demo: Path) -> None:
    authority = Authority.open(demo / "authority")
    authority.add(request(demo / "e", "e"), ["a"])
    with pytest.raises(UserError, match="neither f nor e has an address"):
        authority.add(request(demo / "f", "f"), ["e"])
    install_all(authority, demo)
    assert NodeFolder.read(demo / "e").listen == ()
    assert "e" not in NodeFolder.read(demo / "a").endpoints


def test_a_change_that_was_interrupted_does_no_harm(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each of its writes: what is there still fits together, and the change can be made again."""
    from swiftfl.federation import authority as module

    authority = Authority.open(demo / "authority")
    asked = request(demo / "a", "a", NodeFolder.read(demo / "a").listen[0])
    real, left = module.write_atomically, 0

    def until_the_power_fails(path: Path, data: str | bytes, private: bool = False) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError("power")
        real(path, data, private)

    for allowed in range(6):
        left = allowed
        monkeypatch.setattr(module, "write_atomically", until_the_power_fails)
        with pytest.raises(OSError, match="power"):
            authority.rotate(asked)
        monkeypatch.setattr(module, "write_atomically", real)
        authority.write_replies()
        install_all(authority, demo)
        for name in "abcd":
            NodeFolder.read(demo / name)
    assert NodeFolder.read(demo / "a").manifest.me.fingerprint == asked.checked().fingerprint


BAD_BLOCKS = {
    "": "holds no block",
    "-----BEGIN SWIFTFL REQUEST-----\n!\n-----END SWIFTFL REQUEST-----": "cannot be read; copy all of it",
    "-----BEGIN SWIFTFL REQUEST-----\nbnVsbA==\n-----END SWIFTFL REQUEST-----": "must be an object",
    "-----BEGIN SWIFTFL REQUEST-----\ne30=\n-----END SWIFTFL REQUEST-----": "is missing",
}


@pytest.mark.parametrize("text", BAD_BLOCKS)
def test_damaged_blocks(text: str) -> None:
    with pytest.raises(UserError, match=BAD_BLOCKS[text]):
        read_requests(text, "mail")


def test_blocks_survive_a_mail(demo: Path) -> None:
    asked = read_requests((demo / "a" / "request.txt").read_text(), "r")[0]
    quoted = block(asked).replace("\n", "  \r\n")
    assert read_requests(f"> said\n{quoted}\nbye", "mail") == [asked]


def test_commands_tell_what_is_wrong(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = str(demo / "authority")
    wrong = {
        ("init", str(demo), "--nodes", "a,b"): "is there already, and not empty",
        ("init", str(tmp_path / "y"), "--nodes", "a,B"): "must be a name",
        ("init", str(tmp_path / "z"), "--nodes", "a,b", "--topology", "rin"): "did you mean ring?",
        ("init", str(tmp_path / "w"), "--nodes", "a,b,c", "--influence", "1,2"): "influence has 2 scores",
        ("remove", authority, "x"): "there is no node 'x'",
        ("remove", authority, "a", "--link", "b+c"): "an edge is written a,c",
        ("sign", authority, str(demo / "a" / "request.txt")): "has members already",
        (
            "add",
            str(tmp_path),
            str(demo / "a" / "request.txt"),
            "--neighbours",
            "b",
        ): "not the folder of an authority",
        ("install", str(tmp_path / "none.txt")): "cannot read",
        ("create", "Two Words"): "must be a name",
    }
    for arguments, said in wrong.items():
        assert run_command(["federation", *arguments]) == 2, arguments
        shown = capsys.readouterr().err
        assert said in shown, (arguments, shown)
        assert len(shown.splitlines()) <= 3
    assert Authority.open(demo / "authority").manifest().version == 1


def test_insecure_is_typed_warned_of_and_bound_to_loopback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["federation", "init", str(tmp_path / "x"), "--nodes", "a,b", "--insecure"]) == 0
    assert "WARNING: --insecure" in capsys.readouterr().err
    node = NodeFolder.read(tmp_path / "x" / "a")
    assert node.insecure
    assert all(address.startswith("tcp/127.0.0.1:") for address in (*node.listen, *node.endpoints.values()))
    with pytest.raises(UserError, match="not on this machine"):
        request(tmp_path / "y", "y", "tcp/0.0.0.0:7447", insecure=True)
    with pytest.raises(UserError, match="must be written tls/HOST:PORT"):
        request(tmp_path / "y", "y", "tcp/127.0.0.1:7447")


def test_the_agreement_fixes_the_layout_of_the_model(tmp_path: Path) -> None:
    said = ["--model", "logistic", "--dataset", "digits", "--codec", "topk:0.01"]
    assert run_command(["federation", "init", str(tmp_path / "x"), "--nodes", "a,b", *said]) == 0
    agreed = NodeFolder.read(tmp_path / "x" / "a").manifest.agreement
    assert (agreed.model, agreed.size, agreed.dtype, agreed.codec) == (
        "logistic",
        650,
        "float32",
        "topk:0.01",
    )
    assert agreed.layout is not None
    other = ["--model", "mlp", "--dataset", "digits"]
    assert run_command(["federation", "init", str(tmp_path / "y"), "--nodes", "a,b", *other]) == 0
    assert NodeFolder.read(tmp_path / "y" / "a").manifest.agreement.layout != agreed.layout
    assert Agreement().layout is None


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [("adpsgd", "whose clients average in pairs"), ("dsgd", "meet in rounds"), ("swift", "")],
)
def test_nodes_are_not_made_for_an_experiment_that_they_would_refuse(
    algorithm: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The federation of another kind, whose members bring experiments of their own, may take its model."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def experiment():\n"
        f'    return dict(train="digits", model="logistic", algorithm="{algorithm}", clients=4)\n'
    )
    reference = ["--experiment", f"{mine}:experiment"]
    refused = run_command(["federation", "init", str(tmp_path / "x"), "--nodes", "a,b", *reference])
    assert refused == (2 if said else 0)
    shown = capsys.readouterr().err
    assert said in shown
    assert (tmp_path / "x").exists() != bool(said), "nothing is made for what cannot run"
    assert run_command(["federation", "create", "y", "--folder", str(tmp_path / "y"), *reference]) == 0


def test_the_authoritys_certificate_is_its_own(demo: Path) -> None:
    authority = Authority.open(demo / "authority")
    assert fingerprint(authority.certificate) == authority.fingerprint


def test_a_new_key_keeps_the_address(demo: Path) -> None:
    """Who asks for a new key without saying where it is dialled is dialled where it was."""
    before = NodeFolder.read(demo / "a").manifest.me
    made = request(demo / "a", "a")
    assert made.address == before.address
    assert request(demo / "a", "a", "tls/127.0.0.1:7999").address == "tls/127.0.0.1:7999"
    authority = Authority.open(demo / "authority")
    after = authority.rotate(request(demo / "a", "a"))
    assert next(each for each in after.members if each.name == "a").address == before.address


def test_the_file_of_a_node_can_be_added_to(tmp_path: Path) -> None:
    """One setting a line, also where there is only a name."""
    request(tmp_path / "c", "c")
    text = (tmp_path / "c" / "node.yaml").read_text()
    assert "\nname: c\n# experiment: mine.py:experiment" in text
    request(tmp_path / "d", "d", "tls/127.0.0.1:7999", "/x/mine.py:experiment", "tls/0.0.0.0:7999")
    lines = (tmp_path / "d" / "node.yaml").read_text().splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == ["name", "listen", "experiment"]


def test_who_installs_is_told_what_comes_next(
    demo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = str(demo / "authority" / "replies" / "a.txt")
    assert run_command(["federation", "install", reply, "--folder", str(demo / "a")]) == 0
    assert "To start it, add experiment: mine.py:experiment to" in capsys.readouterr().out
    assert run_command(["federation", "install", reply, "--folder", str(demo)]) == 2
    assert "(--folder: where `swiftfl federation request` was run)" in capsys.readouterr().err
    monkeypatch.setattr("swiftfl.federation.service.runs", lambda folder: True)
    assert run_command(["federation", "install", reply, "--folder", str(demo / "a")]) == 0
    assert "It runs: it takes this in when it is stopped" in capsys.readouterr().out
