"""Where partitions end, for the lag of groups, since when, and how many bytes that is: what scrapes have seen.

A partition that is not held here has the end that its leader told last. It is asked for in the background when a scrape
has wanted it, and not sooner again than after ``_ASK_EVERY_S``: so the first scrape knows nothing of it, and later ones
what was true when the one before asked. An end that is asked for and not told is not known any more: a leader that is
gone leaves no old one, which a group might seem to have reached. So it is with the bytes that a group has before it;
where it has read on since, they are taken in proportion to its offsets.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import islice

from sparklog.broker.context import BrokerContext
from sparklog.cluster.lag import described_lags, lag_request
from sparklog.errors import SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from sparklog.structs import Endpoint, TopicPartition

_SEEN_EVERY_S = 5.0
_SEEN = 60
"""So many ends of a partition are kept: the last five minutes of frequent scrapes, or more of rare ones."""
_FORGOTTEN_AFTER_S = 600.0
_ASK_EVERY_S = 10.0
_ASKED_AT_ONCE = 1000
_LANE = "metrics"
_TIMEOUT_S = 10.0
_LATEST = -1


class PartitionEnds:
    """Of the partitions that groups of this broker read; at most ``most`` of them."""

    def __init__(self, context: BrokerContext, most: int) -> None:
        self._context = context
        self._most = most
        self._told: dict[TopicPartition, int] = {}
        self._wanted: set[TopicPartition] = set()
        self._sizes: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        """What leaders told of groups: so many offsets were so many bytes."""
        self._wanted_sizes: dict[tuple[str, TopicPartition], int] = {}
        self._asked_at = float("-inf")
        self._seen: dict[TopicPartition, deque[tuple[float, int]]] = {}

    def end(self, tp: TopicPartition) -> int | None:
        """The high watermark; None if it is not known."""
        end = self._context.replicas.shows_until(tp)
        if end >= 0:
            return end
        self._wanted.add(tp)
        return self._told.get(tp)

    def behind_s(self, tp: TopicPartition, offset: int, end: int) -> float:
        """For how long at least there has been a record at ``offset``, which lies before ``end``."""
        now = self._context.clock.monotonic()
        seen = self._seen.get(tp)
        if seen is None:
            if len(self._seen) >= self._most:
                return 0.0
            seen = self._seen[tp] = deque(maxlen=_SEEN)
        while seen and seen[-1][1] > end:  # of a log that was cut off, or of a topic that was made again
            seen.pop()
        if not seen or now - seen[-1][0] >= _SEEN_EVERY_S:
            seen.append((now, end))
        return now - next((at for at, known in seen if known > offset), now)

    def bytes_behind(self, group: str, tp: TopicPartition, offset: int, end: int) -> int | None:
        """Bytes from ``offset`` to ``end``, which lies behind it; None if it is not known."""
        size = self._context.replicas.bytes_from(tp, offset)
        if size >= 0:
            return size
        self._wanted_sizes[group, tp] = offset
        offsets, size = self._sizes.get((group, tp), (0, 0))
        return size * (end - offset) // offsets if offsets > 0 else None

    def refresh(self) -> None:
        """A scrape is over: ask for what it has missed."""
        now = self._context.clock.monotonic()
        wanted, self._wanted = self._wanted, set()
        sizes, self._wanted_sizes = self._wanted_sizes, {}
        self._told = {tp: end for tp, end in self._told.items() if tp in wanted}
        self._sizes = {key: told for key, told in self._sizes.items() if key in sizes}
        if wanted and now - self._asked_at >= _ASK_EVERY_S:
            self._asked_at = now
            self._context.in_background(self._ask(wanted, sizes), "asking where partitions end")
        self._seen = {tp: seen for tp, seen in self._seen.items() if seen[-1][0] > now - _FORGOTTEN_AFTER_S}

    async def _ask(self, wanted: set[TopicPartition], sizes: dict[tuple[str, TopicPartition], int]) -> None:
        leaders: defaultdict[Endpoint, list[TopicPartition]] = defaultdict(list)
        for tp in wanted:
            leader = self._context.metadata.leader(tp)
            if leader is not None and leader.id != self._context.replicas.broker_id:
                leaders[leader.endpoint].append(tp)
        self._forget(wanted.difference(*leaders.values()))
        for endpoint, partitions in leaders.items():
            for first in range(0, len(partitions), _ASKED_AT_ONCE):
                await self._ask_leader(endpoint, partitions[first : first + _ASKED_AT_ONCE])
            led = set(partitions)
            await self._ask_sizes(endpoint, {key: offset for key, offset in sizes.items() if key[1] in led})

    async def _ask_leader(self, endpoint: Endpoint, partitions: list[TopicPartition]) -> None:
        try:
            answer = await self._context.peers.request(
                endpoint, _LANE, ApiKey.LIST_OFFSETS, lambda _: _request(partitions), timeout=_TIMEOUT_S
            )
        except SparklogError:  # it is gone; its partitions have no lag until another tells
            self._forget(partitions)
            return
        self._forget(partitions)
        self._told |= _ends_in(answer)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._told.pop(tp, None)

    async def _ask_sizes(self, endpoint: Endpoint, sizes: dict[tuple[str, TopicPartition], int]) -> None:
        wanted: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        for (_, tp), offset in islice(sizes.items(), _ASKED_AT_ONCE):
            wanted[tp].append(offset)
        if not wanted:
            return
        try:
            answer = await self._context.peers.request(
                endpoint, _LANE, ApiKey.DESCRIBE_LAG, lambda _: lag_request(wanted), timeout=_TIMEOUT_S
            )
        except SparklogError:  # it is gone, or Kafka's
            return
        told = {(each.tp, each.offset): each for each in described_lags(answer)}
        for (group, tp), offset in sizes.items():
            lag = told.get((tp, offset))
            if lag is not None:
                self._sizes[group, tp] = lag.end - offset, lag.bytes


def _request(partitions: list[TopicPartition]) -> ListOffsetsRequest:
    topic = ListOffsetsRequest.ListOffsetsTopic
    topics: defaultdict[str, list[ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition]] = defaultdict(list)
    for tp in partitions:
        asked = topic.ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=-1, timestamp=_LATEST)
        topics[tp.topic].append(asked)
    named = [topic(name=name, partitions=some) for name, some in topics.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=named)


def _ends_in(answer: ListOffsetsResponse) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in answer.topics
        for each in topic.partitions
        if each.offset >= 0
    }
