"""CreateDelegationToken: a token for the caller or for another user, in ZooKeeper and good here when it is answered."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.broker.handling.token_requests import NEVER, check_connection, enabled, told
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.tasks import to_its_end
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.security.delegation.token import DelegationToken
from sparklog.security.principal import USER, Principal

API = ApiKey.CREATE_DELEGATION_TOKEN
VERSIONS = range(4)
Asked = ApiRequest[CreateDelegationTokenRequest]


async def handle(broker: BrokerContext, request: Asked) -> CreateDelegationTokenResponse:
    requester, owner = request.caller.principal, _owner(request)
    none = DelegationToken("", owner, requester, (), NEVER, NEVER, NEVER)
    try:
        token = await _create(broker, request, owner)
    except ApiError as error:
        return _answer(none, b"", error.code)
    return _answer(token, enabled(broker).key.hmac_of(token.id), ErrorCode.NONE)


def _owner(request: Asked) -> Principal:
    message = request.message
    if not message.owner_principal_name:
        return request.caller.principal
    return Principal(message.owner_principal_type or "", message.owner_principal_name)


async def _create(broker: BrokerContext, request: Asked, owner: Principal) -> DelegationToken:
    """Raises ApiError."""
    check_connection(request)
    if owner != request.caller.principal:
        check(broker, request, Operation.CREATE_TOKENS, Resource(ResourceType.USER, str(owner)))
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.message.renewers]
    if not owner.kind or any(each.kind != USER for each in renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, f"renewers are of the kind {USER}, and an owner has a kind")
    tokens = enabled(broker)

    async def create() -> DelegationToken:
        with told():
            token = await tokens.create(owner, request.caller.principal, renewers, request.message.max_lifetime_ms)
        tokens.audit.administered(request.caller, "created", [token])
        return token

    return await to_its_end(create())  # what is created is in the audit log, though the client has hung up


def _answer(token: DelegationToken, token_hmac: bytes, code: ErrorCode) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.id,
        hmac=token_hmac,
        throttle_time_ms=0,
    )
