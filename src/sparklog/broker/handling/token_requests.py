"""What the requests about delegation tokens share: by which connections they come, what a client is told, and how a
token that it shows is renewed or ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.security.tokens import DelegationTokens
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ApiError, CoordinationError, ErrorCode, MalformedZnode
from sparklog.net.tasks import to_its_end
from sparklog.security.delegation.token import DelegationToken, TokenRules
from sparklog.security.principal import ANONYMOUS, Principal

NEVER = -1
"""A time in the answer to a request that was refused."""
Rule = Callable[[TokenRules, DelegationToken, Principal, int, int], DelegationToken | None]
"""``TokenRules.renewed`` or ``TokenRules.ended``."""


def check_connection(request: ApiRequest[Any]) -> None:
    """Raises ApiError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) for a caller that has shown no credential of its own.

    A client that logged in by a token may not ask for others: they would outlast it.
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
    """Raises a failure of ZooKeeper as the ApiError that a client is told."""
    try:
        yield
    except MalformedZnode as error:  # asking again does not help
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{error}; delete it in ZooKeeper") from error
    except CoordinationError as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper did not answer the broker: {error}") from error


async def change_shown(
    broker: BrokerContext, request: ApiRequest[Any], rule: Rule, period_ms: int, deed: str
) -> tuple[ErrorCode, int]:
    """Change by ``rule`` the token whose HMAC the request shows; a code, and when the token expires.

    That is now where it is gone, and NEVER where the request was refused. ``deed`` is what the audit log says of it.
    """
    try:
        check_connection(request)
        tokens = enabled(broker)
        after = await to_its_end(_changed(tokens, request, rule, period_ms, deed))
    except ApiError as error:
        return error.code, NEVER
    return ErrorCode.NONE, broker.clock.now_ms() if after is None else after.expires_ms


async def _changed(
    tokens: DelegationTokens, request: ApiRequest[Any], rule: Rule, period_ms: int, deed: str
) -> DelegationToken | None:
    """The token as it is then; the audit log has what was done, though the client has hung up. Raises ApiError."""
    shown, by = bytes(request.message.hmac), request.caller.principal
    with told():
        before, after = await tokens.change(shown, by, partial(rule, tokens.rules), period_ms)
    tokens.audit.administered(request.caller, "removed" if after is None else deed, [before])
    return after
