"""Key stores and trust stores by Kafka's settings, and the TLS context that a client makes of them.

A store is a file of PEM (certificates, and in a key store a private key of PKCS #8) or of PKCS12. What it is its
content says; Java's own JKS is refused in words. What is unpacked from PKCS12 is never on a disk.

Invariants: a certificate is always verified; where no trust store is given the system's authorities are trusted, and
where one is given these alone; nothing older than TLS 1.2 is spoken.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from sparklog.errors import ConfigError

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM = b"-----BEGIN "
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OF_TLS_1_3 = ("TLS_AES_", "TLS_CHACHA20_")
_RESPELT = (
    ("AES_128", "AES128"),
    ("AES_256", "AES256"),
    ("_CBC", ""),
    ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
)


@dataclass(frozen=True)
class Store:
    """A file, and the password of what is in it; empty for none."""

    location: str
    password: str = field(default="", repr=False)


@dataclass(frozen=True)
class TlsSettings:
    """What both ends of a connection may be told of TLS."""

    key_store: Store | None = None
    trust_store: Store | None = None
    protocols: Sequence[str] = tuple(_VERSIONS)
    cipher_suites: Sequence[str] = ()
    """By Java's names; empty for OpenSSL's own choice."""
    checks_names: bool = True
    """Whether the peer's certificate must have the name that the peer is reached by."""


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of the end that connects. Raises ConfigError for files and names that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_names
    _restrict(context, settings)
    if settings.key_store is not None:
        _load_key_store(context, settings.key_store)
    if settings.trust_store is not None:
        _load_trust_store(context, settings.trust_store)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2, from Java's: ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``."""
    exchange, separator, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return suite  # by OpenSSL's name already
    for ours, theirs in _RESPELT:
        cipher = cipher.replace(ours, theirs)
    return "-".join(([] if exchange == "RSA" else [exchange.replace("_", "-")]) + [cipher.replace("_", "-")])


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """To the protocols and cipher suites. Those of TLS 1.3 are a few good ones, of which OpenSSL chooses."""
    unknown = [each for each in settings.protocols if each not in _VERSIONS]
    if unknown or not settings.protocols:
        raise ConfigError(
            f"protocol {', '.join(unknown) or '(none)'}: TLSv1.2 and TLSv1.3 are spoken, and nothing older"
        )
    versions = {_VERSIONS[each] for each in settings.protocols}
    older = [each for each in settings.cipher_suites if not each.startswith(_OF_TLS_1_3)]
    if settings.cipher_suites and not older:
        versions.discard(ssl.TLSVersion.TLSv1_2)
    if settings.cipher_suites and len(older) == len(settings.cipher_suites):
        versions.discard(ssl.TLSVersion.TLSv1_3)
    if not versions:
        raise ConfigError("none of the cipher suites is one of the protocols that are enabled")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if older:
        _set_ciphers(context, older)


def _set_ciphers(context: ssl.SSLContext, suites: Iterable[str]) -> None:
    for suite in suites:
        try:
            context.set_ciphers(openssl_name(suite))
        except ssl.SSLError:
            raise ConfigError(f"OpenSSL has no cipher suite {suite} here") from None
    context.set_ciphers(":".join(map(openssl_name, suites)))


def _load_key_store(context: ssl.SSLContext, store: Store) -> None:
    data = _read(store)
    if not data.startswith(_JKS) and _PEM in data:
        _load_chain(context, store, store.location, store.password)
        return
    key, certificate, others = pkcs12.load_key_and_certificates(*_of_pkcs12(store, data))
    if key is None or certificate is None:
        raise ConfigError(f"{store.location} has no private key with its certificate")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = [each.public_bytes(serialization.Encoding.PEM) for each in (certificate, *others)]
    with _in_memory(pem + b"".join(chain)) as path:
        _load_chain(context, store, path, "")


def _load_chain(context: ssl.SSLContext, store: Store, path: str, password: str) -> None:
    try:
        context.load_cert_chain(path, password=password)  # never None: OpenSSL would ask on the terminal
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"{store.location} cannot be used as a key store ({getattr(error, 'reason', None) or error}): it needs a"
            " private key and its certificate, and the password of the key if it has one"
        ) from None


def _load_trust_store(context: ssl.SSLContext, store: Store) -> None:
    data = _read(store)
    if not data.startswith(_JKS) and _PEM in data:
        found = data
    else:
        content = pkcs12.load_pkcs12(*_of_pkcs12(store, data))
        entries = [each for each in (content.cert, *content.additional_certs) if each is not None]
        found = b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in entries)
    try:
        context.load_verify_locations(cadata=found.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{store.location} has no certificate of an authority to trust") from None


def _of_pkcs12(store: Store, data: bytes) -> tuple[bytes, bytes | None]:
    """Content and password, once it is known that they fit. Raises ConfigError."""
    if data.startswith(_JKS):
        raise ConfigError(
            f"{store.location} is a JKS file, which only Java reads; make PKCS12 of it: keytool -importkeystore"
            f" -srckeystore {store.location} -destkeystore {Path(store.location).stem}.p12 -deststoretype PKCS12"
        )
    for password in (store.password.encode() or None, store.password.encode()):  # none, and an empty one, differ
        try:
            pkcs12.load_pkcs12(data, password)
        except ValueError:
            continue
        return data, password
    raise ConfigError(f"{store.location} is neither PEM nor PKCS12, or its password is another one")


def _read(store: Store) -> bytes:
    try:
        return Path(store.location).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {store.location}: {error.strerror}") from error


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """A path to it for OpenSSL, which reads keys from files alone."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
