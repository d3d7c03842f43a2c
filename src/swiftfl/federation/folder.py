"""A node's folder: `node.yaml`, which its organisation writes, beside what it was given when it joined.

node.yaml          name, where it listens, which experiment it runs
key.pem            its private key, for its owner's eyes only; made here, and it never leaves
certificate.pem    issued by the authority
authority.pem      the authority's certificate
manifest.json      the signed view of the federation (manifest.py)
"""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from swiftfl.errors import UserError
from swiftfl.experiment.config_file import ConfigFile, read_config_file
from swiftfl.experiment.section import Section
from swiftfl.experiment.source import full_name, reference
from swiftfl.federation.certificates import check_certificate, fingerprint, fingerprint_of_key
from swiftfl.federation.manifest import MOST_BYTES, Address, NodeName, NodeView, read_signed, wanted
from swiftfl.files import read_text_file, reported
from swiftfl.settings import AboutSettingError, SettingError, no_such_setting

NODE = "node.yaml"
KEY = "key.pem"
CERTIFICATE = "certificate.pem"
AUTHORITY = "authority.pem"
MANIFEST = "manifest.json"
CHECKPOINTS = "checkpoints"
_SMALL = 1 << 16
"""Bytes of a key or certificate."""


class NodeSettings(Section):
    """What `node.yaml` says."""

    name: NodeName
    """The node's own name, as in its certificate."""
    listen: Address | tuple[Address, ...] = ()
    """Where it waits for neighbours, as in tls/0.0.0.0:7447; nothing: it dials all of them."""
    endpoints: dict[NodeName, Address] = Field(default_factory=dict)
    """Addresses of neighbours that it dials there, whatever the manifest says of them."""
    experiment: str | None = None
    """Its model, data and settings: mine.py:experiment or module:function (docs/own-code.md)."""
    checkpoints: str = CHECKPOINTS
    """The folder of its checkpoints."""
    insecure: bool = False
    """Without TLS, on this machine only."""
    manifest: str = MANIFEST
    """The signed manifest, and below the files of its identity; all relative to this file."""
    authority: str = AUTHORITY
    certificate: str = CERTIFICATE
    key: str = KEY

    @field_validator("experiment")
    @classmethod
    def _is_a_reference(cls, text: str | None) -> str | None:
        if text is not None and reference(text) is None:
            raise ValueError("must be a reference such as mine.py:experiment or module:function")
        return text


