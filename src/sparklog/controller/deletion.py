"""Drives the deletion of topics: every broker that holds a part of one deletes it, then ZooKeeper forgets the topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from sparklog.clock import Clock
from sparklog.controller import requests
from sparklog.controller.channel import BrokerChannel
from sparklog.controller.context import ControllerContext
from sparklog.controller.pauses import Pauses
from sparklog.controller.steps import in_steps
from sparklog.errors import MalformedZnode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import StopReplicaResponse
from sparklog.structs import TopicPartition
from sparklog.zk.client import ZkClient

_logger = logging.getLogger(__name__)
Tell = Callable[[ControllerContext, BrokerChannel, Iterable[TopicPartition]], Awaitable[None]]


class TopicDeletions:
    """One term's; belongs to the loop's thread."""

    def __init__(
        self,
        broker_id: int,
        zk: ZkClient,
        run_zk: Callable[..., Awaitable[Any]],
        clock: Clock,
        look: Callable[[], None],
        tell: Tell,
    ) -> None:
        """``look`` calls for another look; ``tell`` tells a broker of the state of partitions."""
        self._id = broker_id
        self._zk = zk
        self._run_zk = run_zk
        self._look = look
        self._tell = tell
        self._pauses = Pauses[str](clock)
        self._stops: dict[str, asyncio.Future[list[StopReplicaResponse | BaseException]]] = {}
        """What the brokers answer that were asked to delete a topic."""
        self._missing: dict[str, list[int]] = {}
        """The brokers for which the deletion of a topic waits, as was said last."""
        self._left_alone: set[str] = set()
        """Topics of which it was said that they cannot be deleted."""

    def left(self, at_most: float) -> float:
        """Seconds until a deletion is to be tried again."""
        return self._pauses.left(at_most)

    async def observe(self, context: ControllerContext, asked: Mapping[str, UUID | None]) -> None:
        """A request may name the id of the topic that it means: one of that name that was made since is kept."""
        context.deleting = {
            topic
            for topic, topic_id in asked.items()
            if topic in context.assignments and topic_id in (None, context.assignments[topic].topic_id)
        }
        for unknown in asked.keys() - context.deleting:
            try:
                await self._run_zk(self._zk.topics.forget_deletion, unknown, context.epoch_version)
            except MalformedZnode as error:  # nor is it known who holds what of it
                if unknown not in self._left_alone:
                    _logger.error("topic %s is not deleted, as was asked: %s", unknown, error)
                self._left_alone.add(unknown)

    async def advance(self, context: ControllerContext, channels: Mapping[int, BrokerChannel]) -> None:
        """Go on with each topic that is to go."""
        self._pauses.take_due()
        for topic in sorted(context.deleting):
            if not self._pauses.is_paused(topic):
                await self._delete(context, channels, topic)

    async def _delete(self, context: ControllerContext, channels: Mapping[int, BrokerChannel], topic: str) -> None:
        """Delete the topic everywhere, if every broker that holds a part of it lives; else wait for that broker."""
        partitions = context.partitions_of(topic)
        holders = {holder for tp in partitions for holder in context.holders(tp)}
        if not holders <= channels.keys():
            self._tell_missing(topic, sorted(holders - channels.keys()))
        elif topic not in self._stops:
            await self._stop_replicas(context, channels, topic, holders)
        elif self._stops[topic].done() and self._all_stopped(topic, self._stops.pop(topic).result()):
            await self._run_zk(self._zk.topics.forget, topic, context.epoch_version)
            context.forget(topic)
            self._missing.pop(topic, None)
            self._pauses.forget(topic)
            if self._id in channels:  # wakes the tasks that wait here for the end of the deletion
                await self._tell(context, channels[self._id], [])
            _logger.info("topic %s is deleted", topic)

    def _tell_missing(self, topic: str, missing: list[int]) -> None:
        """Each change in the cluster is cause for another look, so only news are told."""
        if self._missing.get(topic) != missing:
            self._missing[topic] = missing
            _logger.info("topic %s will be deleted when brokers %s are back", topic, missing)

    async def _stop_replicas(
        self, context: ControllerContext, channels: Mapping[int, BrokerChannel], topic: str, holders: set[int]
    ) -> None:
        """Ask for the deletion; the answers, or the end of a broker that owes one, are cause for another look."""
        partitions = context.partitions_of(topic)
        for channel in list(channels.values()):
            await self._tell(context, channel, partitions)
        answers = []
        for id_ in holders:
            channel, mine = channels[id_], [tp for tp in partitions if id_ in context.holders(tp)]
            message = await in_steps(requests.stop_replicas(context, self._id, channel.broker.epoch, mine))
            answers.append(channel.send(ApiKey.STOP_REPLICA, message))
        self._stops[topic] = asyncio.gather(*answers, return_exceptions=True)
        self._stops[topic].add_done_callback(lambda _: self._look())

    def _all_stopped(self, topic: str, answers: list[StopReplicaResponse | BaseException]) -> bool:
        """Whether every broker has deleted each partition that it was asked to. After a refusal the topic pauses."""
        told = [each for each in answers if not isinstance(each, BaseException)]
        if len(told) < len(answers):  # a broker has gone meanwhile
            self._look()
            return False
        if not all(requests.has_stopped(each) for each in told):
            _logger.warning("topic %s could not be deleted everywhere; this will be tried again", topic)
            self._pauses.postpone(topic)
            return False
        return True
