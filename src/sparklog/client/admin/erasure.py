"""Erasure: every record of some keys goes from every replica of a topic, for good; and a report that can be checked."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID, uuid4

from sparklog.client.admin.base import AdminBase, error_of
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.cluster.arguments import checked_names
from sparklog.client.cluster.retry import is_retriable
from sparklog.client.cluster.session import raise_error_code
from sparklog.cluster.info import TopicInfo, no_such_partition
from sparklog.compaction.erased_keys import digest_of, pack_keys
from sparklog.errors import ApiError, ErrorCode, LocalProtocolError, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import EraseRecordsRequest, EraseRecordsResponse
from sparklog.structs import STATE_TOPICS, BrokerId, TopicPartition

_LANE = "erasure"
"""A request may carry many keys: nothing else is to wait behind that."""
_WAITING, _RUNNING, _DONE, _FAILED = range(4)
_ASKS_FOR_END = -1
_MOST_ROUNDS = 10
"""To erase, and to search, while replicas move or copy anew from one that had not erased yet."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_LEAST_PATIENCE_S = 5.0
"""To find the leaders, which have to say where their logs end."""
_LONGEST_PATIENCE_S = 1e9
_Result = EraseRecordsResponse.ErasedPartitionResult


class SearchedSegment(NamedTuple):
    """A segment's ``.log`` file, as it was searched last."""

    base_offset: int
    size: int
    """Bytes; of the segment that is still appended to, the batches that begin before the end offset."""
    sha256: str
    """Of these bytes, hexadecimal: what ``sha256sum`` tells of the file."""


class ErasedReplica(NamedTuple):
    """What is known of one replica at the end. Numbers are -1 where it was not searched."""

    up_to_offset: int
    """Records below it were meant."""
    log_start_offset: int = -1
    records_scanned: int = -1
    """Of every segment that holds offsets below the end."""
    bytes_scanned: int = -1
    erased: int = 0
    """Records that this erasure has removed."""
    segments_rewritten: int = 0
    left: int = -1
    """Records of the keys that were found by the last search."""
    segments: tuple[SearchedSegment, ...] = ()
    obstacle: str | None = None
    """Why it is not erased, or not searched, to the end."""

    @property
    def is_clean(self) -> bool:
        """Whether it was searched to the end, and nothing was found."""
        return self.obstacle is None and self.left == 0


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What became of an erasure, or of a search. Times are in ms since 1970, by the client's clock."""

    cluster_id: str
    topic: str
    topic_id: UUID
    erasure_id: UUID
    scan_only: bool
    begun_ms: int
    ended_ms: int
    key_count: int
    keys_sha256: str
    """Over the keys, sorted by their bytes, each behind its length as four bytes, big-endian; hexadecimal."""
    replicas: dict[Replica, ErasedReplica]

    @property
    def is_complete(self) -> bool:
        """Whether every replica was searched to the end."""
        return all(each.obstacle is None for each in self.replicas.values())

    @property
    def is_clean(self) -> bool:
        """Whether every replica was searched to the end, and nothing was found."""
        return all(each.is_clean for each in self.replicas.values())


class ErasureProgress(NamedTuple):
    """How far a replica is, while all are waited for."""

    replica: Replica
    what: str
    """In words: what it does, or waits for."""


Listener = Callable[[ErasureProgress], object]


@dataclass
class _Erasure:
    """One call."""

    topic: str
    topic_id: UUID
    keys: bytes = field(repr=False)
    ends: dict[int, int]
    """By partition, where what is meant ends."""
    patience: float
    listener: Listener
    id: UUID = field(default_factory=uuid4)
    rounds: int = 0
    erased: defaultdict[Replica, int] = field(default_factory=lambda: defaultdict(int))
    rewritten: defaultdict[Replica, int] = field(default_factory=lambda: defaultdict(int))


@dataclass
class _Round:
    """One round of one call, as it stands."""

    erasure: _Erasure
    number: int
    scan_only: bool
    done: dict[Replica, _Result] = field(default_factory=dict)
    obstacles: dict[Replica, str] = field(default_factory=dict)


