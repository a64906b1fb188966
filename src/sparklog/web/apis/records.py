"""Records of a topic: found by offset, time, key or text; and those that come in just now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from aiohttp import web

from sparklog.client.consumer.async_consumer import AsyncConsumer
from sparklog.client.consumer.record import ConsumerRecord
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.web.apis.topics import described
from sparklog.web.asked import body, exact, number, text
from sparklog.web.context import CONTEXT, reading
from sparklog.web.decoding import AUTO, Decoding, Shown
from sparklog.web.extents import NEWEST, STARTS, Extents, Start, extents, raise_all_failed
from sparklog.web.scan import MOST_RECORDS, Scan, matching, reader
from sparklog.web.visitors import Visitor

_SHORT: Final = 2000
"""Characters of a key or a value in a table."""
_WHOLE: Final = 1 << 20
_HEADERS: Final = 100
"""So many of a record are told."""
_ISOLATIONS: Final = {each.name.lower(): each for each in IsolationLevel}
_TAILED: Final = 200
"""Records of one event."""
_BEHIND: Final = 2000
"""So many records behind, a live tail passes over what it cannot show."""
_EVENT_S: Final = 0.25
_PING_S: Final = 15.0


async def records(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """A search; where it stopped is in ``next``, from which the next request goes on.

    That is a POST with ``next`` in its body: of 10,000 partitions it has some hundred kilobytes.
    """
    query, decoding = request.query, request.app[CONTEXT].decoding
    form = _one_of(query, "form", decoding.names)
    places = _places(await body(request)) if request.method == "POST" else None
    with visitor.stream(request.remote or ""):
        partitions = await _partitions(visitor, query)
        isolation = _one_of(query, "isolation", tuple(_ISOLATIONS))
        there = await extents(visitor, partitions, _ISOLATIONS[isolation])
        raise_all_failed(there)
        limit = number(query, "limit", 50, least=1, most=MOST_RECORDS)
        start = await _start(visitor, query, there, limit) if places is None else _again(places, there)
        wanted = matching(text(query, "text", ""), text(query, "where", "anywhere"))
        scan = Scan(start, there.end, wanted, limit, visitor.clock)
        async with reader(visitor, isolation) as consumer:
            await scan.run(consumer)
        told = await _told(scan.found, decoding, form)
    return {
        "records": told,
        "next": {str(tp.partition): exact(at) for tp, at in sorted(scan.next.items()) if at < scan.end[tp]},
        "looked_at": scan.looked_at,
        "bytes": scan.bytes,
        "stopped": scan.stopped,
        "failures": {str(tp.partition): str(each) for tp, each in sorted(there.failures.items())},
        "forms": decoding.names,
    }


async def record(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """One record, its key and value as a whole; JSON is indented.

    Raises ApiError(OFFSET_OUT_OF_RANGE) where there is no such record.
    """
    query, decoding = request.query, request.app[CONTEXT].decoding
    form = _one_of(query, "form", decoding.names)
    tp = TopicPartition(text(query, "topic"), number(query, "partition", most=2**31 - 1))
    offset = number(query, "offset")
    with visitor.stream(request.remote or ""):
        there = await extents(visitor, [tp])
        raise_all_failed(there)
        scan = Scan({tp: offset}, {tp: min(offset + 1, there.end[tp])}, matching("", "key"), 1, visitor.clock)
        async with reader(visitor) as consumer:
            await scan.run(consumer)
        if not scan.found:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp} has no record at offset {offset} any more, or not yet")
        told: dict[str, Any] = await decoding.aside(partial(_told_whole, scan.found[0], decoding, form))
    return told


async def tail(request: web.Request) -> web.StreamResponse:
    """A stream of server-sent events: the records that come in from now on."""
    context = request.app[CONTEXT]
    visitor = await context.visitor(request)
    form = _one_of(request.query, "form", context.decoding.names)
    partitions = await _partitions(visitor, request.query)
    with visitor.stream(request.remote or ""):
        async with reader(visitor) as consumer:
            consumer.assign(partitions)
            consumer.seek_to_end()
            answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await answer.prepare(request)
            with suppress(ConnectionError):
                async for name, told in _events(consumer, context.decoding, form):
                    await answer.write(f"event: {name}\ndata: {json.dumps(told)}\n\n".encode())
    return answer


async def _events(consumer: AsyncConsumer, decoding: Decoding, form: str) -> AsyncIterator[tuple[str, Any]]:
    for tp in sorted(consumer.assignment):
        await consumer.position(tp)
    yield "begun", len(consumer.assignment)
    try:
        while True:
            found = await consumer.poll(timeout=_PING_S, max_records=_TAILED)
            yield "records", await _told(found, decoding, form)
            behind = sum(each or 0 for each in consumer.lag().values())
            if behind > _BEHIND:
                consumer.seek_to_end()
                yield "passed_over", behind
            await asyncio.sleep(_EVENT_S if found else 0)
    except SparklogError as error:
        yield "trouble", str(error)


async def _partitions(visitor: Visitor, query: Mapping[str, str]) -> list[TopicPartition]:
    """Those that are asked for: one, or all of the topic."""
    found = await described(visitor, text(query, "topic"))
    if query.get("partition", "") == "":
        return [TopicPartition(found.name, each.partition) for each in found.partitions]
    wanted = number(query, "partition", most=2**31 - 1)
    if found.partition(wanted) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {found.name!r} has no partition {wanted}")
    return [TopicPartition(found.name, wanted)]


async def _start(visitor: Visitor, query: Mapping[str, str], there: Extents, limit: int) -> dict[TopicPartition, int]:
    """Where each partition begins."""
    kind = _one_of(query, "from", STARTS)
    newest = max(limit // max(len(there.end), 1), 1) if kind == NEWEST else 0
    return await Start(kind, number(query, "at", 0)).offsets(visitor, there, newest)


def _places(told: Mapping[str, Any]) -> Mapping[str, Any]:
    found = told.get("next")
    if not isinstance(found, dict):
        raise ValueError("next is what the answer before gave")
    return found


def _again(places: Mapping[str, Any], there: Extents) -> dict[TopicPartition, int]:
    """Where the search before stopped in each partition; one that is not among ``places`` it has seen to the end."""
    return {
        tp: number(places, str(tp.partition)) if str(tp.partition) in places else end for tp, end in there.end.items()
    }


def _one_of(query: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """The first is the default."""
    found = text(query, name, allowed[0])
    if found not in allowed:
        raise ValueError(f"{name} is one of {', '.join(allowed)}")
    return found


async def _told(found: list[ConsumerRecord], decoding: Decoding, form: str) -> list[dict[str, Any]]:
    """On another thread, for many take a while, and a decoder may ask a registry."""
    return await decoding.aside(lambda: [_told_short(each, decoding, form) for each in found])


def _told_short(each: ConsumerRecord, decoding: Decoding, form: str) -> dict[str, Any]:
    key = decoding.shown(each.key, form, _SHORT, topic=each.topic, is_key=True)
    return _row(each, key, decoding.shown(each.value, form, _SHORT, topic=each.topic), decoding, _SHORT)


def _told_whole(each: ConsumerRecord, decoding: Decoding, form: str) -> dict[str, Any]:
    key = decoding.shown(each.key, form, _WHOLE, topic=each.topic, is_key=True)
    value = decoding.shown(each.value, form, _WHOLE, topic=each.topic)
    return _row(each, key and key.indented(decoding), value and value.indented(decoding), decoding, _WHOLE)


def _row(each: ConsumerRecord, key: Shown | None, value: Shown | None, decoding: Decoding, most: int) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "offset": exact(each.offset),
        "timestamp": exact(each.timestamp),
        "appended": each.timestamp_type == 1,
        "key": _part(key),
        "value": _part(value),
        "headers": [
            [name, _part(decoding.shown(header, AUTO, most, topic=each.topic))]
            for name, header in each.headers[:_HEADERS]
        ],
        "header_count": len(each.headers),
    }


def _part(shown: Shown | None) -> dict[str, Any] | None:
    return None if shown is None else shown._asdict()


ROUTES = [
    web.get("/api/records", reading(records)),
    web.post("/api/records", reading(records)),
    web.get("/api/record", reading(record)),
    web.get("/api/tail", tail),
]
