"""Produce: append to the partitions that this broker leads; answered when ``acks`` says so.

acks=0: never answered; a connection whose batch is refused is closed, which is all a client can be told.
acks=1: once the leader has it in its page cache. acks=all (-1): once every in-sync replica has it. Neither before it is
on the leader's disk where ``flush.messages`` wants it there.
A batch that takes long to look into is looked into off the loop (``broker/preparation.py``), and what clients from
before Kafka 0.11 send is made a batch there. A request of many partitions keeps its place in the same way, and is
appended ``SLICE`` of them a step.
A batch that begins its transaction in a partition waits for the transaction's coordinator to count the partition in.
What comes behind on the same connection sees what was acknowledged: a Produce is appended after it, and other requests
begin only when there is an answer.
What the caller may not write to is refused first, and goes no further than here.
A partition that a request names twice is refused, for an answer has room for one result of each: nothing is stored of
either batch. (Kafka 3.9 stores the last one and forgets the others without a word.)
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, is_open, refusal
from sparklog.broker.preparation import Prepared
from sparklog.broker.sent_records import FIRST_VERSION_OF_BATCHES, FIRST_VERSION_WITH_ZSTD, fault_of
from sparklog.broker.txn.entry import Permits
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, RecordsRefused, RefusedUnseen, RemoteProtocolError
from sparklog.log.origin import Verification
from sparklog.log.validator import PreparedBatch
from sparklog.net.answer import Ordered
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce as wire
from sparklog.protocol.hot.produce import ProduceRequest, ProduceResult
from sparklog.protocol.slices import LARGE_ANSWER, SLICE, Steps, sliced
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.replica.partition import Partition
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import INTERNAL_TOPICS, Chunk, TopicPartition
from sparklog.txn.state import ClientVersion, Producer

API = ApiKey.PRODUCE
VERSIONS = range(wire.MIN_VERSION, wire.MAX_VERSION + 1)
_ACKS_ALL = -1
_BAD_RECORDS = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Refusals that speak of a broken or misconfigured producer, which the operator wants to know of too."""
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_ADMIN_CLIENT_ID = "__admin_client"
"""A client of this name may write to the brokers' own topics where these are not protected, as in Kafka
(``KafkaApis.handleProduceRequest``): anybody can call itself so."""
_FIRST_VERSION_TO_ADD_PARTITIONS = 12
_FIRST_VERSION_TO_KNOW_ABORTABLE = 11
_TO_PRODUCE = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorCode.NOT_ENOUGH_REPLICAS,  # it has yet to hear of another partition
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
}
"""Where the coordinator's answer is not final the producer is told something that it tries again after, as in Kafka."""
_WITHOUT_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals that do not say where the partition begins, as in Kafka (``ReplicaManager.appendToLocalLog``)."""
_logger = logging.getLogger(__name__)

_UNPREPARED: Prepared = {}
Results = dict[TopicPartition, ProduceResult]
Uncommitted = dict[TopicPartition, tuple[Partition, int, int]]
"""What waits for replicas: the partition to which it was appended, under which leader epoch, and up to which end."""
Answer = Results | asyncio.Future[Results] | None
"""Of a request that is appended; a future where it is to wait for replicas or the disk."""

decode = wire.decode_request


def decoding(body: memoryview, version: int) -> ProduceRequest | Steps[ProduceRequest]:
    """The request; in steps where it names many partitions, which does not show in its size."""
    return wire.decode_if_few(body, version, SLICE) or wire.decoding_request(body, version)


def encode(results: Results | None, version: int, throttle_ms: int = 0) -> list[Chunk] | Steps[list[Chunk]] | None:
    if results is not None and len(results) > LARGE_ANSWER:
        return wire.encoding_response(results, version, throttle_ms)
    return None if results is None else wire.encode_response(results, version, throttle_ms)


def handle(
    broker: BrokerContext, request: ApiRequest[ProduceRequest]
) -> Results | Ordered[Results | None] | Steps[Results | Ordered[Results | None] | None] | None:
    if is_open(broker):
        return _handle(broker, request, {})
    if len(request.message.records) > SLICE:
        return _handle_many(broker, request)
    return _handle(broker, *_authorized(broker, request))


def _handle_many(
    broker: BrokerContext, request: ApiRequest[ProduceRequest]
) -> Steps[Results | Ordered[Results | None] | None]:
    """To ask for rights takes some µs a topic: a slice a step."""
    rights = Rights(broker, request, Operation.WRITE)
    for some in sliced(request.message.records):
        for tp, _ in some:
            rights.allows(tp.topic)
        yield
    return _handle(broker, *_authorized(broker, request, rights))


def _handle(
    broker: BrokerContext, request: ApiRequest[ProduceRequest], refused: Results
) -> Results | Ordered[Results | None] | None:
    message: ProduceRequest = request.message
    if message.acks not in (-1, 0, 1):
        return refused | {tp: ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS) for tp, _ in message.records}
    results = refused | _refused_unseen(message.records)
    are_sets = request.version < FIRST_VERSION_OF_BATCHES
    if are_sets or broker.preparation.is_needed(message.records, request.after):
        append = partial(_append_prepared, broker, request, results)
        answered = message.acks != 0
        return _ordered(
            broker.preparation.append_in_order(
                message.records, append, request.after, answered=answered, are_sets=are_sets
            )
        )
    transactional_id = _to_ask(broker, request)
    if transactional_id:
        appending = _append_in_turn(broker, request, results, transactional_id, _UNPREPARED)
        timed = broker.turns.timed(appending, lambda: f"a Produce of {transactional_id!r}")
        return _ordered(asyncio.ensure_future(timed))
    answer = _answer(broker, request, _append_all(broker, request, results, None, _UNPREPARED))
    return _awaited(broker, answer) if isinstance(answer, Coroutine) else answer


def _authorized(
    broker: BrokerContext, request: ApiRequest[ProduceRequest], known: Rights | None = None
) -> tuple[ApiRequest[ProduceRequest], Results]:
    """The request with what the caller may write only, and what is answered to the rest. What is ``known`` of it is not
    asked again.
    """
    message: ProduceRequest = request.message
    code = _refusal_of_transaction(broker, request)
    if code is not ErrorCode.NONE:
        why = "records of a transaction need WRITE on its transactional id"
        nothing = request._replace(message=message._replace(records=[]))
        return nothing, {tp: ProduceResult(code, message=why) for tp, _ in message.records}
    rights = known or Rights(broker, request, Operation.WRITE)
    result = ProduceResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    refused: Results = {tp: result for tp, _ in message.records if not rights.allows(tp.topic)}
    if refused:
        allowed = [each for each in message.records if each[0] not in refused]
        request = request._replace(message=message._replace(records=allowed))
    return request, refused


def _refusal_of_transaction(broker: BrokerContext, request: ApiRequest[ProduceRequest]) -> ErrorCode:
    """Of a request without transactional records nothing is asked, whatever id it bears, as in Kafka."""
    message: ProduceRequest = request.message
    if not any(_is_transactional(records) for _, records in message.records):
        return ErrorCode.NONE
    if message.transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    resource = Resource(ResourceType.TRANSACTIONAL_ID, message.transactional_id)
    return refusal(broker, request, Operation.WRITE, resource)


def _is_transactional(records: memoryview | None) -> bool:
    if records is None or len(records) < layout.HEADER_SIZE or records[layout.MAGIC] != layout.MAGIC_V2:
        return False
    return bool(records[layout.ATTRIBUTES + 1] & layout.TRANSACTIONAL_BIT)


def _awaited(broker: BrokerContext, answer: Coroutine[Any, Any, Results]) -> Ordered[Results | None]:
    """The answer to a request that is appended, and waits for replicas or the disk."""
    waiting: asyncio.Future[Any] = asyncio.ensure_future(
        broker.turns.timed(answer, lambda: "a Produce that waits for replicas or the disk")
    )
    return Ordered(waiting)


def _ordered(appending: asyncio.Future[Answer]) -> Ordered[Results | None]:
    """The answer to a request that is appended later."""
    return Ordered(asyncio.ensure_future(_finish(appending)), appending)


async def _finish(appending: asyncio.Future[Answer]) -> Results | None:
    answer = await appending
    return await answer if isinstance(answer, asyncio.Future) else answer


def _to_ask(broker: BrokerContext, request: ApiRequest[ProduceRequest]) -> str | None:
    """The transactional id whose coordinator is to be asked first."""
    transactional_id: str | None = request.message.transactional_id
    if transactional_id and broker.txn_entry.must_ask(transactional_id, _client_version(request)):
        return transactional_id
    return None


async def _append_prepared(
    broker: BrokerContext, request: ApiRequest[ProduceRequest], results: Results, prepared: Prepared
) -> Answer:
    transactional_id = _to_ask(broker, request)
    if transactional_id:
        return await _append_in_turn(broker, request, results, transactional_id, prepared)
    ends = await _append_paced(broker, request, results, None, prepared)
    return _begun(_answer(broker, request, results, ends))


def _begun(answer: Results | Coroutine[Any, Any, Results] | None) -> Answer:
    return asyncio.ensure_future(answer) if isinstance(answer, Coroutine) else answer


async def _append_in_turn(
    broker: BrokerContext,
    request: ApiRequest[ProduceRequest],
    results: Results,
    transactional_id: str,
    prepared: Prepared,
) -> Answer:
    """As ``handle``, where a transaction may have to be begun first: not before the requests that came earlier."""
    async with broker.txn_entry.turn(transactional_id):
        entering: dict[Producer, list[TopicPartition]] = {}
        async for tp, records in broker.turns.paced(request.message.records):
            producer = _producer_of(records)
            if producer is not None and not broker.txn_entry.has_entered(tp, producer):
                entering.setdefault(producer, []).append(tp)
        permits: Permits = {}
        for producer, partitions in entering.items():
            permits |= await broker.txn_entry.ask(transactional_id, producer, partitions, _client_version(request))
        ends = await _append_paced(broker, request, results, permits, prepared)
    return _begun(_answer(broker, request, results, ends))


def _client_version(request: ApiRequest[ProduceRequest]) -> ClientVersion:
    adds = request.version >= _FIRST_VERSION_TO_ADD_PARTITIONS
    return ClientVersion.EPOCH_A_TRANSACTION if adds else ClientVersion.CLASSIC


def _producer_of(records: memoryview | None) -> Producer | None:
    """Whose transaction the batch belongs to; None if it is none, or no batch."""
    try:
        batch = RecordBatch(records) if records is not None else None
    except CorruptRecord:
        return None
    if batch is None or not batch.is_transactional:
        return None
    return Producer(batch.producer_id, batch.producer_epoch)


def _append_all(
    broker: BrokerContext,
    request: ApiRequest[ProduceRequest],
    results: Results,
    permits: Permits | None,
    prepared: Prepared,
) -> Results:
    _append_some(broker, request, permits, prepared, range(len(request.message.records)), results)
    return results


async def _append_paced(
    broker: BrokerContext,
    request: ApiRequest[ProduceRequest],
    results: Results,
    permits: Permits | None,
    prepared: Prepared,
) -> Uncommitted | None:
    """``_append_all``; one of many partitions in steps. What the steps appended is still to be committed under the
    leader epochs of then; None where all was appended in this turn of the loop.
    """
    if len(request.message.records) <= SLICE:
        _append_all(broker, request, results, permits, prepared)
        return None
    return await broker.turns.drive(
        _appending(broker, request, results, permits, prepared), lambda: f"a large Produce of {request.client_id!r}"
    )


def _appending(
    broker: BrokerContext,
    request: ApiRequest[ProduceRequest],
    results: Results,
    permits: Permits | None,
    prepared: Prepared,
) -> Steps[Uncommitted]:
    ends: Uncommitted = {}
    for numbers in sliced(list(range(len(request.message.records)))):
        yield
        _append_some(broker, request, permits, prepared, numbers, results)
        if request.message.acks == _ACKS_ALL:
            appended = {tp: results[tp] for tp, _ in (request.message.records[number] for number in numbers)}
            ends |= _uncommitted_of(broker, request.caller.listener, appended)
    return ends


def _refused_unseen(named: Sequence[tuple[TopicPartition, memoryview | None]]) -> Results:
    """What is answered to those that are named twice."""
    if len(named) > 1 and len({tp for tp, _ in named}) < len(named):
        return _named_twice(tp for tp, _ in named)
    return {}


def _append_some(
    broker: BrokerContext,
    request: ApiRequest[ProduceRequest],
    permits: Permits | None,
    prepared: Prepared,
    numbers: Sequence[int],
    results: Results,
) -> None:
    """Append those of the request's batches, unless there is a result already."""
    for number in numbers:
        tp, records = request.message.records[number]
        if tp in results:  # it is named twice
            continue
        result = results[tp] = _append(broker, tp, records, request, permits, prepared.get(number))
        if result.error in _BAD_RECORDS:
            if result.error in _TOO_LARGE and records is not None:
                broker.replicas.traffic.reject(tp.topic, len(records))
            _logger.warning("refused a batch of client %r for %s: %s", request.client_id, tp, result.message)


