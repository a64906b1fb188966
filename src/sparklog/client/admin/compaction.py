"""Log compaction: how far replicas are cleaned, and having them cleaned now. Each broker is asked for its own."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable
from typing import NamedTuple

from sparklog.client.admin.base import AdminBase, error_of
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.cluster.arguments import checked_names
from sparklog.client.cluster.retry import retrying_async
from sparklog.client.cluster.session import raise_error_code
from sparklog.errors import ApiError, ErrorCode, LocalProtocolError, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    DescribeCompactionRequest,
    DescribeCompactionResponse,
)
from sparklog.structs import BrokerId, TopicPartition, by_topic

_LANE = "compaction"
"""A broker answers when it has cleaned: nothing else is to wait behind that."""
_ASKED_AT_ONCE = 1000
_Described = DescribeCompactionResponse.DescribedTopic.DescribedPartition
_Compacted = CompactPartitionsResponse.CompactedTopicResult.CompactedPartition


class Compaction(NamedTuple):
    """One cleaning of one replica: what it read, and what it left of that."""

    ended_ms: int
    """By its broker's clock."""
    seconds: float
    bytes_before: int
    bytes_after: int
    messages_before: int
    messages_after: int


class CompactionOutcome(NamedTuple):
    """What became of a replica that was to be cleaned."""

    error: ApiError | None
    run: Compaction | None = None
    """None where nothing could be cleaned."""
    note: str | None = None
    """Why nothing was to be cleaned, where that is no error."""


class CompactionState(NamedTuple):
    """How far a replica is cleaned; offsets and bytes are -1 where its log cannot be read."""

    error: ApiError | None
    """Why nothing is told of it."""
    first_dirty_offset: int
    """It is clean up to here."""
    first_uncleanable_offset: int
    """Behind the last record that may be cleaned now."""
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """How long it is overdue by ``max.compaction.lag.ms``."""
    is_due: bool
    """Whether it is dirty enough, or overdue, to be cleaned without being asked for."""
    is_under_way: bool
    cleaned_by: str | None
    """In words, while that is under way."""
    uncleanable: str | None
    """Why it cannot be cleaned; None for one that can."""
    uncleanable_bytes: int
    """What it held when that was found out; -1 for one that can be cleaned."""
    last_run: Compaction | None
    """None where there was none since its broker started."""

    @property
    def dirty_ratio(self) -> float | None:
        """The share of what is cleanable in what a cleaning would read, 0 to 1; None where that is not known."""
        if self.clean_bytes < 0:
            return None
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


class BrokerCompaction(NamedTuple):
    """How a broker's cleaner does; the last four are what Kafka's metrics of these names tell."""

    is_enabled: bool
    """Its ``log.cleaner.enable``."""
    threads: int
    max_clean_time_secs: int
    max_buffer_utilization_percent: int
    max_dirty_percent: int
    max_compaction_delay_secs: int


class CompactionDescription(NamedTuple):
    """What all brokers tell."""

    brokers: dict[BrokerId, BrokerCompaction]
    replicas: dict[Replica, CompactionState]


