"""ControlledShutdown: a broker is about to stop, and the controller lets others lead what it leads."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ControlledShutdownRequest, ControlledShutdownResponse
from sparklog.security.access import Operation

API = ApiKey.CONTROLLED_SHUTDOWN
VERSIONS = range(3, 4)
_Remaining = ControlledShutdownResponse.RemainingPartition


async def handle(broker: BrokerContext, request: ApiRequest[ControlledShutdownRequest]) -> ControlledShutdownResponse:
    message = request.message
    try:
        check(broker, request, Operation.CLUSTER_ACTION)
        left = await broker.controller.let_go(message.broker_id, message.broker_epoch)
    except ApiError as error:
        return ControlledShutdownResponse(error_code=error.code, remaining_partitions=[])
    remaining = [_Remaining(topic_name=tp.topic, partition_index=tp.partition) for tp in left]
    return ControlledShutdownResponse(error_code=ErrorCode.NONE, remaining_partitions=remaining)
