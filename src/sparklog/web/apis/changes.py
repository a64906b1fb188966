"""What a visitor may change, where the server allows changes: topics, their settings, offsets of groups."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sparklog.client.admin.topics import NewTopic
from sparklog.structs import TopicPartition
from sparklog.web.apis.topics import described
from sparklog.web.asked import body, number, text
from sparklog.web.context import changing
from sparklog.web.extents import STARTS, Start, extents
from sparklog.web.visitors import Visitor

_MOST_PARTITIONS = 10_000


async def create_topic(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """With ``partitions`` and ``replicas``, -1 for the brokers' defaults, and ``settings``."""
    asked = await body(request)
    name = text(asked, "name")
    partitions = number(asked, "partitions", -1, least=-1, most=_MOST_PARTITIONS)
    replicas = number(asked, "replicas", -1, least=-1, most=1000)
    await visitor.admin.create_topics([NewTopic(name, partitions, replicas, _texts(asked.get("settings", {})))])
    return {"name": name}


async def delete_topic(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """The name is given twice, as the visitor typed it again: ``name`` and ``again``.

    Raises ValueError for what is asked wrongly, SparklogError.
    """
    asked = await body(request)
    name = text(asked, "name")
    if text(asked, "again") != name:
        raise ValueError("to delete a topic, type its name once more, exactly")
    await visitor.admin.delete_topics([name])
    return {"name": name}


async def alter_topic(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """``settings`` by name; null takes one back to its default.

    Raises ValueError for what is asked wrongly, SparklogError.
    """
    asked = await body(request)
    name, given = text(asked, "name"), asked.get("settings")
    if not isinstance(given, dict) or not given:
        raise ValueError("settings must be given, names with texts or null")
    cleared = dict.fromkeys(each for each, value in given.items() if value is None)
    await visitor.admin.alter_topic_configs(
        name, {**cleared, **_texts({each: value for each, value in given.items() if value is not None})}
    )
    return {"name": name}


async def reset_group(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """Set where a group without members reads on in one topic: ``from`` and ``at`` as for a search of records.

    Raises ValueError for what is asked wrongly, SparklogError.
    """
    asked = await body(request)
    group, kind = text(asked, "id"), text(asked, "from")
    if kind not in STARTS:
        raise ValueError(f"from is one of {', '.join(STARTS)}")
    topic = await described(visitor, text(asked, "topic"))
    there = await extents(visitor, [TopicPartition(topic.name, each.partition) for each in topic.partitions])
    if there.failures:
        raise next(iter(there.failures.values()))
    offsets = await Start(kind, number(asked, "at", 0)).offsets(visitor, there)
    await visitor.admin.alter_group_offsets(group, offsets)
    return {"offsets": {str(tp): at for tp, at in sorted(offsets.items())}}


def _texts(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(each, str) for pair in given.items() for each in pair):
        raise ValueError("settings are names with texts")
    return given


ROUTES = [
    web.post("/api/topic/create", changing(create_topic)),
    web.post("/api/topic/delete", changing(delete_topic)),
    web.post("/api/topic/alter", changing(alter_topic)),
    web.post("/api/group/reset", changing(reset_group)),
]
