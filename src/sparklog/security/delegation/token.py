"""A delegation token, and the rules of its life (KIP-48, KIP-373; ``DelegationTokenManagerZk.scala`` of Kafka 3.9).

Invariants:

- A token stands for its owner until ``ends_ms``, the earlier of its expiry and its maximum. Renewing moves the expiry;
  nothing moves the maximum.
- The owner and the renewers may renew and end it. A user that asked for it on behalf of another may only see it.
- A token that has ended stands for nobody and is not renewed, whether its znode is still there or not.
- The secret of a token, its HMAC, is not a part of it: whoever has the brokers' key can compute it from the id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sparklog.errors import ApiError, ErrorCode
from sparklog.security.principal import Principal

AS_LONG_AS_USUAL: Final = -1
"""A period or a lifetime that is left to the broker's settings."""


@dataclass(frozen=True)
class DelegationToken:
    """Times are in milliseconds since the epoch. It holds no secret, so it may be shown."""

    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    @property
    def ends_ms(self) -> int:
        """The last millisecond in which it stands for its owner."""
        return min(self.expires_ms, self.max_ms)

    def concerns(self, principal: Principal) -> bool:
        """Whether it is the principal's own, to renew, or asked for by it."""
        return principal in (self.owner, self.requester, *self.renewers)

    def __str__(self) -> str:
        return f"delegation token {self.id} of {self.owner}, requested by {self.requester}"


@dataclass(frozen=True)
class TokenRules:
    """How long tokens last, by the broker's settings, in milliseconds."""

    max_lifetime_ms: int
    """``delegation.token.max.lifetime.ms``"""
    expiry_time_ms: int
    """``delegation.token.expiry.time.ms``: until it is renewed, or ends."""

    def issued(
        self,
        token_id: str,
        owner: Principal,
        requester: Principal,
        renewers: Iterable[Principal],
        lifetime_ms: int,
        now_ms: int,
    ) -> DelegationToken:
        """A new token; a ``lifetime_ms`` of 0 or less is as long as tokens may last."""
        lasts = min(lifetime_ms, self.max_lifetime_ms) if lifetime_ms > 0 else self.max_lifetime_ms
        most = now_ms + lasts
        expiry = min(most, now_ms + self.expiry_time_ms)
        return DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, most, expiry)

    def renewed(self, token: DelegationToken, by: Principal, period_ms: int, now_ms: int) -> DelegationToken:
        """The token, which expires in ``period_ms`` now; below 0: in as long as usual.

        Raises ApiError: DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
        """
        _check_may_change(token, by)
        _check_stands(token, now_ms)
        return _expiring_in(token, self.expiry_time_ms if period_ms < 0 else period_ms, now_ms)

    def ended(self, token: DelegationToken, by: Principal, period_ms: int, now_ms: int) -> DelegationToken | None:
        """The token, which expires in ``period_ms`` now; None where it is to go at once, which is below 0.

        Raises ApiError as ``renewed``; a token that has ended already may go at once.
        """
        _check_may_change(token, by)
        if period_ms < 0:
            return None
        _check_stands(token, now_ms)
        return _expiring_in(token, period_ms, now_ms)


def has_ended(token: DelegationToken, now_ms: int) -> bool:
    """Whether it stands for nobody any more."""
    return token.ends_ms < now_ms


def _check_may_change(token: DelegationToken, by: Principal) -> None:
    if by not in (token.owner, *token.renewers):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, f"{by} is neither the owner nor a renewer")


def _check_stands(token: DelegationToken, now_ms: int) -> None:
    if has_ended(token, now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "the token has ended; ask for a new one")


def _expiring_in(token: DelegationToken, period_ms: int, now_ms: int) -> DelegationToken:
    return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))
