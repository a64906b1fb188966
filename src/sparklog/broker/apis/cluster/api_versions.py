"""ApiVersions: what this broker speaks.

With it the cluster's features, which a client may count on beyond the versions of single APIs. A broker in
ZooKeeper mode cannot change the level of a feature while it runs (Kafka's UpdateFeatures), so the highest is in force.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

API = ApiKey.API_VERSIONS
VERSIONS = range(0, 5)


class _Feature(NamedTuple):
    """``level`` is in force, where this version of this API is offered; levels 0 (it is off) up to it are known."""

    name: str
    level: int
    api: ApiKey
    version: int


_FEATURES = (
    _Feature("group.version", 1, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0),
    _Feature("transaction.version", 2, ApiKey.END_TXN, 5),
)
"""``group.version`` 1: the consumer group protocol (KIP-848); ``transaction.version`` 2: an epoch a transaction, and
partitions that are added by their leaders (KIP-890). A client goes by these levels, not by the versions of the APIs."""
_FINALIZED_EPOCH = 0
"""How often a level has changed."""
_FIRST_VERSION_OF_LEVEL_0 = 4
"""Clients of older versions break on a feature whose lowest level is 0 (Kafka leaves them out there too)."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What a client may call itself and its version (Kafka 3.9, ``ApiVersionsRequest``)."""
_FIRST_VERSION_WITH_SOFTWARE = 3


def handle(broker: BrokerContext, request: ApiRequest[ApiVersionsRequest]) -> ApiVersionsResponse:
    if request.version >= _FIRST_VERSION_WITH_SOFTWARE and not _is_well_named(request.message):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[], throttle_time_ms=0)
    return response(broker.offered, ErrorCode.NONE, request.version)


def _is_well_named(message: ApiVersionsRequest) -> bool:
    names = (message.client_software_name, message.client_software_version)
    return all(_SOFTWARE.fullmatch(each) for each in names)


def response(offered: dict[ApiKey, range], error: ErrorCode, version: int) -> ApiVersionsResponse:
    """The ranges on offer; with UNSUPPORTED_VERSION too, so that the client can ask again in a version we share."""
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=api, min_version=versions.start, max_version=versions.stop - 1)
        for api, versions in sorted(offered.items())
    ]
    features = [each for each in _FEATURES if each.version in offered.get(each.api, ())]
    supported = [
        ApiVersionsResponse.SupportedFeatureKey(name=each.name, min_version=0, max_version=each.level)
        for each in (features if version >= _FIRST_VERSION_OF_LEVEL_0 else ())
    ]
    finalized = [
        ApiVersionsResponse.FinalizedFeatureKey(
            name=each.name, max_version_level=each.level, min_version_level=each.level
        )
        for each in features
    ]
    return ApiVersionsResponse(
        error_code=error,
        api_keys=keys,
        throttle_time_ms=0,
        supported_features=supported,
        finalized_features_epoch=_FINALIZED_EPOCH,
        finalized_features=finalized,
    )