@dataclass(frozen=True)
class NodeFolder:
    """One organisation's node, read and checked: everything in it fits together."""

    path: Path
    name: str
    manifest: NodeView
    endpoints: Mapping[str, str]
    """Addresses of the neighbours that can be dialled."""
    dials: Mapping[str, str]
    """Those of them that this node dials."""
    listen: tuple[str, ...]
    authority: Path
    certificate: Path
    key: Path
    experiment: str | None
    """A reference with the path of its file in full."""
    checkpoints: Path
    insecure: bool

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The names of the graph neighbours, which are all that a node knows of the graph."""
        return tuple(each.name for each in self.manifest.neighbours)

    @classmethod
    def read(cls, path: Path) -> NodeFolder:
        """From the path of its `node.yaml` (or of the folder that holds one)."""
        path = path / NODE if path.is_dir() else path
        file = read_config_file(path)
        try:
            settings = _settings(file)
            found = _found(path, settings)
            _check_addresses(settings, found)
        except AboutSettingError as error:
            placed = str(file.placed(error))
            raise UserError(placed if error.key in placed else f"{placed} ({error.key})") from None
        except SettingError as error:
            raise file.placed(error) from None
        return found


def _settings(file: ConfigFile) -> NodeSettings:
    try:
        return NodeSettings.model_validate(file.tree)
    except ValidationError as error:
        told = max(error.errors(), key=lambda e: (len(e["loc"]), e["type"] != "missing"))
        names = [str(part) for part in told["loc"] if "[" not in str(part) and part != "constrained-str"]
        key = ".".join(names)
        if told["type"] == "extra_forbidden":
            raise no_such_setting(key, NodeSettings.model_fields, "a node") from None
        raise SettingError(key, wanted(told)) from None


def _found(path: Path, settings: NodeSettings) -> NodeFolder:
    folder = path.parent
    authority = _file(folder, settings, "authority")
    certificate, key = _file(folder, settings, "certificate"), _file(folder, settings, "key")
    _check_private(key)
    said = _file(folder, settings, "manifest")
    trusted, own = _bytes(authority), _bytes(certificate)
    view = _about("manifest", lambda: read_signed(read_text_file(said, MOST_BYTES), trusted, str(said)))
    _about("certificate", lambda: check_certificate(own, trusted, settings.name))
    if view.me.name != settings.name:
        raise SettingError("name", f"is {settings.name}, but the manifest is that of {view.me.name}")
    if fingerprint_of_key(_bytes(key)) != fingerprint(own):
        raise SettingError("key", f": {key} is not the key of {certificate}")
    if fingerprint(own) != view.me.fingerprint:
        raise SettingError(
            "certificate",
            f": {certificate} is not the one in the manifest; install the authority's last reply",
        )
    for name in settings.endpoints:
        if view.neighbour(name) is None:
            raise SettingError(f"endpoints.{name}", "is no neighbour of this node in the manifest")
    known = {each.name: each.address for each in view.neighbours if each.address is not None}
    listen = (settings.listen,) if isinstance(settings.listen, str) else settings.listen
    return NodeFolder(
        path,
        settings.name,
        view,
        {**known, **settings.endpoints},
        {**_dialled(view, known, bool(listen)), **settings.endpoints},
        listen,
        authority,
        certificate,
        key,
        None if settings.experiment is None else full_name(settings.experiment, folder.absolute()),
        folder / settings.checkpoints,
        settings.insecure,
    )


def _dialled(view: NodeView, known: Mapping[str, str], listens: bool) -> dict[str, str]:
    """Of two that can dial each other only the one whose name comes later does; else all are dialled.

    If both did, zenoh would join both connections into one with two links, and on a busy machine its end
    was not always noticed: a neighbour that had left stayed, and one that came was not seen.
    """
    me = view.me
    found = listens and me.address is not None
    return {name: address for name, address in known.items() if not found or name < me.name}


def _check_addresses(settings: NodeSettings, found: NodeFolder) -> None:
    """TLS everywhere; or, said so, no TLS and nothing that leaves this machine."""
    places = [("listen", address) for address in found.listen]
    for name, address in found.endpoints.items():
        places.append((f"endpoints.{name}" if name in settings.endpoints else "endpoints", address))
    for key, address in places:
        protocol, host, _ = address_parts(address)
        if settings.insecure and not is_loopback(host):
            raise SettingError(key, f": {address} is not on this machine, and the node is insecure")
        if not settings.insecure and protocol != "tls":
            raise SettingError(key, f": {address} is without TLS (insecure: true allows that on loopback)")


def address_parts(address: str) -> tuple[str, str, int]:
    """Protocol, host and port.

    >>> address_parts("tls/[::1]:7447")
    ('tls', '::1', 7447)
    """
    protocol, _, place = address.partition("/")
    host, _, port = place.rpartition(":")
    if not 0 < int(port) < 65536:
        raise UserError(f"{address}: a port is a number from 1 to 65535")
    return protocol, host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _file(folder: Path, settings: NodeSettings, key: str) -> Path:
    path = folder / str(getattr(settings, key))
    if not path.is_file():
        made = "federation request" if key == "key" else "federation install"
        raise AboutSettingError(key, f"{key}: {path} is not there; `swiftfl {made}` writes it")
    return path


def _check_private(key: Path) -> None:
    with reported(key, "read"):
        mode = stat.S_IMODE(key.stat().st_mode)
    if mode & 0o077:
        raise AboutSettingError("key", f"key: {key} can be read by others (mode {mode:o}): chmod 600 {key}")


def _bytes(path: Path) -> bytes:
    return read_text_file(path, _SMALL).encode()


def _about(key: str, check: Any) -> Any:
    """What is wrong is told as being about this key."""
    try:
        return check()
    except SettingError:
        raise
    except UserError as error:
        raise AboutSettingError(key, f"{key}: {error}") from None
