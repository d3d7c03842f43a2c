"""What a host does to join a federation: make a key and a request, and install the authority's reply.

The key is made where it stays. A folder that has one makes the next key beside it (`key.next.pem`), and that
takes its place when the reply to it is installed: until then the node goes on as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from swiftfl.errors import UserError
from swiftfl.experiment.config_file import yaml_text
from swiftfl.federation.authority import Authority
from swiftfl.federation.blocks import JoinRequest, block, read_reply
from swiftfl.federation.certificates import (
    check_certificate,
    fingerprint,
    fingerprint_of_key,
    new_key,
    new_request,
)
from swiftfl.federation.folder import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    MANIFEST,
    NODE,
    address_parts,
    is_loopback,
)
from swiftfl.federation.manifest import (
    Agreement,
    FederationManifest,
    NodeView,
    checked,
    checked_name,
    read_signed,
)
from swiftfl.files import read_text_file, reported, write_atomically
from swiftfl.graph.topology import Topology
from swiftfl.lock import locked
from swiftfl.transports.ports import free_ports

REQUEST = "request.txt"
NEXT_KEY = "key.next.pem"
JOINING = ".joining.lock"
"""The lock of what is changed here; the folder itself is locked by its node, which may run meanwhile."""
LOOPBACK = "127.0.0.1"


def request(
    folder: Path,
    name: str,
    address: str | None = None,
    experiment: str | None = None,
    listen: str | None = None,
    insecure: bool = False,
) -> JoinRequest:
    """Make a key in this folder and a request for it; the request is written beside, and returned.

    A node that is dialled at `address` listens there or, behind a gateway, at `listen`. One that asks for a
    new key keeps the address that it has, unless another is given.
    """
    address = _known_address(folder) if address is None else address
    hosts = () if address is None else (address_parts(_address(address, insecure))[1],)
    with reported(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(folder, name=JOINING):
        key, target = new_key(), folder / (NEXT_KEY if (folder / KEY).exists() else KEY)
        written = new_request(name, hosts, key).decode()
        made = checked(JoinRequest, {"name": name, "address": address, "request": written}, "request")
        if (folder / NODE).exists() and target.name == KEY:
            raise UserError(f"{folder / NODE} is there without a key: give another folder")
        write_atomically(target, key, private=True)
        write_atomically(folder / REQUEST, block(made))
        if not (folder / NODE).exists():
            write_atomically(folder / NODE, _node_file(name, listen or address, experiment, insecure))
    return made


def _known_address(folder: Path) -> str | None:
    """Where a node that has joined already is dialled."""
    if not (folder / MANIFEST).is_file() or not (folder / AUTHORITY).is_file():
        return None
    trusted = read_text_file(folder / AUTHORITY).encode()
    return read_signed(read_text_file(folder / MANIFEST), trusted, str(folder / MANIFEST)).me.address


def install(folder: Path, text: str, source: str, authority: str | None = None) -> NodeView:
    """Take the authority's reply in: everything is checked before anything is written.

    `authority` is the fingerprint, or its first digits, that the authority's certificate must have.
    """
    reply = read_reply(text, source)
    trusted = reply.authority.encode()
    _check_authority(folder, trusted, authority)
    view = read_signed(reply.manifest, trusted, f"{source}: the manifest")
    check_certificate(reply.certificate.encode(), trusted, view.me.name)
    if fingerprint(reply.certificate.encode()) != view.me.fingerprint:
        raise UserError(f"{source}: the certificate is not the one in the manifest")
    with locked(folder, name=JOINING):
        key = _key_of(folder, view, source)
        _check_version(folder, view, trusted)
        write_atomically(folder / AUTHORITY, trusted)
        write_atomically(folder / CERTIFICATE, reply.certificate)
        if key.name == NEXT_KEY:
            write_atomically(folder / KEY, read_text_file(key), private=True)
            key.unlink()
        write_atomically(folder / MANIFEST, reply.manifest)
    return view


def init(
    folder: Path,
    name: str,
    nodes: Sequence[str],
    graph: Topology,
    influence: Sequence[float] | None = None,
    agreement: Agreement = Agreement(),
    experiments: Mapping[str, str] | None = None,
    insecure: bool = False,
) -> FederationManifest:
    """All of it on one machine: FOLDER/authority and a folder per node, which listen on loopback."""
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is there already, and not empty: give another folder")
    if "authority" in nodes:
        raise UserError("a node cannot be called authority here: that is the authority's folder")
    for node in nodes:
        checked_name(node)
    authority = Authority.create(folder / "authority", name, agreement)
    protocol = "tcp" if insecure else "tls"
    requests = [
        request(
            folder / node,
            node,
            f"{protocol}/{LOOPBACK}:{port}",
            (experiments or {}).get(node),
            insecure=insecure,
        )
        for node, port in zip(nodes, free_ports(len(nodes)), strict=True)
    ]
    manifest = authority.sign(requests, graph, influence)
    install_all(authority, folder)
    return manifest


def install_all(authority: Authority, folder: Path) -> list[str]:
    """Install the newest replies in all folders of nodes that are beside each other here."""
    done = []
    for member in authority.manifest().members:
        if (folder / member.name / NODE).is_file():
            reply = authority.reply(member.name)
            install(folder / member.name, read_text_file(reply), str(reply), authority.fingerprint)
            done.append(member.name)
    return done


def _address(address: str, insecure: bool) -> str:
    protocol, host, _ = address_parts(address) if "/" in address and ":" in address else ("", "", 0)
    if protocol != ("tcp" if insecure else "tls"):
        raise UserError(f"{address} must be written {'tcp/127.0.0.1:PORT' if insecure else 'tls/HOST:PORT'}")
    if insecure and not is_loopback(host):
        raise UserError(f"{address} is not on this machine, and the node is insecure")
    return address


def _node_file(name: str, listen: str | None, experiment: str | None, insecure: bool) -> str:
    """One setting a line, so that its owner can add others."""
    said: dict[str, object] = {"name": name}
    if listen is not None:
        said["listen"] = listen
    if experiment is not None:
        said["experiment"] = experiment
    if insecure:
        said["insecure"] = True
    lines = [f"# A node of a federation (docs/federation.md). To start it: swiftfl node {NODE}"]
    lines += [yaml_text({key: value}).strip().strip("{}") for key, value in said.items()]
    if experiment is None:
        lines.append(
            "# experiment: mine.py:experiment   # its model and data: add this line before it is started"
        )
    return "\n".join(lines) + "\n"


def _check_authority(folder: Path, found: bytes, expected: str | None) -> None:
    """The authority that was said, and the one of before: a reply of another one is refused."""
    plain = "" if expected is None else expected.replace("-", "").lower()
    if expected is not None and (len(plain) < 16 or not fingerprint(found).startswith(plain)):
        raise UserError(f"the reply is of another authority than {expected}")
    known = folder / AUTHORITY
    if known.exists() and fingerprint(read_text_file(known).encode()) != fingerprint(found):
        raise UserError(f"the reply is of another authority than the one in {known}")


def _key_of(folder: Path, view: NodeView, source: str) -> Path:
    for path in (folder / NEXT_KEY, folder / KEY):
        if path.exists() and fingerprint_of_key(read_text_file(path).encode()) == view.me.fingerprint:
            return path
    raise UserError(
        f"{source} is not for this node: {folder} holds no key of {view.me.name} with its fingerprint "
        "(--folder: where `swiftfl federation request` was run)"
    )


def _check_version(folder: Path, view: NodeView, authority: bytes) -> None:
    """Never back: whoever replays an old reply would bring a removed node back."""
    path = folder / MANIFEST
    if not path.exists():
        return
    before = read_signed(read_text_file(path), authority, str(path))
    if view.id != before.id:
        raise UserError(f"the reply is of another federation than the manifest in {folder}")
    if view.version < before.version:
        raise UserError(f"the reply has version {view.version}; version {before.version} is installed")
