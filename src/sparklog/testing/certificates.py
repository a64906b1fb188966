"""Certificates for tests: one authority, and what it or a stranger has issued. Keys are of P-256, which is fast."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_YEAR: Final = timedelta(days=365)


def name_of(common_name: str) -> x509.Name:
    """``CN=…,O=sparklog``."""
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "sparklog")
    return x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


@dataclass(frozen=True)
class Certified:
    """A private key and its certificate, with the certificate of its issuer."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def certificate_der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def chain_pem(self) -> str:
        return self.certificate_pem + self.issuer.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str = "") -> str:
        """PKCS #8, encrypted if there is a password."""
        encryption: KeySerializationEncryption = NoEncryption()
        if password:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def write_pem(self, path: Path, password: str = "") -> Path:
        """A key store as ``ssl.keystore.type=PEM`` has it."""
        path.write_text(self.key_pem(password) + self.chain_pem)
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        encryption = BestAvailableEncryption(password.encode())
        store = pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, [self.issuer], encryption)
        path.write_bytes(store)
        return path


class Authority:
    """An authority of its own; two of them do not trust each other."""

    def __init__(self, common_name: str = "test authority") -> None:
        self.name = name_of(common_name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(self.name, self._key, [], ca=True)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        hosts: Sequence[str],
        *,
        ca: bool = False,
        expired: bool = False,
        begins: timedelta = -_YEAR,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        end = now - timedelta(days=1) if expired else now + _YEAR
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_alternative, hosts))), critical=False)
        if not ca:
            uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        return builder.sign(self._key, SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_pem(self, path: Path) -> Path:
        """A trust store as ``ssl.truststore.type=PEM`` has it."""
        path.write_text(self.pem)
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        trusted = [pkcs12.PKCS12Certificate(self.certificate, b"authority")]
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(pkcs12.serialize_java_truststore(trusted, encryption))
        return path

    def issue(
        self,
        subject: str | x509.Name,
        hosts: Sequence[str] = LOCAL,
        *,
        expired: bool = False,
        begins: timedelta = -_YEAR,
    ) -> Certified:
        """For a server that is reached by ``hosts``, or with none of them for a client; good ``begins`` from now on."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = name_of(subject) if isinstance(subject, str) else subject
        return Certified(key, self._sign(name, key, hosts, expired=expired, begins=begins), self.certificate)


class Certificates:
    """What tests of TLS need, each made when it is first asked for."""

    def __init__(self) -> None:
        self.authority = Authority()

    @cached_property
    def server(self) -> Certified:
        return self.authority.issue("broker")

    @cached_property
    def client(self) -> Certified:
        return self.authority.issue("alice", ())

    @cached_property
    def expired(self) -> Certified:
        return self.authority.issue("yesterday", expired=True)

    @cached_property
    def elsewhere(self) -> Certified:
        """Of a server that is reached by another name."""
        return self.authority.issue("elsewhere", ["elsewhere.example"])

    @cached_property
    def stranger(self) -> Certified:
        """By an authority that nobody trusts."""
        return Authority("somebody").issue("broker")


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
