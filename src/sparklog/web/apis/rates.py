"""How many records are written, over time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from aiohttp import web

from sparklog.cluster.info import TopicInfo
from sparklog.structs import TopicPartition
from sparklog.web.apis.cluster import metadata
from sparklog.web.apis.topics import described
from sparklog.web.asked import text
from sparklog.web.context import reading
from sparklog.web.extents import ends
from sparklog.web.visitors import Visitor

MOST: Final = 2000
"""Partitions whose ends are asked for every five seconds; of more, the metrics of the brokers tell."""
_CLUSTER: Final = ""
"""No topic has this name."""


async def of_cluster(visitor: Visitor, _: web.Request) -> dict[str, Any]:
    """Of all topics that the visitor may see, the cluster's own too."""
    info = await metadata(visitor)
    return await _written(visitor, _CLUSTER, info.topics.values())


async def of_topic(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """Of one topic."""
    found = await described(visitor, text(request.query, "name"))
    return await _written(visitor, found.name, [found])


async def _written(visitor: Visitor, name: str, topics: Collection[TopicInfo]) -> dict[str, Any]:
    """Samples of how many records were written since the first; none of too many partitions."""
    leaders = {TopicPartition(topic.name, each.partition): each.leader for topic in topics for each in topic.partitions}
    samples = None
    if len(leaders) <= MOST:
        begun_s = visitor.clock.monotonic()
        known = await ends(visitor, [tp for tp, leader in leaders.items() if leader >= 0])
        samples = visitor.growth.add(name, leaders, known.end, begun_s)
    return {"samples": samples, "partitions": len(leaders), "most": MOST}


ROUTES = [
    web.get("/api/cluster/written", reading(of_cluster)),
    web.get("/api/topic/written", reading(of_topic)),
]
