"""AlterUserScramCredentials: give users SCRAM credentials and take them away; answered by the controller, when they
are in ZooKeeper, and in force there.

All that is asked for one user is done together, or none of it; users are independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import chain

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.errors import ApiError, ConfigError, CoordinationError, ErrorCode
from sparklog.net.tasks import to_its_end
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from sparklog.security.access import Operation
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism, check_iterations
from sparklog.zk.entities import user_entity

API = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS = range(0, 1)
_KNOWN = frozenset(ScramMechanism)
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Change = _Deletion | _Upsertion
_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


async def handle(
    broker: BrokerContext, request: ApiRequest[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    asked = await _by_user(broker, request.message)
    try:
        if not broker.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        check(broker, request, Operation.ALTER)
        results = [
            await to_its_end(_altered(broker, request, *each)) async for each in broker.turns.paced(asked.items())
        ]
    except ApiError as error:
        results = [_result(each, error) async for each in broker.turns.paced(sorted(asked))]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


async def _by_user(broker: BrokerContext, message: AlterUserScramCredentialsRequest) -> dict[str, list[_Change]]:
    """What is asked for each user, deletions first."""
    asked = dict[str, list[_Change]]()
    async for each in broker.turns.paced(chain[_Change](message.deletions, message.upsertions)):
        asked.setdefault(each.name, []).append(each)
    return asked


async def _altered(
    broker: BrokerContext,
    request: ApiRequest[AlterUserScramCredentialsRequest],
    user: str,
    asked: list[_Change],
) -> _Result:
    """Change one user's credentials, all or none; the audit log has what was changed, though the client has hung up."""
    try:
        entity, settings = await _checked(broker, user, asked)

        def change(stored: dict[str, str]) -> dict[str, str]:
            if any(text is None and name not in stored for name, text in settings.items()):
                raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no such credential")
            return {name: text for name, text in {**stored, **settings}.items() if text is not None}

        await broker.run_zk(broker.zk.configs.change, entity, change)
    except ApiError as error:
        return _result(user, error)
    if broker.acls is not None:
        for what, is_gone in (("removed", True), ("set", False)):
            told = [f"{name} of User:{user}" for name, text in settings.items() if (text is None) == is_gone]
            broker.acls.audit.administered(request.caller, what, told)
    with suppress(CoordinationError):  # it is stored; this broker will follow as the others do
        await broker.settings.take_over(entity)
    return _Result(user=user, error_code=ErrorCode.NONE, error_message="")


async def _checked(broker: BrokerContext, user: str, asked: list[_Change]) -> tuple[str, Mapping[str, str | None]]:
    """The user's entity, and its settings with the credentials asked for. Raises ApiError with the last complaint."""
    try:
        entity = user_entity(user)
    except ConfigError as error:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from error
    complaints = [each async for each in broker.turns.paced(map(_complaint, asked)) if each is not None]
    if complaints:
        raise complaints[-1]
    if len({each.mechanism for each in asked}) < len(asked):
        raise ApiError(ErrorCode.DUPLICATE_RESOURCE, f"a credential of user {user!r} stands in the request twice")
    return entity, {ScramMechanism(each.mechanism).title: _text(each) for each in asked}


def _complaint(asked: _Change) -> ApiError | None:
    if asked.mechanism not in _KNOWN:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {asked.mechanism}")
    if isinstance(asked, _Deletion):
        return None
    try:
        check_iterations(asked.iterations)
    except ConfigError as error:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error))
    if not asked.salted_password:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a salted password must not be empty")
    return None


def _text(asked: _Change) -> str | None:
    """The credential as it is stored; None to take it away."""
    if isinstance(asked, _Deletion):
        return None
    salted, salt = bytes(asked.salted_password), bytes(asked.salt)
    return ScramCredential.of_salted(ScramMechanism(asked.mechanism), salted, salt, asked.iterations).format()


def _result(user: str, error: ApiError) -> _Result:
    return _Result(user=user, error_code=error.code, error_message=error.reason)
