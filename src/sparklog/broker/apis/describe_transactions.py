"""DescribeTransactions: what the coordinator knows of some transactional ids.

An id that is named more than once is described once, as a group is by DescribeGroups.
"""

from __future__ import annotations

from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.structs import TopicPartition, by_topic

API = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS = range(0, 1)
_State = DescribeTransactionsResponse.TransactionState


def handle(
    broker: BrokerContext, request: ApiRequest[DescribeTransactionsRequest]
) -> Steps[DescribeTransactionsResponse]:
    states = yield from each_of(partial(_describe, broker), dict.fromkeys(request.message.transactional_ids))
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _describe(broker: BrokerContext, transactional_id: str) -> _State:
    error, found = broker.transactions.describe(transactional_id)
    if error is not ErrorCode.NONE or found is None:
        return _State(error_code=int(error), transactional_id=transactional_id, transaction_state="", topics=[])
    return _State(
        error_code=int(ErrorCode.NONE),
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=_topics(found.partitions),
    )


def _topics(partitions: frozenset[TopicPartition]) -> list[_State.TopicData]:
    topics = by_topic(sorted(partitions))
    return [_State.TopicData(topic=name, partitions=numbers) for name, numbers in topics.items()]
