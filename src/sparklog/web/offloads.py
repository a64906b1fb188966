"""How far topics have come into their tables, as the offloads' groups tell it."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from sparklog.client.admin.groups import GroupListing
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.admin.retention import RetentionState
from sparklog.cluster.offload_group import GROUP_PREFIX, OffloadNote
from sparklog.errors import SparklogError
from sparklog.structs import TopicPartition
from sparklog.web.extents import Extents, Offsets, extents
from sparklog.web.scan import Scan, matching, reader
from sparklog.web.visitors import Visitor

_AT_ONCE: Final = 8
_DATED: Final = 20
"""Of so many topics the oldest record that waits is read, of so many partitions of each."""
_DATED_AT_ONCE: Final = 4


class _Offload(NamedTuple):
    """What one group tells of one topic; nothing was committed where ``offsets`` are none."""

    group: str
    topic: str
    offsets: Offsets
    place: str | None


async def offload_progress(visitor: Visitor) -> list[dict[str, Any]]:
    """A row for each topic with an offload: its table, what waits, and since when.

    Known are the groups that retention waits for, and those with the name of an offload's. An offload into a group of
    another name, whose topic does not wait for it, is a group like any other.
    """
    waiting = await _waited_for(visitor)
    turn = asyncio.Semaphore(_AT_ONCE)
    names = sorted({group for group, _ in waiting} | await _named_so(visitor))
    found = [each for told in await asyncio.gather(*(_told_by(visitor, name, turn) for name in names)) for each in told]
    there = {(each.group, each.topic) for each in found}
    found += [_Offload(group, topic, {}, None) for group, topic in sorted(waiting - there)]
    known = await extents(visitor, sorted({tp for each in found for tp in each.offsets}))
    rows = [_row(each, known) for each in found]
    dating = asyncio.Semaphore(_DATED_AT_ONCE)
    dated = sorted(zip(found, rows, strict=True), key=lambda each: -(each[1]["lag"] or 0))[:_DATED]
    await asyncio.gather(*(_date(visitor, each, row, known, dating) for each, row in dated))
    return sorted(rows, key=lambda row: (row["topic"], row["group"]))


async def _waited_for(visitor: Visitor) -> set[tuple[str, str]]:
    """Group and topic, where brokers keep records for an offload; none where they know of no such thing."""
    try:
        found: dict[Replica, RetentionState] = await visitor.fresh.get("retention", visitor.admin.describe_retention)
    except SparklogError:
        return set()
    return {(each.group, replica.tp.topic) for replica, each in found.items() if each.group is not None}


async def _named_so(visitor: Visitor) -> set[str]:
    listed: list[GroupListing]
    listed, _ = await visitor.fresh.get("groups", visitor.admin.reachable_groups)
    return {each.group_id for each in listed if each.group_id.startswith(GROUP_PREFIX)}


async def _told_by(visitor: Visitor, group: str, turn: asyncio.Semaphore) -> list[_Offload]:
    async with turn:
        try:
            committed = await visitor.admin.group_offsets(group)
        except SparklogError:  # this visitor may not see it, or its coordinator is away
            return []
    topics: dict[str, Offsets] = {}
    places: dict[str, str | None] = {}
    for tp, at in committed.items():
        topics.setdefault(tp.topic, {})[tp] = at.offset
        note = OffloadNote.from_metadata(at.metadata)
        places[tp.topic] = places.get(tp.topic) or (None if note is None else note.place)
    return [_Offload(group, topic, offsets, places[topic]) for topic, offsets in topics.items()]


def _row(each: _Offload, known: Extents) -> dict[str, Any]:
    """Records as differences of offsets; ``share`` is how much of what the log has is in the table."""
    ended = {tp: at for tp, at in each.offsets.items() if tp in known.end and tp in known.first}
    lag = sum(max(known.end[tp] - at, 0) for tp, at in ended.items())
    held = sum(known.end[tp] - known.first[tp] for tp in ended)
    return {
        "topic": each.topic,
        "group": each.group,
        "place": each.place,
        "partitions": len(each.offsets),
        "lag": lag if ended else None,
        "share": (1.0 if not held else max(held - lag, 0) / held) if ended else None,
        "waits_since_ms": None,
    }


async def _date(visitor: Visitor, each: _Offload, row: dict[str, Any], known: Extents, turn: asyncio.Semaphore) -> None:
    """Add the time of the oldest record that waits, where this visitor may read it."""
    waits = {tp: max(at, known.first[tp]) for tp, at in each.offsets.items() if at < known.end.get(tp, 0)}
    if not row["lag"]:
        return
    async with turn:
        try:
            row["waits_since_ms"] = await _oldest(visitor, dict(sorted(waits.items())[:_DATED]))
        except SparklogError:
            return


async def _oldest(visitor: Visitor, at: dict[TopicPartition, int]) -> int | None:
    scan = Scan(at, {tp: offset + 1 for tp, offset in at.items()}, matching("", "key"), len(at), visitor.clock)
    async with reader(visitor) as consumer:
        await scan.run(consumer)
    return min((each.timestamp for each in scan.found), default=None)
