"""``GroupMember``: one consumer in its group. A thread of it rebalances; ADR 40 says what always holds.

A round is the six steps of the design: read who and what there is, with a watch on all of it; compute the share; stop
reading what is not in it; give up what nobody has in hand; claim what is new; read that from its offset. What has to
wait (a claim that another has, records in hand) is left for the next round. A round is due after every watch and every
event of the session, when records are done with that somebody waits for, and after ``rebalance.backoff.ms`` where
something was left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import RLock, Thread
from typing import NamedTuple

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.zookeeper import group
from sparklog.client.zookeeper.config import ZooKeeperConsumerConfig
from sparklog.client.zookeeper.group import Layout, Member
from sparklog.client.zookeeper.registry import Claim, GroupRegistry, StoredOffset
from sparklog.client.zookeeper.stream import Desk, Stream
from sparklog.clock import Clock
from sparklog.errors import ClientClosed, ConsumerIdTaken, CoordinationError, LayoutConflict
from sparklog.structs import TopicPartition
from sparklog.zk.znode_client import SessionEvent
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
_LOOK_S = 0.2
"""Between two looks whether an id has become free."""
_LEAST_TIMEOUT_S = 4.0
"""ZooKeeper grants no session less than two of its ticks, which are of 2 s unless it is told otherwise."""
_TIMEOUTS_TO_WAIT = 2
"""A dead session is kept for its timeout and at most a tick."""
MakeSource = Callable[[Mapping[int, BrokerInfo]], Consumer]


class _Held(NamedTuple):
    claim: Claim
    stream: Stream
    stored: StoredOffset


class _Wanted(NamedTuple):
    claim: Claim
    stream: Stream


class GroupMember:
    """``streams_of(topic)`` gives the streams of a topic, by their numbers; ``make_source`` makes what fetches."""

    def __init__(
        self,
        config: ZooKeeperConsumerConfig,
        consumer: str,
        clock: Clock,
        make_source: MakeSource,
    ) -> None:
        self._config, self._clock, self._make_source = config, clock, make_source
        self.id = consumer
        self.desk = Desk(clock, self._on_done, self.commit)
        self._streams_of: Callable[[str], list[Stream]] = lambda _: []
        self._streams: list[Stream] = []
        self._subscription: group.Subscription | None = None
        self._work = RLock()
        """One round, or one commit, at a time; taken before the desk's lock."""
        self._held: dict[TopicPartition, _Held] = {}
        self._leaving: set[TopicPartition] = set()
        """Held still, and not read any more."""
        self._unsure: set[Claim] = set()
        """Asked for in rounds that failed: some may stand in ZooKeeper."""
        self._is_connected = True
        self._losses = self._losses_seen = 0
        """How often the session was lost, and how many of these losses the claims know of."""
        self._due = self._closing = False
        self._retry_at: float | None = None
        self._id_taken_since: float | None = None
        self._commit_at = clock.monotonic() + self._commit_s
        self._thread: Thread | None = None
        self._registry = GroupRegistry(
            config.zookeeper_connect,
            config.group_id,
            config.layout,
            session_timeout=config.session_timeout_ms / 1000,
            connect_timeout=config.connection_timeout_ms / 1000,
            on_session=self._on_session,
            security=config.security,
        )

    @property
    def _commit_s(self) -> float:
        return self._config.auto_commit_interval_ms / 1000

    # the session and the watches, on ZooKeeper's thread

    def _on_session(self, event: str) -> None:
        with self.desk.changed:
            self._is_connected = event == SessionEvent.CONNECTED
            if event == SessionEvent.EXPIRED and not self._closing:
                _logger.warning("consumer %s lost its ZooKeeper session, and all its claims with it", self.id)
                self._losses += 1
            self._set_live()
            self._kick()

    def _set_live(self) -> None:
        is_whole = self._is_connected and self._losses == self._losses_seen
        self.desk.is_live = is_whole and not self._closing and self.desk.failure is None
        self.desk.changed.notify_all()

    def _kick(self) -> None:
        """Have a round soon."""
        with self.desk.changed:
            self._due = True
            self.desk.changed.notify_all()

    def _on_done(self) -> None:
        if self._leaving:
            self._kick()

    # joining and leaving

    def join(
        self, subscription: group.Subscription, streams: list[Stream], streams_of: Callable[[str], list[Stream]]
    ) -> None:
        """Register, rebalance once, and go on with that on a thread. Raises ConsumerIdTaken and LayoutConflict."""
        self._subscription, self._streams, self._streams_of = subscription, streams, streams_of
        with self._work:
            self._check_layout(self._registry.members(self._kick), joins=True)
            while not self._register():
                with self.desk.changed:
                    self.desk.changed.wait(_LOOK_S)
            with self.desk.changed:
                self._set_live()
            self._attempt()
        self._thread = Thread(target=self._run, name=f"sparklog consumer {self.id}", daemon=True)
        self._thread.start()
        if self.desk.failure is not None:
            raise self.desk.failure

    def close(self, counts_given: bool) -> None:
        """Stop reading, write the offsets, give the claims up, and end the session."""
        with self.desk.changed:
            self._closing = True
            self.desk.failure = self.desk.failure or ClientClosed("this consumer was closed")
            self._set_live()
        if not self._is_connected:
            self._registry.close()  # what waits for ZooKeeper fails
        if self._thread is not None:
            self._thread.join()
        try:
            with self._work, suppress(CoordinationError):
                self._stop_all(counts_given)
                self._registry.leave(self.id)
        finally:
            self._registry.close()
            for stream in self._streams:
                with stream.exclusively():
                    stream.close()

    def _stop_all(self, counts_given: bool) -> None:
        for stream in self._streams:
            stream.finish() if counts_given else stream.forget_hand()
        if self._losses == self._losses_seen:
            self._stop_reading(set(self._held))
            self._give_up(set(self._held))

    def _register(self) -> bool:
        """Whether the id is this session's. Raises ConsumerIdTaken if another keeps it longer than a dead one could."""
        assert self._subscription is not None
        member = Member(self.id, self._subscription, self._config.layout)
        if self._registry.register(member, self._clock.now_ms()):
            self._id_taken_since = None
            return True
        now = self._clock.monotonic()
        if self._id_taken_since is None:
            self._id_taken_since = now
        patience = _TIMEOUTS_TO_WAIT * max(self._config.session_timeout_ms / 1000, _LEAST_TIMEOUT_S)
        owner = self._registry.holder(self.id)
        if owner is not None and now - self._id_taken_since > patience:
            raise ConsumerIdTaken(self._config.group_id, self.id, owner)
        return False

    def _check_layout(self, members: Iterable[Member], joins: bool = False) -> None:
        """Kafka's own consumers do not look at each other's layout, so the first design's yield to them."""
        layout = self._config.layout
        other = group.other_layout(members, layout)
        if other is not None and (joins or layout is Layout.BROKER_PARTITION):
            raise LayoutConflict(
                f"group {self._config.group_id!r} has a member {other.id!r} of the layout {other.layout.value}, and"
                f" this consumer is of {layout.value}: both would read everything; set sparklog.registry.layout="
                f"{other.layout.value}, or stop that member"
            )

    # the thread

    def _run(self) -> None:
        while self._wait(self._pause()):
            now = self._clock.monotonic()
            with self._work:
                if self._due or (self._retry_at is not None and now >= self._retry_at):
                    self._attempt()
                if self._config.auto_commit and now >= self._commit_at:
                    self._commit_at = now + self._commit_s
                    self._commit_if_possible()

    def _wait(self, seconds: float | None) -> bool:
        """Until a round is due, or for so long; False at the end."""
        with self.desk.changed:
            self.desk.changed.wait_for(lambda: self._due or self._closing, seconds)
            return not self._closing and self.desk.failure is None

    def _pause(self) -> float | None:
        """Seconds until something has to be done in any case; None for never."""
        times = [self._retry_at] if self._retry_at is not None else []
        if self._config.auto_commit:
            times.append(self._commit_at)
        return max(0.0, min(times) - self._clock.monotonic()) if times else None

    def _attempt(self) -> None:
        with self.desk.changed:
            self._due = False
        self._retry_at = None
        try:
            is_settled = self._round()
        except (ConsumerIdTaken, LayoutConflict) as error:
            self._fail(error)
            return
        except CoordinationError as error:
            _logger.warning("consumer %s could not rebalance, trying again: %s", self.id, error)
            is_settled = False
        except Exception as error:
            _logger.exception("consumer %s cannot rebalance", self.id)
            self._fail(error)
            return
        if not is_settled:
            self._retry_at = self._clock.monotonic() + self._config.rebalance_backoff_ms / 1000

    def _fail(self, error: Exception) -> None:
        """Own nothing from now on; whoever polls is told."""
        with self.desk.changed:
            self.desk.failure = error
            self._set_live()
        for stream in self._streams:
            stream.forget_hand()
        with suppress(CoordinationError):
            self._stop_reading(set(self._held))
            self._give_up(set(self._held))
            self._withdraw(set(self._unsure))
            self._registry.leave(self.id)

    # a round

    def _round(self) -> bool:
        """Whether nothing is left to be done."""
        self._forget_lost()
        if not self._register():
            return False
        members = self._registry.members(self._kick)
        self._check_layout(members)
        brokers = self._registry.brokers(self._kick)
        wanted = self._share(members)
        self._stop_reading({tp for tp, held in self._held.items() if not _is_wanted(held, wanted)})
        self._give_up({tp for tp in self._leaving if self._may_go(tp)})
        self._withdraw(self._unsure.difference(each.claim for each in wanted.values()))
        self._claim([each for tp, each in wanted.items() if tp not in self._held])
        self._start_reading(brokers)
        return not self._leaving and wanted.keys() <= self._held.keys()

    def _forget_lost(self) -> None:
        """After the loss of a session: nothing is claimed, in hand or to be stored."""
        losses = self._losses
        if losses == self._losses_seen:
            return
        self._stop_reading(set(self._held))
        for tp, held in self._held.items():
            held.stream.forget(tp)
        self._held, self._leaving = {}, set()
        with self.desk.changed:
            self._losses_seen = losses
            self._set_live()

    def _share(self, members: list[Member]) -> dict[TopicPartition, _Wanted]:
        """What is this member's, by the topics and members that there are."""
        subscription, layout = self._subscription, self._config.layout
        assert subscription is not None
        excluded = self._config.exclude_internal
        topics: Iterable[str] = subscription.streams
        if subscription.pattern is not group.Pattern.STATIC:
            topics = subscription.topics(self._registry.topics(self._kick), excluded)
        wanted = {}
        for topic in topics:
            homes = self._registry.homes(topic, self._kick)
            streams = {group.owner_name(self.id, place): each for place, each in enumerate(self._streams_of(topic))}
            shares = group.assign(layout, homes, group.owners_of(members, topic, excluded))
            for partition, owner in shares.items():
                if owner in streams:
                    tp = TopicPartition(topic, partition)
                    claim = Claim(tp, owner, group.partition_name(layout, homes[partition], partition))
                    wanted[tp] = _Wanted(claim, streams[owner])
        return wanted

    def _stop_reading(self, partitions: set[TopicPartition]) -> None:
        for stream, mine in self._by_stream(partitions - self._leaving).items():
            with stream.exclusively():
                stream.stop_reading(mine)
        self._leaving |= partitions

    def _by_stream(self, partitions: Iterable[TopicPartition]) -> dict[Stream, list[TopicPartition]]:
        found: dict[Stream, list[TopicPartition]] = {}
        for tp in partitions:
            found.setdefault(self._held[tp].stream, []).append(tp)
        return found

    def _may_go(self, tp: TopicPartition) -> bool:
        since = self._held[tp].stream.in_hand_since(tp)
        return since is None or self._clock.monotonic() - since >= self._config.max_poll_interval_ms / 1000

    def _give_up(self, partitions: set[TopicPartition]) -> None:
        """First the offsets, then the claims."""
        if not partitions:
            return
        if self._config.auto_commit:
            self._store(partitions)
        self._registry.release([self._held[tp].claim for tp in partitions])
        for tp in partitions:
            self._held.pop(tp).stream.forget(tp)
            self._leaving.discard(tp)

    def _claim(self, wanted: Sequence[_Wanted]) -> None:
        """Claim these. When one that another has becomes free, there is another round."""
        if not wanted:
            return
        claims = {each.claim: each.stream for each in wanted}
        self._unsure |= claims.keys()
        won = self._registry.claim(claims)
        if self._losses != self._losses_seen:
            self._registry.release(won)  # of a session that the other claims are not of
            raise CoordinationError("the ZooKeeper session was lost meanwhile")
        for claim in claims.keys() - won:
            if self._registry.is_free(claim, self._kick):
                self._kick()
        offsets = self._registry.offsets(won)
        self._held |= {claim.tp: _Held(claim, claims[claim], offsets[claim]) for claim in won}
        self._unsure -= claims.keys()

    def _withdraw(self, claims: set[Claim]) -> None:
        """Leave nothing in ZooKeeper of claims that are not wanted any more: nobody else could have them."""
        if claims:
            self._registry.release(claims)
            self._unsure -= claims

    def _start_reading(self, brokers: Mapping[int, BrokerInfo]) -> None:
        unread = [tp for tp, held in self._held.items() if tp not in self._leaving and tp not in held.stream.assignment]
        for stream, mine in self._by_stream(unread).items():
            with stream.exclusively():
                source = stream.source or self._make_source(brokers)
                stream.read(source, {tp: self._held[tp].stored.offset for tp in mine})

    # offsets

    def commit(self, streams: Collection[Stream]) -> dict[TopicPartition, int]:
        """Write what the user got of these streams as done; the offsets of the partitions that are theirs."""
        with self._work:
            for stream in streams:
                stream.count_given()
                with stream.exclusively():
                    stream.learn_beginnings()
            if self._losses != self._losses_seen:
                return {}
            theirs = {tp for tp, held in self._held.items() if held.stream in streams}
            self._store(theirs)
            stored = {tp: self._held[tp].stored.offset for tp in theirs}
            return {tp: offset for tp, offset in stored.items() if offset is not None}

    def _commit_if_possible(self) -> None:
        for stream in self._streams:
            with stream.exclusively():
                stream.learn_beginnings()
        try:
            if self._losses == self._losses_seen:
                self._store(set(self._held))
        except CoordinationError as error:
            _logger.warning("consumer %s could not write its offsets, trying again: %s", self.id, error)

    def _store(self, partitions: set[TopicPartition]) -> None:
        """Write the offsets that moved on."""
        offsets = {}
        for tp in partitions:
            held = self._held[tp]
            at = held.stream.done(tp)
            if at is not None and at != held.stored.offset:
                offsets[held.claim] = (at, held.stored)
        if not offsets:
            return
        stored = self._registry.store(offsets)
        for claim in offsets:
            if claim in stored:
                self._held[claim.tp] = self._held[claim.tp]._replace(stored=stored[claim])
            else:
                _logger.warning("consumer %s does not hold %s any more: its offset was not written", self.id, claim.tp)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions whose records it gives now."""
        if not self.desk.is_live:
            return frozenset()
        return frozenset(tp for stream in self._streams for tp in stream.assignment)


def _is_wanted(held: _Held, wanted: Mapping[TopicPartition, _Wanted]) -> bool:
    found = wanted.get(held.claim.tp)
    return found is not None and found.claim == held.claim
