"""AllocateProducerIds: the controller gives another broker a block of producer ids.

Kafka's brokers ask for theirs (from ``inter.broker.protocol.version`` 3.0 on). Ours take them from ZooKeeper by
themselves, from the same znode, conditional on its version: nobody gets a block twice.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.broker.txn.producer_ids import BLOCK_SIZE
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from sparklog.security.access import Operation

API = ApiKey.ALLOCATE_PRODUCER_IDS
VERSIONS = range(0, 1)


async def handle(broker: BrokerContext, request: ApiRequest[AllocateProducerIdsRequest]) -> AllocateProducerIdsResponse:
    asking = request.message.broker_id
    try:
        check(broker, request, Operation.CLUSTER_ACTION)
        broker.controller.check_broker(asking, request.message.broker_epoch)
        block = await broker.run_zk(broker.zk.producer_ids.take, asking, BLOCK_SIZE)
    except ApiError as error:
        return AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=error.code, producer_id_start=-1, producer_id_len=0
        )
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id_start=block.start, producer_id_len=len(block)
    )
