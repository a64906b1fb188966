"""DescribeTransactions: what the coordinator knows of some transactional ids.

An id that is named more than once is described once, as a group is by DescribeGroups.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, refusal
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import TopicPartition, by_topic

API = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS = range(0, 1)
_State = DescribeTransactionsResponse.TransactionState


def handle(
    broker: BrokerContext, request: ApiRequest[DescribeTransactionsRequest]
) -> Steps[DescribeTransactionsResponse]:
    topics = Rights(broker, request, Operation.DESCRIBE, quietly=True)
    states = yield from each_of(
        partial(_describe, broker, request, topics), dict.fromkeys(request.message.transactional_ids)
    )
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _describe(
    broker: BrokerContext, request: ApiRequest[DescribeTransactionsRequest], topics: Rights, transactional_id: str
) -> _State:
    resource = Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
    refused = refusal(broker, request, Operation.DESCRIBE, resource)
    if refused is not ErrorCode.NONE:
        return _without_topics(transactional_id, refused)
    error, found = broker.transactions.describe(transactional_id)
    if error is not ErrorCode.NONE or found is None:
        return _without_topics(transactional_id, error)
    return _State(
        error_code=int(ErrorCode.NONE),
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=_topics(tp for tp in found.partitions if topics.allows(tp.topic)),
    )


def _without_topics(transactional_id: str, code: ErrorCode) -> _State:
    return _State(error_code=int(code), transactional_id=transactional_id, transaction_state="", topics=[])


def _topics(partitions: Iterable[TopicPartition]) -> list[_State.TopicData]:
    topics = by_topic(sorted(partitions))
    return [_State.TopicData(topic=name, partitions=numbers) for name, numbers in topics.items()]