class ErasureAdmin(AdminBase):
    """Each broker erases the replicas that it has."""

    async def erase(
        self,
        topic: str,
        keys: Collection[bytes],
        *,
        partitions: Collection[int] | None = None,
        scan_only: bool = False,
        up_to: Mapping[int, int] | None = None,
        topic_id: UUID | None = None,
        patience: float = 30.0,
        listener: Listener | None = None,
    ) -> ErasureReport:
        """Remove every record of ``keys`` from every replica of the topic, or of these ``partitions``, for good.

        What is meant lies below where each leader's log ends now, or below ``up_to`` (offsets by partition). All
        other records stay as they are. When all replicas have erased, all are searched again, and the report is of
        that search. With ``scan_only`` nothing is erased: the report says what there is. ``topic_id``: the topic must
        still be that one.

        A replica whose broker is away, that lags, or that waits for a transaction to end is waited for as long as
        ``patience`` says, in seconds, and is then told of as an obstacle; the same call again goes on. To give up
        waiting stops no broker at once. The call waits as long for a partition without a leader, then raises ApiError:
        only a leader can say where its log ends. ``listener`` is told of each change. Raises ApiError for a topic or
        partition that there is not, or that holds state of the brokers or of Spark's sinks, and where the topic is
        deleted, or made anew, meanwhile; LocalProtocolError where the keys are none, or too many for one erasure
        (8 MiB).
        """
        packed, begun_ms = pack_keys(_checked_keys(keys)), self._session.clock.now_ms()
        info = await self._described(topic, topic_id)
        numbers = _chosen(info, up_to if partitions is None and up_to is not None else partitions)
        if up_to is None:
            ends = await self._ends(info, numbers, patience)
        else:
            ends = {number: up_to[number] for number in numbers}
        erasure = _Erasure(topic, info.topic_id, packed, ends, patience, listener or (lambda _: None))
        replicas = await (self._searched(erasure) if scan_only else self._erased(erasure))
        cluster = await self._session.refresh([])
        return ErasureReport(
            cluster_id=cluster.cluster_id or "",
            topic=topic,
            topic_id=info.topic_id,
            erasure_id=erasure.id,
            scan_only=scan_only,
            begun_ms=begun_ms,
            ended_ms=self._session.clock.now_ms(),
            key_count=len(set(keys)),
            keys_sha256=digest_of(packed).hex(),
            replicas=dict(sorted(replicas.items())),
        )

    # What is to be erased

    async def _described(self, topic: str, topic_id: UUID | None) -> TopicInfo:
        """The topic as it is now. Raises ApiError if it is not there, or is not the one that is meant."""
        checked_names([topic], "topics")
        if topic in STATE_TOPICS:
            why = f"{topic} holds state of the brokers, or of Spark's sinks: nothing is erased from it"
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
        self._session.leaders.invalidate(topic)
        info = await self._session.topic(topic)
        if topic_id is not None and info.topic_id != topic_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"topic {topic!r} is another one by now: it has id {info.topic_id}, and {topic_id} was meant",
            )
        return info

    async def _ends(self, info: TopicInfo, numbers: Iterable[int], patience: float) -> dict[int, int]:
        """Where each partition's log ends, as its leader tells; also what is not replicated yet lies before that.

        Raises ApiError where one has no leader for ``patience`` seconds, or for ``_LEAST_PATIENCE_S``.
        """

        async def ask(broker: BrokerId, mine: list[TopicPartition]) -> dict[TopicPartition, int | ApiError]:
            message = _request(UUID(int=0), 0, info.name, info.topic_id, {tp.partition: _ASKS_FOR_END for tp in mine})
            answer = await self._session.request(broker, ApiKey.ERASE_RECORDS, message, lane=_LANE)
            raise_error_code(answer)
            told: dict[TopicPartition, int | ApiError] = {}
            for each in answer.partitions:
                tp = TopicPartition(info.name, each.partition_index)
                told[tp] = error_of(each, str(tp)) or int(each.end_offset)
            return told

        timeout_ms = round(min(max(patience, _LEAST_PATIENCE_S), _LONGEST_PATIENCE_S) * 1000)
        partitions = [TopicPartition(info.name, number) for number in numbers]
        found = await self._ask_leaders(partitions, ask, timeout_ms=timeout_ms)
        return {tp.partition: end for tp, end in found.items()}

    async def _replicas_of(self, erasure: _Erasure) -> set[Replica]:
        """Those that there are now. Raises ApiError if the topic is another one by now."""
        info = await self._described(erasure.topic, erasure.topic_id)
        return {
            Replica(TopicPartition(info.name, each.partition), BrokerId(broker))
            for each in info.partitions
            if each.partition in erasure.ends
            for broker in each.replicas
        }

    # Rounds

    async def _searched(self, erasure: _Erasure) -> dict[Replica, ErasedReplica]:
        """Search all replicas; again where others have come."""
        replicas = await self._replicas_of(erasure)
        while True:
            search = await self._round(erasure, replicas, scan_only=True)
            now = await self._replicas_of(erasure)
            if search.obstacles.keys() & now or now <= search.done.keys() or erasure.rounds >= _MOST_ROUNDS:
                return _told(search, now)
            replicas = now

    async def _erased(self, erasure: _Erasure) -> dict[Replica, ErasedReplica]:
        """Erase on all replicas, then search all; again where something was found, or where others have come."""
        clean: set[Replica] = set()
        replicas = await self._replicas_of(erasure)
        while True:
            erasing = await self._round(erasure, replicas - clean, scan_only=False)
            for replica, each in erasing.done.items():
                erasure.erased[replica] += each.records_found
                erasure.rewritten[replica] += each.segments_rewritten
            search = await self._round(erasure, replicas - erasing.obstacles.keys(), scan_only=True)
            search.obstacles |= erasing.obstacles
            clean = {replica for replica, each in search.done.items() if not each.records_found}
            now = await self._replicas_of(erasure)
            if search.obstacles.keys() & now or now <= clean or erasure.rounds >= _MOST_ROUNDS:
                return _told(search, now)
            replicas = now

    async def _round(self, erasure: _Erasure, replicas: Collection[Replica], *, scan_only: bool) -> _Round:
        """Have these replicas erased, or searched, until each is done, has failed, or has waited too long."""
        erasure.rounds += 1
        state = _Round(erasure, erasure.rounds, scan_only)
        by_broker: defaultdict[BrokerId, set[Replica]] = defaultdict(set)
        for each in replicas:
            by_broker[each.broker].add(each)
        tasks = [asyncio.ensure_future(self._at_broker(state, *each)) for each in by_broker.items()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return state

    async def _at_broker(self, state: _Round, broker: BrokerId, left: set[Replica]) -> None:
        """Ask one broker until nothing is left to wait for."""
        clock, sends_keys, pause = self._session.clock, True, _FIRST_PAUSE_S
        moved = clock.monotonic()
        while left:
            has_moved = goes_on_at_once = False
            answer = await self._ask_if_there(state, broker, left, sends_keys=sends_keys)
            if answer is not None:
                goes_on_at_once = bool(answer.needs_keys) and not sends_keys
                sends_keys = bool(answer.needs_keys)
                has_moved = _take(state, answer, left)
            if has_moved:
                moved, pause = clock.monotonic(), _FIRST_PAUSE_S
            elif clock.monotonic() - moved >= state.erasure.patience:
                return
            if left and not goes_on_at_once:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _ask_if_there(
        self, state: _Round, broker: BrokerId, left: Collection[Replica], *, sends_keys: bool
    ) -> EraseRecordsResponse | None:
        """None where the broker cannot be asked now; that is told of its replicas."""
        try:
            return await self._ask(state, broker, left, sends_keys=sends_keys)
        except SparklogError as error:
            if not is_retriable(error):
                raise
            for replica in left:
                _note(state, replica, f"broker {broker} cannot be asked: {error}")
            await self._session.refresh([])
            return None

    async def _ask(
        self, state: _Round, broker: BrokerId, left: Collection[Replica], *, sends_keys: bool
    ) -> EraseRecordsResponse:
        erasure = state.erasure
        message = _request(
            erasure.id,
            state.number,
            erasure.topic,
            erasure.topic_id,
            {each.tp.partition: erasure.ends[each.tp.partition] for each in left},
            scan_only=state.scan_only,
            keys=erasure.keys if sends_keys else None,
        )
        answer = await self._session.request(broker, ApiKey.ERASE_RECORDS, message, lane=_LANE)
        raise_error_code(answer)
        return answer


def _request(
    erasure_id: UUID,
    number: int,
    topic: str,
    topic_id: UUID,
    ends: Mapping[int, int],
    *,
    scan_only: bool = False,
    keys: bytes | None = None,
) -> Callable[[int], EraseRecordsRequest]:
    partitions = [
        EraseRecordsRequest.ErasedPartition(partition_index=partition, end_offset=end)
        for partition, end in sorted(ends.items())
    ]

    def build(version: int) -> EraseRecordsRequest:
        return EraseRecordsRequest(
            version=version,
            erasure_id=erasure_id,
            round=number,
            scan_only=scan_only,
            keys=keys,
            topic=topic,
            topic_id=topic_id,
            partitions=partitions,
        )

    return build


def _take(state: _Round, answer: EraseRecordsResponse, left: set[Replica]) -> bool:
    """Take note of what a broker tells; whether a replica has come further. Raises ApiError for another topic."""
    has_moved = False
    by_number = {each.tp.partition: each for each in left}
    for told in answer.partitions:
        replica = by_number[told.partition_index]
        error = error_of(told, str(replica.tp))
        if error is not None:
            if error.code is ErrorCode.INCONSISTENT_TOPIC_ID:
                raise error
            _note(state, replica, error.reason)
        elif told.state == _DONE:
            state.done[replica] = told
            state.obstacles.pop(replica, None)
            left.discard(replica)
            has_moved = True
        elif told.state == _RUNNING:
            verb = "searching" if state.scan_only else "erasing"
            _note(state, replica, f"{verb}: {told.segments_done} of {told.segments_total} segments searched")
            has_moved = True
        else:
            _note(state, replica, told.error_message or "it is about to begin")
            if told.state == _FAILED:
                left.discard(replica)
    return has_moved


def _note(state: _Round, replica: Replica, what: str) -> None:
    if state.obstacles.get(replica) != what:
        state.obstacles[replica] = what
        state.erasure.listener(ErasureProgress(replica, what))


def _told(search: _Round, now: Collection[Replica]) -> dict[Replica, ErasedReplica]:
    """What is known after the last search of the replicas that there are ``now``, and of no others."""
    erasure = search.erasure
    found: dict[Replica, ErasedReplica] = {}
    for replica in now:
        end, each = erasure.ends[replica.tp.partition], search.done.get(replica)
        if each is None:
            why = search.obstacles.get(replica, "it has come too late to be searched")
            found[replica] = ErasedReplica(end, erased=erasure.erased[replica], obstacle=why)
            continue
        found[replica] = ErasedReplica(
            up_to_offset=end,
            log_start_offset=int(each.log_start_offset),
            records_scanned=int(each.records_scanned),
            bytes_scanned=int(each.bytes_scanned),
            erased=erasure.erased[replica],
            segments_rewritten=erasure.rewritten[replica],
            left=int(each.records_found),
            segments=tuple(
                SearchedSegment(int(one.base_offset), int(one.size), bytes(one.sha256).hex()) for one in each.segments
            ),
            obstacle=search.obstacles.get(replica),
        )
    return found


def _checked_keys(keys: Collection[bytes]) -> Collection[bytes]:
    if isinstance(keys, str | bytes) or not isinstance(keys, Collection):
        raise LocalProtocolError(f"keys are given as a list of bytes, not as {type(keys).__name__}")
    for key in keys:
        if not isinstance(key, bytes):
            raise LocalProtocolError(f"a key is bytes, not {type(key).__name__}")
    return keys


def _chosen(info: TopicInfo, partitions: Collection[int] | None) -> list[int]:
    """The numbers of the partitions that are meant. Raises ApiError for one that there is not."""
    if partitions is None:
        return [each.partition for each in info.partitions]
    for number in partitions:
        if info.partition(number) is None:
            raise no_such_partition(info, number)
    return sorted(set(partitions))
