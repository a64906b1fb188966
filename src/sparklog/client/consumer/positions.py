"""Finding where to read: what the group committed, what ``auto.offset.reset`` says, what a new leader still has.

Drives the subscription: each partition without a position gets one, each position that a new leader may not have is
checked with OffsetForLeaderEpoch. What passes is retried; the rest is kept for the next ``raise_failure``.

The three look-ups wait for each other no more than the leaders that one of them asks: who does not answer keeps only
its own partitions waiting.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping

from sparklog.client.cluster.epochs import epoch_ends, epoch_request
from sparklog.client.cluster.offsets import (
    LATEST,
    OffsetAndTimestamp,
    keep_found,
    list_offsets_request,
    listed_offsets,
)
from sparklog.client.cluster.retry import Backoff, is_retriable, raise_worst
from sparklog.client.cluster.session import Session
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.client.consumer.offset_reset import OffsetReset
from sparklog.client.consumer.subscription import Position, SubscriptionState
from sparklog.client.consumer.topics import refresh_wanted
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.structs import NO_EPOCH, BrokerId, IsolationLevel, LeaderEpoch, TopicPartition

_log = logging.getLogger(__name__)
FoundOffsets = dict[TopicPartition, OffsetAndTimestamp | None]
Waiting = Callable[[], Collection[TopicPartition]]
LookUp = Callable[[], Awaitable[None]]
Committed = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]


class Positions:
    """The look-ups of one consumer. ``settle`` after whatever may have left a partition without a position."""

    def __init__(
        self,
        session: Session,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        committed: Committed | None,
        news: asyncio.Event,
    ) -> None:
        self._session = session
        self._config = config
        self._subscription = subscription
        self._committed = committed
        self._news = news
        self._settling: dict[str, asyncio.Task[None]] = {}
        """The look-ups under way, by what they look for."""
        self._failure: Exception | None = None
        self._leaders_seen = -1

    # -- for the consumer's own sake

    def settle(self) -> None:
        """Begin to look up what is missing, if anything is."""
        self._look_at_leaders()
        self._begin("committed offsets", self._subscription.without_position, self._find_committed)
        self._begin("offsets", self._subscription.to_reset, self._reset)
        self._begin("leader epochs", self._subscription.to_validate, self._validate)

    def _begin(self, what: str, waiting: Waiting, look_up: LookUp) -> None:
        if what not in self._settling and self._failure is None and waiting():
            settling = self._settle(what, waiting, look_up)
            self._settling[what] = asyncio.create_task(settling, name="sparklog positions")

    def raise_failure(self) -> None:
        """Raise what made a look-up fail for good."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        settling = list(self._settling.values())
        for each in settling:
            each.cancel()
        await asyncio.gather(*settling, return_exceptions=True)

    def out_of_range(self, tp: TopicPartition, error: ApiError) -> None:
        """The position is not in the log any more: reset it as the policy says, or raise."""
        reset = self._config.reset
        if reset.timestamp(0) is None:
            raise error
        _log.warning("%s; it goes on at the %s offset, as auto.offset.reset says", error, reset)
        self._subscription.request_reset(tp, reset)

    def _look_at_leaders(self) -> None:
        leaders = self._session.leaders
        if leaders.generation != self._leaders_seen:
            self._leaders_seen = leaders.generation
            for tp in self._subscription.states:
                info = leaders.partition(tp)
                if info is not None:
                    self._subscription.leader_changed(tp, info.leader_epoch)

    async def _settle(self, what: str, waiting: Waiting, look_up: LookUp) -> None:
        backoff = self._session.backoff(patience=math.inf)
        try:
            while waiting() and self._failure is None:
                try:
                    await look_up()
                    backoff.reset()
                    self._session.obstacles.over(what)
                except SparklogError as error:
                    if not is_retriable(error):
                        raise
                    for tp in waiting():
                        self._session.leaders.invalidate(tp.topic)
                    self._tell(what, error)
                    await asyncio.sleep(_pause(backoff, error))
            self.settle()  # what this look-up has found may be to be looked up further
        except Exception as error:  # whatever it is, poll must raise it
            self._failure = self._failure or error
        finally:
            del self._settling[what]
            self._news.set()

    def _tell(self, what: str, error: SparklogError) -> None:
        """What does not exist is told at once; of missing topics the subscription has told already."""
        known = [self._session.leaders.last_known(tp.topic) for tp in self._subscription.assignment]
        if not isinstance(error, ApiError) or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._session.obstacles.met(what, error)
        elif None not in known:
            self._session.obstacles.met(what, error, at_once=True)

    async def _find_committed(self) -> None:
        """Where the group left off, else as the policy says."""
        waiting = {tp: self._subscription.state(tp).incarnation for tp in self._subscription.without_position()}
        found = await self._committed(list(waiting)) if self._committed is not None else {}
        failures = []
        for tp, incarnation in waiting.items():
            at = found.get(tp)
            if at is not None:
                self._subscription.place(tp, incarnation, Position(at.offset, LeaderEpoch(at.leader_epoch)))
            elif self._subscription.is_current(tp, incarnation):
                failures.append(self._begin_without_commit(tp))
        raise_worst(failures)

    def _begin_without_commit(self, tp: TopicPartition) -> ApiError | None:
        reset = self._config.reset
        if reset.timestamp(0) is None:
            return ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"partition {tp} has no committed offset in group {self._config.group_id!r} and auto.offset.reset is"
                " none: seek to where it should begin, or set auto.offset.reset to earliest or latest",
            )
        self._subscription.request_reset(tp, reset)
        return None

    async def _reset(self) -> None:
        waiting = self._subscription.to_reset()
        incarnations = {tp: self._subscription.state(tp).incarnation for tp in waiting}
        now, level = self._session.clock.now_ms(), self._config.isolation_level

        async def ask(broker: BrokerId, partitions: list[TopicPartition]) -> None:
            found: FoundOffsets = {}
            try:
                await self._ask_offsets(broker, {tp: _timestamp(waiting[tp], now) for tp in partitions}, found, level)
                ends = dict.fromkeys((tp for tp, at in found.items() if at is None), LATEST)
                if ends:
                    await self._ask_offsets(broker, ends, found, level)
            finally:
                for tp, at in found.items():
                    if at is not None:
                        self._subscription.place(tp, incarnations[tp], Position(at.offset))

        await self._ask_leaders(waiting, ask)

    async def _validate(self) -> None:
        """Ask where the epoch of the record before each position ended, by the leader's history.

        A position that moves meanwhile, for records that were taken before are still being given one by one, is asked
        about again: the answer is about another epoch.
        """
        waiting = {tp: self._subscription.state(tp).incarnation for tp in self._subscription.to_validate()}

        async def ask(broker: BrokerId, partitions: list[TopicPartition]) -> None:
            wanted, positions = {}, self._subscription.positions(partitions)
            for tp, position in positions.items():
                info = self._session.leaders.partition(tp)
                if info is not None:
                    wanted[tp] = (info.leader_epoch, position.epoch)
            answer = await self._session.request(broker, ApiKey.OFFSET_FOR_LEADER_EPOCH, epoch_request(wanted))
            failures: list[ApiError | None] = []
            for tp, code, epoch, end in epoch_ends(answer):
                is_current = self._subscription.is_current(tp, waiting[tp])
                if code is not ErrorCode.NONE:
                    failures.append(ApiError(code, f"the leader epochs of partition {tp}: {code.name}"))
                elif is_current and self._subscription.state(tp).position == positions[tp]:
                    ended = Position(end, LeaderEpoch(epoch))
                    failures.append(self._judge(tp, waiting[tp], LeaderEpoch(wanted[tp][0]), ended))
            raise_worst(failures)

        await self._ask_leaders(waiting, ask)

    def _judge(self, tp: TopicPartition, incarnation: int, leader_epoch: LeaderEpoch, end: Position) -> ApiError | None:
        position = self._subscription.state(tp).position
        assert position is not None
        if end.offset >= position.offset:
            self._subscription.validated(tp, incarnation, leader_epoch)
            return None
        reset = self._config.reset
        truncated = f"partition {tp} was cut off below the position {position.offset}, at {end.offset}"
        if reset.timestamp(0) is None:
            return ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{truncated}; seek to where it should go on")
        if end.offset < 0 or end.epoch == NO_EPOCH:
            _log.warning("%s; it goes on at the %s offset", truncated, reset)
            self._subscription.request_reset(tp, reset)
        else:
            _log.warning("%s; it goes on there", truncated)
            self._subscription.seek(tp, end)
        return None

    # -- for the program's questions

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], found: FoundOffsets, isolation: IsolationLevel | None = None
    ) -> None:
        """Add the offset each partition has for EARLIEST, LATEST or a timestamp (ms); None where no record is so young.

        Asks once; raises ApiError or ConnectionFailed, which may be retriable, when it has found what can be found.
        """
        level = self._config.isolation_level if isolation is None else isolation

        async def ask(broker: BrokerId, partitions: list[TopicPartition]) -> None:
            await self._ask_offsets(broker, {tp: wanted[tp] for tp in partitions}, found, level)

        await self._ask_leaders(wanted, ask)

    async def _ask_offsets(
        self, broker: BrokerId, wanted: Mapping[TopicPartition, int], found: FoundOffsets, level: IsolationLevel
    ) -> None:
        request = list_offsets_request(wanted, level, self._config.request_timeout_ms)
        answers = list(listed_offsets(await self._session.request(broker, ApiKey.LIST_OFFSETS, request)))
        for tp, code, _ in answers:
            if code is not ErrorCode.NONE:
                self._session.leaders.invalidate(tp.topic)
        keep_found(found, answers, "offsets of partition {}")

    # -- whom to ask

    async def _ask_leaders(
        self, partitions: Collection[TopicPartition], ask: Callable[[BrokerId, list[TopicPartition]], Awaitable[None]]
    ) -> None:
        """Ask the leaders of these, all at once. What keeps one from answering is raised when all others have."""
        leaders = self._session.leaders
        unknown = {tp.topic for tp in partitions if leaders.leader(tp) is None}
        if unknown:
            info = await refresh_wanted(self._session, self._config, self._subscription, unknown)
            info.raise_refusal(unknown)
        brokers: dict[BrokerId, list[TopicPartition]] = {}
        leaderless = []
        for tp in partitions:
            leader = leaders.leader(tp)
            if leader is None:
                leaderless.append(tp)
            else:
                brokers.setdefault(leader, []).append(tp)
        asked = (ask(broker, led) for broker, led in brokers.items())
        failures: list[BaseException | None] = await asyncio.gather(*asked, return_exceptions=True)
        if leaderless:
            failures.append(leaders.leaderless(leaderless))
        raise_worst(failures)


def _pause(backoff: Backoff, error: SparklogError) -> float:
    """A consumer waits for its cluster as long as it takes."""
    if backoff.expired:
        backoff.reset()
    return backoff.next_pause(error)


def _timestamp(reset: OffsetReset, now_ms: int) -> int:
    timestamp = reset.timestamp(now_ms)
    assert timestamp is not None
    return timestamp
