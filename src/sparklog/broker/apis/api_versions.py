"""ApiVersions: what this broker speaks."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ApiVersionsResponse, Message

API = ApiKey.API_VERSIONS
VERSIONS = range(0, 5)


def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    return response(broker.offered, ErrorCode.NONE)


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
