"""What partitions hold now, and where in them a reader begins."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final, NamedTuple

from sparklog.client.cluster.offsets import EARLIEST, LATEST, OffsetAndTimestamp, plain_offsets
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.web.visitors import Visitor

_PATIENCE_S = 0.5
_QUICK_S = 2.0
OLDEST: Final = "oldest"
NEWEST: Final = "newest"
OFFSET: Final = "offset"
TIME: Final = "time"
STARTS: Final = (NEWEST, OLDEST, OFFSET, TIME)
Offsets = dict[TopicPartition, int]


class Extents(NamedTuple):
    """First offset and end of each partition that answered; the others are among the ``failures``."""

    first: Offsets
    end: Offsets
    failures: dict[TopicPartition, SparklogError]


async def extents(
    visitor: Visitor, wanted: Collection[TopicPartition], isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> Extents:
    """Of the partitions that can be asked now, as a reader of this ``isolation`` comes to their ends.

    Leaders are asked as they are known. Only where that fails are they looked for anew, which for a topic of 10,000
    partitions is a long answer.
    """
    if not wanted:
        return Extents({}, {}, {})
    try:
        async with asyncio.timeout(_QUICK_S):
            first, end = await asyncio.gather(
                *(_asked(visitor, wanted, each, isolation) for each in (EARLIEST, LATEST))
            )
        return Extents(first, end, {})
    except (SparklogError, TimeoutError):
        return await _reachable(visitor, wanted, isolation)


async def ends(visitor: Visitor, wanted: Collection[TopicPartition]) -> Extents:
    """Where the partitions end that can be asked now; nothing is told of where they begin."""
    if not wanted:
        return Extents({}, {}, {})
    try:
        async with asyncio.timeout(_QUICK_S):
            return Extents({}, await _asked(visitor, wanted, LATEST, IsolationLevel.READ_UNCOMMITTED), {})
    except (SparklogError, TimeoutError):
        end, failures = await _reached(visitor, wanted, LATEST, IsolationLevel.READ_UNCOMMITTED)
        return Extents({}, plain_offsets(end), failures)


async def _asked(visitor: Visitor, wanted: Collection[TopicPartition], what: int, isolation: IsolationLevel) -> Offsets:
    return plain_offsets(await visitor.admin.list_offsets(dict.fromkeys(wanted, what), isolation=isolation))


async def _reachable(visitor: Visitor, wanted: Collection[TopicPartition], isolation: IsolationLevel) -> Extents:
    first, failures = await _reached(visitor, wanted, EARLIEST, isolation)
    if not first:
        return Extents({}, {}, failures)
    end, later = await _reached(visitor, first, LATEST, isolation)
    answered = {tp: at for tp, at in first.items() if tp in end}
    return Extents(plain_offsets(answered), plain_offsets(end), {**failures, **later})


async def _reached(
    visitor: Visitor, wanted: Collection[TopicPartition], what: int, isolation: IsolationLevel
) -> tuple[dict[TopicPartition, OffsetAndTimestamp | None], dict[TopicPartition, SparklogError]]:
    asked = dict.fromkeys(wanted, what)
    return await visitor.admin.reachable_offsets(asked, isolation=isolation, patience=_PATIENCE_S)


class Start(NamedTuple):
    """Where to begin: one of STARTS, with an offset or a time in ms for two of them."""

    kind: str
    at: int = 0

    async def offsets(self, visitor: Visitor, there: Extents, newest: int = 0) -> Offsets:
        """For each partition that answered an offset that it has, or its end; ``newest``: so many before the end."""
        if self.kind == TIME:
            return await self._at_time(visitor, there)
        wanted = {OLDEST: there.first, NEWEST: {tp: end - newest for tp, end in there.end.items()}}
        chosen = wanted.get(self.kind, dict.fromkeys(there.end, self.at))
        return {tp: min(max(chosen[tp], there.first[tp]), end) for tp, end in there.end.items()}

    async def _at_time(self, visitor: Visitor, there: Extents) -> Offsets:
        found = await visitor.admin.list_offsets(dict.fromkeys(there.end, self.at)) if there.end else {}
        return {tp: there.end[tp] if at is None else min(at.offset, there.end[tp]) for tp, at in found.items()}


def raise_all_failed(there: Extents) -> None:
    """Raises the first failure where no partition answered."""
    if there.failures and not there.end:
        failure = next(iter(there.failures.values()))
        raise failure if isinstance(failure, ApiError) else ApiError(ErrorCode.LEADER_NOT_AVAILABLE, str(failure))
