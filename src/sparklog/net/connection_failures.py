"""What becomes of a connection's failure, in words: by OpenSSL's reasons, and by where the peer hung up.

A certificate that is not accepted, by us or by the peer, is AuthenticationFailed: nobody waits for that to pass. A peer
that speaks no TLS, or nothing else, is RemoteProtocolError. What is left is the network's.
"""

from __future__ import annotations

import ssl
from typing import Final

from sparklog.errors import AuthenticationFailed, ConnectionFailed, RemoteProtocolError, SparklogError
from sparklog.security.connecting import ConnectionSecurity
from sparklog.structs import Endpoint

_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "PACKET_LENGTH_TOO_LONG"})
_NOT_AGREED: Final = frozenset(
    {
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "TLSV1_ALERT_INSUFFICIENT_SECURITY",
        "UNSUPPORTED_PROTOCOL",
        "NO_PROTOCOLS_AVAILABLE",
        "NO_CIPHERS_AVAILABLE",
    }
)
_OURS_REFUSED: Final = frozenset(
    {
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV1_ALERT_ACCESS_DENIED",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_NO_CERTIFICATE",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    }
)
_OURS_EXPIRED: Final = "SSLV3_ALERT_CERTIFICATE_EXPIRED"
_EXPIRED: Final = 10
_ANOTHER_NAME: Final = frozenset({62, 64})
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21, 27})
"""``X509_V_ERR_…`` of OpenSSL: the issuer is not known, or signed itself, or is not trusted."""
_ALERT: Final = b"\x15\x03"
_HANDSHAKE: Final = b"\x16\x03"


def tls_failure(endpoint: Endpoint, error: ssl.SSLError) -> SparklogError:
    """What a failure of TLS is raised as, with what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(f"the certificate of broker {endpoint} is not accepted: {_why_not(error)}")
    reason = error.reason or str(error)
    if reason == _OURS_EXPIRED:
        return AuthenticationFailed(
            f"broker {endpoint} does not accept our certificate, which has expired ({reason}): renew it, where"
            " ssl.keystore.location has it"
        )
    if reason in _OURS_REFUSED:
        return AuthenticationFailed(
            f"broker {endpoint} does not accept our certificate, or wants one ({reason}): set ssl.keystore.location to"
            " a key and a certificate of an authority that it trusts"
        )
    if reason in _NOT_AGREED:
        return AuthenticationFailed(
            f"broker {endpoint} refused the TLS handshake ({reason}): its listener has no TLS (security.protocol), or"
            " no version or cipher suite that we have (ssl.enabled.protocols, ssl.cipher.suites), or wants a"
            " certificate (ssl.keystore.location)"
        )
    if reason in _NOT_TLS:
        return RemoteProtocolError(
            f"{endpoint} does not speak TLS ({reason}): set security.protocol=PLAINTEXT or SASL_PLAINTEXT, or name its"
            " listener with TLS"
        )
    return ConnectionFailed(f"TLS with broker {endpoint} failed: {reason}; {_HAS_IT_TLS}")


def _why_not(error: ssl.SSLCertVerificationError) -> str:
    message = error.verify_message
    if error.verify_code in _ANOTHER_NAME:
        return f"{message} Connect by a name in it, or check no name: ssl.endpoint.identification.algorithm= (empty)"
    if error.verify_code in _UNKNOWN_ISSUER:
        return f"{message}; ssl.truststore.location must hold the certificate of the authority that issued it"
    if error.verify_code == _EXPIRED:
        return f"{message}; its owner must renew it"
    return message


def unreachable(endpoint: Endpoint, error: Exception, security: ConnectionSecurity) -> ConnectionFailed:
    """What is raised where no connection could be made."""
    text = str(error) or ("timed out" if isinstance(error, TimeoutError) else "it hung up")
    hung_up = security.tls is not None and isinstance(error, ConnectionResetError | ConnectionAbortedError)
    return ConnectionFailed(f"cannot reach a broker at {endpoint}: {text}{f'; {_HAS_IT_TLS}' if hung_up else ''}")


_HAS_IT_TLS: Final = "does its listener have TLS (security.protocol)?"
"""Behind a failure in the middle of a handshake."""
ASKS_FOR_MORE: Final = "; does its listener ask for TLS or SASL (security.protocol)?"
"""Behind the message of a peer that hung up on a plain connection before it answered anything but its versions."""


def is_tls(opening: bytes | bytearray | memoryview) -> bool:
    """Whether the first bytes of an answer are those of a peer that speaks TLS."""
    return bytes(opening[:2]) in (_ALERT, _HANDSHAKE)


def speaks_tls(endpoint: Endpoint) -> RemoteProtocolError:
    """For a plain connection that was answered so."""
    return RemoteProtocolError(
        f"{endpoint} speaks TLS, and this connection does not: set security.protocol=SSL or SASL_SSL"
    )
