"""Certificates that expire soon: those of brokers, as the handshake shows them, and the client's own."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from sparklog.cli.doctor.finding import Finding, Severity
from sparklog.structs import Endpoint

if TYPE_CHECKING:
    from sparklog.client.cluster.config import ClientConfig
    from sparklog.clock import Clock
    from sparklog.security.certificates import Description

_SOON_DAYS = 7
"""From here on it is an error, whatever is asked for."""
_KEY_STORES = ("ssl.keystore.location", "ssl.truststore.location")


def certificate_findings(found: Mapping[str, Description], now: datetime, soon_days: int) -> Iterator[Finding]:
    """``found`` by where it is; ``soon_days``: how long a certificate should at least be good."""
    for where, each in sorted(found.items()):
        left = (each.not_after - now).days
        if now >= each.not_after:
            yield Finding(
                Severity.ERROR, f"a certificate has expired ({each.subject})", (where,), _advice(where, each)
            )  # fmt: skip
        elif left < max(soon_days, _SOON_DAYS):
            severity = Severity.ERROR if left < _SOON_DAYS else Severity.WARNING
            what = f"a certificate expires in {left} days ({each.subject})"
            yield Finding(severity, what, (where,), _advice(where, each))


def expired_findings(config: ClientConfig, clock: Clock, timeout: float) -> list[Finding]:
    """For a cluster that lets no connection be made: certificates of the client and of the brokers to ask first that
    have expired. ``timeout`` is for each broker, in seconds.
    """
    from sparklog.security.certificates import utc_now

    found = own_certificates(config.security)
    for endpoint in config.bootstrap:
        with suppress(OSError, ValueError):
            found[f"broker at {endpoint}"] = shown_certificate(endpoint, config.security, timeout)
    now = utc_now(clock.now_ms())
    return list(certificate_findings({where: each for where, each in found.items() if now >= each.not_after}, now, 0))


def _advice(where: str, certificate: Description) -> str:
    if certificate.is_authority:
        return (
            "sparklog cert ca DIRECTORY makes a new authority; give it to all beside the old one, then issue every"
            " certificate anew by it: sparklog cert issue NAME --ca DIRECTORY"
        )
    if where.startswith("broker "):
        return (
            "on its host: sparklog cert renew FILE --ca DIRECTORY, where FILE is its ssl.keystore.location; it takes"
            " the new file up while it runs"
        )
    return f"sparklog cert renew {quote(where)} --ca DIRECTORY"


def shown_certificate(endpoint: Endpoint, settings: Mapping[str, str], timeout: float) -> Description:
    """What a broker shows who it is by, trusted or not. Raises OSError where there is no handshake.

    ``settings`` are the client's ssl.*: a broker may ask for the client's certificate.
    """
    from sparklog.security.certificates import describe
    from sparklog.security.tls.contexts import client_context
    from sparklog.security.tls.settings import TlsSettings

    context = client_context(TlsSettings.from_properties(settings))
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # one that has expired is to be seen too
    with (
        socket.create_connection(endpoint, timeout) as plain,
        context.wrap_socket(plain, server_hostname=endpoint.host) as tls,
    ):
        shown = tls.getpeercert(binary_form=True)
    return describe(ssl.DER_cert_to_PEM_cert(shown or b"").encode())[0]


def own_certificates(settings: Mapping[str, str]) -> dict[str, Description]:
    """Those in the client's PEM files, by file; files of other kinds are left out."""
    from sparklog.errors import ConfigError
    from sparklog.security.certificates import describe

    found = {}
    for path in filter(None, map(settings.get, _KEY_STORES)):
        try:
            described = describe(Path(path).read_bytes())
        except (ConfigError, ValueError, OSError):
            continue
        found[path] = min(described, key=lambda each: each.not_after)
    return found
