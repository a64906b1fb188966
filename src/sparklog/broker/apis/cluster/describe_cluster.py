"""DescribeCluster: the brokers and the controller."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import authorized_on_cluster
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeClusterRequest, DescribeClusterResponse

API = ApiKey.DESCRIBE_CLUSTER
VERSIONS = range(0, 3)
_BROKERS = 1


def handle(broker: BrokerContext, request: ApiRequest[DescribeClusterRequest]) -> DescribeClusterResponse:
    cache = broker.metadata
    known = request.message.endpoint_type in (_BROKERS, None)
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST,
        error_message=None if known else "only brokers can be described; there is no controller quorum",
        endpoint_type=_BROKERS,
        cluster_id=broker.cluster_id,
        authorized_operations=authorized_on_cluster(
            broker, request, asked=request.message.include_cluster_authorized_operations
        ),
        controller_id=cache.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=info.id, host=endpoint.host, port=endpoint.port, rack=info.rack, is_fenced=False
            )
            for info, endpoint in cache.on(request.caller.listener)
        ],
    )
