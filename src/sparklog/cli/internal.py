"""What a cluster and Spark's sinks keep for themselves: lists show it only with ``--internal``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.structs import DECIDER_PREFIX, DECISIONS_TOPIC

if TYPE_CHECKING:
    from sparklog.cluster.info import TopicInfo


def is_internal_topic(topic: TopicInfo) -> bool:
    """Whether the brokers keep their own state in it, or Spark's sinks their decisions."""
    return topic.internal or topic.name == DECISIONS_TOPIC


def is_internal_group(group_id: str) -> bool:
    """Whether it marks the last decision of a sink: it has no member, and one offset."""
    return group_id.startswith(DECIDER_PREFIX)
