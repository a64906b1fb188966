"""Copies from one leader, over one connection: fetch after fetch, for all partitions that it leads and we follow.

Invariants: what is appended was asked for at the end of the log as it is then, under the leader epoch that the
controller told; else it is dropped. Where ``flush.messages`` wants it, what was copied is on the disk before another
fetch tells the leader of it; one flush serves all that came together. A failure of one partition pauses that one, and
no other. A lost connection costs the session, not a record. Each partition is appended in a turn of its own. A
partition that is to be copied while the leader has nothing for the others waits for no fetch that does not name it,
nor does one whose pause is over: the leader is asked to wait no longer than the pause.

A follower has no ``fetch.position``: it copies every batch, whatever a reader may see of it, and the end of its own log
is where it stands. The connection is none of ``net.peers``: it is hung up to give up a fetch that the leader holds, and
the fetch session ends with it.
Source: Kafka 3.9, ``AbstractFetcherThread.scala``.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, RemoteProtocolError, SparklogError
from sparklog.fetch.session import LOST, FetchPlan, FetchSession
from sparklog.net.async_connection import AsyncConnection
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as wire
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest
from sparklog.protocol.messages import ListOffsetsRequest
from sparklog.protocol.wire import ZERO_UUID
from sparklog.rate_limit import RateLimitedLogger
from sparklog.replica.following import Standing
from sparklog.replica.manager import ReplicaManager
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.structs import Endpoint, TopicPartition

_logger = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.02
"""After a failure; each that follows doubles it, up to ``replica.fetch.backoff.ms``."""
_SETTLED_S = 0.02
"""When no partition was added for so long, a fetch without those that were is given up for one with them; twice as long
for the next, until one is answered: they may come a few at a time, and each fetch names them all."""
_FIRST_VERSION = 12
"""Kafka 2.7's: from here on an answer tells of a diverging epoch."""
_LATEST, _EARLIEST = -1, -2
_SOON_OVER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""The leader knows more, or less, than we do of the controller's decisions: no news for the log."""


class _Outdated(Exception):
    """A fetch that the leader holds does not name all that is to be copied."""


class Leader(NamedTuple):
    """What a fetcher follows: a broker, and the connection to it, of ``num.replica.fetchers``."""

    broker_id: int
    number: int


class Ways(NamedTuple):
    """How leaders are reached."""

    find: Callable[[int], Endpoint | None]
    """Where a broker is, if it lives."""
    security: ConnectionSecurity = PLAIN


class _Followed:
    """A partition that is copied."""

    __slots__ = ("is_in_sync", "lag", "leader_epoch", "pause_s", "paused_until")

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.is_in_sync = False
        """Whether all is here that the leader last said to be committed."""
        self.lag = 0
        """Offsets of that which were missing then."""
        self.pause_s = 0.0
        self.paused_until = 0.0