def _named_twice(named: Iterable[TopicPartition]) -> Results:
    refused = ProduceResult(ErrorCode.INVALID_REQUEST, message="the request names the partition twice; name it once")
    return {tp: refused for tp, times in Counter(named).items() if times > 1}


def _answer(
    broker: BrokerContext, request: ApiRequest[ProduceRequest], results: Results, ends: Uncommitted | None = None
) -> Results | Coroutine[Any, Any, Results] | None:
    """Without ``ends`` all was appended in this turn of the loop."""
    message: ProduceRequest = request.message
    listener = request.caller.listener
    if message.acks == 0:
        _hang_up_on_errors(results)
        return None
    unflushed: dict[TopicPartition, int] = {}
    if broker.replicas.flushing:
        unflushed = _still_to_come(broker, listener, results, _unflushed)
    if ends is None:
        ends = _uncommitted_of(broker, listener, results) if message.acks == _ACKS_ALL else {}
    if unflushed:
        return _await_flush(broker, listener, results, unflushed, ends, message.timeout_ms)
    return _await_replicas(broker, listener, results, ends, message.timeout_ms) if ends else results


def _may_write_internal(broker: BrokerContext, request: ApiRequest[ProduceRequest]) -> bool:
    return request.client_id == _ADMIN_CLIENT_ID and not broker.config.internal_topics_protect


