"""UpdateMetadata: the controller's picture of the cluster, to be told to clients."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message, UpdateMetadataResponse

API = ApiKey.UPDATE_METADATA
VERSIONS = range(7, 8)


def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    code = broker.fence.check(request.message)
    if code is ErrorCode.NONE:
        deleted = broker.metadata.update(request.message)
        if deleted:
            broker.groups.forget_topics(deleted)
    return UpdateMetadataResponse(error_code=code)
