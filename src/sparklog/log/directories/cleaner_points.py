"""``cleaner-offset-checkpoint``: up to which offset each compacted log of one log directory is clean.

It may be behind what was cleaned, after a crash, and what is beyond it is cleaned once more. It is never beyond: where
a log is cut, or goes, the file says so before anything else is written there. Source: Kafka 3.9, ``LogCleanerManager``.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from sparklog.errors import CorruptRecord
from sparklog.log.checkpoints import CLEANER_OFFSETS, read_offsets, write_offsets
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)


class CleanerPoints:
    """Of one log directory; any thread may ask and change."""

    def __init__(self, home: Path) -> None:
        self._path = home / CLEANER_OFFSETS
        self._offsets: dict[TopicPartition, int] = {}
        self._is_written = True
        self._changing = threading.Lock()
        self._writing = threading.Lock()

    def load(self) -> None:
        """Take note of the file. One that cannot be read costs a cleaning of every log from its start."""
        try:
            self._offsets = read_offsets(self._path)
        except CorruptRecord as error:
            _logger.error("%s; every compacted log there is cleaned from its start", error)

    def of(self, tp: TopicPartition) -> int | None:
        """None for a log that was never cleaned."""
        return self._offsets.get(tp)

    def set(self, tp: TopicPartition, offset: int) -> None:
        """The log is clean up to ``offset``."""
        with self._changing:
            if self._offsets.get(tp) != offset:
                self._offsets[tp] = offset
                self._is_written = False

    def lower(self, tp: TopicPartition, offset: int) -> bool:
        """The log is cut at ``offset``: whether the file says too much until it is written."""
        if self._offsets.get(tp, -1) > offset:
            self.set(tp, offset)
            return True
        return False

    def forget(self, tp: TopicPartition) -> None:
        """The log is here no longer."""
        with self._changing:
            if self._offsets.pop(tp, None) is not None:
                self._is_written = False

    def write(self) -> None:
        """Have the file say what is known now; durable on return. Raises OSError if the disk refuses."""
        with self._writing:
            with self._changing:
                if self._is_written:
                    return
                self._is_written, offsets = True, self._offsets.copy()
            try:
                write_offsets(self._path, offsets)
            except OSError:
                self._is_written = False
                raise
