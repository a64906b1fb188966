"""Delivering a decision: every partition of a prepared transaction gets its marker, however long that takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from sparklog.structs import TopicPartition
from sparklog.txn.markers import Marker, MarkerWriter, Progress, progress

_logger = logging.getLogger(__name__)
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Completion:
    """Tries again, with growing pauses, what could not be written."""

    def __init__(self, writer: MarkerWriter) -> None:
        self._writer = writer

    async def deliver(
        self, marker: Marker, partitions: Collection[TopicPartition], is_ours: Callable[[], bool]
    ) -> bool:
        """True once every partition that exists has the marker; False if the transaction is somebody else's now."""
        owed = set(partitions)
        pause = _FIRST_PAUSE
        while owed and is_ours():
            answers = await self._writer.write(marker, owed)
            steps = {tp: progress(code) for tp, code in answers.items()}
            if Progress.OVER in steps.values():
                _logger.warning("%s is fenced: %s", marker, answers)
                return False
            owed -= {tp for tp, step in steps.items() if step is Progress.DONE}
            if owed:
                owed -= await self._writer.deleted(owed)
            if owed:
                refused = {str(tp): answers[tp].name for tp in owed if tp in answers}
                _logger.warning("trying again to end a transaction of %s: %s", marker.producer, refused)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return is_ours()
