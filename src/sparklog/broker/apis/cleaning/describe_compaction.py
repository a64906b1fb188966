"""DescribeCompaction: how far each compacted log of this broker is cleaned, and how its cleaner does.

Every broker tells of its own replicas. A topic of which it holds none is left out; one that is not compacted is told of
if it was asked for by name. The four figures of the broker are those that Kafka has as metrics of ``LogCleaner``, as
they are when they are asked for.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Described
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeCompactionRequest, DescribeCompactionResponse
from sparklog.protocol.slices import Steps
from sparklog.replica.cleaning import Candidate, Worst
from sparklog.structs import TopicPartition

API = ApiKey.DESCRIBE_COMPACTION
VERSIONS = range(0, 1)
NOT_COMPACTED = ErrorCode.INVALID_CONFIG
_NOTHING = -1
_Topic = DescribeCompactionResponse.DescribedTopic
_Partition = _Topic.DescribedPartition


def handle(broker: BrokerContext, request: ApiRequest[DescribeCompactionRequest]) -> Steps[DescribeCompactionResponse]:
    names = request.message.topics
    wanted = Described(broker, request, names)
    try:
        yield from wanted.check()
    except ApiError as refused:
        return _response(broker, refused.code, Worst(), [])
    worst, told = Worst(), dict[TopicPartition, _Partition]()
    for candidate in broker.cleaner.candidates():
        if candidate is not None:
            worst = worst.with_log(candidate, broker.cleaner.known_failure(candidate.tp))
            if candidate.tp.topic in wanted:
                told[candidate.tp] = _partition(broker, candidate.tp, candidate)
        yield
    for tp in list(broker.cleaner.uncleanable):
        if tp not in told and tp.topic in wanted and _is_compacted(broker, tp):
            told[tp] = _partition(broker, tp, None)
        yield
    if names is not None:
        yield from _tell_of_others(broker, set(names), told)
    return _response(broker, ErrorCode.NONE, worst, (yield from _by_topic(told)))


def _is_compacted(broker: BrokerContext, tp: TopicPartition) -> bool:
    return broker.replicas.holds(tp) and "compact" in broker.replicas.partition(tp).config.cleanup_policy


def _tell_of_others(broker: BrokerContext, wanted: set[str], told: dict[TopicPartition, _Partition]) -> Steps[None]:
    """Say of partitions that are here and were asked for why nothing is said of them."""
    for name in sorted(wanted):
        topic = broker.metadata.topic(name)
        for number in topic.partitions if topic is not None else ():
            tp = TopicPartition(name, number)
            if tp not in told and broker.replicas.holds(tp):
                told[tp] = _partition(broker, tp, None)
                told[tp].error_code, told[tp].error_message = _refusal(broker, tp)
            yield
        yield


def _refusal(broker: BrokerContext, tp: TopicPartition) -> tuple[ErrorCode, str | None]:
    try:
        policy = broker.held(tp).config.cleanup_policy
    except ApiError as error:
        return error.code, error.reason
    if "compact" not in policy:
        return NOT_COMPACTED, f"its cleanup.policy is {','.join(policy)}"
    return ErrorCode.LEADER_NOT_AVAILABLE, "it has just come here, or is about to go"


def _partition(broker: BrokerContext, tp: TopicPartition, candidate: Candidate | None) -> _Partition:
    cleaner = broker.cleaner
    sections = None if candidate is None else candidate.sections
    known, last = cleaner.known_failure(tp), cleaner.last_run(tp)
    stats = None if last is None else last.stats
    return _Partition(
        partition_index=tp.partition,
        error_code=ErrorCode.NONE,
        error_message=None,
        first_dirty_offset=_NOTHING if sections is None else sections.first_dirty,
        first_uncleanable_offset=_NOTHING if sections is None else sections.first_uncleanable,
        clean_bytes=_NOTHING if sections is None else sections.clean_bytes,
        cleanable_bytes=_NOTHING if sections is None else sections.cleanable_bytes,
        delay_ms=0 if candidate is None else candidate.delay_ms,
        is_due=candidate is not None and cleaner.is_due(candidate),
        is_under_way=tp in cleaner.under_way,
        cleaned_by=broker.cleaning_grants.who_cleans(tp) if tp in cleaner.under_way else None,
        uncleanable_reason=None if known is None else known.why,
        uncleanable_bytes=_NOTHING if known is None else known.bytes,
        last_ended_ms=_NOTHING if last is None else last.ended_ms,
        last_seconds=_NOTHING if stats is None else stats.seconds,
        last_bytes_before=_NOTHING if stats is None else stats.bytes_read,
        last_bytes_after=_NOTHING if stats is None else stats.bytes_written,
        last_messages_before=_NOTHING if stats is None else stats.messages_read,
        last_messages_after=_NOTHING if stats is None else stats.messages_written,
    )


def _by_topic(told: dict[TopicPartition, _Partition]) -> Steps[list[_Topic]]:
    topics: dict[str, _Topic] = {}
    for tp in sorted(told):
        if tp.topic not in topics:
            topics[tp.topic] = _Topic(name=tp.topic, partitions=[])
        topics[tp.topic].partitions.append(told[tp])
        yield
    return [*topics.values()]


def _response(broker: BrokerContext, code: ErrorCode, worst: Worst, topics: list[_Topic]) -> DescribeCompactionResponse:
    """Source of the figures: Kafka 3.9, ``LogCleaner``, ``LogCleanerManager``."""
    cleaner = broker.cleaner
    last = cleaner.last_of_threads()
    return DescribeCompactionResponse(
        throttle_time_ms=0,
        error_code=code,
        is_enabled=broker.config.log_cleaner_enable,
        threads=cleaner.threads,
        max_clean_time_secs=int(max((each.seconds for each in last), default=0)),
        max_buffer_utilization_percent=int(100 * max((each.buffer_utilization for each in last), default=0)),
        max_dirty_percent=worst.dirty_percent,
        max_compaction_delay_secs=worst.delay_s,
        topics=topics,
    )
