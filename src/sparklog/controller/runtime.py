"""Drives the controller: takes the office, watches ZooKeeper, writes decisions, tells the brokers.

Level-triggered: whatever a watch says, the answer is to look again, at the brokers, the topics and the deletions asked
for, and to bring the rest of the cluster in line. A watch that fires twice, or for nothing, costs a look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from sparklog.clock import Clock
from sparklog.controller import requests
from sparklog.controller.channel import BrokerChannel
from sparklog.controller.context import ControllerContext
from sparklog.controller.election import decide
from sparklog.errors import CoordinationError, ErrorCode, MalformedZnode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message
from sparklog.structs import TopicPartition
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
_LOOK_AT_LEAST_EVERY_S = 5.0
"""Also without a watch: a word lost on the way to this loop costs seconds, not the cluster's attention."""
RunZk = Callable[..., Awaitable[Any]]
"""Runs a blocking ZooKeeper call off the loop and awaits what it gives."""


class Controller:
    """This broker's candidacy, and its term in office when it has one."""

    def __init__(self, broker_id: int, zk: ZkClient, run_zk: RunZk, clock: Clock) -> None:
        self._id = broker_id
        self._zk = zk
        self._run_zk = run_zk
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._context: ControllerContext | None = None
        self._channels: dict[int, BrokerChannel] = {}
        self._look = asyncio.Event()
        self._stand = asyncio.Event()
        # Made once: a look that sets a watch anew, while the last one has not fired, then adds nothing to it.
        self._on_office_change = self._wake(self._stand, self._look)
        self._on_cluster_change = self._wake(self._look)
        self._task: asyncio.Task[None] | None = None
        self._brokers_changed = False
        self._grown: set[str] = set()

    @property
    def is_active(self) -> bool:
        return self._context is not None

    @property
    def context(self) -> ControllerContext | None:
        """What the controller knows; None out of office."""
        return self._context

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._resign()

    def on_session_expired(self) -> None:
        """The office went with the session; stand again."""
        self._stand.set()
        self._look.set()

    def look_at(self, topic: str) -> None:
        """Partitions were added to the topic: read its assignment again."""
        self._grown.add(topic)
        self._look.set()

    def _wake(self, *events: asyncio.Event) -> Callable[[], None]:
        def wake() -> None:
            for event in events:
                if not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(event.set)

        return wake

    async def _run(self) -> None:
        while True:
            self._stand.clear()
            try:
                holder = await self._run_zk(self._zk.controller, self._on_office_change)
                if holder is None:
                    await self._stand_for_election()
                    continue
                if self._context is not None and holder == self._id:
                    await self._serve()
                    continue
                await self._resign()
                # After a failure in office the znode is still ours: vacate it, or nobody could stand.
                if not await self._run_zk(self._zk.give_up_controller):
                    await self._stand.wait()
            except CoordinationError as error:
                _logger.warning("controller: %s", error)
                await self._resign()
                await asyncio.sleep(0.2)

    async def _stand_for_election(self) -> None:
        await self._resign()
        won = await self._run_zk(self._zk.try_become_controller, self._id, self._clock.now_ms())
        if won is None:
            return
        epoch, version = won
        self._context = ControllerContext(epoch, version)
        _logger.info("broker %d is the controller, epoch %d", self._id, epoch)
        self._look.set()

    async def _serve(self) -> None:
        """One look after another until the office changes hands."""
        while not self._stand.is_set():
            # Not wait_for: in Python 3.11 it loses a cancellation that comes together with what it waits for.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AT_LEAST_EVERY_S):
                    await self._look.wait()
            self._look.clear()
            if not self._stand.is_set():
                await self._reconcile()

    async def _resign(self) -> None:
        if self._context is not None:
            _logger.info("broker %d is no longer the controller", self._id)
        self._context = None
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def _reconcile(self) -> None:
        context = self._context
        assert context is not None
        wake = self._on_cluster_change
        fresh = await self._observe_brokers(context, await self._run_zk(self._zk.brokers, wake))
        await self._observe_topics(context, await self._run_zk(self._zk.topics, wake))
        asked = set(await self._run_zk(self._zk.topics_to_delete, wake))
        context.deleting = asked & context.assignments.keys()
        for unknown in asked - context.assignments.keys():
            await self._run_zk(self._zk.forget_topic, unknown)
        changed = await self._decide(context)
        self._announce(context, changed, fresh)
        for topic in sorted(context.deleting):
            await self._delete(context, topic)

    async def _observe_brokers(self, context: ControllerContext, brokers: dict[int, BrokerInfo]) -> set[int]:
        """Open and close channels; return the brokers that are new, or came back."""
        fresh = {id_ for id_, info in brokers.items() if context.brokers.get(id_) != info}
        for id_ in (context.brokers.keys() - brokers.keys()) | fresh:
            channel = self._channels.pop(id_, None)
            if channel is not None:
                await channel.close()
        for id_ in fresh:
            self._channels[id_] = BrokerChannel(brokers[id_], f"controller-{self._id}")
        self._brokers_changed = bool(fresh) or context.brokers.keys() != brokers.keys()
        context.brokers = brokers
        return fresh

    async def _observe_topics(self, context: ControllerContext, topics: list[str]) -> None:
        for gone in context.assignments.keys() - set(topics):
            context.forget(gone)
        grown, self._grown = self._grown, set()
        for topic in set(topics) - (context.assignments.keys() - grown):
            try:
                assignment = await self._run_zk(self._zk.assignment, topic)
            except MalformedZnode as error:
                _logger.error("topic %s is left alone: %s", topic, error)
                continue
            if assignment is not None:
                context.assignments[topic] = assignment
                states = await self._run_zk(self._zk.partition_states, context.partitions_of(topic))
                context.states.update(states)

    async def _decide(self, context: ControllerContext) -> list[TopicPartition]:
        wanted = decide(context)
        if not wanted:
            return []
        written = await self._run_zk(self._zk.write_partition_states, wanted, context.epoch_version)
        context.states.update(written)
        if len(written) < len(wanted):
            lost = [tp for tp in wanted if tp not in written]
            context.states.update(await self._run_zk(self._zk.partition_states, lost))
            self._look.set()
        return list(written)

    def _announce(self, context: ControllerContext, changed: list[TopicPartition], fresh: set[int]) -> None:
        if not changed and not self._brokers_changed:
            return
        for id_, channel in self._channels.items():
            full = id_ in fresh
            mine = context.partitions_on(id_) if full else [tp for tp in changed if id_ in context.replicas(tp)]
            if mine or full:
                message = requests.leader_and_isr(context, self._id, channel.broker.epoch, mine, full=full)
                channel.send(ApiKey.LEADER_AND_ISR, message)
            self._tell(context, channel, list(context.states) if full else changed)

    def _tell(self, context: ControllerContext, channel: BrokerChannel, partitions: Iterable[TopicPartition]) -> None:
        message = requests.update_metadata(context, self._id, channel.broker.epoch, partitions)
        channel.send(ApiKey.UPDATE_METADATA, message)

    async def _all_took(self, answers: list[asyncio.Future[Message]]) -> bool:
        """Whether every broker answered without an error.

        Whatever else there is to look at ends the wait: a broker that died would never answer, and only another look
        finds that it did.
        """
        everyone = asyncio.gather(*answers, return_exceptions=True)
        look = asyncio.ensure_future(self._look.wait())
        try:
            await asyncio.wait((everyone, look), timeout=_LOOK_AT_LEAST_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            look.cancel()
        if not everyone.done():
            return False
        if any(isinstance(each, BaseException) or each.error_code != ErrorCode.NONE for each in everyone.result()):
            self._look.set()
            return False
        return True

    async def _delete(self, context: ControllerContext, topic: str) -> None:
        """Delete the topic everywhere, if every broker that holds a part of it lives; else wait for that broker."""
        partitions = context.partitions_of(topic)
        holders = {replica for tp in partitions for replica in context.replicas(tp)}
        if not holders <= self._channels.keys():
            _logger.info(
                "topic %s will be deleted when brokers %s are back", topic, sorted(holders - self._channels.keys())
            )
            return
        for channel in self._channels.values():
            self._tell(context, channel, partitions)
        answers = [
            channel.send(
                ApiKey.STOP_REPLICA,
                requests.stop_replicas(
                    context, self._id, channel.broker.epoch, [tp for tp in partitions if id_ in context.replicas(tp)]
                ),
            )
            for id_, channel in self._channels.items()
            if id_ in holders
        ]
        if not await self._all_took(answers):
            return
        await self._run_zk(self._zk.forget_topic, topic)
        context.forget(topic)
        if self._id in self._channels:
            self._tell(context, self._channels[self._id], [])  # wakes who waits here for the end of the deletion
        _logger.info("topic %s is deleted", topic)
