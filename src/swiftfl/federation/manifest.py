"""The manifest of a federation, and the signed view of it that each node gets.

The manifest (`FederationManifest`) is the authority's: all members, all edges, what everybody agreed on.
A node never sees it. For each version the authority signs one *view* per node (`NodeView`): the node itself,
its neighbours and nobody else, how many take part, the agreement, and the fingerprints of revoked keys.
A view is signed as its canonical bytes (`canonical`), so that it may be written and read in any layout.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from swiftfl.errors import UserError
from swiftfl.experiment.section import Section
from swiftfl.federation.certificates import common_name, is_signed, sign
from swiftfl.files import json_text
from swiftfl.graph.influence import is_uniform, proportional_to
from swiftfl.graph.topology import Topology
from swiftfl.settings import Count, NotNegative, Positive, requirement, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MOST_BYTES = 1 << 20
"""Of a signed view as text; a larger one is refused unread."""
_PURPOSE = b"swiftfl view\n"
"""Before the bytes that are signed, so that a signature for something else is none for a view."""

S = TypeVar("S", bound=Section)
NodeName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
"""Lower case, because names become folders, keys and parts of certificates."""
Fingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FederationId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Address = Annotated[str, Field(pattern=r"^(tls|tcp)/(\[[0-9a-fA-F:]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}$")]
"""As zenoh writes it: tls/hospital.example:7447."""


class Agreement(Section):
    """What all nodes of a federation agree on."""

    model: str = ""
    """The architecture, by reference or name; what counts is its layout."""
    layout: Fingerprint | None = None
    """Its hash (`RecordedModel.layout_hash`); None: whatever model they have in common."""
    shapes: Fingerprint | None = None
    """The hash of its tensors' shapes, for training loops that name them in their own way; None: unknown."""
    size: NotNegative = 0
    """How many numbers a model has; 0 where the layout is open."""
    dtype: Literal["float32", "float64"] = "float32"
    """The type of these numbers."""
    communication_set: NotNegative = 0
    """The s of SWIFT's C_s."""
    codec: str = "identity"
    """How models are written for the wire, with options as in topk:share=0.01."""
    mixing: str = "plain"
    """How neighbours' models are averaged, with options as in clipped:tolerate=0.1."""


class Member(Section):
    """One node, as others know it."""

    name: NodeName
    """Its name."""
    index: NotNegative
    """Its number, which no other node ever had or will have."""
    fingerprint: Fingerprint
    """Of its key."""
    influence: Positive
    """Its share p of the average, or in a manifest any positive number: shares follow from all of them."""
    address: Address | None = None
    """Where others dial it; None: it dials them."""

    @property
    def common_name(self) -> str:
        """What its certificate calls it, for access control."""
        return common_name(self.name, self.fingerprint)


class NodeView(Section):
    """What one node is told, and nothing that concerns anybody else."""

    format: Literal[1] = 1
    federation: NodeName
    id: FederationId
    version: Count
    """Of the manifest; a node never goes back to an older one."""
    me: Member
    neighbours: tuple[Member, ...]
    nodes: Count
    """How many nodes take part."""
    uniform: bool
    """Whether all have the same influence."""
    agreement: Agreement
    revoked: tuple[Fingerprint, ...] = ()
    """Of keys that count no more: of removed nodes, and those that were replaced."""

    def neighbour(self, name: str) -> Member | None:
        return next((each for each in self.neighbours if each.name == name), None)

    def admits(self, name: str, fingerprint: str) -> bool:
        """Whether this is a neighbour, with the key that the view has for it."""
        known = self.neighbour(name)
        return (
            known is not None
            and hmac.compare_digest(known.fingerprint, fingerprint)
            and fingerprint not in self.revoked
        )


class FederationManifest(Section):
    """The whole federation, as only its authority knows it."""

    format: Literal[1] = 1
    federation: NodeName
    id: FederationId
    version: NotNegative = 0
    members: tuple[Member, ...] = ()
    edges: tuple[tuple[NodeName, NodeName], ...] = ()
    agreement: Agreement = Agreement()
    revoked: tuple[Fingerprint, ...] = ()
    next_index: NotNegative = 0

    def view(self, name: str) -> NodeView:
        """What this member is told."""
        shares = proportional_to([each.influence for each in self.members])
        told = {
            each.name: each.model_copy(update={"influence": float(share)})
            for each, share in zip(self.members, shares, strict=True)
        }
        return NodeView(
            federation=self.federation,
            id=self.id,
            version=self.version,
            me=told[name],
            neighbours=tuple(told[other] for other in self.neighbours(name)),
            nodes=len(self.members),
            uniform=is_uniform(shares),
            agreement=self.agreement,
            revoked=self.revoked,
        )

    def neighbours(self, name: str) -> list[str]:
        """The neighbours of a member, in the order of members."""
        beside = {b if a == name else a for a, b in self.edges if name in (a, b)}
        return [each.name for each in self.members if each.name in beside]

    def member(self, name: str) -> Member | None:
        return next((each for each in self.members if each.name == name), None)

    def topology(self) -> Topology:
        """The graph, of members by their place."""
        places = {each.name: place for place, each in enumerate(self.members)}
        return Topology(len(places), [(places[a], places[b]) for a, b in self.edges])


def canonical(tree: object) -> bytes:
    """The one way in which a tree of plain values is written: what is signed.

    >>> canonical({"b": [1, 0.5], "a": "é"})
    b'{"a":"\\\\u00e9","b":[1,0.5]}'
    """
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def signed_text(view: NodeView, authority_key: bytes) -> str:
    """A view with the authority's signature, as text."""
    tree = view.model_dump(mode="json")
    signature = base64.b64encode(sign(_PURPOSE + canonical(tree), authority_key)).decode("ascii")
    return json_text({"view": tree, "signature": signature}, indent=2) + "\n"


def read_signed(text: str, authority: bytes, source: str = "the manifest") -> NodeView:
    """The view, if this authority signed it; nothing of it is looked at before."""
    if len(text) > MOST_BYTES:
        raise UserError(f"{source} has {len(text)} characters, more than the {MOST_BYTES} that are allowed")
    try:
        tree = json.loads(text)
        view, signature = tree["view"], base64.b64decode(tree["signature"], validate=True)
        data = _PURPOSE + canonical(view)
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        raise UserError(f"{source} is not a signed manifest") from None
    if not is_signed(data, signature, authority):
        raise UserError(f"{source} was not signed by this federation's authority, or was changed since")
    return checked(NodeView, view, source)


def checked(kind: type[S], tree: object, source: str) -> S:
    """A section from plain values; what is wrong is one line."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{source}: {key or 'it'} {wanted(first)}") from None


def wanted(error: ErrorDetails) -> str:
    """What a value must be."""
    if error["type"] != "string_pattern_mismatch":
        return requirement(error)
    pattern = error.get("ctx", {}).get("pattern", "")
    if pattern.startswith("^(tls"):
        said = "an address such as tls/hospital.example:7447"
    elif pattern.endswith("{0,39}$"):
        said = "a name of lower-case letters, digits, - and _, at most 40 of them"
    else:
        said = "hexadecimal digits, as many as such a number has"
    return f"must be {said}, not {shown(error['input'])}"


def checked_name(name: str) -> str:
    """A name that a node may have."""
    try:
        return TypeAdapter(NodeName).validate_python(name)
    except ValidationError as error:
        raise UserError(f"node {wanted(error.errors()[0])}") from None
