"""Batches that Spark's sink has prepared: what is open of each scope, and what its last decision says of that."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from sparklog.client.admin.transactions import ONGOING, TransactionDescription, TransactionListing
from sparklog.errors import SparklogError
from sparklog.spark.write.attempt_names import AttemptName
from sparklog.spark.write.decisions import Decision, Scope
from sparklog.structs import DECISIONS_TOPIC
from sparklog.web.scan import Scan, matching, reader
from sparklog.web.visitors import Visitor

_SCOPES: Final = 50
_DESCRIBED: Final = 200
"""Of a scope's open transactions so many are asked about, since each is a request."""
_AT_ONCE: Final = 4
_NAMED: Final = 5


class _Told(NamedTuple):
    """The last decision of a scope, or why it is not known."""

    decision: Decision | None
    error: str | None = None


async def prepared_writes(visitor: Visitor) -> list[dict[str, Any]]:
    """A row for each scope that has transactions open, the oldest first; of the first scopes by name."""
    listed: list[TransactionListing] = await visitor.admin.list_transactions(states=[ONGOING])
    named = {each.transactional_id: AttemptName.parse(each.transactional_id) for each in listed}
    scopes: dict[Scope, list[str]] = {}
    for key, name in sorted(named.items()):
        if name is not None:
            scopes.setdefault(Scope(name.scope, is_resumable=not name.is_unnamed), []).append(key)
    turn = asyncio.Semaphore(_AT_ONCE)
    rows = await asyncio.gather(*(_row(visitor, *each, turn) for each in list(scopes.items())[:_SCOPES]))
    return sorted(filter(None, rows), key=lambda row: -(row["open_s"] or 0))


async def _row(visitor: Visitor, scope: Scope, keys: list[str], turn: asyncio.Semaphore) -> dict[str, Any] | None:
    """None where all has ended meanwhile."""
    async with turn:
        # What is decided is asked first: what is open afterwards and not in it was not decided then.
        told = await _last(visitor, scope)
        found = await visitor.admin.open_transactions(keys[:_DESCRIBED])
    still = {key: each for key, each in found.items() if each.state == ONGOING}
    if not still:
        return None
    is_cut = len(keys) > _DESCRIBED
    count = len(keys) if is_cut else len(still)
    return (
        {"scope": scope.name, "open": count, "is_cut": is_cut}
        | _ages(still, visitor.clock.now_ms())
        | _judged(told, still)
    )


def _ages(still: dict[str, TransactionDescription], now_ms: int) -> dict[str, Any]:
    begun = [each.start_ms for each in still.values() if each.start_ms >= 0]
    partitions = {tp for each in still.values() for tp in each.partitions}
    topics = sorted({tp.topic for tp in partitions})
    more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
    return {
        "open_s": max(now_ms - min(begun), 0) // 1000 if begun else None,
        "topics": ", ".join(topics[:_NAMED]) + more,
        "partitions": len(partitions),
    }


def _judged(told: _Told, still: dict[str, TransactionDescription]) -> dict[str, Any]:
    """``decided`` of the open ones belong to ``batch``, the last that was decided, and are yet to be committed."""
    if told.decision is None:
        return {"batch": None, "decided": None, "share": None, "error": told.error}
    pairs = {(key, each.producer_id, each.producer_epoch) for key, each in still.items()}
    named = set(map(tuple, told.decision.transactions))
    decided = len(pairs & named)
    return {
        "batch": told.decision.batch if told.decision.batch >= 0 else None,
        "decided": decided,
        "share": (len(named) - decided) / len(named) if decided else None,
        "error": None,
    }


async def _last(visitor: Visitor, scope: Scope) -> _Told:
    """As the decider's group tells it: nothing is searched for, and no topic is created."""
    try:
        committed = await visitor.admin.group_offsets(scope.decider_id)
        known = [(tp, at.offset) for tp, at in sorted(committed.items()) if tp.topic == DECISIONS_TOPIC]
        if not known:
            return _Told(Decision())
        tp, offset = known[-1]
        scan = Scan({tp: offset}, {tp: offset + 1}, matching("", "key"), 1, visitor.clock)
        async with reader(visitor) as consumer:
            await scan.run(consumer)
        value = next((each.value for each in scan.found if each.key == scope.key and each.value is not None), None)
        if value is None:
            return _Told(None, f"{tp} has no decision at offset {offset}, where group {scope.decider_id} has one")
        return _Told(Decision.decode(value))
    except SparklogError as error:
        return _Told(None, str(error))
