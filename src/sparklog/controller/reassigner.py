"""Drives the moves of replicas: what is asked for, by clients or in ZooKeeper, and what is written and said in the end.

Between the two the runtime writes and announces the states that ``reassignment`` decides on, with all others. Each
method does what is due as the context stands, in one look, and leaves the rest to the next one. Nothing is known here
that ZooKeeper does not say, but requests that wait for an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from sparklog.controller import reassignment, requests
from sparklog.controller.channel import BrokerChannel
from sparklog.controller.context import ControllerContext, Departure
from sparklog.controller.reassignment import Targets
from sparklog.controller.steps import in_steps
from sparklog.errors import ApiError, ErrorCode, MalformedZnode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import StopReplicaResponse
from sparklog.protocol.slices import Steps
from sparklog.structs import TopicPartition
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import ReplicaAssignment

_logger = logging.getLogger(__name__)
_TRIES = 3
"""To write over a topic's znode that others write too."""
_TOPICS_A_TURN = 25
"""Of those that moves are asked for in: as many as take about a millisecond where all are refused."""
Wishes = Mapping[TopicPartition, Sequence[int] | None]
"""The replicas that clients want; None gives up a move."""


class Reassigner:
    """One term's; belongs to the loop's thread."""

    def __init__(
        self,
        broker_id: int,
        zk: ZkClient,
        run_zk: Callable[..., Awaitable[Any]],
        look: Callable[[], None],
        read_topic: Callable[[ControllerContext, str], Awaitable[None]],
    ) -> None:
        """``look`` calls for another look; ``read_topic`` reads a topic from ZooKeeper again."""
        self._id = broker_id
        self._zk = zk
        self._run_zk = run_zk
        self._look = look
        self._read_topic = read_topic
        self._asked: list[tuple[Wishes, dict[TopicPartition, ApiError]]] = []
        self._complaint = ""

    def ask(self, wishes: Wishes) -> dict[TopicPartition, ApiError]:
        """With the next look; what is refused, and why, stands in the answer when that is over."""
        refused: dict[TopicPartition, ApiError] = {}
        self._asked.append((wishes, refused))
        return refused

    async def observe(self, context: ControllerContext, on_change: Callable[[], None]) -> None:
        """Write what is asked for; clients come before what stands in ZooKeeper, as in Kafka."""
        in_zookeeper = await self._in_zookeeper(on_change)
        asked, self._asked = self._asked, []
        for wishes, refused in asked:
            named = {tp: in_zookeeper.pop(tp) for tp in in_zookeeper.keys() & wishes.keys()}
            await self._forget(context, named)
            for number, (topic, partitions) in enumerate((await in_steps(_by_topic(wishes))).items(), 1):
                await self._plan(context, topic, {tp: wishes[tp] for tp in partitions}, refused)
                if number % _TOPICS_A_TURN == 0:
                    await asyncio.sleep(0)
        if in_zookeeper:
            await self._take_over(context, in_zookeeper)

    async def _in_zookeeper(self, on_change: Callable[[], None]) -> dict[TopicPartition, tuple[int, ...]]:
        complaint = ""
        try:
            return await self._run_zk(self._zk.topics.reassignments, on_change) or {}
        except MalformedZnode as error:
            complaint = str(error)
            return {}
        finally:
            if complaint and complaint != self._complaint:
                _logger.error(
                    "no replicas are moved for a reassignment in ZooKeeper; remove it, or mend it: %s", complaint
                )
            self._complaint = complaint

    async def _forget(self, context: ControllerContext, over: Targets) -> None:
        if over:
            await self._run_zk(self._zk.topics.forget_reassignments, over, context.epoch_version)

    async def _take_over(self, context: ControllerContext, asked: Targets) -> None:
        found = await in_steps(reassignment.take_over(context, asked))
        for tp, why in found.refused.items():
            _logger.warning("%s is not moved to brokers %s, as ZooKeeper asks: %s", tp, list(asked[tp]), why)
        await self._forget(context, found.over)
        for topic, partitions in (await in_steps(_by_topic(found.planned))).items():
            refused: dict[TopicPartition, ApiError] = {}
            await self._plan(context, topic, {tp: asked[tp] for tp in partitions}, refused, is_checked=True)
            if refused:
                self._look()

    async def _plan(
        self,
        context: ControllerContext,
        topic: str,
        wishes: Wishes,
        refused: dict[TopicPartition, ApiError],
        *,
        is_checked: bool = False,
    ) -> None:
        """Write the assignment of one topic, over that which the wishes were checked against."""
        planned: dict[int, ReplicaAssignment] = {}
        for _ in range(_TRIES):
            planned = await in_steps(_planning(context, wishes, refused, is_checked=is_checked))
            if not planned or await self._write(context, topic, planned):
                return
            await self._read_topic(context, topic)
        text = f"topic {topic} changes all the time; try again"
        refused.update(
            {TopicPartition(topic, number): ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text) for number in planned}
        )

    async def _write(self, context: ControllerContext, topic: str, planned: dict[int, ReplicaAssignment]) -> bool:
        old = context.stored(topic)
        over = {  # where replicas go, those that stay must be in sync in the moment of writing
            tp: context.states[tp]
            for number, each in planned.items()
            if not set(context.states[tp := TopicPartition(topic, number)].isr) <= set(each.replicas)
        }
        new = old.changed(planned)
        if not await self._run_zk(self._zk.topics.move_replicas, old, new, context.epoch_version, over):
            return False
        reassignment.began(context, topic, planned)
        for number, each in planned.items():
            _logger.info("%s-%d: replicas %s, adding %s, removing %s", topic, number, *map(list, each))
        return True

    async def finish(self, context: ControllerContext, channels: Mapping[int, BrokerChannel]) -> None:
        """Have replicas deleted that are to be no more; where they are, write that the move is over."""
        for broker_id, partitions in reassignment.departing(context).items():
            if broker_id in channels:
                await self._stop(context, channels[broker_id], partitions)
        for topic, completed in reassignment.departed(context).items():
            old = context.stored(topic)
            new = old.changed(completed)
            if not await self._run_zk(self._zk.topics.move_replicas, old, new, context.epoch_version, {}):
                await self._read_topic(context, topic)
                self._look()
                continue
            reassignment.finished(context, (TopicPartition(topic, number) for number in completed))
            for number, each in completed.items():
                _logger.info("%s-%d has moved to brokers %s", topic, number, list(each.replicas))
            self._look()  # at what ZooKeeper asks for, which may be done

    async def _stop(self, context: ControllerContext, channel: BrokerChannel, partitions: list[TopicPartition]) -> None:
        asked = {tp: context.departures[tp] for tp in partitions}
        message = await in_steps(requests.stop_replicas(context, self._id, channel.broker.epoch, partitions))
        for departure in asked.values():
            departure.asked.add(channel.broker.id)
        answer = channel.send(ApiKey.STOP_REPLICA, message)
        answer.add_done_callback(partial(self._hear, channel.broker.id, asked))

    def _hear(
        self, broker_id: int, asked: Mapping[TopicPartition, Departure], answer: asyncio.Future[StopReplicaResponse]
    ) -> None:
        """One that has gone, or did not hear the request, is asked again if it is there with the next look."""
        if answer.cancelled() or answer.result().error_code:
            for departure in asked.values():
                departure.asked.discard(broker_id)
            return
        refused = [each for each in answer.result().partition_errors if each.error_code]
        for each in refused:
            code, tp = ErrorCode(each.error_code).name, TopicPartition(each.topic_name, each.partition_index)
            _logger.warning("broker %d keeps the files of %s, which has moved: %s", broker_id, tp, code)
        for departure in asked.values():
            departure.gone.discard(broker_id)
        self._look()


def _by_topic(partitions: Iterable[TopicPartition]) -> Steps[dict[str, list[TopicPartition]]]:
    topics: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp)
        yield
    return topics


def _planning(
    context: ControllerContext, wishes: Wishes, refused: dict[TopicPartition, ApiError], *, is_checked: bool
) -> Steps[dict[int, ReplicaAssignment]]:
    """What is to be written, a partition a step."""
    planned = {}
    for tp, target in wishes.items():
        yield
        try:
            if target is not None and not is_checked:
                reassignment.check_target(context, tp, target)
            each = reassignment.plan(context, tp, target)
        except ApiError as error:
            refused[tp] = error
            continue
        if each != context.assignment_of(tp):
            planned[tp.partition] = each
    return planned
