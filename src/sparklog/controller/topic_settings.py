"""What the controller knows of the topics' settings: ``min.insync.replicas``, and whether an unclean leader is wanted.

Invariants: ``min.insync.replicas`` of a topic is in the context before its partitions are decided on, and is read again
when somebody says that it may have changed. An eligible replica is elected only after it was read once more: a leader
that went on alone under a lower value had read that before its session ended, so it is found.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from sparklog.config.topic import TopicConfig
from sparklog.controller.context import ControllerContext
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import PartitionState

_logger = logging.getLogger(__name__)
ReadConfigs = Callable[[Collection[str]], Awaitable[Mapping[str, TopicConfig]]]
"""The settings of topics, over the broker's; without those that cannot be read."""


class TopicSettings:
    """Belongs to the loop's thread."""

    def __init__(self, read: ReadConfigs) -> None:
        self._read = read
        self._changed: set[str] = set()
        self._all_changed = False

    def changed(self, topic: str | None) -> None:
        """Settings of the topic, or of all (None), are not what they were."""
        if topic is None:
            self._all_changed = True
        else:
            self._changed.add(topic)

    async def learn(self, context: ControllerContext, topics: Collection[str]) -> set[str]:
        """Read what the topics want; those that want fewer replicas in sync than before."""
        found = await self._read(topics) if topics else {}
        return context.take_settings({topic: each.min_insync_replicas for topic, each in found.items()})

    async def catch_up(self, context: ControllerContext) -> None:
        """Learn what is said to have changed."""
        topics = set(context.assignments) if self._all_changed else self._changed & context.assignments.keys()
        self._changed, self._all_changed = set(), False
        await self.learn(context, topics)

    async def confirm(
        self, context: ControllerContext, wanted: dict[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, PartitionState]:
        """The changes without those of topics that elect an eligible replica, and want fewer in sync than was known."""
        elected = [
            tp for tp, state in wanted.items() if tp in context.states and state.leader in context.states[tp].eligible
        ]
        lowered = await self.learn(context, {tp.topic for tp in elected})
        for tp in elected:
            text = "%s is led by broker %d, which was not in sync but has all that was acknowledged"
            if tp.topic not in lowered:
                _logger.info(text, tp, wanted[tp].leader)
        return {tp: state for tp, state in wanted.items() if tp.topic not in lowered}

    async def may_be_unclean(self, topics: Collection[str]) -> set[str]:
        """Those of the topics that want any leader rather than none."""
        found = await self._read(topics) if topics else {}
        return {topic for topic, each in found.items() if each.unclean_leader_election_enable}
