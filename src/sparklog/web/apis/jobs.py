"""What is under way: cleaning of compacted topics, moves of replicas, offloads into tables, prepared Spark batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from sparklog.client.admin.compaction import BrokerCompaction, CompactionDescription, CompactionState
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.admin.reassignments import PartitionReassignment
from sparklog.client.admin.retention import RetentionState
from sparklog.errors import SparklogError
from sparklog.structs import TopicPartition
from sparklog.web.asked import Page, flag
from sparklog.web.context import reading
from sparklog.web.offloads import offload_progress
from sparklog.web.prepared import prepared_writes
from sparklog.web.visitors import Visitor

_MOST: Final = 500
_COMPACTION: Final = "compaction"


async def jobs(visitor: Visitor, _: web.Request) -> dict[str, Any]:
    """Cleaners, moves, offloads and so on; each is its rows, or the error that says why there are none."""
    ask = visitor.fresh.get
    tables, writes, cleaners, moves, offloads = await asyncio.gather(
        _or_error(lambda: ask("tables", lambda: offload_progress(visitor)), list),
        _or_error(lambda: ask("writes", lambda: prepared_writes(visitor)), list),
        _or_error(lambda: ask(_COMPACTION, visitor.admin.describe_compaction), _cleaners),
        _or_error(lambda: ask("moves", visitor.admin.list_partition_reassignments), _moves),
        _or_error(lambda: ask("retention", visitor.admin.describe_retention), _offloads),
    )
    return {"tables": tables, "writes": writes, "cleaners": cleaners, "moves": moves, "offloads": offloads}


async def compaction(visitor: Visitor, request: web.Request) -> dict[str, Any]:
    """A page of compacted replicas; ``busy`` for those that are cleaned now or should be."""
    found: CompactionDescription = await visitor.fresh.get(_COMPACTION, visitor.admin.describe_compaction)
    shown = [each for each in found.replicas.items() if not flag(request.query, "busy") or _is_busy(each[1])]
    orders = {
        "topic": lambda each: each[0],
        "dirty": lambda each: (each[1].dirty_ratio or 0.0, each[0]),
        "cleanable": lambda each: (each[1].cleanable_bytes, each[0]),
    }
    cut = Page.of(request).cut(shown, lambda each: str(each[0].tp), orders)
    return cut.told([_replica(*each) for each in cut.rows])


async def _or_error(ask: Callable[[], Awaitable[Any]], told: Callable[[Any], list[Any]]) -> dict[str, Any]:
    try:
        return {"rows": told(await ask())[:_MOST], "error": None}
    except SparklogError as error:
        return {"rows": [], "error": str(error)}


def _cleaners(found: CompactionDescription) -> list[dict[str, Any]]:
    return [{"broker": broker, **_cleaner(each)} for broker, each in sorted(found.brokers.items())]


def _cleaner(each: BrokerCompaction) -> dict[str, Any]:
    return each._asdict()


def _moves(found: dict[TopicPartition, PartitionReassignment]) -> list[dict[str, Any]]:
    return [{"partition": str(tp), **each._asdict()} for tp, each in sorted(found.items())]


def _offloads(found: dict[Replica, RetentionState]) -> list[dict[str, Any]]:
    return [
        {"partition": str(replica.tp), "broker": replica.broker, **each._asdict()} for replica, each in found.items()
    ]


def _is_busy(each: CompactionState) -> bool:
    return each.is_under_way or each.is_due or each.uncleanable is not None


def _replica(replica: Replica, each: CompactionState) -> dict[str, Any]:
    return {
        "topic": replica.tp.topic,
        "partition": replica.tp.partition,
        "broker": replica.broker,
        "error": None if each.error is None else str(each.error),
        "dirty": each.dirty_ratio,
        "clean_bytes": each.clean_bytes,
        "cleanable_bytes": each.cleanable_bytes,
        "is_due": each.is_due,
        "is_under_way": each.is_under_way,
        "cleaned_by": each.cleaned_by,
        "uncleanable": each.uncleanable,
        "last": None if each.last_run is None else each.last_run._asdict(),
    }


ROUTES = [web.get("/api/jobs", reading(jobs)), web.get("/api/jobs/compaction", reading(compaction))]
