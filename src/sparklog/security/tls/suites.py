"""Cipher suites: Kafka's settings have the names of IANA, OpenSSL has names of its own for those before TLS 1.3.

Python's ``ssl`` cannot choose among the suites of TLS 1.3. So a list names all of these, or none. With none TLS 1.3 is
not spoken.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Final

from sparklog.errors import ConfigError

TLS_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""All that OpenSSL speaks unless it is told to speak more."""
_AES = re.compile(r"TLS_((?:ECDHE|DHE)_(?:RSA|ECDSA)|RSA)_WITH_AES_(128|256)_(GCM|CBC)_(SHA(?:256|384)?)")
_CHACHA = re.compile(r"TLS_((?:ECDHE|DHE)_(?:RSA|ECDSA))_WITH_CHACHA20_POLY1305_SHA256")


def limit_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Speak these alone; an empty list leaves the context as it is. Raises ConfigError for those that cannot be."""
    if not names:
        return
    new = [name for name in names if name in TLS_1_3]
    old = [_openssl_name(name) for name in names if name not in TLS_1_3]
    if new and len(set(new)) < len(TLS_1_3):
        raise ConfigError(
            f"ssl.cipher.suites: among the suites of TLS 1.3 none can be chosen here; name all of {', '.join(TLS_1_3)},"
            " or none of them, and TLS 1.2 is spoken"
        )
    if old:
        context.set_ciphers(":".join(old))
    if not old:
        _raise_lowest(context)
    if not new:
        _lower_highest(context)


def _raise_lowest(context: ssl.SSLContext) -> None:
    if context.maximum_version == ssl.TLSVersion.TLSv1_2:
        raise ConfigError("ssl.cipher.suites has only suites of TLS 1.3, which ssl.enabled.protocols leaves out")
    context.minimum_version = ssl.TLSVersion.TLSv1_3


def _lower_highest(context: ssl.SSLContext) -> None:
    if context.minimum_version == ssl.TLSVersion.TLSv1_3:
        raise ConfigError("ssl.cipher.suites has only suites of TLS 1.2, which ssl.enabled.protocols leaves out")
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def _openssl_name(name: str) -> str:
    found = _translated(name)
    if found is None or not _is_spoken(found):
        raise ConfigError(
            f"ssl.cipher.suites: {name!r} is not known or not spoken; names are those of IANA, such as"
            " TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
        )
    return found


def _translated(name: str) -> str | None:
    if match := _CHACHA.fullmatch(name):
        return f"{_dashed(match[1])}-CHACHA20-POLY1305"
    match = _AES.fullmatch(name)
    if match is None:
        return None
    exchange, bits, mode, digest = match.groups()
    start = "" if exchange == "RSA" else f"{_dashed(exchange)}-"
    return f"{start}AES{bits}-{'GCM-' if mode == 'GCM' else ''}{digest}"


def _dashed(exchange: str) -> str:
    return exchange.replace("_", "-")


def _is_spoken(openssl_name: str) -> bool:
    trial = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        trial.set_ciphers(openssl_name)
    except ssl.SSLError:
        return False
    return any(each["name"] == openssl_name for each in trial.get_ciphers())
