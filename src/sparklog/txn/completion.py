"""Delivering a decision: every partition of a prepared transaction gets its marker, however long that takes.

One partition's refusal says nothing of the others. Only the transaction's coordinator decides whether all of it is
another's: a coordinator that was replaced stops when it hears so, not when a partition says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection

from sparklog.clock import Clock
from sparklog.errors import ErrorCode
from sparklog.rate_limit import RateLimitedLogger
from sparklog.structs import TopicPartition
from sparklog.txn.markers import Marker, MarkerWriter, Progress, progress

_logger = logging.getLogger(__name__)
Answers = dict[TopicPartition, ErrorCode]
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Completion:
    """Tries again, with growing pauses, what could not be written."""

    def __init__(self, writer: MarkerWriter, clock: Clock) -> None:
        self._writer = writer
        self._warnings = RateLimitedLogger(_logger, clock.monotonic)

    async def deliver(
        self, marker: Marker, partitions: Collection[TopicPartition], is_ours: Callable[[], bool]
    ) -> bool:
        """True once every partition that can still take the marker has it; False if the end is not ours any more."""
        owed = set(partitions)
        pause = _FIRST_PAUSE
        while owed and is_ours():
            answers = await self._write(marker, owed)
            steps = {tp: progress(code) for tp, code in answers.items()}
            over = sorted(str(tp) for tp, step in steps.items() if step is Progress.OVER)
            if over:
                _logger.warning("a newer epoch of %s has come before %s in: %s", marker.producer, marker, over)
            owed -= {tp for tp, step in steps.items() if step is not Progress.AGAIN}
            if owed:
                owed -= await self._writer.deleted(owed)
            if owed:
                self._warn(marker, owed, answers)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return is_ours()

    def _warn(self, marker: Marker, owed: Collection[TopicPartition], answers: Answers) -> None:
        """In one line for all: a dead leader may owe thousands of transactions, each of thousands of partitions."""
        counts = Counter(answers[tp].name for tp in owed if tp in answers)
        codes = ", ".join(sorted(counts)) or "no answer"
        where = f"{len(owed)} partition(s), such as {min(owed)}"
        self._warnings.repeat(codes, f"trying again to end a transaction of {marker.producer} in {where}: {codes}")

    async def _write(self, marker: Marker, owed: Collection[TopicPartition]) -> Answers:
        """What the partitions answered; nothing if the writer failed, in whatever way: then all are tried again."""
        try:
            return await self._writer.write(marker, owed)
        except Exception:
            _logger.exception("cannot write %s", marker)
            return {}
