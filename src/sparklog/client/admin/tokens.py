"""Delegation tokens: asking for one, and renewing, ending and seeing those that there are."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from sparklog.client.admin.base import AdminBase, raise_error
from sparklog.errors import SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from sparklog.security.delegation.key import password_of
from sparklog.security.delegation.token import AS_LONG_AS_USUAL
from sparklog.security.principal import Principal
from sparklog.security.sasl.jaas import login_of_token

_Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
_LOOK_AGAIN_S = 0.05


@dataclass(frozen=True)
class DelegationToken:
    """What lets a client in as the ``owner``, and its secret, which no ``repr`` shows.

    Principals are written ``User:alice``. Times are in milliseconds since the epoch.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    """Until when it lasts, unless it is renewed."""
    max_ms: int
    """Until when it can be renewed to last."""

    @property
    def password(self) -> str:
        """The HMAC as SCRAM takes it, with the id for a user's name; Kafka's tools show it so. A secret."""
        return password_of(self.hmac)

    def jaas_config(self, mechanism: str = "SCRAM-SHA-512") -> str:
        """The setting ``sasl.jaas.config`` of a client that comes by the token, also of Kafka's. A secret."""
        return login_of_token(mechanism, self.token_id, self.password)


class TokenAdmin(AdminBase):
    """Any broker answers. A change is in force on the broker that made it, and on the others moments later.

    Every method raises ApiError: DELEGATION_TOKEN_AUTH_DISABLED where the brokers have no key for tokens
    (``delegation.token.secret.key``), DELEGATION_TOKEN_REQUEST_NOT_ALLOWED to a client that came by a token, or without
    credentials.
    """

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Collection[str] = (),
        max_lifetime_ms: int = AS_LONG_AS_USUAL,
    ) -> DelegationToken:
        """Ask for a token for ourselves or another ``owner`` (``User:alice``), which the ``renewers`` may renew too.

        If the answer is lost it is asked for again, and there are two.

        A ``max_lifetime_ms`` of 0 or less is as long as brokers let tokens last. Raises ConfigError for what is no
        principal; ApiError: DELEGATION_TOKEN_AUTHORIZATION_FAILED where we may not CREATE_TOKENS of the owner,
        INVALID_PRINCIPAL_TYPE for a renewer of another kind than ``User``.
        """
        owned_by = None if owner is None else Principal.parse(owner)
        asked = [Principal.parse(each) for each in renewers]
        answer = await self._session.any_broker_request(
            ApiKey.CREATE_DELEGATION_TOKEN,
            lambda _: CreateDelegationTokenRequest(
                owner_principal_type=owned_by and owned_by.kind,
                owner_principal_name=owned_by and owned_by.name,
                renewers=[
                    CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
                    for kind, name in asked
                ],
                max_lifetime_ms=max_lifetime_ms,
            ),
            check=lambda answer: raise_error(answer, "cannot create a delegation token"),
        )
        return _created(answer, tuple(map(str, asked)))

    async def wait_for_delegation_token(self, token: DelegationToken, timeout_ms: int = 10_000) -> bool:
        """Wait until every broker that answers knows the token, so that whoever has it may ask any; whether they do.

        For a user that has made it with the credentials of its owner, or may see it otherwise.
        """
        owner = Principal.parse(token.owner)
        asked = DescribeDelegationTokenRequest(owners=[_Owner(principal_type=owner.kind, principal_name=owner.name)])
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    told = await self._ask_reachable_brokers(
                        ApiKey.DESCRIBE_DELEGATION_TOKEN, lambda _: asked, timeout_ms / 1000
                    )
                    answers = [each for each in told.values() if not isinstance(each, SparklogError)]
                    if all(token.token_id in {one.token_id for one in each.tokens} for each in answers):
                        return True
                    await asyncio.sleep(_LOOK_AGAIN_S)
        return False

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = AS_LONG_AS_USUAL) -> int:
        """Let the token with this HMAC expire in ``period_ms``, by default in as long as brokers let it; when it does.

        Raises ApiError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH where we are neither its owner nor
        a renewer, DELEGATION_TOKEN_EXPIRED.
        """
        answer = await self._session.any_broker_request(
            ApiKey.RENEW_DELEGATION_TOKEN,
            lambda _: RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms),
            check=lambda answer: raise_error(answer, "cannot renew the delegation token"),
        )
        return answer.expiry_timestamp_ms

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let the token with this HMAC end in ``period_ms``, at once if that is below 0; when it does.

        Raises ApiError as ``renew_delegation_token``.
        """
        answer = await self._session.any_broker_request(
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            lambda _: ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms),
            check=lambda answer: raise_error(answer, "cannot end the delegation token"),
        )
        return answer.expiry_timestamp_ms

    async def describe_delegation_tokens(self, owners: Collection[str] | None = None) -> list[DelegationToken]:
        """The tokens that we may see, the oldest first; those that concern one of the ``owners``, or all.

        We see those that we own, may renew or have asked for, and those that we may DESCRIBE, or DESCRIBE_TOKENS of
        their owners. Raises ConfigError for what is no principal.
        """
        named = None if owners is None else [Principal.parse(each) for each in owners]
        answer = await self._session.any_broker_request(
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            lambda _: DescribeDelegationTokenRequest(
                owners=None
                if named is None
                else [_Owner(principal_type=kind, principal_name=name) for kind, name in named]
            ),
            check=lambda answer: raise_error(answer, "cannot describe delegation tokens"),
        )
        return sorted(map(_described, answer.tokens), key=lambda each: (each.issued_ms, each.token_id))


def _created(answer: CreateDelegationTokenResponse, renewers: tuple[str, ...]) -> DelegationToken:
    return DelegationToken(
        answer.token_id,
        bytes(answer.hmac),
        str(Principal(answer.principal_type, answer.principal_name)),
        str(Principal(answer.token_requester_principal_type, answer.token_requester_principal_name)),
        renewers,
        answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
    )


def _described(each: DescribeDelegationTokenResponse.DescribedDelegationToken) -> DelegationToken:
    return DelegationToken(
        each.token_id,
        bytes(each.hmac),
        str(Principal(each.principal_type, each.principal_name)),
        str(Principal(each.token_requester_principal_type, each.token_requester_principal_name)),
        tuple(str(Principal(renewer.principal_type, renewer.principal_name)) for renewer in each.renewers),
        each.issue_timestamp,
        each.expiry_timestamp,
        each.max_timestamp,
    )
