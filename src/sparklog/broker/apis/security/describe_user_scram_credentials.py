"""DescribeUserScramCredentials: for which mechanisms users have credentials, and of how many iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
from sparklog.security.access import Operation
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from sparklog.zk.entities import USERS, parts, user_entity

API = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
VERSIONS = range(0, 1)
_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Properties = Mapping[str, str] | None
"""A user's settings; None for those that cannot be read."""


async def handle(
    broker: BrokerContext, request: ApiRequest[DescribeUserScramCredentialsRequest]
) -> DescribeUserScramCredentialsResponse:
    names = [each.name for each in request.message.users or ()]
    code, text, results = ErrorCode.NONE, "", list[_Result]()
    try:
        check(broker, request, Operation.DESCRIBE)
        results = await (_of(broker, names) if names else _of_all(broker))
    except ApiError as error:
        code, text = error.code, error.reason
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=code, error_message=text, results=results
    )


async def _of_all(broker: BrokerContext) -> list[_Result]:
    """Of those that have credentials, sorted by name."""
    found = dict[str, _Result]()
    settings = await broker.run_zk(broker.zk.configs.of_kind, USERS)
    async for entity, properties in broker.turns.paced(settings.items()):
        (_, user), *below = parts(entity)
        if user is not None and not below and _has_credentials(properties):
            found[user] = _described(user, properties)
    return [found[user] for user in sorted(found)]


def _has_credentials(properties: Properties) -> bool:
    return properties is None or any(each.title in properties for each in ScramMechanism)


async def _of(broker: BrokerContext, names: list[str]) -> list[_Result]:
    """Of these users, each once, in the order in which they are named."""
    times = Counter(names)
    results = []
    async for user in broker.turns.paced(times):
        try:
            if user and times[user] > 1:
                raise ApiError(ErrorCode.DUPLICATE_RESOURCE, f"user {user!r} stands in the request more than once")
            results.append(_described(user, await _settings(broker, user)))
        except ApiError as error:
            results.append(_refused(user, error))
    return results


async def _settings(broker: BrokerContext, user: str) -> Mapping[str, str]:
    try:
        entity = user_entity(user)
    except ConfigError as error:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, str(error)) from error
    found: Mapping[str, str] = await broker.run_zk(broker.zk.configs.of, entity)
    if not _has_credentials(found):
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no SCRAM credentials")
    return found


def _described(user: str, properties: Properties) -> _Result:
    if properties is None:
        return _refused(user, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the user's znode is malformed"))
    try:
        infos = [
            _Result.CredentialInfo(
                mechanism=mechanism, iterations=ScramCredential.parse(properties[mechanism.title]).iterations
            )
            for mechanism in ScramMechanism
            if mechanism.title in properties
        ]
    except ConfigError as error:
        return _refused(user, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
    return _Result(user=user, error_code=ErrorCode.NONE, error_message="", credential_infos=infos)


def _refused(user: str, error: ApiError) -> _Result:
    return _Result(user=user, error_code=error.code, error_message=error.reason, credential_infos=[])
