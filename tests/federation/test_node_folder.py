"""What a node is told and by whom: signed views, and folders whose parts must fit together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from swiftfl.errors import UserError
from swiftfl.federation.certificates import (
    check_request,
    fingerprint_of_key,
    issue,
    new_authority,
    new_key,
    new_request,
)
from swiftfl.federation.folder import NodeFolder
from swiftfl.federation.manifest import (
    Agreement,
    FederationManifest,
    Member,
    canonical,
    read_signed,
    signed_text,
)

AUTHORITY_KEY = new_key()
AUTHORITY = new_authority("demo", AUTHORITY_KEY)
KEYS = {name: new_key() for name in "abcd"}


def manifest(**changes: object) -> FederationManifest:
    members = tuple(
        Member(
            name=name,
            index=index,
            fingerprint=fingerprint_of_key(KEYS[name]),
            influence=1.0 + index,
            address=f"tls/127.0.0.1:{7447 + index}",
        )
        for index, name in enumerate("abcd")
    )
    edges = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))
    made = FederationManifest(
        federation="demo", id=32 * "0", version=3, members=members, edges=edges, agreement=Agreement()
    )
    return made.model_copy(update=changes)


def folder_of_a(place: Path, text: str = "name: a\nlisten: tls/127.0.0.1:7447\n") -> Path:
    place.mkdir(exist_ok=True)
    asked = check_request(new_request("a", ("127.0.0.1",), KEYS["a"]))
    (place / "key.pem").touch(mode=0o600)
    (place / "key.pem").write_bytes(KEYS["a"])
    (place / "certificate.pem").write_bytes(issue(asked, AUTHORITY, AUTHORITY_KEY))
    (place / "authority.pem").write_bytes(AUTHORITY)
    (place / "manifest.json").write_text(signed_text(manifest().view("a"), AUTHORITY_KEY))
    (place / "node.yaml").write_text(text)
    return place / "node.yaml"


def test_a_view_shows_the_neighbours_and_nobody_else() -> None:
    view = manifest().view("a")
    assert [each.name for each in view.neighbours] == ["b", "d"]
    assert (view.nodes, view.uniform) == (4, False)
    assert [round(each.influence, 12) for each in (view.me, *view.neighbours)] == [0.1, 0.2, 0.4]
    text = signed_text(view, AUTHORITY_KEY)
    assert fingerprint_of_key(KEYS["c"]) not in text
    assert '"c"' not in text
    assert view.admits("b", fingerprint_of_key(KEYS["b"]))
    assert not view.admits("b", fingerprint_of_key(KEYS["c"]))
    assert not view.admits("c", fingerprint_of_key(KEYS["c"]))


def test_a_revoked_key_is_not_admitted() -> None:
    view = manifest(revoked=(fingerprint_of_key(KEYS["b"]),)).view("a")
    assert not view.admits("b", fingerprint_of_key(KEYS["b"]))
    assert view.admits("d", fingerprint_of_key(KEYS["d"]))


def test_a_signed_view_in_any_layout_is_the_same_and_a_changed_one_is_refused() -> None:
    text = signed_text(manifest().view("a"), AUTHORITY_KEY)
    assert read_signed(text, AUTHORITY) == manifest().view("a")
    tree = json.loads(text)
    assert read_signed(json.dumps(tree, sort_keys=True), AUTHORITY) == manifest().view("a")
    tree["view"]["me"]["influence"] = 0.9
    with pytest.raises(UserError, match="was not signed by this federation's authority, or was changed"):
        read_signed(json.dumps(tree), AUTHORITY)
    with pytest.raises(UserError, match="was not signed"):
        read_signed(signed_text(manifest().view("a"), new_key()), AUTHORITY)
    for broken in ("", "[]", '{"view": {}}', '{"view": {}, "signature": "é"}', "[" * 10**5):
        with pytest.raises(UserError, match="not a signed manifest"):
            read_signed(broken, AUTHORITY)


def test_canonical_bytes_do_not_depend_on_order() -> None:
    assert canonical({"b": 1, "a": [0.1, None]}) == canonical({"a": [0.1, None], "b": 1})


def test_a_node_folder(tmp_path: Path) -> None:
    text = (
        "name: a\nlisten: [tls/127.0.0.1:7447]\nendpoints:\n  d: tls/d.example:1\nexperiment: mine.py:exp\n"
    )
    node = NodeFolder.read(folder_of_a(tmp_path / "a", text))
    assert node.name == "a"
    assert node.neighbours == ("b", "d")
    assert node.endpoints == {"b": "tls/127.0.0.1:7448", "d": "tls/d.example:1"}
    assert node.listen == ("tls/127.0.0.1:7447",)
    assert node.manifest.version == 3
    assert node.experiment == f"{tmp_path / 'a' / 'mine.py'}:exp"
    assert node.checkpoints == tmp_path / "a" / "checkpoints"
    assert (node.insecure, node.key.name) == (False, "key.pem")
    assert NodeFolder.read(tmp_path / "a") == node


WRONG = {
    "name: a\nlisen: x\n": "node.yaml:2: unknown key lisen; did you mean listen?",
    "name: A b\n": "node.yaml:1: name must be a name of lower-case letters",
    "name: b\n": "node.yaml: certificate: the certificate is not one of node b",
    "name: a\nlisten: tls/x\n": "node.yaml:2: listen must be an address such as",
    "name: a\nlisten: [tls/x:1, 7]\n": "node.yaml:2: listen.1 must be text, not 7",
    "name: a\nlisten: tcp/127.0.0.1:7447\n": "node.yaml:2: listen: tcp/127.0.0.1:7447 is without TLS",
    "name: a\nlisten: tls/1.2.3.4:99999\n": "99999: a port is a number from 1 to 65535",
    "name: a\nendpoints:\n  c: tls/x:1\n": "node.yaml:3: endpoints.c is no neighbour of this node",
    "name: a\nendpoints:\n  b: x\n": "node.yaml:3: endpoints.b must be an address such as",
    "name: a\nexperiment: ring\n": "node.yaml:2: experiment: must be a reference such as",
    "name: a\ninsecure: true\nlisten: tcp/0.0.0.0:1\n": "node.yaml:3: listen: tcp/0.0.0.0:1 is not on",
    "name: a\nkey: other.pem\n": "node.yaml:2: key: .*other.pem is not there",
    "listen: tls/x:1\n": "node.yaml: name is missing",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named_with_file_line_and_key(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=WRONG[text]) as caught:
        NodeFolder.read(folder_of_a(tmp_path / "a", text))
    assert "\n" not in str(caught.value)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = folder_of_a(tmp_path / "a")
    (tmp_path / "a" / "key.pem").chmod(0o640)
    with pytest.raises(UserError, match=r"key.pem can be read by others \(mode 640\): chmod 600"):
        NodeFolder.read(path)


def test_parts_of_different_nodes_or_authorities_do_not_fit(tmp_path: Path) -> None:
    path = folder_of_a(tmp_path / "a")
    (tmp_path / "a" / "key.pem").write_bytes(KEYS["b"])
    with pytest.raises(UserError, match="is not the key of"):
        NodeFolder.read(path)
    path = folder_of_a(tmp_path / "a")
    (tmp_path / "a" / "authority.pem").write_bytes(new_authority("demo", new_key()))
    with pytest.raises(UserError, match="was not signed by this federation's authority"):
        NodeFolder.read(path)
    path = folder_of_a(tmp_path / "a")
    (tmp_path / "a" / "manifest.json").write_text(signed_text(manifest().view("b"), AUTHORITY_KEY))
    with pytest.raises(UserError, match="name is a, but the manifest is that of b"):
        NodeFolder.read(path)
