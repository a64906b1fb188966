"""The topics that a consumer names: asked for, created where that is allowed, and warned of where they do not exist."""

from __future__ import annotations

from collections.abc import Collection

from sparklog.client.cluster.session import Session
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.subscription import SubscriptionState
from sparklog.cluster.info import ClusterInfo
from sparklog.errors import ErrorCode


async def refresh_wanted(
    session: Session, config: ConsumerConfig, subscription: SubscriptionState, topics: Collection[str]
) -> ClusterInfo:
    """Ask for these topics now; errors of topics are returned, and the log is told of those that do not exist.

    Nothing is created in silence: with ``allow.auto.create.topics``, brokers are asked to create what is missing only
    after they have said that it is, which is what a misspelt name looks like. What the user has not named is never
    created: a topic that a pattern matched and that is gone was deleted.
    """
    wanted = sorted(topics)
    info = await session.refresh(wanted)
    missing = {topic for topic in wanted if info.errors.get(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    may_create = config.allow_auto_create_topics
    to_create = {topic for topic in missing if may_create and subscription.names(topic)}
    for topic in wanted:
        if topic in missing:
            session.obstacles.met(
                f"topic {topic}", _missing(topic, subscription.names(topic), may_create), at_once=True
            )
        else:
            session.obstacles.over(f"topic {topic}")
    if to_create:
        await session.refresh(to_create, create=True)
        return await session.refresh(wanted)
    return info


def _missing(topic: str, is_named: bool, may_create: bool) -> str:
    remedy = "create it" if is_named else "it was deleted, or is to be created"
    if is_named and may_create:
        remedy = "brokers are asked to create it, as allow.auto.create.topics=true says"
    return f"{ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}: topic {topic!r} does not exist; {remedy}"
