"""Erasing one log: every record of some keys goes that lies below an offset, and nothing else.

All segments are searched before anything is written. Then each in which something was found is written anew, alone, and
handed out under ``.cleaned``: it is in the place of the old one, or not wanted, before the next. What stays is exactly
as it was (``RewriteRules.erases``). Where all is only to be searched, each file's SHA-256 is told beside what was
found. The promise as a whole: ``docs/adr/0028-erasure.md``.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sparklog.clock import Clock
from sparklog.compaction.erased_keys import unpack_keys
from sparklog.compaction.rewriting import CleanedGroup, GroupRewriting
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import CleaningTask
from sparklog.compaction.transactions import CleanedTransactions
from sparklog.compaction.walk import SegmentWalk
from sparklog.errors import CorruptRecord
from sparklog.log.files import CORRUPT_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, files_with_suffix, segment_path
from sparklog.log.indexes.transaction_index import AbortedTransaction, read_aborted
from sparklog.log.segment import MAX_RELATIVE_OFFSET, SegmentFacts
from sparklog.record.batch import RecordBatch
from sparklog.record.compacting import (
    OffsetMap,
    RewriteRules,
    Verdict,
    index_keys,
    make_offset_map,
    make_rewriter,
    rewrite_batch,
)
from sparklog.record.scanner import ScanLimits

RULES = RewriteRules(0, 0, {}, erases=True)
_BYTES_A_KEY = 48
_LOAD_FACTOR = 0.9
_LEAST_MAP = 1 << 12
_HASHED_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class ErasureTask:
    """One erasure of one log, or one search."""

    log: CleaningTask
    """``segments``: those to be searched, and no others; they do not change as far as their ``size`` says."""
    end_offset: int
    """Records at or beyond it are not meant."""
    keys: bytes = field(repr=False)
    """Packed (``erased_keys``)."""
    scan_only: bool

    def to_lines(self) -> str:
        """Two lines: JSON, and the keys in base64, which are too many for a parser."""
        told = {"log": self.log.to_json(), "end_offset": self.end_offset, "scan_only": self.scan_only}
        return f"{json.dumps({'erasure': told})}\n{b64encode(self.keys).decode()}"

    @classmethod
    def from_lines(cls, fields: dict[str, Any], keys: str) -> ErasureTask:
        """``fields`` are what the first line has under ``erasure``, ``keys`` is the second line."""
        return cls(**fields | {"log": CleaningTask.from_json(fields["log"]), "keys": b64decode(keys)})


class Progress(NamedTuple):
    """How far an erasure is."""

    segments_done: int
    segments_total: int


class ScannedSegment(NamedTuple):
    """A file that was searched."""

    base_offset: int
    size: int
    """Bytes; of the segment that is appended to, the batches that begin before the end offset."""
    sha256: str
    """Hexadecimal."""


@dataclass(slots=True)
class ErasureStats:
    """What was looked at, and what was found of the keys: erased by now, or there, where it was only searched."""

    keys: int = 0
    records_scanned: int = 0
    bytes_scanned: int = 0
    records_found: int = 0
    segments_rewritten: int = 0
    segments: list[ScannedSegment] = field(default_factory=list)
    """Empty but for a search."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> ErasureStats:
        return cls(**fields | {"segments": [ScannedSegment(*each) for each in fields["segments"]]})


class LogErasing:
    """One erasure of one log, in one process."""

    def __init__(self, task: ErasureTask, clock: Clock, seed: bytes, is_wanted: Callable[[], None] = lambda: None):
        """``seed``, 16 bytes, is of the keys' hashes. ``is_wanted`` is asked often, and raises what ends the pass."""
        self._task = task
        self._seed = seed
        self._directory = Path(task.log.directory)
        self._walk = SegmentWalk(task.log, clock, is_wanted)
        self.stats = ErasureStats()

    def run(self) -> Iterator[CleanedGroup | Progress]:
        """Search the log, and write anew what has to be: a group is in its place, or not wanted, before the next step.

        Raises CorruptRecord where a segment cannot be read, DiskFull where there is no room for one, OSError.
        """
        self._check_nothing_set_aside()
        keys = self._map_of_keys()
        segments = self._task.log.segments
        found = []
        for number, segment in enumerate(segments, 1):
            if self._search(segment, keys):
                found.append(segment)
            yield Progress(number, len(segments))
        if not self._task.scan_only:
            for segment in found:
                yield self._rewrite(segment, keys)

    def _check_nothing_set_aside(self) -> None:
        aside = sorted(path.name for path in files_with_suffix(self._directory, CORRUPT_SUFFIX))
        if aside:
            raise CorruptRecord(
                f"{self._directory / aside[0]} was set aside for damage, and may hold records of any key: remove it"
            )

    def _map_of_keys(self) -> OffsetMap:
        keys = list(unpack_keys(self._task.keys))
        found = make_offset_map(_LEAST_MAP + _BYTES_A_KEY * len(keys), _LOAD_FACTOR, self._seed)
        index_keys(found, keys, self._task.end_offset)
        self.stats.keys = len(keys)
        return found

    def _search(self, segment: SegmentFacts, keys: OffsetMap) -> int:
        """How many records of the keys it holds."""
        end = segment.base_offset + MAX_RELATIVE_OFFSET + 1
        rewriter = make_rewriter(keys, RULES, ScanLimits(segment.base_offset, end, segment.size, 0, 0))

        def take(view: memoryview) -> int:
            taken = rewriter.take(view)
            rewriter.drain()
            return taken

        def visit(batch: RecordBatch) -> bool:
            rewrite_batch(rewriter, batch, Verdict())
            rewriter.drain()
            return True

        try:
            self._walk.walk(segment, take, visit)
        except CorruptRecord as error:
            raise CorruptRecord(f"nothing was erased here: {error}") from error
        found = rewriter.messages_read - rewriter.messages_kept
        self.stats.records_scanned += rewriter.messages_read
        self.stats.bytes_scanned += segment.size
        self.stats.records_found += found
        if self._task.scan_only:
            self.stats.segments.append(ScannedSegment(segment.base_offset, segment.size, self._sha256_of(segment)))
        return found

    def _sha256_of(self, segment: SegmentFacts) -> str:
        hashed, left = hashlib.sha256(), segment.size
        with open(segment_path(self._directory, segment.base_offset, LOG_SUFFIX), "rb") as file:
            while left:
                data = file.read(min(left, _HASHED_AT_ONCE))
                if not data:
                    raise CorruptRecord(f"{file.name} ends {left} bytes before its end")
                hashed.update(data)
                left -= len(data)
                self._walk.pay(len(data))
        return hashed.hexdigest()

    def _rewrite(self, segment: SegmentFacts, keys: OffsetMap) -> CleanedGroup:
        transactions = _KeptTransactions(segment_path(self._directory, segment.base_offset, TRANSACTION_INDEX_SUFFIX))
        rewriting = GroupRewriting(self._task.log, self._walk, keys, transactions, rules=RULES)
        group = rewriting.rewrite([segment.base_offset], CleanerStats())
        self.stats.segments_rewritten += 1
        return group


class _KeptTransactions(CleanedTransactions):
    """Of a segment from which no transaction goes: what its transaction index lists stays listed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._index = read_aborted(path) if os.path.exists(path) else []

    def is_aborted(self, batch: RecordBatch) -> bool:  # noqa: ARG002
        return False

    def is_last_trace(self, marker: RecordBatch) -> bool:  # noqa: ARG002
        return False

    def take_listed(self) -> list[AbortedTransaction]:
        listed, self._index = self._index, []
        return listed
