"""CompactPartitions: clean logs of this broker now, however little of them is dirty; answered when all have been.

Where the time is up before, those that are left are told as REQUEST_TIMED_OUT; they are cleaned all the same. To go on
waiting a client asks again with the ``since_ms`` of the answer: a log that was cleaned after that is not cleaned once
more. A log in which nothing may be cleaned is no error; a message says so, and there are no figures.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from sparklog.broker.apis.cleaning.describe_compaction import NOT_COMPACTED
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import CompactPartitionsRequest, CompactPartitionsResponse
from sparklog.protocol.slices import Steps
from sparklog.replica.cleaning import LastRun, NotCleaned, NothingToClean
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.COMPACT_PARTITIONS
VERSIONS = range(0, 1)
WAITS_FOR_OTHERS = True
_ASKED_FIRST = -1
_NOTHING = -1
_Topic = CompactPartitionsResponse.CompactedTopicResult
_Partition = _Topic.CompactedPartition


class _Outcome(NamedTuple):
    """What became of a log."""

    code: ErrorCode
    message: str | None = None
    run: LastRun | None = None


async def handle(broker: BrokerContext, request: ApiRequest[CompactPartitionsRequest]) -> CompactPartitionsResponse:
    message = request.message
    asked = (TopicPartition(topic.name, number) for topic in message.topics for number in topic.partitions)
    since_ms = broker.clock.now_ms() if message.since_ms == _ASKED_FIRST else message.since_ms
    rights = Rights(broker, request, Operation.ALTER)
    outcomes: dict[TopicPartition, _Outcome] = {}
    cleanings: dict[TopicPartition, asyncio.Task[_Outcome]] = {}
    try:
        async for tp in broker.turns.paced(asked):
            if tp in outcomes or tp in cleanings:
                continue
            known = _known(broker, rights, tp, message.since_ms)
            if known is not None:
                outcomes[tp] = known
            else:  # no more of these than logs that are here: all of them are waited for in one turn
                cleanings[tp] = broker.loop.create_task(
                    _cleaned(broker, tp, message.since_ms), name=f"cleaning of {tp}"
                )
        if cleanings:
            await asyncio.wait(cleanings.values(), timeout=max(message.timeout_ms, 0) / 1000)
        outcomes |= {tp: _outcome(each) async for tp, each in broker.turns.paced(cleanings.items())}
    finally:
        for each in cleanings.values():
            each.cancel()
    return await broker.turns.drive(_answering(message, outcomes, since_ms), lambda: "a CompactPartitions")


def _known(broker: BrokerContext, rights: Rights, tp: TopicPartition, since_ms: int) -> _Outcome | None:
    """What is to be said of ``tp`` without cleaning it; a cleaning that ended at ``since_ms`` or later counts, if that
    is a time.
    """
    try:
        rights.check(tp.topic)
        policy = broker.held(tp).config.cleanup_policy
    except ApiError as error:
        return _Outcome(error.code, error.reason)
    if "compact" not in policy:
        return _Outcome(NOT_COMPACTED, f"its cleanup.policy is {','.join(policy)}")
    return _cleaned_since(broker, tp, since_ms)


def _cleaned_since(broker: BrokerContext, tp: TopicPartition, since_ms: int) -> _Outcome | None:
    last = broker.cleaner.last_run(tp)
    if since_ms != _ASKED_FIRST and last is not None and last.ended_ms >= since_ms:
        return _Outcome(ErrorCode.NONE, None, last)
    return None


async def _cleaned(broker: BrokerContext, tp: TopicPartition, since_ms: int) -> _Outcome:
    """What became of ``tp``; where the cleaning asked for before was still under way, and left nothing, that one."""
    try:
        stats = await broker.cleaner.clean(tp)
    except NothingToClean as nothing:
        return _cleaned_since(broker, tp, since_ms) or _Outcome(ErrorCode.NONE, str(nothing))
    except NotCleaned as error:
        is_unreadable = tp in broker.cleaner.uncleanable
        code = ErrorCode.KAFKA_STORAGE_ERROR if is_unreadable else ErrorCode.OPERATION_NOT_ATTEMPTED
        return _Outcome(code, str(error))
    last = broker.cleaner.last_run(tp)
    ended_ms = broker.clock.now_ms() if last is None else last.ended_ms
    return _Outcome(ErrorCode.NONE, None, LastRun(ended_ms, stats))


def _outcome(cleaning: asyncio.Task[_Outcome]) -> _Outcome:
    if not cleaning.done():
        return _Outcome(ErrorCode.REQUEST_TIMED_OUT, "it is being cleaned, or waits for its turn")
    if cleaning.cancelled():
        return _Outcome(ErrorCode.OPERATION_NOT_ATTEMPTED, "the broker is about to stop")
    return cleaning.result()


def _answering(
    message: CompactPartitionsRequest, outcomes: dict[TopicPartition, _Outcome], since_ms: int
) -> Steps[CompactPartitionsResponse]:
    topics = []
    for topic in message.topics:
        told = []
        for number in topic.partitions:
            told.append(_partition(number, outcomes[TopicPartition(topic.name, number)]))
            yield
        topics.append(_Topic(name=topic.name, partitions=told))
        yield
    return CompactPartitionsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, since_ms=since_ms, topics=topics)


def _partition(number: int, outcome: _Outcome) -> _Partition:
    run = outcome.run
    stats = None if run is None else run.stats
    return _Partition(
        partition_index=number,
        error_code=outcome.code,
        error_message=outcome.message,
        ended_ms=_NOTHING if run is None else run.ended_ms,
        seconds=_NOTHING if stats is None else stats.seconds,
        bytes_before=_NOTHING if stats is None else stats.bytes_read,
        bytes_after=_NOTHING if stats is None else stats.bytes_written,
        messages_before=_NOTHING if stats is None else stats.messages_read,
        messages_after=_NOTHING if stats is None else stats.messages_written,
    )
