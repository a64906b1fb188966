"""Key stores and trust stores: PEM and PKCS12 in, keys and certificates in DER out (``DefaultSslEngineFactory.java``).

PEM is read as Kafka reads it: text around the blocks is passed over, and a block's lines may be joined by blanks, as
they are in a properties file. No message shows what a store holds, nor a password.

``cryptography`` is loaded for private keys and PKCS12 alone: it takes a seventh of the start of a Python process of
Spark, and most connections do without.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sparklog.errors import ConfigError
from sparklog.security.tls.settings import TlsSettings

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_JKS_MAGIC: Final = (bytes.fromhex("feedfeed"), bytes.fromhex("cececece"))
_DER_SEQUENCE = b"\x30"
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_TO_PKCS12 = "keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12"


class Identity(NamedTuple):
    """What an end of a connection proves itself with."""

    key: bytes
    """The private key, PKCS #8 in DER, not encrypted."""
    chain: tuple[bytes, ...]
    """Its certificates in DER, its own first."""

    def __repr__(self) -> str:
        return f"Identity(<key>, {len(self.chain)} certificates)"


def read_identity(settings: TlsSettings) -> Identity | None:
    """Our own key and certificates; None where none are configured. Raises ConfigError."""
    if settings.keystore_key:
        chain = _certificates("ssl.keystore.certificate.chain", settings.keystore_chain)
        return Identity(_private_key("ssl.keystore.key", settings.keystore_key, settings.key_password), chain)
    if not settings.keystore_location:
        return None
    name, path = "ssl.keystore", settings.keystore_location
    data = _read(name, path)
    if _is_pem(name, path, data, settings.keystore_type):
        if settings.keystore_password:
            raise ConfigError("ssl.keystore.password is for PKCS12; the password of a key in PEM is ssl.key.password")
        text, what = data.decode("ascii", "replace"), f"{name}.location={path}"
        return Identity(_private_key(what, text, settings.key_password), _certificates(what, text))
    return _identity_of(_open_pkcs12(name, path, data, settings.keystore_password), path)


def read_trusted(settings: TlsSettings) -> tuple[bytes, ...] | None:
    """The certificates that are trusted, in DER; None where none are configured. Raises ConfigError."""
    if settings.truststore_certificates:
        return _certificates("ssl.truststore.certificates", settings.truststore_certificates)
    if not settings.truststore_location:
        return None
    name, path = "ssl.truststore", settings.truststore_location
    data = _read(name, path)
    if _is_pem(name, path, data, settings.truststore_type):
        if settings.truststore_password:
            raise ConfigError("ssl.truststore.password is for PKCS12, and this store is PEM: leave it out")
        return _certificates(f"{name}.location={path}", data.decode("ascii", "replace"))
    store = _open_pkcs12(name, path, data, settings.truststore_password)
    found = tuple(_der(each.certificate) for each in [store.cert, *store.additional_certs] if each is not None)
    if not found:
        raise ConfigError(f"{name}.location={path} has no certificate in it")
    return found


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{name}.location={path} cannot be read: {reason}") from error


def _is_pem(name: str, path: str, data: bytes, kind: str) -> bool:
    """Whether the store is PEM; else it is PKCS12. Raises ConfigError for what is neither, or not what it should be."""
    if data.startswith(_JKS_MAGIC):
        convert = _TO_PKCS12.format(path=path)
        raise ConfigError(
            f"{name}.location={path} is a JKS store, which only Java reads; convert it, and set {name}.type=PKCS12:"
            f" {convert}"
        )
    is_pem = b"-----BEGIN " in data
    if not is_pem and not data.startswith(_DER_SEQUENCE):
        raise ConfigError(f"{name}.location={path} is neither PEM nor PKCS12")
    if kind == "PEM" and not is_pem:
        raise ConfigError(f"{name}.location={path} is not PEM; set {name}.type=PKCS12 if it is that")
    if kind == "PKCS12" and is_pem:
        raise ConfigError(f"{name}.location={path} is PEM: set {name}.type=PEM")
    return is_pem


def _blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """The label, the body, and the whole of each block."""
    return ((match[1], match[2], match[0]) for match in _BLOCK.finditer(text))


def _decoded(what: str, body: str) -> bytes:
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error as error:
        raise ConfigError(f"{what}: a PEM block is not base64") from error


def _certificates(what: str, text: str) -> tuple[bytes, ...]:
    found = tuple(_decoded(what, body) for label, body, _ in _blocks(text) if label in _CERTIFICATES)
    if not found:
        raise ConfigError(f"{what}: there is no PEM block 'BEGIN CERTIFICATE' in it")
    return found


def _private_key(what: str, text: str, password: str) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    keys = [block for block in _blocks(text) if block[0].endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise ConfigError(f"{what}: one PEM block 'BEGIN PRIVATE KEY' must be in it, there are {len(keys)}")
    label, body, whole = keys[0]
    is_old_form = ":" in body  # it has the headers of a key that OpenSSL encrypted in its old form
    is_encrypted = is_old_form or label.startswith("ENCRYPTED")
    if is_encrypted and not password:
        raise ConfigError(f"{what}: the private key is encrypted: set ssl.key.password")
    secret = password.encode() if is_encrypted else None
    data = whole.encode() if is_old_form else _decoded(what, body)
    try:
        key = load_pem_private_key(data, secret) if is_old_form else load_der_private_key(data, secret)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        hint = ", or ssl.key.password is wrong" if is_encrypted else ""
        raise ConfigError(
            f"{what}: the private key cannot be read: it is damaged or of an unknown kind{hint}"
        ) from error
    return _key_der(key)


def _key_der(key: PrivateKeyTypes) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def _open_pkcs12(name: str, path: str, data: bytes, password: str) -> PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(data, password.encode() if password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{name}.location={path} cannot be read as PKCS12: it is damaged, or {name}.password is wrong"
        ) from error


def _identity_of(store: PKCS12KeyAndCertificates, path: str) -> Identity:
    if store.key is None or store.cert is None:
        raise ConfigError(f"ssl.keystore.location={path} has no private key with a certificate in it")
    chain = _in_order(store.cert.certificate, [each.certificate for each in store.additional_certs])
    return Identity(_key_der(store.key), tuple(map(_der, chain)))


def _in_order(first: x509.Certificate, others: list[x509.Certificate]) -> Iterator[x509.Certificate]:
    """Each followed by the one that issued it: a PKCS12 store has them in any order."""
    by_subject = {each.subject: each for each in others}
    found: x509.Certificate | None = first
    while found is not None:
        yield found
        found = by_subject.pop(found.issuer, None)


def _der(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)
