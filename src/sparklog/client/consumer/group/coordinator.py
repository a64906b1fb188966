"""The membership at work: joins, heartbeats, commits and leaves on the wire what ``membership`` decides.

Two things run by themselves: heartbeats, and a join once it has begun; so a group does not wait for a consumer that
is busy. What concerns the consumer's user (giving up partitions, being assigned others) happens in ``step`` alone,
which the consumer calls when it polls.

In ``step``, in this order: positions are committed (auto-commit), ``on_revoked`` or ``on_lost`` runs, partitions leave
the subscription, the member joins; later, with the assignment, partitions enter it and ``on_assigned`` runs. An
exception of a callback is raised when the step is done: the member's state does not depend on it. What a step that is
cancelled has not done to its end, the next one does: a callback that was cut short counts as not called.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from sparklog.client.cluster.retry import is_retriable
from sparklog.client.cluster.session import COORDINATOR, Build, CoordinatorKind, Session
from sparklog.client.consumer.assignors.base import group_members
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.group.commits import Commits
from sparklog.client.consumer.group.membership import (
    Assigned,
    Membership,
    Verdict,
    group_settings,
)
from sparklog.client.consumer.group.metadata import GroupMetadata
from sparklog.client.consumer.group.offsets import GroupOffsets
from sparklog.client.consumer.subscription import Mode, SubscriptionState
from sparklog.client.consumer.topics import refresh_wanted
from sparklog.errors import ConnectionFailed, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import A, JoinGroupResponse, SyncGroupResponse
from sparklog.protocol.subscription import decode_assignment
from sparklog.structs import BrokerId, TopicPartition

_log = logging.getLogger(__name__)
_JOIN_LANE = "join"
"""A JoinGroup is held at the broker: heartbeats and commits must not wait behind it."""
_JOIN_GRACE = 5.0
_MISSING_TOPICS_INTERVAL = 1.0

Callback = Callable[[list[TopicPartition]], Awaitable[None] | None]


class Callbacks(NamedTuple):
    """What the user wants to be told; without ``on_lost``, ``on_revoked`` is told of what was lost too."""

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None


class ConsumerCoordinator:
    """One consumer's part in its group, or its group's offsets alone where it assigns partitions by hand."""

    def __init__(
        self, session: Session, config: ConsumerConfig, subscription: SubscriptionState, news: asyncio.Event
    ) -> None:
        self._session = session
        self._config = config
        self._subscription = subscription
        self._news = news
        self._settings = group_settings(config)
        self._membership = Membership(self._settings, session.clock.monotonic())
        self.offsets = GroupOffsets(session, config, subscription, self._membership)
        self.commits = Commits(self.offsets, config, session.clock, news)
        self._tasks: list[asyncio.Task[None]] = []
        self._joining: asyncio.Task[Assigned | None] | None = None
        self._syncing: asyncio.Timeout | None = None
        """What ends the wait for SyncGroup's answer."""
        self._assigned: Assigned | None = None
        """What a join brought, until the user is told of all of it."""
        self._stirred = asyncio.Event()
        self._failure: Exception | None = None
        self._watched: dict[str, int] | None = None
        self._group_topics: frozenset[str] = frozenset()
        self.callbacks = Callbacks()

    @property
    def metadata(self) -> GroupMetadata:
        """What the consumer is to its user: a member of the generation whose assignment that was told last."""
        taken = self._membership.taken
        return GroupMetadata(self._settings.group_id, taken.number, taken.member_id, self._settings.instance_id)

    # -- the group, as far as the user is concerned

    async def step(self) -> None:
        """Do what the group wants of a consumer that polls. Does not wait for others."""
        if not self._subscription.is_group_managed:
            return
        self._membership.polled(self._now())
        if not self._tasks:
            beat, watch = self._beat(), self._watch()
            self._tasks = [asyncio.create_task(each, name="sparklog member") for each in (beat, watch)]
        self._raise_failure()
        if self._joining is not None and self._joining.done():
            joining, self._joining = self._joining, None
            self._assigned = joining.result()
        if self._assigned is not None:
            await self._take(self._assigned)
        self._look_at_topics()
        if self._membership.needs_join and self._joining is None:
            await self._give_up()
            self._membership.check()
            self._joining = asyncio.create_task(self._join(), name="sparklog join")
            self._joining.add_done_callback(lambda _: self._news.set())

    def subscription_changed(self) -> None:
        """The user subscribed to something else."""
        self._membership.request_rejoin("the subscription has changed")

    async def leave(self) -> None:
        """Give everything up and leave the group; a static member keeps its place there. Cut short, a poll rejoins.

        Raises what a callback raised, when that is done.
        """
        self._membership.request_rejoin("the consumer did not leave in time")
        joining, self._joining = self._joining, None
        if joining is not None:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
        failure = None
        if self._membership.owned:
            try:
                await self._give_up(everything=True)
            except Exception as error:
                failure = error
        await self._send_leave()
        await self.stop()
        self._failure = self._watched = None
        if failure is not None:
            raise failure

    async def stop(self) -> None:
        """End what runs by itself, without a word to the group."""
        running: list[asyncio.Task[Any]] = [*self._tasks, *([self._joining] if self._joining else [])]
        self._tasks, self._joining = [], None
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _give_up(self, *, everything: bool = False) -> None:
        wants = _nothing if everything else self._subscription.wants
        surrender = self._membership.surrender(wants)
        self._subscription.give_up(surrender.partitions)
        if not surrender.lost:
            await self.offsets.auto_commit()
            surrender = self._membership.surrender(wants)  # the commit may have shown that all is lost
        callback = self.callbacks.on_lost if surrender.lost else self.callbacks.on_revoked
        if surrender.lost and callback is None:
            callback = self.callbacks.on_revoked
        failure = await _tell(callback, surrender.partitions) if surrender.partitions else None
        self._membership.gave_up(surrender.partitions)
        self._subscription.assigned_by_group(self._membership.owned)
        if failure is not None:
            raise failure

    async def _take(self, assigned: Assigned) -> None:
        membership, wants, failure = self._membership, self._subscription.wants, None
        change = membership.take(assigned, wants)
        if change is not None:
            _log.info("group %s, generation %s: %s", self._settings.group_id, assigned.generation.number, change)
        if change is not None and change.revoked:
            self._subscription.give_up(change.revoked)
            await self.offsets.auto_commit()
            change = membership.take(assigned, wants)  # the commit may have shown that all is lost
        if change is not None and change.revoked:
            failure = await _tell(self.callbacks.on_revoked, change.revoked)
            membership.gave_up(change.revoked)
            change = membership.take(assigned, wants)
        if change is not None:
            self._subscription.assigned_by_group(membership.owned + change.added)
            failure = await _tell(self.callbacks.on_assigned, change.added) or failure
            membership.got(assigned)
        self._assigned = None
        if failure is not None:
            raise failure

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # -- joining

    async def _join(self) -> Assigned | None:
        """The assignment; None where the user must first give something up."""
        while True:
            try:
                verdict, assigned = await self._join_once()
            except SparklogError as error:
                if not is_retriable(error):
                    raise
                self._session.obstacles.met("group", f"joining group {self._settings.group_id!r}: {error}")
                verdict, assigned = Verdict.FIND_COORDINATOR, None
            if verdict is Verdict.GO_ON:
                self._session.obstacles.over("group")
                return assigned
            await self._after(verdict)
            if self._membership.surrender(self._subscription.wants).partitions:
                return None

    async def _join_once(self) -> tuple[Verdict, Assigned | None]:
        if self._subscription.mode is Mode.PATTERN:
            await self._match_topics()
        membership = self._membership
        broker = await self._coordinator()
        if membership.surrender(self._subscription.wants).partitions:
            return Verdict.AGAIN, None  # what there was to give up may have become more meanwhile
        request = membership.join(self._subscription.topics, self._now())
        patience = self._settings.max_poll_interval + _JOIN_GRACE
        answer = await self._ask(broker, ApiKey.JOIN_GROUP, request, patience)
        verdict = membership.joined(answer)
        if verdict is not Verdict.GO_ON:
            return verdict, None
        self._stirred.set()
        sent = membership.generation
        shares = await self._lead(answer) if membership.is_leader else {}
        if membership.generation != sent:
            return Verdict.AGAIN, None
        share = await self._sync(broker, membership.sync(shares), patience)
        verdict = membership.synced(sent, share, self._now())
        if verdict is not Verdict.GO_ON:
            return verdict, None
        return verdict, Assigned(sent, decode_assignment(share.assignment).partitions)

    async def _sync(self, broker: BrokerId, request: Build[SyncGroupResponse], patience: float) -> SyncGroupResponse:
        """The assignment may take as long as the slowest member, but a coordinator that has it answers heartbeats.

        Raises ConnectionFailed where it does not.
        """
        try:
            async with asyncio.timeout(None) as self._syncing:
                return await self._ask(broker, ApiKey.SYNC_GROUP, request, patience)
        except TimeoutError:
            raise ConnectionFailed(f"broker {broker} coordinates the group no more, or does not answer") from None
        finally:
            self._syncing = None

    def _sync_no_longer(self) -> None:
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.reschedule(asyncio.get_running_loop().time())

    async def _ask(self, broker: BrokerId, api: ApiKey, request: Build[A], timeout: float) -> A:
        return await self._session.request(broker, api, request, timeout=timeout, lane=_JOIN_LANE)

    async def _lead(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """The leader's assignment, made with fresh metadata of everything that the group reads."""
        topics = {topic for each in group_members(answer) for topic in each.subscription.topics}
        self._group_topics = frozenset(topics)
        await refresh_wanted(self._session, self._config, self._subscription, topics)
        self._watched = self._partition_counts()
        return self._membership.assignments(answer, self._watched)

    def _partition_counts(self) -> dict[str, int]:
        known = {topic: self._session.leaders.topic(topic) for topic in self._group_topics}
        return {topic: len(info.partitions) for topic, info in known.items() if info is not None}

    async def _after(self, verdict: Verdict) -> None:
        if verdict is Verdict.FIND_COORDINATOR:
            self._forget_coordinator()
        if verdict is not Verdict.AGAIN:
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def _coordinator(self) -> BrokerId:
        return await self._session.coordinator(CoordinatorKind.GROUP, self._settings.group_id)

    def _forget_coordinator(self) -> None:
        self._session.forget_coordinator(CoordinatorKind.GROUP, self._settings.group_id)

    # -- topics that come, go and grow

    async def _match_topics(self) -> None:
        info = await self._session.refresh(None)
        self._subscription.match(name for name, topic in info.topics.items() if not topic.internal)

    def _look_at_topics(self) -> None:
        if not self._membership.is_leader or self._watched is None or self._joining is not None:
            return
        counts = self._partition_counts()
        known = {topic: counts.get(topic, self._watched.get(topic)) for topic in self._group_topics}
        if {topic: count for topic, count in known.items() if count is not None} != self._watched:
            self._membership.request_rejoin("topics that the group reads have changed")

    async def _watch(self) -> None:
        """Look for topics that the pattern matches, and for those that are missing; the session renews the others."""
        if self._subscription.mode is not Mode.PATTERN:  # which is matched before the member joins
            await self._look_for_topics()
        while True:
            missing = any(self._session.leaders.topic(topic) is None for topic in self._subscription.topics)
            seconds = self._config.metadata_max_age_ms / 1000
            await asyncio.sleep(min(seconds, _MISSING_TOPICS_INTERVAL) if missing else seconds)
            await self._look_for_topics()

    async def _look_for_topics(self) -> None:
        try:
            if self._subscription.mode is not Mode.PATTERN:
                wanted = self._subscription.topics | self._group_topics
                info = await refresh_wanted(self._session, self._config, self._subscription, wanted)
                info.raise_refusal(self._subscription.topics)
            else:
                before = self._subscription.topics
                await self._match_topics()
                if self._subscription.topics != before:
                    self.subscription_changed()
        except SparklogError as error:
            if is_retriable(error):
                return
            self._failure = error
        self._news.set()

    # -- staying a member

    async def _beat(self) -> None:
        while True:
            try:
                await self._beat_once()
            except Exception as error:  # whatever it is, poll must raise it
                self._failure = error
                self._news.set()
                await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def _beat_once(self) -> None:
        membership = self._membership
        wait = membership.wait_for_heartbeat(self._now())
        if wait is None:
            self._stirred.clear()
            await self._stirred.wait()
        elif wait > 0:
            await asyncio.sleep(wait)
        elif membership.is_stuck(self._now()):
            _log.warning(
                "the consumer has not polled for %g s and leaves group %s, so that its partitions are read by others:"
                " poll more often, lower max.poll.records, or raise max.poll.interval.ms",
                self._settings.max_poll_interval,
                self._settings.group_id,
            )
            await self._send_leave()
        else:
            await self._send_heartbeat()
        if membership.needs_join:
            self._news.set()

    async def _send_heartbeat(self) -> None:
        membership = self._membership
        if membership.has_expired(self._now()):
            self._forget_coordinator()
        sent, request = membership.generation, membership.heartbeat(self._now())
        patience = min(self._settings.session_timeout, self._config.request_timeout_ms / 1000)
        try:
            broker = await self._coordinator()
            answer = await self._session.request(broker, ApiKey.HEARTBEAT, request, timeout=patience, lane=COORDINATOR)
        except SparklogError as error:
            if not is_retriable(error):
                raise
            if membership.generation == sent:
                self._sync_no_longer()
            await self._after(Verdict.FIND_COORDINATOR)
            return
        before = membership.generation
        verdict = membership.heartbeat_answered(sent, ErrorCode(answer.error_code), self._now())
        if membership.generation != before:
            self._sync_no_longer()
        if verdict is not Verdict.GO_ON:
            await self._after(verdict)

    async def _send_leave(self) -> None:
        request = self._membership.leave()
        if request is None:
            return
        try:
            broker = await self._coordinator()
            await self._session.request(broker, ApiKey.LEAVE_GROUP, request, timeout=5.0, lane=COORDINATOR)
        except SparklogError as error:
            _log.info("the coordinator was not told that the consumer leaves, and will find out: %s", error)

    def _now(self) -> float:
        return self._session.clock.monotonic()


async def _tell(callback: Callback | None, partitions: Collection[TopicPartition]) -> Exception | None:
    """Run a callback; what it raises is returned."""
    if callback is None:
        return None
    try:
        result = callback(sorted(partitions))
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        return error
    return None


def _nothing(topic: str) -> bool:  # noqa: ARG001
    return False
