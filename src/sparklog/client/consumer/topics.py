"""The topics that a consumer names: asked for, created where that may be, and missed aloud."""

from __future__ import annotations

from collections.abc import Collection

from sparklog.client.cluster.session import Session
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.cluster.info import ClusterInfo
from sparklog.errors import ErrorCode


async def refresh_wanted(session: Session, config: ConsumerConfig, topics: Collection[str]) -> ClusterInfo:
    """Ask for these topics now; errors of topics are returned, and the log is told of those that do not exist.

    Nothing is created in silence: with ``allow.auto.create.topics``, brokers are asked to create what is missing only
    after they have said that it is, which is what a misspelt name looks like.
    """
    wanted = sorted(topics)
    info = await session.refresh(wanted)
    missing = [topic for topic in wanted if info.errors.get(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    for topic in wanted:
        if topic in missing:
            session.obstacles.met(f"topic {topic}", _missing(topic, config.allow_auto_create_topics), at_once=True)
        else:
            session.obstacles.over(f"topic {topic}")
    if missing and config.allow_auto_create_topics:
        return await session.refresh(wanted, create=True)
    return info


def _missing(topic: str, may_create: bool) -> str:
    remedy = "brokers are asked to create it, as allow.auto.create.topics=true says" if may_create else "create it"
    return f"{ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}: topic {topic!r} does not exist; {remedy}"
