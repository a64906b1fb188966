"""DescribeDelegationToken: the tokens that the caller may see, of all owners or of those that it names.

A token is seen by its owner, its renewers and its requester, and by a caller that may describe it, or its owner's
tokens. The answer has its HMAC, as Kafka's has: a user that may describe a token may use it.
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.token_requests import check_connection, enabled
from sparklog.broker.security.tokens import DelegationTokens
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.security.delegation.token import DelegationToken
from sparklog.security.principal import Principal

API = ApiKey.DESCRIBE_DELEGATION_TOKEN
VERSIONS = range(4)
Asked = ApiRequest[DescribeDelegationTokenRequest]
_Token = DescribeDelegationTokenResponse.DescribedDelegationToken


def handle(broker: BrokerContext, request: Asked) -> Steps[DescribeDelegationTokenResponse]:
    code, found = ErrorCode.NONE, list[_Token]()
    try:
        check_connection(request)
        tokens = enabled(broker)
        seen = each_of(_seen(broker, request, tokens), tokens.all)
        found = [each for each in (yield from seen) if each is not None]
    except ApiError as error:
        code = error.code
    return DescribeDelegationTokenResponse(error_code=code, tokens=found, throttle_time_ms=0)


def _seen(
    broker: BrokerContext, request: Asked, tokens: DelegationTokens
) -> Callable[[DelegationToken], _Token | None]:
    """Gives a token as the caller may see it; None where it may not, or has not asked for it."""
    named = request.message.owners
    owners = None if named is None else {Principal(each.principal_type, each.principal_name) for each in named}

    def seen(token: DelegationToken) -> _Token | None:
        is_asked = owners is None or any(map(token.concerns, owners))
        return _described(token, tokens) if is_asked and _may_see(broker, request, token) else None

    return seen


def _may_see(broker: BrokerContext, request: Asked, token: DelegationToken) -> bool:
    caller, allows = request.caller, broker.authorizer.allows_quietly
    return (
        token.concerns(caller.principal)
        or allows(caller, Operation.DESCRIBE, Resource(ResourceType.DELEGATION_TOKEN, token.id))
        or allows(caller, Operation.DESCRIBE_TOKENS, Resource(ResourceType.USER, str(token.owner)))
    )


def _described(token: DelegationToken, tokens: DelegationTokens) -> _Token:
    return _Token(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=tokens.key.hmac_of(token.id),
        renewers=[
            _Token.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in token.renewers
        ],
    )
