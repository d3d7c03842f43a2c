"""The authority of a federation: a folder with its key, the whole manifest, and the replies to its nodes.

Whoever has this folder decides who belongs to the federation, and has no part in its training. Every change
gives the manifest its next version and writes a reply for every member, because how many take part, and so
everybody's share, may have changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from swiftfl.errors import UserError
from swiftfl.experiment.config_file import read_config_file
from swiftfl.federation.blocks import JoinReply, JoinRequest, block
from swiftfl.federation.certificates import CheckedRequest, fingerprint, issue, new_authority, new_key
from swiftfl.federation.manifest import Agreement, FederationManifest, Member, checked, signed_text
from swiftfl.files import json_text, read_text_file, reported, write_atomically
from swiftfl.graph.topology import Topology
from swiftfl.lock import locked
from swiftfl.registry import suggestion

KEY = "authority.key"
CERTIFICATE = "authority.pem"
WHOLE = "federation.json"
CERTIFICATES = "certificates"
REPLIES = "replies"
_MOST_BYTES = 1 << 26

Change = Callable[[FederationManifest], FederationManifest]
Pair = tuple[str, str]


class Authority:
    """An authority's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = read_text_file(folder / CERTIFICATE).encode()

    @classmethod
    def create(cls, folder: Path, name: str, agreement: Agreement) -> Authority:
        """A new federation without members; the key is readable by its owner alone."""
        manifest = checked(
            FederationManifest,
            {"federation": name, "id": secrets.token_hex(16), "agreement": agreement},
            "federation",
        )
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder} is there already, and not empty: give another folder")
        with reported(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for inner in (CERTIFICATES, REPLIES):
                (folder / inner).mkdir()
        key = new_key()
        write_atomically(folder / KEY, key, private=True)
        write_atomically(folder / CERTIFICATE, new_authority(name, key))
        _write(folder, manifest)
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Authority:
        for name in (WHOLE, CERTIFICATE, KEY):
            if not (folder / name).is_file():
                raise UserError(f"{folder} is not the folder of an authority: it has no {name}")
        return cls(folder)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.certificate)

    def manifest(self) -> FederationManifest:
        path = self.folder / WHOLE
        return checked(FederationManifest, read_config_file(path).tree, str(path))

    # --- changes ----------------------------------------------------------------------------------

    def sign(
        self, requests: Sequence[JoinRequest], graph: Topology, influence: Sequence[float] | None = None
    ) -> FederationManifest:
        """The first members, in the order of their requests, which is that of the topology's clients."""
        if graph.n != len(requests):
            raise UserError(f"the topology has {graph.n} nodes, and there are {len(requests)} requests")
        graph.require_connected()
        scores = _scores(influence, len(requests))
        asked = [each.checked() for each in requests]
        names = [each.name for each in requests]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"two requests are for the name {twice}")

        def change(manifest: FederationManifest) -> FederationManifest:
            if manifest.members:
                raise UserError(
                    f"{manifest.federation} has members already: add further ones with `federation add`"
                )
            for each, score in zip(requests, scores, strict=True):
                manifest = self._joined(manifest, each, score)
            edges = tuple((names[i], names[j]) for i, j in graph.edges.tolist())
            return manifest.model_copy(update={"edges": edges})

        return self._renew(change, asked)

    def add(
        self, request: JoinRequest, neighbours: Sequence[str], influence: float = 1.0
    ) -> FederationManifest:
        """One more member, with these neighbours."""
        asked = request.checked()
        if not neighbours:
            raise UserError(f"{request.name} needs at least one neighbour")

        def change(manifest: FederationManifest) -> FederationManifest:
            return _linked(
                self._joined(manifest, request, influence),
                [(request.name, other) for other in dict.fromkeys(neighbours)],
            )

        return self._renew(change, [asked])

    def remove(self, name: str, links: Iterable[Pair] = ()) -> FederationManifest:
        """One member less: its key is revoked, and its edges go; `links` are new edges among the others."""

        def change(manifest: FederationManifest) -> FederationManifest:
            gone = _member(manifest, name)
            if len(manifest.members) == 1:
                raise UserError(f"{name} is the only member")
            return _linked(
                manifest.model_copy(
                    update={
                        "members": tuple(each for each in manifest.members if each.name != name),
                        "edges": tuple(edge for edge in manifest.edges if name not in edge),
                        "revoked": (*manifest.revoked, gone.fingerprint),
                    }
                ),
                links,
            )

        found = self._renew(change, [])
        self.reply(name).unlink(missing_ok=True)
        return found

    def rotate(self, request: JoinRequest) -> FederationManifest:
        """A member's new key, or its renewed certificate: an old key is revoked."""
        asked = request.checked()

        def change(manifest: FederationManifest) -> FederationManifest:
            before = _member(manifest, request.name)
            if asked.fingerprint in manifest.revoked:
                raise UserError(f"the key in the request of {request.name} was revoked: make a new one")
            after = before.model_copy(update={"fingerprint": asked.fingerprint, "address": request.address})
            replaced = () if asked.fingerprint == before.fingerprint else (before.fingerprint,)
            members = tuple(after if each.name == before.name else each for each in manifest.members)
            return _reachable(
                manifest.model_copy(update={"members": members, "revoked": (*manifest.revoked, *replaced)})
            )

        return self._renew(change, [asked])

    def write_replies(self) -> FederationManifest:
        """Those of the newest manifest again: where they were lost, or their writing was interrupted."""
        with locked(self.folder):
            manifest = self.manifest()
            self._write_replies(manifest, read_text_file(self.folder / KEY).encode())
        return manifest

    def reply(self, name: str) -> Path:
        """Where the last reply to a member is."""
        return self.folder / REPLIES / f"{name}.txt"

    # --- parts of them ----------------------------------------------------------------------------

    def _joined(
        self, manifest: FederationManifest, request: JoinRequest, influence: float
    ) -> FederationManifest:
        asked = request.checked()
        if manifest.member(request.name) is not None:
            raise UserError(f"there is a node {request.name} already; `federation rotate` gives it a new key")
        if asked.fingerprint in (*manifest.revoked, *(each.fingerprint for each in manifest.members)):
            raise UserError(f"the key in the request of {request.name} was used before: make a new one")
        member = checked(
            Member,
            {
                "name": request.name,
                "index": manifest.next_index,
                "fingerprint": asked.fingerprint,
                "influence": influence,
                "address": request.address,
            },
            f"node {request.name}",
        )
        return manifest.model_copy(
            update={"members": (*manifest.members, member), "next_index": manifest.next_index + 1}
        )

    def _renew(self, change: Change, asked: Sequence[CheckedRequest]) -> FederationManifest:
        """The next version: certificates for those who asked, then the manifest, then everybody's reply."""
        with locked(self.folder):
            key = read_text_file(self.folder / KEY).encode()
            before = self.manifest()
            after = change(before).model_copy(update={"version": before.version + 1})
            if after.members:
                _reachable(after).topology().require_connected()
            for each in asked:
                certificate = issue(each, self.certificate, key)
                write_atomically(self._certificate(each.common_name), certificate)
            _write(self.folder, after)
            self._write_replies(after, key)
        return after

    def _write_replies(self, manifest: FederationManifest, key: bytes) -> None:
        for each in manifest.members:
            certificate = read_text_file(self._certificate(each.common_name))
            view = signed_text(manifest.view(each.name), key)
            reply = JoinReply(authority=self.certificate.decode(), certificate=certificate, manifest=view)
            write_atomically(self.reply(each.name), block(reply))

    def _certificate(self, common_name: str) -> Path:
        """By its key, so that the one of a change that was not finished is not taken for that of a member."""
        return self.folder / CERTIFICATES / f"{common_name}.pem"


