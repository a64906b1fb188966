"""The way to an ensemble: which of its servers a client tries, and for how long.

Invariants: a server that does not answer costs its share of the session's time, so that another is found before the
session ends; the one that was lost is tried last; all are tried again every second, however long they have been away.
Source: ZooKeeper 3.9, ``StaticHostProvider`` and ``ClientCnxn``, which divide the time and go round in the same way.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

from sparklog.config.zookeeper_connect import ConnectString
from sparklog.config.zookeeper_security import OPEN, ZooKeeperSecurity
from sparklog.errors import ConfigError
from sparklog.security.sasl.jaas import option, parse_jaas
from sparklog.security.tls.contexts import client_context
from sparklog.security.tls.settings import TlsSettings
from sparklog.structs import Endpoint
from sparklog.zk.ownership import OwningClient

_DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_LONGEST_PAUSE_S = 1.0
"""Between two rounds of attempts to connect; kazoo's own would double up to an hour."""


class WithoutContents(logging.Filter):
    """For the log of kazoo: of requests and answers their kind and their path.

    At DEBUG kazoo writes whole znodes, which have the credentials of users, and below that the session's password.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO and isinstance(record.args, tuple):
            record.args = tuple(map(_kind_of, record.args))
        return True


def _kind_of(each: object) -> object:
    if isinstance(each, int | Exception):
        return each
    path = getattr(each, "path", None)
    return f"{type(each).__name__} {path}" if isinstance(path, str) else type(each).__name__


def _kazoo_log() -> logging.Logger:
    logger = logging.getLogger("kazoo.client")
    if not logger.filters:
        logger.addFilter(WithoutContents())
    return logger


class Connects(SequentialThreadingHandler):  # type: ignore[misc]
    """Makes the connections, by TLS where there is a context for it.

    Waits for one no longer than ``seconds``; kazoo would wait for as long as a session lasts.
    """

    def __init__(self, seconds: float, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._seconds, self._tls = seconds, tls
        if tls is not None:
            tls.sslsocket_class = _TlsSocket
        self.complaint = ""
        """What TLS had against the server that was tried last."""

    def create_connection(
        self, address: tuple[str, int], *, hostname: str, timeout: float, **options: object
    ) -> socket.socket:
        seconds = min(timeout, self._seconds)
        if self._tls is None:
            found: socket.socket = super().create_connection(address=address, timeout=seconds, **options)
            return found
        sock = socket.create_connection(address, seconds)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = self._tls.wrap_socket(sock, server_hostname=hostname)
        except OSError as error:
            sock.close()
            self._complain(hostname, address[1], error)
            raise
        assert isinstance(secured, _TlsSocket)
        secured.on_alert = partial(self._complain, hostname, address[1])
        return secured

    def _complain(self, host: str, port: int, error: OSError) -> None:
        self.complaint = f"TLS with {host}:{port}: {_reason(error)}"


class _TlsSocket(ssl.SSLSocket):
    """Tells of an alert: by TLS 1.3 a server refuses a certificate after the client has ended the handshake."""

    on_alert: Callable[[OSError], None]

    def recv(self, *arguments: int) -> bytes:
        try:
            return super().recv(*arguments)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self.on_alert(error)
            raise


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return getattr(error, "reason", None) or error.strerror or str(error)


def tls_context(security: ZooKeeperSecurity) -> ssl.SSLContext | None:
    """What is spoken to ZooKeeper; None for no TLS. Raises ConfigError for files that cannot be used."""
    if not security.tls:
        return None
    password = security.key_store_password
    in_pem = bool(security.key_store) and _is_pem(security)
    settings = TlsSettings(
        keystore_location=security.key_store,
        keystore_type=security.key_store_type,
        keystore_password="" if in_pem else password,
        key_password=password if in_pem else "",  # ZooKeeper has one password for both
        truststore_location=security.trust_store,
        truststore_type=security.trust_store_type,
        truststore_password=security.trust_store_password,
        enabled_protocols=security.protocols,
        cipher_suites=security.cipher_suites,
        identification=security.endpoint_identification,
    )
    try:
        return client_context(settings)
    except ConfigError as error:
        raise ConfigError(f"TLS to ZooKeeper (zookeeper.ssl.*): {error}") from error


def _is_pem(security: ZooKeeperSecurity) -> bool:
    if security.key_store_type:
        return security.key_store_type == "PEM"
    try:
        return Path(security.key_store).read_bytes()[:1] != b"\x30"
    except OSError:
        return True  # said with the file's name when it is read


def _sasl_options(security: ZooKeeperSecurity) -> dict[str, str] | None:
    """What kazoo is told of SASL; None for none. Raises ConfigError for what it cannot do."""
    if not security.jaas:
        return None
    if find_spec("puresasl") is None:
        raise ConfigError("SASL with ZooKeeper needs the package pure-sasl; type: pip install pure-sasl")
    (module, *others) = parse_jaas(security.jaas)
    if others or module.name != _DIGEST_MODULE:
        raise ConfigError(f"ZooKeeper is told who we are by one {_DIGEST_MODULE}; no other login module is known here")
    user, password = (option(module.options, each, "DIGEST-MD5") for each in ("username", "password"))
    return {"mechanism": "DIGEST-MD5", "username": user, "password": password}


def kazoo_client(
    members: Sequence[Endpoint],
    session_timeout: float,
    session: tuple[int, bytes] | None = None,
    security: ZooKeeperSecurity = OPEN,
) -> KazooClient:
    """A client that tries the members in this order, round and round; ``session`` is one to go on with.

    Raises ConfigError for files of keys and certificates that cannot be used.
    """
    kind = OwningClient if security.set_acl else KazooClient
    return kind(
        hosts=ConnectString(tuple(members), "").hosts,
        timeout=session_timeout,
        client_id=session,
        randomize_hosts=False,
        handler=Connects(session_timeout / len(members), tls_context(security)),
        sasl_options=_sasl_options(security),
        connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": _LONGEST_PAUSE_S},
        logger=_kazoo_log(),
    )
