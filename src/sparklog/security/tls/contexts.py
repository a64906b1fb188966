"""``ssl.SSLContext`` for each end, from its settings and the files as they are now.

- TLS 1.2 is the oldest that is spoken, whatever OpenSSL would allow.
- A client always checks the chain of a broker's certificate; ``check_hostname`` says whether the name is checked too.
  Where no trust store is configured, the system's certificates are trusted, as Java's are.
- Each certificate of a trust store is trusted by itself, also one that another has issued, as Java does it.
- Python reads a private key from a file alone. It is handed one in memory. Where the system has none, it is handed one
  in a directory that only we may enter, and which is gone when the context is made.
"""

from __future__ import annotations

import base64
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparklog.errors import ConfigError
from sparklog.security.tls.settings import TlsSettings
from sparklog.security.tls.stores import Identity, read_identity, read_trusted
from sparklog.security.tls.suites import limit_suites

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections that we open. Raises ConfigError for settings or files that cannot be used."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = bool(settings.identification)
    if not _trust(context, settings):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    identity = read_identity(settings)
    if identity is not None:
        _be(context, identity)
    return context


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections that we accept. Raises ConfigError for settings or files that cannot be used."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.options |= ssl.OP_NO_RENEGOTIATION  # a peer could have the loop compute as often as it likes
    identity = read_identity(settings)
    if identity is None:
        raise ConfigError("a listener with TLS needs a key and a certificate: set ssl.keystore.location")
    _be(context, identity)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if context.verify_mode != ssl.CERT_NONE and not _trust(context, settings):
        raise ConfigError(
            f"ssl.client.auth={settings.client_auth} needs ssl.truststore.location: without it the certificates of"
            " every public authority would do"
        )
    return context


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    versions = sorted(_VERSIONS[each] for each in settings.enabled_protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    limit_suites(context, settings.cipher_suites)
    return context


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> bool:
    """Whether a trust store is configured."""
    trusted = read_trusted(settings)
    if trusted is None:
        return False
    try:
        context.load_verify_locations(cadata=b"".join(trusted))
    except ssl.SSLError as error:
        raise ConfigError(f"ssl.truststore: a certificate in it cannot be read ({error.reason})") from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return True


def _be(context: ssl.SSLContext, identity: Identity) -> None:
    """Show the peer this certificate."""
    with _private_file(_pem("PRIVATE KEY", identity.key) + _chain_pem(identity)) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise ConfigError(
                    "ssl.keystore: the private key is not that of the first certificate; put its certificate first"
                ) from error
            raise ConfigError(f"ssl.keystore: the key or a certificate cannot be used ({error.reason})") from error


def _chain_pem(identity: Identity) -> bytes:
    return b"".join(_pem("CERTIFICATE", each) for each in identity.chain)


def _pem(label: str, der: bytes) -> bytes:
    return f"-----BEGIN {label}-----\n".encode() + base64.encodebytes(der) + f"-----END {label}-----\n".encode()


@contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("key"), "wb", buffering=0) as file:
            file.write(data)
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.TemporaryDirectory() as directory:  # made with mode 0700
            path = Path(directory, "key.pem")
            path.touch(mode=0o600)
            path.write_bytes(data)
            yield str(path)
