"""Erasing a log as a broker and its worker do it, in this process; and what must be found after it."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from compaction.dump import BatchFacts, LogFacts, RecordFacts
from compaction.ours import SEED

from sparklog.compaction.erased_keys import pack_keys
from sparklog.compaction.erasure import ErasureStats, ErasureTask, LogErasing
from sparklog.compaction.rewriting import CleanedGroup
from sparklog.compaction.task import Buffers, CleaningTask
from sparklog.log.log import Log
from sparklog.testing.clock import ManualClock

NOW_MS = 1_700_000_100_000
_EMPTY_ATTRIBUTES = 0x38


def task_of(log: Log, keys: Collection[bytes], end: int, *, scan_only: bool = False) -> ErasureTask:
    """Of the segments with offsets below ``end``; the active one is to be rolled before."""
    task = CleaningTask(
        directory=str(log.directory),
        name=str(log.tp),
        segments=tuple(each for each in log.segment_facts() if each.base_offset < end),
        log_start_offset=log.log_start_offset,
        first_dirty=0,
        first_uncleanable=end,
        now_ms=NOW_MS,
        config=log.config,
        buffers=Buffers(0, 1.0, 700, float("inf")),
    )
    return ErasureTask(task, end, pack_keys(keys), scan_only)


def erase(log: Log, keys: Collection[bytes], end: int, *, scan_only: bool = False) -> ErasureStats:
    """All of it, through the form in which a worker is told."""
    first, second = task_of(log, keys, end, scan_only=scan_only).to_lines().splitlines()
    task = ErasureTask.from_lines(json.loads(first)["erasure"], second)
    erasing = LogErasing(task, ManualClock(), SEED)
    for step in erasing.run():
        if isinstance(step, CleanedGroup):
            for path in log.replace_segments(step.new, step.old):
                path.unlink()
    return erasing.stats


def expected_batches(before: LogFacts, keys: Collection[bytes], end: int) -> list[BatchFacts]:
    """What a model leaves of the batches; the CRC of those that change is not told."""
    left = []
    for batch in before.batches:
        is_control = bool(batch.attributes & 0x20)
        stay = tuple(each for each in batch.records if is_control or each.key not in keys or each.offset >= end)
        if len(stay) == len(batch.records):
            left.append(batch)
        elif stay:
            left.append(_changed(batch, stay))
        else:
            kept = batch._replace(
                attributes=batch.attributes & _EMPTY_ATTRIBUTES, delete_horizon=None, base_timestamp=-1
            )
            left.append(kept._replace(records=(), record_count=0, crc=None))
    return left


def _changed(batch: BatchFacts, stay: tuple[RecordFacts, ...]) -> BatchFacts:
    has_append_time = bool(batch.attributes & 0x08)
    greatest = batch.max_timestamp if has_append_time else max(-1, *(each.timestamp for each in stay))
    base = batch.base_timestamp if batch.delete_horizon is not None else stay[0].timestamp
    return batch._replace(records=stay, record_count=len(stay), max_timestamp=greatest, base_timestamp=base, crc=None)


def without_crc(batches: list[BatchFacts], like: list[BatchFacts]) -> list[BatchFacts]:
    """``batches``, without the CRC of those that have none in ``like``."""
    return [each._replace(crc=None) if other.crc is None else each for each, other in zip(batches, like, strict=True)]


def raw(directory: Path) -> bytes:
    """Every byte of every file there."""
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file())
