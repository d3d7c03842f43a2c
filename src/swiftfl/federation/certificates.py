"""Keys, certificates and signatures: the one file that knows the library `cryptography`.

A federation's authority has a key and a certificate of its own. A node makes its key itself and never shows
it: what leaves its host is a request (PKCS #10), signed with the key, and what comes back is a certificate.
All keys are of the curve P-256, which every TLS library has; signatures are ECDSA with SHA-256.

The *common name* of a node's certificate is its name and the first digits of its key's fingerprint, as in
`a~0f3c9a5e77d21b08`. Access control of transports goes by common names: so a new key is a new name, and
whoever holds an old one is nobody.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from dataclasses import dataclass

from swiftfl.errors import UserError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise UserError(
        "federations need libraries that are not here: pip install 'swiftfl[federation]'"
    ) from None

NODE_DAYS = 825
AUTHORITY_DAYS = 3650
KEY_DIGITS = 16
"""How many digits of a key's fingerprint a common name has."""
_CLOCKS_DIFFER = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class CheckedRequest:
    """What a request asks for; that its sender holds the key was checked."""

    name: str
    hosts: tuple[str, ...]
    public_key: bytes

    @property
    def fingerprint(self) -> str:
        return _digest(self.public_key)

    @property
    def common_name(self) -> str:
        return common_name(self.name, self.fingerprint)


def common_name(name: str, fingerprint: str) -> str:
    """What a node's certificate calls it.

    >>> common_name("a", "0f3c9a5e77d21b08" + 48 * "0")
    'a~0f3c9a5e77d21b08'
    """
    return f"{name}~{fingerprint[:KEY_DIGITS]}"


# --- keys -----------------------------------------------------------------------------------------


def new_key() -> bytes:
    """A private key as PEM; whoever writes it keeps it from all others."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def fingerprint_of_key(key: bytes) -> str:
    """The fingerprint of a private key's public half."""
    return _digest(_der(_private(key).public_key()))


def fingerprint(certificate: bytes) -> str:
    """The SHA-256 of a certificate's public key, which is what a node is known by."""
    return _digest(_der(_public(certificate)))


# --- requests and certificates --------------------------------------------------------------------


def new_authority(federation: str, key: bytes) -> bytes:
    """The certificate of a federation's authority, signed by itself."""
    private = _private(key)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{federation} authority")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    built = (
        _builder(name, name, private.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .sign(private, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM)


def new_request(name: str, hosts: tuple[str, ...], key: bytes) -> bytes:
    """A request for a certificate, as PEM; `hosts` are the names or addresses that others dial."""
    private = _private(key)
    called = common_name(name, fingerprint_of_key(key))
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    )
    builder = builder.add_extension(_alternative_names(hosts), critical=False)
    return builder.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def check_request(data: bytes) -> CheckedRequest:
    """What a request says; refused unless it was signed with the key that it shows, of the curve P-256."""
    try:
        request = x509.load_pem_x509_csr(data)
        key = request.public_key()
        valid = request.is_signature_valid
        names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        hosts = _hosts(request.extensions)
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise UserError(f"not a request for a certificate: {_first_line(error)}") from None
    if not valid:
        raise UserError(
            "the request was changed, or its sender does not hold the key: its signature is wrong"
        )
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UserError("the key of a request must be of the curve P-256, as `federation request` makes it")
    said = str(names[0].value) if len(names) == 1 else ""
    name = said.rpartition("~")[0]
    asked = CheckedRequest(name, hosts, _der(key))
    if not name or asked.common_name != said:
        raise UserError(f"the request is for {said!r}, which is not a name with the fingerprint of its key")
    return asked


def issue(asked: CheckedRequest, authority: bytes, authority_key: bytes) -> bytes:
    """The certificate of a node, as PEM: what the request says, and nothing else that it may hold."""
    private = _private(authority_key)
    issuer = _certificate(authority)
    public = serialization.load_der_public_key(asked.public_key)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, asked.common_name)])
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    known_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(private.public_key())
    built = (
        _builder(name, issuer.subject, public, NODE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(_alternative_names(asked.hosts), critical=False)
        .add_extension(known_by, critical=False)
        .sign(private, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM)


def check_certificate(certificate: bytes, authority: bytes, name: str) -> None:
    """Refuse a certificate that is not of this node, not by this authority, or not valid today."""
    found, issuer = _certificate(certificate), _certificate(authority)
    try:
        found.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        raise UserError("the certificate was not issued by this federation's authority") from None
    names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if [str(each.value) for each in names] != [common_name(name, fingerprint(certificate))]:
        raise UserError(f"the certificate is not one of node {name}")
    now = datetime.datetime.now(datetime.timezone.utc)
    for each, whose in ((found, "the certificate"), (issuer, "the authority's certificate")):
        if not each.not_valid_before_utc <= now <= each.not_valid_after_utc:
            ends = f"{each.not_valid_before_utc:%Y-%m-%d} to {each.not_valid_after_utc:%Y-%m-%d}"
            raise UserError(f"{whose} is valid from {ends}: look at the clock, or renew it")


# --- signatures -----------------------------------------------------------------------------------


def sign(data: bytes, key: bytes) -> bytes:
    """The authority's signature of some bytes."""
    return _private(key).sign(data, ec.ECDSA(hashes.SHA256()))


def is_signed(data: bytes, signature: bytes, certificate: bytes) -> bool:
    """Whether whoever has this certificate signed these bytes."""
    try:
        _public(certificate).verify(signature, data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


# --- helpers --------------------------------------------------------------------------------------


def _private(key: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        found = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError):
        raise UserError("not a private key as `swiftfl federation` writes it") from None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise UserError("the private key must be of the curve P-256")
    return found


def _certificate(data: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(data)
    except (ValueError, TypeError):
        raise UserError("not a certificate") from None


def _public(certificate: bytes) -> ec.EllipticCurvePublicKey:
    key = _certificate(certificate).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError("the certificate's key must be of the curve P-256")
    return key


def _der(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _digest(public_key: bytes) -> str:
    return hashlib.sha256(public_key).hexdigest()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _alternative_names(hosts: tuple[str, ...]) -> x509.SubjectAlternativeName:
    """TLS wants at least one; nobody dials a node without hosts."""
    names: list[x509.GeneralName] = []
    for host in hosts or ("unreachable.invalid",):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _hosts(extensions: x509.Extensions) -> tuple[str, ...]:
    found = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    named = [*found.get_values_for_type(x509.DNSName)]
    numbered = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    return tuple(host for host in (*named, *numbered) if host != "unreachable.invalid")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