def _linked(manifest: FederationManifest, links: Iterable[Pair]) -> FederationManifest:
    edges = list(manifest.edges)
    for a, b in links:
        _member(manifest, a), _member(manifest, b)
        if a == b:
            raise UserError(f"an edge joins two nodes, not {a} with itself")
        if (a, b) not in edges and (b, a) not in edges:
            edges.append((a, b))
    return manifest.model_copy(update={"edges": tuple(edges)})


def _reachable(manifest: FederationManifest) -> FederationManifest:
    """One side of each edge must have an address that the other can dial."""
    dialled = {each.name for each in manifest.members if each.address is not None}
    for a, b in manifest.edges:
        if not dialled & {a, b}:
            raise UserError(f"neither {a} nor {b} has an address: one of two neighbours must be reachable")
    return manifest


def _member(manifest: FederationManifest, name: str) -> Member:
    found = manifest.member(name)
    if found is None:
        raise UserError(
            f"there is no node {name!r}: {suggestion(name, [each.name for each in manifest.members])}"
        )
    return found


def _scores(influence: Sequence[float] | None, n: int) -> list[float]:
    if influence is None:
        return [1.0] * n
    if len(influence) != n:
        raise UserError(f"influence has {len(influence)} scores, but there are {n} nodes")
    return list(influence)


def _write(folder: Path, manifest: FederationManifest) -> None:
    text = json_text(manifest.model_dump(mode="json"), indent=2) + "\n"
    write_atomically(folder / WHOLE, text, private=True)  # the whole graph is nobody else's affair