class ReplicaFetcher:
    """Runs from its making to ``close``; belongs to the loop's thread."""

    def __init__(
        self,
        leader: Leader,
        config: BrokerConfig,
        replicas: ReplicaManager,
        turns: Turns,
        clock: Clock,
        *,
        ways: Ways,
        broker_epoch: Callable[[], int | None],
        on_contact: Callable[[int, bool], Awaitable[None]],
    ) -> None:
        """``broker_epoch`` says under which epoch this broker is registered. Where it is not, fetches bear the last
        one: a leader that counted on a fetch without an epoch could do so when this broker has started again.

        ``on_contact`` is told of the leader whether it was reached; if not, the next attempt is made when it returns.
        """
        self._leader = leader
        self._config = config
        self._replicas = replicas
        self._following = replicas.following
        self._turns = turns
        self._clock = clock
        self._ways = ways
        self._broker_epoch = broker_epoch
        self._last_epoch = -1
        self._on_contact = on_contact
        self._followed: dict[TopicPartition, _Followed] = {}
        # Each partition that is followed is in one of these three.
        self._asked: dict[TopicPartition, FetchPartition] = {}
        self._to_look_up: dict[TopicPartition, None] = {}
        self._paused: set[TopicPartition] = set()
        self._touched: dict[TopicPartition, None] = {}
        """Those of which something else is asked than in the last fetch, or nothing any more, or for the first time."""
        self._by_id: dict[tuple[UUID, int], TopicPartition] = {}
        self._without_id: set[TopicPartition] = set()
        self._session = FetchSession()
        self._connection: AsyncConnection | None = None
        self._pause_s = 0.0
        self._settled_s = _SETTLED_S
        self._changed = asyncio.Event()
        self._warnings = RateLimitedLogger(_logger, clock.monotonic)
        self._task = asyncio.ensure_future(self._run())

    def follow(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Copy this partition too, under this epoch."""
        self.leave(tp)
        self._followed[tp] = _Followed(leader_epoch)
        self._to_look_up[tp] = None
        self._pause_s = 0.0
        self._changed.set()

    def leave(self, tp: TopicPartition) -> None:
        """Copy it no longer."""
        if self._followed.pop(tp, None) is not None:
            self._ask_no_more(tp)
            self._to_look_up.pop(tp, None)
            self._paused.discard(tp)

    def _ask_for(self, tp: TopicPartition, asked: FetchPartition) -> None:
        self._asked[tp] = asked
        self._touched[tp] = None
        if asked.topic_id == ZERO_UUID:
            self._without_id.add(tp)
        else:
            self._by_id[asked.topic_id, tp.partition] = tp

    def _ask_no_more(self, tp: TopicPartition) -> None:
        asked = self._asked.pop(tp, None)
        if asked is not None:
            self._touched[tp] = None
            self._without_id.discard(tp)
            self._by_id.pop((asked.topic_id, tp.partition), None)

    @property
    def partitions(self) -> int:
        """How many are copied."""
        return len(self._followed)

    @property
    def max_lag(self) -> int:
        """The most offsets that one of them lacked of what its leader last said to be committed."""
        return max((each.lag for each in self._followed.values()), default=0)

    async def close(self) -> None:
        """Stop, and hang up."""
        while not self._task.done():  # more than once: an ``asyncio.timeout`` may take a cancellation for its own
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1)
        self._hang_up()

    def _hang_up(self) -> None:
        self._session.reset()
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
                self._pause_s, self._settled_s = 0.0, _SETTLED_S
            except _Outdated:
                self._hang_up()
                self._settled_s *= 2
            except (SparklogError, OSError) as error:
                text = f"cannot copy from broker {self._leader.broker_id}, trying again: {error}"
                self._warnings.repeat(str(error), text)
                if isinstance(error, ConnectionFailed):
                    await self._on_contact(self._leader.broker_id, False)
                await self._recover()
            except Exception:
                _logger.exception("copying from broker %d failed, trying again", self._leader.broker_id)
                await self._recover()

    async def _recover(self) -> None:
        self._hang_up()
        self._pause_s = self._longer(self._pause_s)
        await asyncio.sleep(self._pause_s)

    def _longer(self, pause_s: float) -> float:
        return min(max(2 * pause_s, _FIRST_PAUSE_S), self._config.replica_fetch_backoff_ms / 1000)

    async def _round(self) -> None:
        """One fetch, or a wait for something to be asked for."""
        self._changed.clear()
        await self._flush_awaited()
        self._look_up()
        if not self._asked:
            await self._wait_for_work()
            return
        endpoint = self._ways.find(self._leader.broker_id)
        if endpoint is None:
            raise ConnectionFailed(f"broker {self._leader.broker_id} is not registered")
        connection = await self._connect(endpoint)
        version = (await connection.versions()).best(ApiKey.FETCH, self._ceiling)
        if version < _FIRST_VERSION:
            raise ConnectionFailed(f"broker {self._leader.broker_id} is older than Kafka 2.7; it cannot be followed")
        plan = self._session.plan(self._asked, self._touched)
        self._touched = {}
        sent = self._session.remembered
        timeout = (self._config.replica_socket_timeout_ms + self._config.replica_fetch_wait_max_ms) / 1000
        body = wire.encode_request(self._request(plan), version)
        answer = await self._answer(connection.submit(ApiKey.FETCH, version, body, timeout=timeout))
        error, fetched = wire.decode_response(answer, version)
        self._session.answered(error, wire.session_id_of(answer, version))
        if error is not ErrorCode.NONE and error not in LOST:
            raise RemoteProtocolError(f"broker {self._leader.broker_id} refused a fetch: {error.name}")
        await self._take(sent, fetched)

    async def _answer(self, asked: asyncio.Future[memoryview]) -> memoryview:
        """Raises _Outdated if there is no answer, but partitions that are to be asked for too."""
        adding = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((asked, adding), return_when=asyncio.FIRST_COMPLETED)
            while not asked.done() and self._changed.is_set():
                self._changed.clear()
                await asyncio.wait((asked,), timeout=self._settled_s)
        finally:
            adding.cancel()
            asked.cancel()
        if asked.cancelled():
            raise _Outdated
        return asked.result()

    async def _flush_awaited(self) -> None:
        """Of those that are to be looked up, whichever leader gave what they have: the next fetch tells of it."""
        seen: set[TopicPartition] = set()
        while new := self._to_look_up.keys() - seen:  # others may be taken on during a flush
            seen |= new
            flushes = [flush for tp in new if (flush := self._flush_of(tp)) is not None]
            await asyncio.gather(*flushes, return_exceptions=True)

    def _flush_of(self, tp: TopicPartition) -> Coroutine[Any, Any, None] | None:
        try:
            return self._following.awaited_flush(tp)
        except ApiError:  # it is here no more
            return None

    async def _connect(self, endpoint: Endpoint) -> AsyncConnection:
        if self._connection is None or self._connection.closed or self._connection.endpoint != endpoint:
            self._hang_up()
            self._connection = await AsyncConnection.open(
                endpoint, client_id=f"replica-{self._replicas.broker_id}", security=self._ways.security
            )
            await self._on_contact(self._leader.broker_id, True)
        return self._connection

    @property
    def _ceiling(self) -> int:
        """Newer versions name topics by id alone, which not all may have."""
        return wire.TOPIC_ID_VERSION - 1 if self._without_id else wire.MAX_VERSION

    async def _wait_for_work(self) -> None:
        """Until another partition is to be copied, or a pause is over."""
        try:
            async with asyncio.timeout(self._pause_left_s()):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _pause_left_s(self) -> float | None:
        """Until the first of those that are paused is to be asked for again; None if none is."""
        paused = [self._followed[tp].paused_until for tp in self._paused]
        return max(min(paused) - self._clock.monotonic(), 0.0) if paused else None

    def _look_up(self) -> None:
        """Where to go on with those that were taken on, or have been given something, or whose pause is over."""
        now = self._clock.monotonic()
        for tp in [tp for tp in self._paused if self._followed[tp].paused_until <= now]:
            self._paused.discard(tp)
            self._to_look_up[tp] = None
        to_look_up, self._to_look_up = self._to_look_up, {}
        for tp in to_look_up:
            followed = self._followed[tp]
            if self._is_held_back(tp, followed):
                followed.paused_until = now + self._config.replica_fetch_backoff_ms / 1000
                self._paused.add(tp)
                continue
            asked = self._next_of(tp, followed)
            if asked is None:
                del self._followed[tp]
            else:
                self._ask_for(tp, asked)

    def _is_held_back(self, tp: TopicPartition, followed: _Followed) -> bool:
        """Whether its throttle forbids to copy it now. Source: Kafka 3.9, ``shouldFollowerThrottle``."""
        throttle = self._replicas.follower_throttle
        return not followed.is_in_sync and throttle.is_exceeded() and self._replicas.is_throttled(tp)

    def _next_of(self, tp: TopicPartition, followed: _Followed) -> FetchPartition | None:
        """None if it leads, or is gone, or its disk has failed."""
        try:
            standing = self._following.standing(tp, followed.leader_epoch)
        except ApiError:
            return None
        return FetchPartition(
            tp.topic,
            standing.topic_id or ZERO_UUID,
            tp.partition,
            standing.offset,
            self._config.replica_fetch_max_bytes,
            followed.leader_epoch,
            standing.latest_epoch,
            standing.log_start_offset,
        )

    def _request(self, plan: FetchPlan) -> FetchRequest:
        config, epoch, left_s = self._config, self._broker_epoch(), self._pause_left_s()
        wait_ms = config.replica_fetch_wait_max_ms
        self._last_epoch = self._last_epoch if epoch is None else epoch
        return FetchRequest(
            wait_ms if left_s is None else min(math.ceil(1000 * left_s), wait_ms),
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            plan.partitions,
            replica_id=self._replicas.broker_id,
            replica_epoch=self._last_epoch,
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            forgotten=plan.forgotten,
        )

    async def _take(self, sent: dict[TopicPartition, FetchPartition], fetched: list[FetchedPartition]) -> None:
        async for each in self._turns.paced(fetched):
            tp = self._by_id.get((each.topic_id, each.partition))
            if tp is None:
                tp = TopicPartition(each.topic, each.partition)
            asked = self._asked.get(tp)
            if asked is None or asked is not sent.get(tp):
                continue  # the controller decided anew about it meanwhile, or it is copied no more
            followed = self._followed[tp]
            self._ask_no_more(tp)
            self._to_look_up[tp] = None
            try:
                await self._take_partition(tp, followed, each)
                followed.pause_s = 0.0
            except ApiError as error:
                self._suffer(tp, followed, error)

    async def _take_partition(self, tp: TopicPartition, followed: _Followed, fetched: FetchedPartition) -> None:
        """Raises ApiError if that could not be, and is to be tried again after a pause."""
        epoch = followed.leader_epoch
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._return_to_range(tp, followed, self._following.standing(tp, epoch))
        elif fetched.error is not ErrorCode.NONE:
            raise ApiError(fetched.error, f"broker {self._leader.broker_id} says so")
        elif fetched.diverging is not None:
            await self._following.drop_diverged(tp, epoch, fetched.diverging)
        else:
            records = fetched.records[0] if fetched.records else None
            assert records is None or isinstance(records, memoryview)
            first = None if records is None else self._following.begins_within(tp, epoch, records)
            if first is not None:
                await self._following.begin_again_at(tp, epoch, first)
            self._following.append_from_leader(tp, epoch, records, fetched.high_watermark, fetched.log_start_offset)
            followed.lag = max(fetched.high_watermark - self._following.standing(tp, epoch).offset, 0)
            followed.is_in_sync = not followed.lag
            throttle = self._replicas.follower_throttle
            if records is not None and throttle.is_limited and self._replicas.is_throttled(tp):
                throttle.record(len(records))

    def _suffer(self, tp: TopicPartition, followed: _Followed, error: ApiError) -> None:
        """Pause the partition; one that is not to be followed any more is left."""
        if self._followed.get(tp) is not followed:
            return
        followed.pause_s = self._longer(followed.pause_s)
        followed.paused_until = self._clock.monotonic() + followed.pause_s
        self._to_look_up.pop(tp, None)
        self._paused.add(tp)
        if error.code not in _SOON_OVER:
            self._warnings.warn(f"{tp} {error.code.name}", f"cannot copy {tp}, trying again: {error}")

    async def _return_to_range(self, tp: TopicPartition, followed: _Followed, here: Standing) -> None:
        """The leader's log ends before ours, for it was elected though it lagged; or begins behind our end.

        Source: Kafka 3.9, ``AbstractFetcherThread.fetchOffsetAndTruncate``.
        """
        epoch = followed.leader_epoch
        end = await self._list_offset(tp, followed, _LATEST)
        if end < here.offset:
            _logger.warning("%s ends at %d with its leader, and at %d here: what is beyond goes", tp, end, here.offset)
            await self._following.drop_beyond(tp, epoch, end)
            return
        start = await self._list_offset(tp, followed, _EARLIEST)
        if start <= here.offset:  # it has changed since, or the leader knows less than it should: not at once again
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the leader has {start} to {end}, and refuses {here.offset}")
        text = "%s begins at %d with its leader, and ends at %d here: it begins again there"
        _logger.warning(text, tp, start, here.offset)
        await self._following.begin_again_at(tp, epoch, start)

    async def _list_offset(self, tp: TopicPartition, followed: _Followed, timestamp: int) -> int:
        """Raises ApiError, also where the controller decided anew meanwhile: the answer may be of another topic."""
        assert self._connection is not None
        topic_type = ListOffsetsRequest.ListOffsetsTopic
        asked = topic_type.ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=followed.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._replicas.broker_id,
            isolation_level=0,
            topics=[topic_type(name=tp.topic, partitions=[asked])],
        )
        answer = await self._connection.request(ApiKey.LIST_OFFSETS, lambda _: request, ceiling=9)
        if self._followed.get(tp) is not followed:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, "the controller decided anew about it")
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise ApiError(ErrorCode(found.error_code), f"broker {self._leader.broker_id} cannot tell its offsets")
        return int(found.offset)
