"""Certificates (X.509, RFC 5280): an authority of one's own, what it issues, and what a certificate says.

Everything is PEM, as Kafka's clients, librdkafka, OpenSSL and Spark read it; keys are of the curve P-256, in PKCS #8
without a password: what protects them are the permissions of their files.

- A certificate of a broker serves both ends of a connection, for brokers connect to one another.
- It has the names by which it is reached in its subject alternative names, addresses as addresses; the common name is
  for people, and for ``ssl.principal.mapping.rules``.
- A certificate ends no later than the authority that signed it. A renewed one has a new key and a new serial number.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sparklog.errors import ConfigError

AUTHORITY_DAYS = 3650
ISSUED_DAYS = 397
"""Thirteen months: renewing is done every year, by a way that is known to work."""
_SKEW = timedelta(minutes=5)
"""How far behind a peer's clock may be that is shown a certificate of just now."""
_LONGEST_COMMON_NAME = 64
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?")
_USAGES = {ExtendedKeyUsageOID.SERVER_AUTH: "server", ExtendedKeyUsageOID.CLIENT_AUTH: "client"}
BROKER = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)


class Credential(NamedTuple):
    """A private key and its certificate, each PEM."""

    key: bytes
    certificate: bytes

    @property
    def key_store(self) -> bytes:
        """Both in one file: what Kafka calls a keystore of type PEM. ``__repr__`` never shows it."""
        return self.key + self.certificate

    def __repr__(self) -> str:
        return f"Credential({describe(self.certificate)[0].subject})"


class Description(NamedTuple):
    """What a certificate says; times are UTC."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    """Host names and addresses by which the holder may be reached."""
    not_before: datetime
    not_after: datetime
    serial: str
    """Hexadecimal."""
    usages: tuple[str, ...]
    """``server``, ``client``; none where it says nothing of them."""
    is_authority: bool
    fingerprint: str
    """SHA-256 of the certificate, hexadecimal."""


class CertificateAuthority:
    """Signs certificates. Raises ConfigError for a key that is not this certificate's, or one that may not sign."""

    def __init__(self, credential: Credential) -> None:
        self.credential = credential
        self._certificate = _load(credential.certificate)[0]
        self._key = _load_key(credential.key)
        if self._key.public_key() != self._certificate.public_key():
            raise ConfigError("this private key is not the key of this certificate of an authority")
        if not _is_authority(self._certificate):
            raise ConfigError(f"the certificate of {_text(self._certificate.subject)} is not one of an authority")

    @classmethod
    def make(cls, name: str, now: datetime, days: int = AUTHORITY_DAYS) -> Self:
        """A new authority, which signs itself and may sign no other authorities."""
        key = _new_key()
        subject = _named(name)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(subject, subject, key.public_key(), now, now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(Credential(_key_pem(key), _pem(certificate)))

    def issue_broker(self, name: str, hosts: Iterable[str], now: datetime, days: int = ISSUED_DAYS) -> Credential:
        """For a broker, or a ZooKeeper, that is reached by these host names and addresses."""
        return self._issue(_named(name), _alternatives(hosts), BROKER, now, days)

    def issue_client(self, name: str, now: datetime, days: int = ISSUED_DAYS) -> Credential:
        """For a client that authenticates by TLS: its principal is ``User:CN=NAME`` unless rules say otherwise."""
        return self._issue(_named(name), [], CLIENT, now, days)

    def renew(self, certificate: bytes, now: datetime, days: int = ISSUED_DAYS) -> Credential:
        """The same subject, names and uses, with a new key.

        Raises ConfigError for a certificate that this authority has not signed.
        """
        old = _load(certificate)[0]
        self._require_own(old)
        usages = tuple(_usages(old)) or BROKER
        return self._issue(old.subject, _alternative_names(old), usages, now, days)

    def has_signed(self, certificate: bytes) -> bool:
        """Whether the first of these certificates is this authority's."""
        try:
            _load(certificate)[0].verify_directly_issued_by(self._certificate)
        except (InvalidSignature, TypeError, ValueError):
            return False
        return True

    def _require_own(self, certificate: x509.Certificate) -> None:
        if not self.has_signed(_pem(certificate)):
            raise ConfigError(
                f"the certificate of {_text(certificate.subject)} was not signed by {_text(self._certificate.subject)};"
                " renew it with the authority that has signed it"
            )

    def _issue(
        self,
        subject: x509.Name,
        names: Sequence[x509.GeneralName],
        usages: Sequence[x509.ObjectIdentifier],
        now: datetime,
        days: int,
    ) -> Credential:
        key = _new_key()
        until = min(now + timedelta(days=days), self._certificate.not_valid_after_utc)
        if until <= now:
            raise ConfigError(f"the authority {_text(self._certificate.subject)} has ended; make another one")
        own = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), now, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Credential(_key_pem(key), _pem(builder.sign(self._key, hashes.SHA256())))


def describe(pem: bytes) -> list[Description]:
    """Of each certificate in a file, in its order. Raises ConfigError where there is none."""
    return [
        Description(
            subject=_text(each.subject),
            issuer=_text(each.issuer),
            names=tuple(str(name.value) for name in _alternative_names(each)),
            not_before=each.not_valid_before_utc,
            not_after=each.not_valid_after_utc,
            serial=f"{each.serial_number:x}",
            usages=tuple(_USAGES.get(usage, usage.dotted_string) for usage in _usages(each)),
            is_authority=_is_authority(each),
            fingerprint=each.fingerprint(hashes.SHA256()).hex(),
        )
        for each in _load(pem)
    ]


def utc_now(now_ms: int) -> datetime:
    """The time of a ``Clock``, without what certificates have no room for."""
    return datetime.fromtimestamp(now_ms // 1000, UTC)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> x509.Name:
    if not name or len(name) > _LONGEST_COMMON_NAME or not name.isprintable():
        raise ConfigError(f"{name!r} is no name for a certificate; it has 1 to {_LONGEST_COMMON_NAME} characters")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternatives(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names = [_alternative(host) for host in dict.fromkeys(hosts)]
    if not names:
        raise ConfigError("a broker's certificate needs the host names and addresses by which clients reach it")
    return names


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        if not _HOST.fullmatch(host):
            raise ConfigError(f"{host!r} is no host name and no address (write others as xn--...)") from None
        return x509.DNSName(host.removesuffix("."))


def _alternative_names(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _usages(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return []


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _load(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise ConfigError("there is no certificate in PEM here (-----BEGIN CERTIFICATE-----)") from None


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    begin = pem.find(b"-----BEGIN PRIVATE KEY-----")
    try:
        key = serialization.load_pem_private_key(pem[max(begin, 0) :], password=None)
    except (ValueError, TypeError):
        raise ConfigError(
            "there is no private key in PEM without a password here (-----BEGIN PRIVATE KEY-----)"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("the private key is not one of an elliptic curve, as those that are made here are")
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _text(name: x509.Name) -> str:
    return name.rfc4514_string()
