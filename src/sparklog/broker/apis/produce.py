"""Produce: append to the partitions that this broker leads; answered when ``acks`` says so.

acks=0: never answered; a connection whose batch is refused is closed, which is all a client can be told.
acks=1: once the leader has it in its page cache. acks=all (-1): once every in-sync replica has it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from sparklog.broker import txn_verification
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ApiError, ErrorCode, RecordsRefused, RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce as wire
from sparklog.protocol.hot.produce import ProduceRequest, ProduceResult
from sparklog.structs import Chunk, TopicPartition

API = ApiKey.PRODUCE
VERSIONS = range(wire.MIN_VERSION, wire.MAX_VERSION + 1)
_ACKS_ALL = -1
_BAD_RECORDS = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE})
"""Refusals that speak of a broken or misconfigured producer, which the operator wants to know of too."""
_logger = logging.getLogger(__name__)

Results = dict[TopicPartition, ProduceResult]

decode = wire.decode_request


def encode(results: Results | None, version: int) -> list[Chunk] | None:
    return None if results is None else wire.encode_response(results, version)


def handle(broker: BrokerContext, request: ApiRequest) -> Results | Awaitable[Results] | None:
    message: ProduceRequest = request.message
    if message.acks not in (-1, 0, 1):
        return {tp: ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS) for tp, _ in message.records}
    results: Results = {}
    for tp, records in message.records:
        result = results[tp] = _append(broker, tp, records, message)
        if result.error in _BAD_RECORDS:
            _logger.warning("refused a batch of client %r for %s: %s", request.client_id, tp, result.message)
    if message.acks == 0:
        _hang_up_on_errors(results)
        return None
    if message.acks == _ACKS_ALL:
        waiting = {tp: ends for tp, result in results.items() if (ends := _uncommitted(broker, tp, result)) is not None}
        if waiting:
            return _await_replicas(broker, results, waiting, message.timeout_ms)
    return results


def _append(
    broker: BrokerContext, tp: TopicPartition, records: memoryview | None, message: ProduceRequest
) -> ProduceResult:
    if records is None:
        return ProduceResult(ErrorCode.INVALID_REQUEST, message="a partition without records")
    transactional_id = message.transactional_id
    verification = None if transactional_id is None else txn_verification.of(broker, transactional_id, tp)
    try:
        appended = broker.replicas.append(tp, records, message.acks, verification=verification)
    except ApiError as error:
        refused = error.records if isinstance(error, RecordsRefused) else ()
        return ProduceResult(error.code, message=error.reason, refused_records=refused)
    log_start = broker.replicas.partition(tp).log.log_start_offset
    return ProduceResult(ErrorCode.NONE, appended.first_offset, appended.log_append_time, log_start)


def _hang_up_on_errors(results: Results) -> None:
    for tp, result in results.items():
        if result.error is not ErrorCode.NONE:
            raise RemoteProtocolError(f"produce with acks=0 to {tp} failed: {result.error.name} {result.message or ''}")


def _uncommitted(broker: BrokerContext, tp: TopicPartition, result: ProduceResult) -> int | None:
    """The end offset that the high watermark has yet to reach; None if there is nothing to wait for."""
    if result.error is not ErrorCode.NONE:
        return None
    partition = broker.replicas.partition(tp)
    end = partition.log.log_end_offset
    return end if partition.high_watermark.offset < end else None


async def _await_replicas(
    broker: BrokerContext, results: Results, ends: dict[TopicPartition, int], timeout_ms: int
) -> Results:
    def settled() -> bool:
        return all(_is_settled(broker, tp, end) for tp, end in ends.items())

    await broker.replicas.produce_purgatory.wait(ends, settled, timeout_ms)
    for tp, end in ends.items():
        if not broker.replicas.leads(tp):
            results[tp] = ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, message="leadership moved before the commit")
        elif broker.replicas.partition(tp).high_watermark.offset < end:
            results[tp] = ProduceResult(ErrorCode.REQUEST_TIMED_OUT, message="not every in-sync replica has it yet")
    return results


def _is_settled(broker: BrokerContext, tp: TopicPartition, end: int) -> bool:
    return not broker.replicas.leads(tp) or broker.replicas.partition(tp).high_watermark.offset >= end
