"""Transactions, with those among them that Spark's sink has written and not yet made visible."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

from sparklog.client.admin.transactions import ONGOING, TransactionDescription, TransactionListing
from sparklog.errors import SparklogError
from sparklog.structs import TopicPartition
from sparklog.web.asked import Page, flag
from sparklog.web.context import reading
from sparklog.web.visitors import Visitor

_AT_ONCE: Final = 8
_SPARK: Final = "sparklog-spark/"
"""The transactional ids of Spark's sink begin so: what they have open are prepared writes."""
_NAMED: Final = 20
_ORDERS: Final = {
    "id": lambda each: each.transactional_id,
    "state": lambda each: (each.state, each.transactional_id),
}


async def transactions(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """A page of transactional ids; ``open`` for those that have a transaction open."""
    found: list[TransactionListing] = await visitor.fresh.get("transactions", visitor.admin.list_transactions)
    shown = [each for each in found if each.state == ONGOING or not flag(request.query, "open")]
    cut = Page.of(request).cut(shown, lambda each: each.transactional_id, _ORDERS)
    turn = asyncio.Semaphore(_AT_ONCE)
    told = [_told(visitor, each, turn) for each in cut.rows]
    return cut.told(await asyncio.gather(*told))


async def _told(visitor: Visitor, each: TransactionListing, turn: asyncio.Semaphore) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": each.transactional_id,
        "state": each.state,
        "coordinator": each.coordinator,
        "producer": each.producer_id,
        "is_prepared_write": each.transactional_id.startswith(_SPARK) and each.state == ONGOING,
    }
    if each.state != ONGOING:
        return told
    async with turn:
        try:
            found = (await visitor.admin.describe_transactions([each.transactional_id]))[each.transactional_id]
        except SparklogError as error:
            return {**told, "error": str(error)}
    return {**told, **_open(found, visitor.clock.now_ms())}


def _open(found: TransactionDescription, now_ms: int) -> dict[str, Any]:
    """What is known of an open transaction; seconds by this machine's clock."""
    return {
        "epoch": found.producer_epoch,
        "open_s": max(now_ms - found.start_ms, 0) // 1000 if found.start_ms >= 0 else None,
        "timeout_s": found.timeout_ms // 1000,
        "partitions": _named(found.partitions),
    }


def _named(partitions: tuple[TopicPartition, ...]) -> str:
    more = len(partitions) - _NAMED
    return ", ".join(map(str, partitions[:_NAMED])) + (f" and {more} more" if more > 0 else "")


ROUTES = [web.get("/api/transactions", reading(transactions))]
