"""Whether a transaction may begin in a partition: asked of its coordinator in the turn in which it begins."""

from __future__ import annotations

from sparklog.broker.context import BrokerContext
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.origin import Verification
from sparklog.structs import TopicPartition
from sparklog.txn.state import Producer

_TO_PRODUCE = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""Where the answer is not final the producer is told something that it tries again after, as in Kafka."""


def of(broker: BrokerContext, transactional_id: str, tp: TopicPartition) -> Verification:
    """For one partition of one Produce request."""

    def verify(producer_id: int, epoch: int) -> None:
        code = broker.transactions.verify(transactional_id, Producer(producer_id, epoch), tp)
        if code is not ErrorCode.NONE:
            raise ApiError(
                _TO_PRODUCE.get(code, code), f"{tp} is not part of a transaction of {transactional_id!r}: {code.name}"
            )

    return verify