class CompactionAdmin(AdminBase):
    """Replicas are cleaned by their brokers, each for itself."""

    async def describe_compaction(self, topics: Collection[str] | None = None) -> CompactionDescription:
        """How far the replicas of these topics, or of all compacted ones, are cleaned. Raises ApiError for a topic
        that there is not.
        """
        names = None if topics is None else checked_names(topics, "topics")
        for name in names or ():
            await self._session.topic(name)
        answers = await self._ask_every_broker(
            ApiKey.DESCRIBE_COMPACTION, lambda version: DescribeCompactionRequest(version=version, topics=names)
        )
        for each in answers.values():
            raise_error_code(each)
        replicas = {
            Replica(tp, broker): _state(each, tp)
            for broker, answer in answers.items()
            for topic in answer.topics
            for each in topic.partitions
            for tp in (TopicPartition(topic.name, each.partition_index),)
        }
        brokers = {broker: _of_broker(answer) for broker, answer in answers.items()}
        return CompactionDescription(brokers, dict(sorted(replicas.items())))

    async def compact(
        self, wanted: Iterable[str | TopicPartition], *, brokers: Collection[int] | None = None
    ) -> dict[Replica, CompactionOutcome]:
        """Have every replica of these topics or partitions cleaned now, and wait until all have been.

        With ``brokers``, every replica that these have. However little of a log is dirty, all is cleaned that may be:
        what lies below the last stable offset, the active segment among it. A broker cleans as many logs at a time as
        it has ``log.cleaner.threads``. To give up waiting stops no cleaning. The outcome for the replicas of a broker
        that ceases to answer is an error. Raises ApiError for a topic or partition that there is not.
        """
        found: dict[Replica, CompactionOutcome] = {}
        asked: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
        present = set(await self._every_broker())
        for each in await self._replicas(_checked(wanted)):
            if brokers is not None and each.broker not in brokers:
                continue
            if each.broker in present:
                asked[each.broker].append(each.tp)
            else:
                away = ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{each.tp}: broker {each.broker} is not there now")
                found[each] = CompactionOutcome(away)
        for outcomes in await asyncio.gather(*(self._compact_at(broker, mine) for broker, mine in asked.items())):
            found |= outcomes
        return dict(sorted(found.items()))

    async def _replicas(self, wanted: Iterable[str | TopicPartition]) -> list[Replica]:
        """Every replica of the ``wanted``, each once."""
        replicas: dict[Replica, None] = {}
        for each in wanted:
            name = each if isinstance(each, str) else each.topic
            info = await self._session.topic(name)
            numbers = {partition.partition for partition in info.partitions}
            if isinstance(each, TopicPartition) and each.partition not in numbers:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} has no partition {each.partition}"
                )
            for partition in info.partitions:
                tp = TopicPartition(name, partition.partition)
                if isinstance(each, str) or each == tp:
                    replicas |= {Replica(tp, BrokerId(broker)): None for broker in partition.replicas}
        return [*replicas]

    async def _compact_at(self, broker: BrokerId, partitions: list[TopicPartition]) -> dict[Replica, CompactionOutcome]:
        found: dict[Replica, CompactionOutcome] = {}
        try:
            for start in range(0, len(partitions), _ASKED_AT_ONCE):
                async for outcomes in self._compact_some(broker, partitions[start : start + _ASKED_AT_ONCE]):
                    found |= outcomes
        except SparklogError as error:
            return {each: untold(each, error) for each in (Replica(tp, broker) for tp in partitions)} | found
        return found

    async def _compact_some(
        self, broker: BrokerId, partitions: list[TopicPartition]
    ) -> AsyncIterator[dict[Replica, CompactionOutcome]]:
        """Ask again as long as the broker is at it.

        The first request does not wait: its answer is there soon, and says since when a cleaning counts. So none is
        missed where a later answer is lost and the request is sent again.
        """
        left, since_ms, timeout_ms = partitions, -1, 0
        while left:
            answer = await self._ask_to_compact(broker, left, since_ms, timeout_ms)
            since_ms, timeout_ms = answer.since_ms, self._timeout_ms
            told = {
                TopicPartition(topic.name, each.partition_index): each
                for topic in answer.topics
                for each in topic.partitions
            }
            busy = {tp for tp, each in told.items() if each.error_code == ErrorCode.REQUEST_TIMED_OUT}
            yield {Replica(tp, broker): _outcome(each, tp) for tp, each in told.items() if tp not in busy}
            left = [tp for tp in left if tp in busy]

    async def _ask_to_compact(
        self, broker: BrokerId, partitions: list[TopicPartition], since_ms: int, timeout_ms: int
    ) -> CompactPartitionsResponse:
        topics = [
            CompactPartitionsRequest.CompactedTopic(name=name, partitions=numbers)
            for name, numbers in by_topic(partitions).items()
        ]

        def build(version: int) -> CompactPartitionsRequest:
            return CompactPartitionsRequest(version=version, topics=topics, timeout_ms=timeout_ms, since_ms=since_ms)

        async def ask() -> CompactPartitionsResponse:
            return await self._session.request(broker, ApiKey.COMPACT_PARTITIONS, build, lane=_LANE)

        return await retrying_async(self._session.backoff(), ask)


def _checked(wanted: Iterable[str | TopicPartition]) -> list[str | TopicPartition]:
    if isinstance(wanted, str | bytes | TopicPartition) or not isinstance(wanted, Iterable):
        raise LocalProtocolError(f"topics and partitions are given as a list, not as {wanted!r}: write [{wanted!r}]")
    found = list(wanted)
    for each in found:
        if not isinstance(each, str | TopicPartition):
            raise LocalProtocolError(f"{each!r} is neither a topic's name nor a TopicPartition(topic, number)")
    return found


def untold(replica: Replica, error: SparklogError) -> CompactionOutcome:
    """That of a replica whose broker could not be asked, or ceased to answer."""
    code = error.code if isinstance(error, ApiError) else ErrorCode.NETWORK_EXCEPTION
    why = f"{replica.tp}: broker {replica.broker} does not tell what became of it: {error}"
    return CompactionOutcome(ApiError(code, why))


def _outcome(each: _Compacted, tp: TopicPartition) -> CompactionOutcome:
    error = error_of(each, str(tp))
    if error is not None or each.ended_ms < 0:
        return CompactionOutcome(error, None, None if error is not None else each.error_message)
    numbers = (each.bytes_before, each.bytes_after, each.messages_before, each.messages_after)
    return CompactionOutcome(None, Compaction(int(each.ended_ms), float(each.seconds), *map(int, numbers)))


def _state(each: _Described, tp: TopicPartition) -> CompactionState:
    last = None
    if each.last_ended_ms >= 0:
        numbers = (each.last_bytes_before, each.last_bytes_after, each.last_messages_before, each.last_messages_after)
        last = Compaction(int(each.last_ended_ms), float(each.last_seconds), *map(int, numbers))
    return CompactionState(
        error=error_of(each, str(tp)),
        first_dirty_offset=int(each.first_dirty_offset),
        first_uncleanable_offset=int(each.first_uncleanable_offset),
        clean_bytes=int(each.clean_bytes),
        cleanable_bytes=int(each.cleanable_bytes),
        delay_ms=int(each.delay_ms),
        is_due=bool(each.is_due),
        is_under_way=bool(each.is_under_way),
        cleaned_by=each.cleaned_by,
        uncleanable=each.uncleanable_reason,
        uncleanable_bytes=int(each.uncleanable_bytes),
        last_run=last,
    )


def _of_broker(answer: DescribeCompactionResponse) -> BrokerCompaction:
    return BrokerCompaction(
        bool(answer.is_enabled),
        int(answer.threads),
        int(answer.max_clean_time_secs),
        int(answer.max_buffer_utilization_percent),
        int(answer.max_dirty_percent),
        int(answer.max_compaction_delay_secs),
    )
