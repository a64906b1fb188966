"""AdoptSegments: take segment files that lie beside the log into it, whole, as the partition's leader.

The files are named by a tag and by offsets, and lie in the partition's directory: no path is asked for. In mode 0 the
log gives the offsets, and the batches belong to one transaction, whose id is given: then all is checked that a Produce
of them would check. In mode 1 they keep what they say, in a partition without records or behind those that an earlier
request restored. What takes longer than the time given is answered with REQUEST_TIMED_OUT, and goes on: asked for again
under the same tag it is told what became of it. After any other error nothing of the files is left.

What is adopted counts as produced, once, however often it is asked for. So the answer tells a client with a quota how
long to wait: nothing is held meanwhile, for by then the segments are in the log.
"""

from __future__ import annotations

import asyncio

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check, is_open
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.adoption import Adoption, AppendAdoption, Offer
from sparklog.log.origin import Verification
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AdoptSegmentsRequest, AdoptSegmentsResponse
from sparklog.protocol.wire import ZERO_UUID
from sparklog.replica.adopting import Adopted, Mode, Wish
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import INTERNAL_TOPICS, TopicPartition
from sparklog.txn.state import ClientVersion, Producer

API = ApiKey.ADOPT_SEGMENTS
VERSIONS = range(0, 1)
WAITS_FOR_OTHERS = True


async def handle(broker: BrokerContext, request: ApiRequest[AdoptSegmentsRequest]) -> AdoptSegmentsResponse:
    message = request.message
    try:
        _check(broker, request)
    except ApiError as error:
        return _refused(error.code, error.reason)
    adopting = broker.loop.create_task(_adopt(broker, request), name=f"adopting segments of {message.topic}")
    try:
        done, _ = await asyncio.wait([adopting], timeout=max(message.timeout_ms, 0) / 1000)
        if not done:
            return _refused(ErrorCode.REQUEST_TIMED_OUT, "the segments are being looked into, or wait for replicas")
        adopted, wait_ms = adopting.result()
    except ApiError as error:
        return _refused(error.code, error.reason)
    finally:
        adopting.cancel()
    return AdoptSegmentsResponse(
        throttle_time_ms=wait_ms,
        error_code=ErrorCode.NONE,
        error_message=None,
        first_offset=adopted.first_offset,
        last_offset=adopted.last_offset,
        log_start_offset=adopted.log_start_offset,
    )


def _check(broker: BrokerContext, request: ApiRequest[AdoptSegmentsRequest]) -> None:
    """Raises ApiError. A client that gives the offsets alters the topic; one that appends does so as by a Produce."""
    message = request.message
    topic = Resource(ResourceType.TOPIC, message.topic)
    check(broker, request, Operation.WRITE, topic)
    if message.mode == Mode.RESTORE:
        check(broker, request, Operation.ALTER, topic)
    elif message.transactional_id is not None:
        check(broker, request, Operation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, message.transactional_id))
    elif not is_open(broker):
        why = "what is appended belongs to a transaction, whose id the request must give"
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why)


async def _adopt(broker: BrokerContext, request: ApiRequest[AdoptSegmentsRequest]) -> tuple[Adopted, int]:
    """What was adopted, and for how many milliseconds the client is to wait."""
    message = request.message
    wish, tp = _wish(message), TopicPartition(message.topic, message.partition_index)
    partition = broker.held(tp)
    if message.topic_id not in (None, ZERO_UUID):
        partition.check_topic(message.topic_id)

    async def ask(adoption: Adoption) -> Verification | None:
        if isinstance(adoption, AppendAdoption):
            return await _ask_coordinator(broker, tp, message.transactional_id, adoption)
        return None

    adopted = await broker.adopter.adopt(wish, ask)
    await broker.replicas.replicated(tp, adopted.leader_epoch, adopted.last_offset, message.timeout_ms)
    nbytes = broker.adopter.bytes_to_count(wish)
    return adopted, broker.quotas.count_produced(request.caller, request.client_id, nbytes)


def _wish(message: AdoptSegmentsRequest) -> Wish:
    if message.topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{message.topic} is written by brokers alone")
    try:
        mode = Mode(message.mode)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{message.mode} is no mode of adoption") from error
    return Wish(
        TopicPartition(message.topic, message.partition_index),
        mode,
        Offer(message.tag, tuple(message.bases), message.end_offset),
        message.current_leader_epoch,
        message.log_start_offset,
    )


async def _ask_coordinator(
    broker: BrokerContext, tp: TopicPartition, transactional_id: str | None, adoption: AppendAdoption
) -> Verification | None:
    """As a Produce does: None where the transaction is open in the partition already."""
    producer = Producer(adoption.first_batch.producer_id, adoption.first_batch.producer_epoch)
    if transactional_id is None or broker.txn_entry.has_entered(tp, producer):
        return None
    async with broker.txn_entry.turn(transactional_id):
        permits = await broker.txn_entry.ask(transactional_id, producer, [tp], ClientVersion.CLASSIC)

    def verify(producer_id: int, epoch: int) -> None:
        code = broker.txn_entry.check(tp, Producer(producer_id, epoch), permits[tp])
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"{tp} is not part of a transaction of {transactional_id!r}: {code.name}")

    return verify


def _refused(code: ErrorCode, why: str) -> AdoptSegmentsResponse:
    return AdoptSegmentsResponse(
        throttle_time_ms=0, error_code=code, error_message=why, first_offset=-1, last_offset=-1, log_start_offset=-1
    )
