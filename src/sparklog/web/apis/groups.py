"""Consumer groups and how far they are behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from aiohttp import web

from sparklog.client.admin.groups import GroupDescription, GroupListing
from sparklog.client.consumer.group.committed import Offsets
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.structs import TopicPartition
from sparklog.web.asked import Page, exact, text
from sparklog.web.context import reading
from sparklog.web.extents import ends
from sparklog.web.visitors import Visitor

_AT_ONCE: Final = 8
_MEMBERS: Final = 500
_DEAD: Final = "Dead"
_ORDERS: Final = {"id": lambda each: each.group_id, "state": lambda each: (each.state, each.group_id)}


async def groups(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """A page of groups, with the lag of each."""
    found, failures = await visitor.fresh.get("groups", visitor.admin.reachable_groups)
    cut = Page.of(request).cut(found, lambda each: each.group_id, _ORDERS)
    offsets = await _offsets_of(visitor, cut.rows)
    read = {tp for each in offsets.values() if isinstance(each, dict) for tp in each}
    known = (await ends(visitor, read)).end
    rows = [
        {"id": each.group_id, "state": each.state, "type": each.type, "protocol": each.protocol_type}
        | _lag_of(offsets[each.group_id], known)
        for each in cut.rows
    ]
    return {**cut.told(rows), "failures": [str(each) for each in failures.values()]}


async def group(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """One group: members, a page of its partitions, and its lag over time as far as this visitor has looked."""
    name = text(request.query, "id")
    found, offsets = await asyncio.gather(_described(visitor, name), visitor.admin.group_offsets(name))
    holders = {tp: each.client_id for each in found.members for tp in each.partitions}
    partitions = sorted({*offsets, *holders})
    known = (await ends(visitor, partitions)).end
    lag = _lag_of(offsets, known)
    committed = sum(each.offset for each in offsets.values())
    samples = visitor.lags.look(name) if lag["lag"] is None else visitor.lags.add(name, lag["lag"], committed)
    rows = [_partition(tp, offsets, known, holders.get(tp)) for tp in partitions]
    orders = {"partition": lambda row: (row["topic"], row["partition"]), "lag": lambda row: row["lag"] or 0}
    cut = Page.of(request).cut(rows, lambda row: f"{row['topic']}-{row['partition']}", orders)
    return {
        **cut.told(cut.rows),
        "state": found.state,
        "protocol": found.protocol_type,
        "assignor": found.protocol,
        "members": [
            {
                "id": each.member_id,
                "instance": each.group_instance_id,
                "client": each.client_id,
                "host": each.client_host.removeprefix("/"),
                "partitions": len(each.partitions),
            }
            for each in found.members[:_MEMBERS]
        ],
        "member_count": len(found.members),
        **lag,
        "samples": samples,
    }


async def _described(visitor: Visitor, name: str) -> GroupDescription:
    found = (await visitor.admin.describe_groups([name]))[name]
    if found.state == _DEAD and not found.members:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
    return found


async def _offsets_of(visitor: Visitor, listed: Iterable[GroupListing]) -> dict[str, Offsets | SparklogError]:
    """What each group has committed, or why that is not told."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def ask(name: str) -> Offsets | SparklogError:
        async with turn:
            try:
                return await visitor.admin.group_offsets(name)
            except SparklogError as error:
                return error

    names = [each.group_id for each in listed]
    return dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True))


def _lag_of(offsets: Offsets | SparklogError, known: dict[TopicPartition, int]) -> dict[str, Any]:
    """In records, of the partitions whose end is known; ``unknown`` are the others."""
    if isinstance(offsets, SparklogError):
        return {"lag": None, "unknown": 0, "error": str(offsets)}
    lags = [max(known[tp] - at.offset, 0) for tp, at in offsets.items() if tp in known]
    return {"lag": sum(lags) if lags else None, "unknown": len(offsets) - len(lags), "error": None}


def _partition(
    tp: TopicPartition, offsets: Offsets, known: dict[TopicPartition, int], client: str | None
) -> dict[str, Any]:
    at, end = offsets.get(tp), known.get(tp)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "committed": None if at is None else exact(at.offset),
        "end": None if end is None else exact(end),
        "lag": None if at is None or end is None else max(end - at.offset, 0),
        "client": client,
    }


ROUTES = [web.get("/api/groups", reading(groups)), web.get("/api/group", reading(group))]
