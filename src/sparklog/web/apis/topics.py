"""Topics, their partitions and their settings."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sparklog.cluster.info import PartitionInfo, TopicInfo
from sparklog.structs import TopicPartition, uuid_to_text
from sparklog.web.apis.cluster import has_too_few, metadata
from sparklog.web.apis.settings import entries
from sparklog.web.asked import Page, exact, flag, text
from sparklog.web.context import reading
from sparklog.web.extents import Extents, extents
from sparklog.web.visitors import Visitor

_ORDERS = {
    "name": lambda topic: topic.name,
    "partitions": lambda topic: (len(topic.partitions), topic.name),
    "under_replicated": lambda topic: (sum(map(has_too_few, topic.partitions)), topic.name),
}


async def topics(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """A page of topics; ``internal`` for the cluster's own as well."""
    info = await metadata(visitor)
    shown = [each for each in info.topics.values() if flag(request.query, "internal") or not each.internal]
    cut = Page.of(request).cut(sorted(shown, key=_ORDERS["name"]), lambda each: each.name, _ORDERS)
    return cut.told([_told(each) for each in cut.rows])


async def topic(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """One topic as a whole."""
    found = await described(visitor, text(request.query, "name"))
    return {**_told(found), "id": uuid_to_text(found.topic_id)}


async def partitions(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """A page of a topic's partitions with what they hold; ``problems`` for those that are not well."""
    found = await described(visitor, text(request.query, "name"))
    shown = [each for each in found.partitions if not flag(request.query, "problems") or _is_unwell(each)]
    orders = {"partition": lambda each: each.partition, "leader": lambda each: (each.leader, each.partition)}
    cut = Page.of(request).cut(shown, lambda each: str(each.partition), orders)
    led = [TopicPartition(found.name, each.partition) for each in cut.rows if each.leader >= 0]
    there = await extents(visitor, led)
    return cut.told([_partition(each, TopicPartition(found.name, each.partition), there) for each in cut.rows])


async def settings(visitor: Visitor, request: web.Request) -> list[dict[str, Any]]:
    """Every setting of a topic, and where it comes from."""
    name = text(request.query, "name")
    return entries(await visitor.fresh.get(("settings", name), lambda: visitor.admin.topic_configs(name)))


async def described(visitor: Visitor, name: str) -> TopicInfo:
    """A topic. Raises ApiError for one that there is not, or that the visitor may not see."""
    return (await visitor.fresh.get(("topic", name), lambda: visitor.admin.describe_topics([name])))[name]


def _is_unwell(partition: PartitionInfo) -> bool:
    return partition.leader < 0 or has_too_few(partition)


def _told(found: TopicInfo) -> dict[str, Any]:
    return {
        "name": found.name,
        "internal": found.internal,
        "partitions": len(found.partitions),
        "replicas": max((len(each.replicas) for each in found.partitions), default=0),
        "under_replicated": sum(map(has_too_few, found.partitions)),
        "without_leader": sum(each.leader < 0 for each in found.partitions),
    }


def _partition(each: PartitionInfo, tp: TopicPartition, there: Extents) -> dict[str, Any]:
    first, end = there.first.get(tp), there.end.get(tp)
    return {
        "partition": each.partition,
        "leader": each.leader if each.leader >= 0 else None,
        "epoch": each.leader_epoch,
        "replicas": each.replicas,
        "isr": each.isr,
        "offline": each.offline,
        "first": None if first is None else exact(first),
        "end": None if end is None else exact(end),
        "records": None if first is None or end is None else exact(end - first),
        "error": str(there.failures[tp]) if tp in there.failures else None,
    }


ROUTES = [
    web.get("/api/topics", reading(topics)),
    web.get("/api/topic", reading(topic)),
    web.get("/api/topic/partitions", reading(partitions)),
    web.get("/api/topic/settings", reading(settings)),
]
