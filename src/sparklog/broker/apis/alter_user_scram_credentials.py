"""AlterUserScramCredentials: give users SCRAM credentials and take them away; answered by the controller, when they
are in ZooKeeper, and in force there.

All that is asked for one user is done together, or none of it; users are independent of each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from sparklog.broker.authorization import check
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ApiError, ConfigError, CoordinationError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from sparklog.security.access import Operation
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism, check_iterations
from sparklog.zk.entities import user_entity

API = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS = range(0, 1)
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


class _Asked(NamedTuple):
    """One credential of a user; without an upsertion it is to be deleted."""

    mechanism: int
    upsertion: _Upsertion | None


async def handle(
    broker: BrokerContext, request: ApiRequest[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    asked = _by_user(request.message)
    outcomes = dict[str, ApiError | None]()
    try:
        if not broker.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        check(broker, request, Operation.ALTER)
        async for user, changes in broker.turns.paced(asked.items()):
            outcomes[user] = await _altered(broker, request, user, changes)
    except ApiError as error:
        outcomes = dict.fromkeys(sorted(asked), error)
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0, results=[_result(user, error) for user, error in outcomes.items()]
    )


def _by_user(message: AlterUserScramCredentialsRequest) -> dict[str, list[_Asked]]:
    asked = dict[str, list[_Asked]]()
    for deletion in message.deletions:
        asked.setdefault(deletion.name, []).append(_Asked(deletion.mechanism, None))
    for upsertion in message.upsertions:
        asked.setdefault(upsertion.name, []).append(_Asked(upsertion.mechanism, upsertion))
    return asked


async def _altered(
    broker: BrokerContext,
    request: ApiRequest[AlterUserScramCredentialsRequest],
    user: str,
    asked: list[_Asked],
) -> ApiError | None:
    """Change one user's credentials; why not, where they stay as they are."""
    try:
        entity, settings = _checked(user, asked)

        def change(stored: dict[str, str]) -> dict[str, str]:
            if any(text is None and name not in stored for name, text in settings.items()):
                raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no such credential")
            return {name: text for name, text in {**stored, **settings}.items() if text is not None}

        await broker.run_zk(broker.zk.change_config, entity, change)
    except ApiError as error:
        return error
    with suppress(CoordinationError):  # it is stored; this broker will follow as the others do
        await broker.settings.take_over(entity)
    if broker.acls is not None:
        for what, is_gone in (("removed", True), ("set", False)):
            told = [f"{name} of User:{user}" for name, text in settings.items() if (text is None) == is_gone]
            broker.acls.audit.administered(request.caller, what, told)
    return None


def _checked(user: str, asked: list[_Asked]) -> tuple[str, Mapping[str, str | None]]:
    """The user's entity, and its settings with the credentials asked for. Raises ApiError with the last complaint."""
    try:
        entity = user_entity(user)
    except ConfigError as error:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from error
    complaints = [complaint for each in asked if (complaint := _complaint(each))]
    if complaints:
        raise complaints[-1]
    if max(Counter(each.mechanism for each in asked).values()) > 1:
        raise ApiError(ErrorCode.DUPLICATE_RESOURCE, f"a credential of user {user!r} stands in the request twice")
    return entity, {ScramMechanism(each.mechanism).title: _text(each) for each in asked}


def _complaint(asked: _Asked) -> ApiError | None:
    if asked.mechanism not in tuple(ScramMechanism):
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {asked.mechanism}")
    try:
        if asked.upsertion is not None:
            check_iterations(asked.upsertion.iterations)
            if not asked.upsertion.salted_password:
                raise ConfigError("a salted password must not be empty")
    except ConfigError as error:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error))
    return None


def _text(asked: _Asked) -> str | None:
    wanted = asked.upsertion
    if wanted is None:
        return None
    salted, salt = bytes(wanted.salted_password), bytes(wanted.salt)
    return ScramCredential.of_salted(ScramMechanism(asked.mechanism), salted, salt, wanted.iterations).format()


def _result(user: str, error: ApiError | None) -> _Result:
    if error is None:
        return _Result(user=user, error_code=ErrorCode.NONE, error_message=None)
    return _Result(user=user, error_code=error.code, error_message=error.reason)