def _is_known(broker: BrokerContext, tp: TopicPartition) -> bool:
    """A broker leads before it is told of all that there is: at its start, and where a topic is made."""
    return broker.metadata.knows(tp) or broker.replicas.leads(tp)


def _append(
    broker: BrokerContext,
    tp: TopicPartition,
    records: memoryview | None,
    request: ApiRequest[ProduceRequest],
    permits: Permits | None,
    prepared: PreparedBatch | ApiError | None,
) -> ProduceResult:
    message: ProduceRequest = request.message
    if records is None:
        return ProduceResult(ErrorCode.INVALID_REQUEST, message="a partition without records")
    if request.version < FIRST_VERSION_WITH_ZSTD and (fault := _fault(broker, tp, records, request.version)):
        return _refused(broker, request.caller.listener, tp, fault)
    if tp.topic in INTERNAL_TOPICS and not _may_write_internal(broker, request) and _is_known(broker, tp):
        refused = RefusedUnseen(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp.topic} is written by brokers alone")
        return _refused(broker, request.caller.listener, tp, refused)
    if isinstance(prepared, ApiError):
        return _refused_by_log(broker, tp, records, request, prepared)
    if prepared is None and request.version < FIRST_VERSION_OF_BATCHES and broker.replicas.leads(tp):
        late = RefusedUnseen(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was not led here when its message set was converted")
        return _refused(broker, request.caller.listener, tp, late)
    verification = _verification(broker, tp, request, permits)
    try:
        appended = broker.replicas.append(tp, prepared or records, message.acks, verification=verification)
    except ApiError as error:
        return _refused_by_log(broker, tp, records, request, error)
    if prepared is not None and records[layout.MAGIC] < layout.MAGIC_V2:
        broker.replicas.traffic.convert(tp.topic, prepared.batch.record_count, is_fetch=False)
    return ProduceResult(ErrorCode.NONE, appended.first_offset, appended.log_append_time, appended.log_start_offset)


def _refused_by_log(
    broker: BrokerContext,
    tp: TopicPartition,
    records: memoryview,
    request: ApiRequest[ProduceRequest],
    error: ApiError,
) -> ProduceResult:
    """A function of its own: a caller that kept the error that it caught would be kept by it, with the whole request,
    until the next look for cyclic garbage.
    """
    return _refused(broker, request.caller.listener, tp, _fault(broker, tp, records, request.version) or error)


def _fault(broker: BrokerContext, tp: TopicPartition, records: memoryview, version: int) -> RefusedUnseen | None:
    """What Kafka would complain of first. Later versions bring no fault that the log lets pass, so that theirs are
    looked for only in what it has refused.
    """
    return fault_of(records, version) if broker.metadata.knows(tp) else None


def _without_id(producer_id: int, _epoch: int) -> None:
    raise RefusedUnseen(ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} begins a transaction without its id")


def _verification(
    broker: BrokerContext, tp: TopicPartition, request: ApiRequest[ProduceRequest], permits: Permits | None
) -> Verification:
    """Asked for a batch that begins its transaction in ``tp``. Without permits the coordinator is this broker."""
    transactional_id = request.message.transactional_id
    if transactional_id is None:
        return _without_id

    def verify(producer_id: int, epoch: int) -> None:
        producer = Producer(producer_id, epoch)
        if permits is None:
            code = broker.txn_entry.check_here(transactional_id, producer, tp)
        elif tp in permits:
            code = broker.txn_entry.check(tp, producer, permits[tp])
        else:
            # It had entered, or was not led here: the coordinator was not asked.
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        if code is not ErrorCode.NONE:
            raise RefusedUnseen(
                _told(code, request.version), f"{tp} is not part of a transaction of {transactional_id!r}: {code.name}"
            )

    return verify


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """What a producer is told that speaks this version."""
    outside = code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    if outside and version >= _FIRST_VERSION_TO_KNOW_ABORTABLE:
        return ErrorCode.TRANSACTION_ABORTABLE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= _FIRST_VERSION_TO_ADD_PARTITIONS:
        return code
    return _TO_PRODUCE.get(code, code)


def _refused(broker: BrokerContext, listener: str, tp: TopicPartition, error: ApiError) -> ProduceResult:
    """A client that asks the wrong broker is told so, and where it finds the right one by its listener."""
    code = error.code
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and broker.metadata.knows(tp):
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = broker.leader_hint(tp, listener) if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else None
    unseen = code in _WITHOUT_START or isinstance(error, RefusedUnseen)
    log_start = -1 if unseen else broker.replicas.partition(tp).log_start_offset
    records = error.records if isinstance(error, RecordsRefused) else ()
    return ProduceResult(code, log_start_offset=log_start, message=error.reason, leader=leader, refused_records=records)


def _hang_up_on_errors(results: Results) -> None:
    for tp, result in results.items():
        if result.error is not ErrorCode.NONE:
            raise RemoteProtocolError(f"produce with acks=0 to {tp} failed: {result.error.name} {result.message or ''}")


def _still_to_come(
    broker: BrokerContext,
    listener: str,
    results: Results,
    end_of: Callable[[BrokerContext, TopicPartition], int | None],
) -> dict[TopicPartition, int]:
    """The ends that are to be waited for; a partition that is gone since the append is refused."""
    ends: dict[TopicPartition, int] = {}
    for tp, result in results.items():
        if result.error is not ErrorCode.NONE:
            continue
        try:
            end = end_of(broker, tp)
        except ApiError as error:
            results[tp] = _refused(broker, listener, tp, error)
            continue
        if end is not None:
            ends[tp] = end
    return ends


def _uncommitted(broker: BrokerContext, tp: TopicPartition) -> int | None:
    """The end offset that the high watermark has yet to reach; None if there is nothing to wait for."""
    return broker.replicas.partition(tp).uncommitted_end


def _uncommitted_of(broker: BrokerContext, listener: str, results: Results) -> Uncommitted:
    """Of what was appended in this turn of the loop; later another broker may lead, and may have cut it off."""
    found: Uncommitted = {}
    for tp, end in _still_to_come(broker, listener, results, _uncommitted).items():
        held = broker.replicas.partition(tp)
        found[tp] = (held, held.leader_epoch, end)
    return found


def _unflushed(broker: BrokerContext, tp: TopicPartition) -> int | None:
    """The end offset up to which the disk has yet to have it; None if there is nothing to wait for."""
    end = broker.replicas.partition(tp).unflushed_end
    if end is None:
        broker.replicas.show(tp)  # a flush may have ended since the append, which only its thread knows yet
    return end


async def _await_flush(
    broker: BrokerContext,
    listener: str,
    results: Results,
    unflushed: dict[TopicPartition, int],
    ends: Uncommitted,
    timeout_ms: int,
) -> Results:
    """However long the disk takes: they are in the log, and a producer that is told otherwise sends them again."""
    for tp, end in unflushed.items():
        try:
            await broker.replicas.flushed(tp, end)
        except ApiError as error:
            results[tp] = _refused(broker, listener, tp, error)
            ends.pop(tp, None)
    return await _await_replicas(broker, listener, results, ends, timeout_ms) if ends else results


async def _await_replicas(
    broker: BrokerContext, listener: str, results: Results, ends: Uncommitted, timeout_ms: int
) -> Results:
    """One that another broker led meanwhile may have dropped what was appended, and have another's records there."""
    left = set(ends)

    def settled(moved: TopicPartition) -> bool:
        if _is_settled(*ends[moved]):
            left.discard(moved)
        return not left

    await broker.replicas.produce_purgatory.wait(ends, settled, timeout_ms)
    for tp, (held, leader_epoch, end) in ends.items():
        if not held.still_leads(leader_epoch):
            moved = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "leadership moved before the commit")
            results[tp] = _refused(broker, listener, tp, moved)
        elif held.high_watermark.offset < end:
            results[tp] = ProduceResult(ErrorCode.REQUEST_TIMED_OUT, message="not every in-sync replica has it yet")
        elif not held.has_enough_in_sync:
            few = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            results[tp] = ProduceResult(few, message="fewer replicas are in sync than min.insync.replicas asks for")
    return results


def _is_settled(held: Partition, leader_epoch: int, end: int) -> bool:
    return not held.still_leads(leader_epoch) or held.high_watermark.offset >= end
