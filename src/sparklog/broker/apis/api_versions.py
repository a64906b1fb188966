"""ApiVersions: what this broker speaks, and which features are in force."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.features import EPOCH, FEATURES
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ApiVersionsResponse, Message

API = ApiKey.API_VERSIONS
VERSIONS = range(0, 5)
_FIRST_VERSION_WITH_LEVEL_0 = 4
"""Older clients refuse a feature whose lowest level is 0."""


def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    answer = response(broker.offered, ErrorCode.NONE)
    from_zero = request.version >= _FIRST_VERSION_WITH_LEVEL_0
    answer.supported_features = [
        ApiVersionsResponse.SupportedFeatureKey(name=each.name, min_version=each.lowest, max_version=each.level)
        for each in FEATURES
        if each.lowest or from_zero
    ]
    answer.finalized_features_epoch = EPOCH
    answer.finalized_features = [
        ApiVersionsResponse.FinalizedFeatureKey(
            name=each.name, max_version_level=each.level, min_version_level=each.level
        )
        for each in FEATURES
    ]
    return answer


def response(offered: dict[ApiKey, range], error: ErrorCode) -> Message:
    """The ranges on offer; with UNSUPPORTED_VERSION too, so that the client can ask again in a version we share."""
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=api, min_version=versions.start, max_version=versions.stop - 1)
        for api, versions in sorted(offered.items())
    ]
    return ApiVersionsResponse(
        error_code=error,
        api_keys=keys,
        throttle_time_ms=0,
        supported_features=[],
        finalized_features_epoch=-1,
        finalized_features=[],
    )
