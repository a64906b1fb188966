"""What the requests about delegation tokens share: by which connections they come, and what a client is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.security.tokens import DelegationTokens
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ApiError, CoordinationError, ErrorCode, MalformedZnode
from sparklog.security.principal import ANONYMOUS

NEVER = -1
"""A time in the answer to a request that was refused."""


def check_connection(request: ApiRequest[Any]) -> None:
    """Raises ApiError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) for a caller that has shown no credential of its own.

    Who came by a token may not ask for others: they would outlast it.
    """
    caller = request.caller
    is_unknown = caller.protocol is SecurityProtocol.SSL and caller.principal == ANONYMOUS
    if caller.token_id is not None:
        reason = "the connection was authenticated by a delegation token; use the credentials of its owner"
    elif caller.protocol is SecurityProtocol.PLAINTEXT or is_unknown:
        reason = "delegation tokens are for connections by SASL, or by TLS with a certificate"
    else:
        return
    raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, reason)


def enabled(broker: BrokerContext) -> DelegationTokens:
    """The tokens. Raises ApiError(DELEGATION_TOKEN_AUTH_DISABLED) where there are none."""
    if broker.tokens is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "the broker has no delegation.token.secret.key")
    return broker.tokens


@contextmanager
def told() -> Iterator[None]:
    """Failures of ZooKeeper become what a client is told."""
    try:
        yield
    except MalformedZnode as error:  # asking again does not help
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{error}; delete it in ZooKeeper") from error
    except CoordinationError as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper did not answer the broker: {error}") from error
