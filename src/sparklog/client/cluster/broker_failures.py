"""The failures of brokers that were tried one after another, and the one error that a caller is told of all of them."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.errors import ConnectionFailed, PeerSilent, RemoteProtocolError, SparklogError
from sparklog.structs import Endpoint

PASSED_OVER = (ConnectionFailed, RemoteProtocolError)
"""For which another broker is asked: it cannot be reached, or what answers there does not speak Kafka's protocol."""


def no_broker(failures: Mapping[Endpoint, SparklogError]) -> SparklogError:
    """Names each endpoint and why: PeerSilent where one accepts connections and says nothing, RemoteProtocolError
    where all of them answered what they must not, otherwise ConnectionFailed."""
    tried = ", ".join(f"{endpoint} ({error.__cause__ or error})" for endpoint, error in failures.items())
    text = f"no broker can be reached; tried {tried}"
    if any(isinstance(error, PeerSilent) for error in failures.values()):
        return PeerSilent(text)
    if failures and all(isinstance(error, RemoteProtocolError) for error in failures.values()):
        return RemoteProtocolError(text)
    return ConnectionFailed(text)
