"""Pasteable blocks: requests and replies as text that survives a mail, with nothing secret in them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import textwrap
from typing import Annotated

from pydantic import Field

from swiftfl.errors import UserError
from swiftfl.experiment.section import Section
from swiftfl.federation.certificates import CheckedRequest, check_request
from swiftfl.federation.folder import address_parts
from swiftfl.federation.manifest import Address, NodeName, canonical, checked

MOST_BYTES = 1 << 20
"""Of a text in which a block is looked for."""
_BLOCK = re.compile(r"-----BEGIN SWIFTFL (REQUEST|REPLY)-----\s+(.*?)-----END SWIFTFL \1-----", re.DOTALL)


class JoinRequest(Section):
    """What a host sends to the authority."""

    name: NodeName
    address: Address | None = None
    """Where others will dial the node; None: it dials them."""
    request: Annotated[str, Field(max_length=1 << 16)]
    """The request for a certificate (PKCS #10, PEM)."""

    def checked(self) -> CheckedRequest:
        """That the key's owner made the request, and for what is written beside it."""
        asked = check_request(self.request.encode())
        hosts = () if self.address is None else (address_parts(self.address)[1],)
        if (asked.name, asked.hosts) != (self.name, hosts):
            raise UserError(f"the request of {self.name} was changed: its certificate is for others")
        return asked


class JoinReply(Section):
    """What the authority sends back."""

    authority: Annotated[str, Field(max_length=1 << 16)]
    """The authority's certificate, PEM."""
    certificate: Annotated[str, Field(max_length=1 << 16)]
    """The node's, PEM."""
    manifest: str
    """The signed view, as text."""


def block(content: JoinRequest | JoinReply) -> str:
    """The text to paste."""
    kind = "REQUEST" if isinstance(content, JoinRequest) else "REPLY"
    data = base64.b64encode(canonical(content.model_dump(mode="json"))).decode("ascii")
    lines = "\n".join(textwrap.wrap(data, 64))
    return f"-----BEGIN SWIFTFL {kind}-----\n{lines}\n-----END SWIFTFL {kind}-----\n"


def read_requests(text: str, source: str) -> list[JoinRequest]:
    """All requests in a text; whatever else stands in it (a mail, say) is passed over."""
    return [checked(JoinRequest, tree, source) for tree in _found(text, "REQUEST", source)]


def read_reply(text: str, source: str) -> JoinReply:
    """The one reply in a text."""
    trees = _found(text, "REPLY", source)
    if len(trees) > 1:
        raise UserError(f"{source} holds {len(trees)} replies: give the one of this node")
    return checked(JoinReply, trees[0], source)


def code_of(content: JoinRequest) -> str:
    """A short code of a request, for two people to compare by another way than the request came.

    >>> code_of(JoinRequest(name="a", request=""))
    'ab21-aa79-12ff-da21'
    """
    digest = hashlib.sha256(canonical(content.model_dump(mode="json"))).hexdigest()
    return shown_code(digest)


def shown_code(fingerprint: str) -> str:
    """The first digits of a fingerprint, in groups."""
    return "-".join(textwrap.wrap(fingerprint[:16], 4))


def _found(text: str, kind: str, source: str) -> list[object]:
    found = [data for said, data in _BLOCK.findall(text) if said == kind]
    if not found:
        raise UserError(f"{source} holds no block -----BEGIN SWIFTFL {kind}-----")
    try:
        return [json.loads(base64.b64decode("".join(data.split()), validate=True)) for data in found]
    except (binascii.Error, ValueError, RecursionError):
        raise UserError(
            f"{source}: the block cannot be read; copy all of it, with its first and last line"
        ) from None
