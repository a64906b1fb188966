"""Fetcher ahead: one fetch in flight a broker, for every partition that can take more. Drives RecordBuffer.

A partition is asked for while it is fetchable and less than ``max.partition.fetch.bytes`` of it wait in the buffer,
and nothing at all while ``fetch.max.bytes`` of what can be handed over wait there; of what cannot, be it paused or to
be validated, no more than that is kept while others are asked for. So at most twice that and one answer a broker are
held. While some partition of a broker is full, the broker is not let wait long for the others: what is full may be
wanted soon. The partitions that gave something last are asked last, since those before them may use up
``fetch.max.bytes``.

Errors that pass (a leader moved, a broker is gone) are waited out here, with new metadata. The others are kept for the
next ``raise_failure``, except OFFSET_OUT_OF_RANGE, which goes to ``on_out_of_range`` once all that came before it was
handed over.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from sparklog.client.cluster.offsets import local_starts_request, remote
from sparklog.client.cluster.retry import is_retriable
from sparklog.client.cluster.session import DATA, Session
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.fetch.buffer import PartitionBuffer, RecordBuffer
from sparklog.client.consumer.subscription import SubscriptionState
from sparklog.client.consumer.topics import refresh_wanted
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, RemoteProtocolError, SparklogError
from sparklog.fetch.position import FetchPositions, Refusal, fed, may_be_gap, refusal_of
from sparklog.fetch.read_replica import ReadReplicas
from sparklog.fetch.session import LOST, FetchPlan, FetchSession
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import BrokerId, LeaderEpoch, TopicPartition

_CROWDED_WAIT_MS = 50


class _Asked(NamedTuple):
    """One fetch: what is wanted of each partition, as of which incarnation."""

    partitions: dict[TopicPartition, FetchPartition]
    incarnations: dict[TopicPartition, int]
    wait_ms: int


class Fetcher:
    """The fetches of one consumer. ``news`` is set when something came; ``send`` after what changes what is wanted."""

    def __init__(
        self,
        session: Session,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        buffer: RecordBuffer,
        news: asyncio.Event,
        on_out_of_range: Callable[[TopicPartition, ApiError], None],
    ) -> None:
        self._session = session
        self._config = config
        self._subscription = subscription
        self._buffer = buffer
        self._news = news
        self._sessions: dict[BrokerId, FetchSession] = {}
        self._in_flight: dict[BrokerId, asyncio.Task[None]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._answers = 0
        self._positions = FetchPositions(config.isolation_level, check_crcs=config.check_crcs)
        self._replicas = ReadReplicas(config.client_rack, config.metadata_max_age_ms / 1000)
        self._failures: dict[TopicPartition, tuple[int, Exception]] = {}
        self._is_closed = False
        self._on_out_of_range = on_out_of_range

    def send(self) -> None:
        """Ask every broker that is not being asked for what is wanted of it."""
        if self._is_closed:
            return
        for broker, asked in self._wanted().items():
            if broker not in self._in_flight:
                self._in_flight[broker] = asyncio.create_task(self._fetch(broker, asked), name="sparklog fetch")

    async def close(self) -> None:
        """Ask no more; what is in flight is let go."""
        self._is_closed = True
        tasks = [*self._in_flight.values(), *([self._refreshing] if self._refreshing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def raise_failure(self) -> None:
        """Raise what went wrong with a partition of which all that came before was handed over."""
        for tp, (incarnation, error) in list(self._failures.items()):
            if not self._subscription.is_current(tp, incarnation):
                del self._failures[tp]
            elif self._buffer.is_empty(tp):
                del self._failures[tp]
                if isinstance(error, ApiError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._on_out_of_range(tp, error)
                else:
                    raise error

    # -- what to ask

    def _wanted(self) -> dict[BrokerId, _Asked]:
        wanted: dict[BrokerId, _Asked] = {}
        crowded: set[BrokerId] = set()
        buffers = [self._buffer.buffer(tp) for tp in self._subscription.fetchable()]
        full, now = sum(each.nbytes for each in buffers) >= self._config.fetch_max_bytes, self._now
        if buffers and not full:
            self._make_room()
        for buffer in sorted(buffers, key=attrgetter("fed_by")):
            tp = buffer.tp
            if tp in self._failures:
                continue
            broker = self._broker_of(tp, now)
            if broker is None:
                self._refresh()
                continue
            if full or buffer.nbytes >= self._config.max_partition_fetch_bytes:
                crowded.add(broker)
                continue
            asked = wanted.setdefault(broker, _Asked({}, {}, self._config.fetch_max_wait_ms))
            asked.partitions[tp] = self._partition(tp, buffer)
            asked.incarnations[tp] = buffer.incarnation
        short = min(_CROWDED_WAIT_MS, self._config.fetch_max_wait_ms)
        return {each: asked._replace(wait_ms=short) if each in crowded else asked for each, asked in wanted.items()}

    def _make_room(self) -> None:
        for tp in self._buffer.drop_idle(self._config.fetch_max_bytes):
            self._failures.pop(tp, None)  # it is behind what is fetched again, and met again there

    @property
    def _now(self) -> float:
        return self._session.clock.monotonic()

    def _broker_of(self, tp: TopicPartition, now: float) -> BrokerId | None:
        """The broker to ask for the partition; None while nobody is known to lead it."""
        leaders = self._session.leaders
        leader = leaders.leader(tp)
        return None if leader is None else self._replicas.choose(tp, leader, leaders.brokers, now)

    def _partition(self, tp: TopicPartition, buffer: PartitionBuffer) -> FetchPartition:
        leaders = self._session.leaders
        topic, info = leaders.topic(tp.topic), leaders.partition(tp)
        assert topic is not None
        assert info is not None
        return FetchPartition(
            tp.topic,
            topic.topic_id,
            tp.partition,
            buffer.fetch_position,
            self._config.max_partition_fetch_bytes,
            info.leader_epoch,
        )

    # -- asking

    async def _fetch(self, broker: BrokerId, asked: _Asked) -> None:
        session = self._sessions.setdefault(broker, FetchSession())
        try:
            await self._ask(broker, session, asked)
        except Exception as error:  # whatever it is, poll must raise it
            session.reset()
            if not (isinstance(error, SparklogError) and is_retriable(error)):
                self._fail(asked, error)
            for tp in asked.partitions:
                self._replicas.failed(tp, self._now)
                self._session.leaders.invalidate(tp.topic)
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        finally:
            del self._in_flight[broker]
        self._news.set()
        self.send()

    async def _ask(self, broker: BrokerId, session: FetchSession, asked: _Asked) -> None:
        connection = await self._session.connection(broker, DATA)
        by_name = any(each.topic_id == ZERO_UUID for each in asked.partitions.values())
        versions = await connection.versions()
        version = versions.best(ApiKey.FETCH, fetch.TOPIC_ID_VERSION - 1 if by_name else None)
        plan = session.plan(asked.partitions)
        body = fetch.encode_request(self._request(plan, asked), version)
        seconds = (self._config.request_timeout_ms + asked.wait_ms) / 1000
        answer = await connection.submit(ApiKey.FETCH, version, body, timeout=seconds)
        error, partitions = fetch.decode_response(answer, version)
        session.answered(error, fetch.session_id_of(answer, version))
        if error in LOST:
            return
        if error is not ErrorCode.NONE:
            raise ApiError(error, f"fetch from broker {broker}: {error.name}")
        names = {each.topic_id: each.topic for each in asked.partitions.values()}
        self._answers += 1
        with_records = fed(partitions)
        remote = await self._remote(partitions, asked, names) if plan.is_full and not with_records else set()
        for fetched in partitions:
            # That a partition has nothing is not told in a session's later answers, which are about news alone.
            is_told = plan.is_full and _named(fetched, names) not in remote
            had_room = with_records == bool(fetched.records)
            self._take(fetched, asked, names, had_room=had_room and (is_told or bool(fetched.records)))

    async def _remote(
        self, partitions: Iterable[FetchedPartition], asked: _Asked, names: Mapping[UUID, str]
    ) -> set[TopicPartition]:
        """The partitions of which a leader may have given nothing because its remote storage is slow."""
        wanted, isolation = asked.partitions, self._config.isolation_level
        told = {tp: each for each in partitions if (tp := _named(each, names)) in wanted}
        gaps = {tp: wanted[tp].offset for tp, each in told.items() if may_be_gap(each, wanted[tp].offset, isolation)}
        by_leader: defaultdict[BrokerId | None, dict[TopicPartition, int]] = defaultdict(dict)
        for tp, offset in gaps.items():
            by_leader[self._session.leaders.leader(tp)][tp] = offset
        found = set(by_leader.pop(None, {}))
        for leader, places in by_leader.items():
            assert leader is not None
            versions = await (await self._session.connection(leader, DATA)).versions()
            request = local_starts_request(places, versions, self._config.request_timeout_ms)
            if request is not None:
                found |= remote(places, await self._session.request(leader, ApiKey.LIST_OFFSETS, request))
        return found

    def _request(self, plan: FetchPlan, asked: _Asked) -> FetchRequest:
        return FetchRequest(
            asked.wait_ms,
            self._config.fetch_min_bytes,
            self._config.fetch_max_bytes,
            plan.partitions,
            isolation=self._config.isolation_level,
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            rack_id=self._replicas.rack(self._now),
            forgotten=plan.forgotten,
        )

    # -- taking the answer

    def _take(self, fetched: FetchedPartition, asked: _Asked, names: Mapping[UUID, str], *, had_room: bool) -> None:
        tp = _named(fetched, names)
        request = asked.partitions.get(tp)
        if request is None or not self._subscription.is_current(tp, asked.incarnations[tp]):
            return
        refusal = refusal_of(fetched.error)
        if refusal is not None:
            self._refused(tp, refusal, fetched.error, request, asked.incarnations[tp])
            return
        if not self._subscription.fetched_from(tp, request.topic_id):
            text = f"topic {tp.topic!r} was deleted and created again; offset {request.offset} is of the one before"
            self._failures[tp] = (asked.incarnations[tp], ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text))
            return
        if fetched.preferred_read_replica >= 0:
            self._replicas.named(tp, fetched.preferred_read_replica, self._now)
            return
        if request.offset != self._buffer.buffer(tp).fetch_position:
            return  # another broker was asked meanwhile, and has answered
        state = self._subscription.state(tp)
        state.high_watermark, state.log_start_offset = fetched.high_watermark, fetched.log_start_offset
        state.last_stable_offset = fetched.last_stable_offset
        self._subscription.leader_changed(tp, LeaderEpoch(request.current_leader_epoch))
        try:
            found = self._positions.at(tp, request.offset).take(fetched, had_room=had_room)
        except (CorruptRecord, RemoteProtocolError) as error:  # this partition's alone: the others in the answer go on
            self._failures[tp] = (asked.incarnations[tp], error)
            return
        if found.next_offset > request.offset:
            self._buffer.buffer(tp).add(found, self._answers)

    def _refused(
        self, tp: TopicPartition, refusal: Refusal, code: ErrorCode, request: FetchPartition, incarnation: int
    ) -> None:
        was_follower = self._replicas.back_to_leader(tp)
        if refusal is Refusal.OUT_OF_RANGE and was_follower:
            return
        if refusal is Refusal.MOVED:
            self._session.leaders.invalidate(tp.topic)
            self._refresh()
            return
        error = ApiError(code, f"partition {tp} at offset {request.offset}: {code.name}")
        self._failures[tp] = (incarnation, error)

    def _fail(self, asked: _Asked, error: Exception) -> None:
        for tp, incarnation in asked.incarnations.items():
            self._failures.setdefault(tp, (incarnation, error))

    # -- finding leaders

    def _refresh(self) -> None:
        if self._refreshing is None and not self._is_closed:
            self._refreshing = asyncio.create_task(self._find_leaders(), name="sparklog leaders")

    async def _find_leaders(self) -> None:
        try:
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
            topics = {tp.topic for tp in self._subscription.assignment}
            await refresh_wanted(self._session, self._config, self._subscription, topics)
            self._tell_of_leaderless()
        except SparklogError:
            return  # asked again by the next send
        finally:
            self._refreshing = None
            self._news.set()
        self.send()

    def _tell_of_leaderless(self) -> None:
        leaders = self._session.leaders
        leaderless = [tp for tp in self._subscription.fetchable() if leaders.leader(tp) is None]
        reasons = [leaders.why_no_leader(tp) for tp in leaderless if leaders.last_known(tp.topic) is not None]
        if reasons:
            self._session.obstacles.met("leaders", "; ".join(list(dict.fromkeys(reasons))[:5]))
        else:
            self._session.obstacles.over("leaders")


def _named(fetched: FetchedPartition, names: Mapping[UUID, str]) -> TopicPartition:
    return TopicPartition(fetched.topic or names.get(fetched.topic_id, ""), fetched.partition)
