"""`swiftfl federation`: who belongs to a federation, and how a host joins one (docs/enrolment.md)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swiftfl.cli.federation_agreement import agreement
from swiftfl.errors import UserError

if TYPE_CHECKING:
    from swiftfl.federation.authority import Authority
    from swiftfl.federation.blocks import JoinRequest
    from swiftfl.federation.manifest import FederationManifest
    from swiftfl.graph import Topology

app = typer.Typer(
    name="federation",
    help="Federations of organisations: create one, join one, change who belongs to it.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Experiment = Annotated[
    str | None,
    typer.Option(help="An experiment of your own, mine.py:experiment: fixes the layout of the model."),
]
Model = Annotated[
    str | None, typer.Option(help="A model by name or reference; with --dataset this fixes its layout.")
]
DatasetOption = Annotated[str | None, typer.Option("--dataset", help="The dataset that --model is made for.")]
CommunicationSet = Annotated[int, typer.Option(help="The s of SWIFT's C_s.")]
CodecOption = Annotated[str, typer.Option("--codec", help="How models are written for the wire.")]
Mixing = Annotated[str, typer.Option(help="How models are averaged, as in clipped:tolerate=0.1.")]
AuthorityFolder = Annotated[Path, typer.Argument(metavar="AUTHORITY", help="The authority's folder.")]
Requests = Annotated[
    list[Path], typer.Argument(metavar="REQUEST...", help="Files with requests (- for standard input).")
]
OneRequest = Annotated[
    Path, typer.Argument(metavar="REQUEST", help="A file with a request (- for standard input).")
]
Install = Annotated[
    bool, typer.Option("--install", help="Install the replies in the nodes' folders beside the authority's.")
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The federation's name; also the folder that is made.")],
    folder: Annotated[Path | None, typer.Option(help="Another folder.")] = None,
    experiment: Experiment = None,
    model: Model = None,
    dataset: DatasetOption = None,
    communication_set: CommunicationSet = 0,
    codec: CodecOption = "identity",
    mixing: Mixing = "plain",
) -> None:
    """Create a federation: whoever runs this holds its key, and decides who belongs to it.

    swiftfl federation create hospitals --experiment mine.py:experiment
    """
    from swiftfl.federation.authority import Authority

    agreed = agreement(experiment, model, dataset, communication_set, codec, mixing)
    made = Authority.create(folder or Path(name), name, agreed)
    print(f"Created: {made.folder}, which holds the authority's key: keep it, and show it to nobody.")
    _tell_code(made)


@app.command()
def request(
    name: Annotated[str, typer.Argument(help="The node's name: lower-case letters, digits, - and _.")],
    address: Annotated[
        str | None,
        typer.Option(help="Where neighbours dial it, tls/HOST:PORT; without, as before, or it dials them."),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="Where it listens, if that is another address than --address.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help="Its model and data: mine.py:experiment, written into node.yaml.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="The node's folder (default: its name).")] = None,
) -> None:
    """Make a key on this host, which never leaves it, and a request to send to the authority.

    swiftfl federation request a --address tls/a.example:7447
    """
    from swiftfl.experiment.source import full_name
    from swiftfl.federation.blocks import block, code_of
    from swiftfl.federation.joining import REQUEST
    from swiftfl.federation.joining import request as make

    place = folder or Path(name)
    made = make(place, name, address, None if experiment is None else full_name(experiment), listen)
    print(block(made), end="")
    _note(f"Written: {place / REQUEST}. Send it to the authority, which will show the code {code_of(made)}.")


@app.command()
def sign(
    authority: AuthorityFolder,
    requests: Requests,
    topology: Annotated[
        str, typer.Option(help="Who is whose neighbour, in the order of requests: a name or a file.")
    ] = "ring",
    influence: Annotated[
        str | None, typer.Option(help="Positive scores 1,2,... in the order of requests (default: equal).")
    ] = None,
) -> None:
    """Sign the requests of the first members; a reply for each is written.

    swiftfl federation sign hospitals a.txt b.txt c.txt --topology ring
    """
    from swiftfl.federation.authority import Authority

    opened, asked = Authority.open(authority), _requests(requests)
    _show(asked)
    found = opened.sign(asked, _topology(topology, len(asked)), _numbers(influence))
    _tell_replies(opened, found)


@app.command()
def install(
    reply: Annotated[Path, typer.Argument(metavar="REPLY", help="The reply (- for standard input).")],
    folder: Annotated[Path, typer.Option(help="The node's folder.")] = Path(),
    authority: Annotated[
        str | None, typer.Option(help="The authority's code, as its holder told you: checked.")
    ] = None,
) -> None:
    """Install the authority's reply in a node's folder; an older one than what is there is refused.

    swiftfl federation install reply.txt --folder a --authority 0f3c-9a5e-77d2-1b08
    """
    from swiftfl.federation.blocks import shown_code
    from swiftfl.federation.certificates import fingerprint
    from swiftfl.federation.folder import AUTHORITY, NODE, NodeFolder
    from swiftfl.federation.joining import install as take_in
    from swiftfl.federation.service import runs
    from swiftfl.files import read_text_file

    text, source = _text(reply)
    view = take_in(folder, text, source, authority)
    names = ", ".join(each.name for each in view.neighbours) or "nobody"
    print(f"{view.me.name} is a node of {view.federation}, version {view.version}; neighbours: {names}")
    if authority is None:
        code = shown_code(fingerprint(read_text_file(folder / AUTHORITY).encode()))
        print(f"Compare the authority's code with its holder, by another way than the reply came: {code}")
    start = f"swiftfl node {folder / NODE}"
    if runs(folder):
        print("It runs: it takes this in when it is stopped (Ctrl-C, SIGTERM) and started again.")
    elif NodeFolder.read(folder).experiment is None:
        print(f"To start it, add experiment: mine.py:experiment to {folder / NODE}; then: {start}")
    else:
        print(f"To start it: {start}")


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to make.")] = Path("federation"),
    nodes: Annotated[str, typer.Option(help="Their names: a,b,c.")] = "a,b,c",
    topology: Annotated[str, typer.Option(help="Who is whose neighbour: a name or a file.")] = "ring",
    influence: Annotated[
        str | None, typer.Option(help="Positive scores 1,2,... in the order of nodes (default: equal).")
    ] = None,
    experiment: Experiment = None,
    model: Model = None,
    dataset: DatasetOption = None,
    communication_set: CommunicationSet = 0,
    codec: CodecOption = "identity",
    mixing: Mixing = "plain",
    name: Annotated[str, typer.Option(help="The federation's name.")] = "demo",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS; such nodes talk on this machine only.")
    ] = False,
) -> None:
    """All of it on one machine, for trying it out: an authority, and a folder per node.

    swiftfl federation init demo --nodes a,b,c --topology ring
    """
    from swiftfl.experiment.source import full_name
    from swiftfl.federation.joining import init as make

    names = [each.strip() for each in nodes.split(",")]
    agreed = agreement(experiment, model, dataset, communication_set, codec, mixing, nodes_run_it=True)
    said = {} if experiment is None else dict.fromkeys(names, full_name(experiment))
    graph = _topology(topology, len(names))
    found = make(folder, name, names, graph, _numbers(influence), agreed, said, insecure)
    if insecure:
        _note(
            "WARNING: --insecure: these nodes have no TLS; anybody on this machine can read and send models."
        )
    for member in found.members:
        print(
            f"{folder / member.name}: {member.address}, neighbours {', '.join(found.neighbours(member.name))}"
        )
    print(
        f"{folder / 'authority'}: the authority. To start a node: swiftfl node {folder / names[0]}/node.yaml"
    )


@app.command()
def add(
    authority: AuthorityFolder,
    request: OneRequest,
    neighbours: Annotated[str, typer.Option(help="Its neighbours: a,b.")],
    influence: Annotated[float, typer.Option(help="Its score, on the scale of the others'.")] = 1.0,
    install: Install = False,
) -> None:
    """Add a member; everybody's manifest is renewed.

    swiftfl federation add hospitals d.txt --neighbours a,c
    """
    from swiftfl.federation.authority import Authority

    opened, asked = Authority.open(authority), _requests([request])
    if len(asked) != 1:
        raise UserError(f"{request} holds {len(asked)} requests: one node is added at a time")
    _show(asked)
    found = opened.add(asked[0], [each.strip() for each in neighbours.split(",") if each.strip()], influence)
    _tell_replies(opened, found, install)


@app.command()
def remove(
    authority: AuthorityFolder,
    node: Annotated[str, typer.Argument(help="Who leaves.")],
    link: Annotated[
        list[str] | None,
        typer.Option(help="A new edge, a-c or a,c, where others need one to stay connected."),
    ] = None,
    install: Install = False,
) -> None:
    """Remove a member: its key is revoked, and it is refused from the next handshake on.

    swiftfl federation remove hospitals b --link a,c
    """
    from swiftfl.federation.authority import Authority

    opened = Authority.open(authority)
    found = opened.remove(node, [_pair(each, opened) for each in link or ()])
    print(f"Removed: {node}. It is refused by each neighbour that has installed its reply and started again.")
    _tell_replies(opened, found, install)


@app.command()
def rotate(authority: AuthorityFolder, request: OneRequest, install: Install = False) -> None:
    """Give a member a certificate for its new key (made by `federation request`); the old key is revoked.

    swiftfl federation rotate hospitals a.txt
    """
    from swiftfl.federation.authority import Authority

    opened, asked = Authority.open(authority), _requests([request])
    if len(asked) != 1:
        raise UserError(f"{request} holds {len(asked)} requests: one key is renewed at a time")
    _show(asked)
    _tell_replies(opened, opened.rotate(asked[0]), install)


@app.command()
def replies(authority: AuthorityFolder, install: Install = False) -> None:
    """Write the replies of the newest manifest again, where they were lost.

    swiftfl federation replies hospitals
    """
    from swiftfl.federation.authority import Authority

    opened = Authority.open(authority)
    _tell_replies(opened, opened.write_replies(), install)


# --- what users write, and what they are told -------------------------------------------------------


def _topology(said: str, nodes: int) -> Topology:
    from swiftfl.loop.federation import as_topology

    return as_topology(said, nodes)


def _numbers(said: str | None) -> list[float] | None:
    if said is None:
        return None
    try:
        return [float(each) for each in said.split(",")]
    except ValueError:
        raise UserError(f"--influence {said}: it must be numbers such as 1,2,1") from None


def _pair(said: str, authority: Authority) -> tuple[str, str]:
    names = [each.name for each in authority.manifest().members]
    for a in names:
        for b in names:
            if said in (f"{a}-{b}", f"{a},{b}"):
                return a, b
    raise UserError(f"--link {said}: an edge is written a,c with the names of two nodes ({', '.join(names)})")


def _text(path: Path) -> tuple[str, str]:
    from swiftfl.federation.blocks import MOST_BYTES
    from swiftfl.files import read_text_file

    if str(path) == "-":
        return sys.stdin.read(MOST_BYTES), "standard input"
    return read_text_file(path, MOST_BYTES), str(path)


def _requests(paths: Sequence[Path]) -> list[JoinRequest]:
    from swiftfl.federation.blocks import read_requests

    return [each for path in paths for each in read_requests(*_text(path))]


def _show(requests: Sequence[JoinRequest]) -> None:
    from swiftfl.federation.blocks import code_of

    for each in requests:
        print(f"Request of {each.name}, {each.address or 'which dials its neighbours'}: code {code_of(each)}")
    _note("Compare the codes with those who sent them, by another way than the requests came.")


def _tell_code(authority: Authority) -> None:
    from swiftfl.federation.blocks import shown_code

    print(f"The authority's code, for those who install its replies: {shown_code(authority.fingerprint)}")


def _tell_replies(authority: Authority, manifest: FederationManifest, install: bool = False) -> None:
    from swiftfl.federation.joining import install_all

    print(f"{manifest.federation} has version {manifest.version} and {len(manifest.members)} nodes. Replies:")
    for member in manifest.members:
        print(f"  {authority.reply(member.name)}")
    if install:
        done = install_all(authority, authority.folder.parent)
        print(f"Installed beside {authority.folder}: {', '.join(done) or 'nowhere'}")
    else:
        _tell_code(authority)


def _note(text: str) -> None:
    print(text, file=sys.stderr)
