"""Drafts of segments, which another process has written: looked at, and taken over as the ``.cleaned`` files of a swap.

What is looked at is all that a log relies on: that files are files, that every batch is whole and its CRC right, that
offsets rise and lie where the segment is to stand, and that the indexes are those of these batches. Which records are
in them is not: that is the other process's business, whom the broker let do it.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from sparklog.config.topic import TopicConfig
from sparklog.errors import CorruptRecord
from sparklog.log.file_records import FileRecords
from sparklog.log.files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    draft_suffix,
    remove_files,
    segment_path,
    segment_paths,
)
from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.log.indexes.time_index import TimeIndex
from sparklog.log.indexes.transaction_index import TransactionIndex
from sparklog.log.scan import scan_batches
from sparklog.log.segment import index_interval
from sparklog.record.scanner import ScanLimits, make_scanner


def check_drafts(directory: Path, bases: Sequence[int], end_offset: int, tag: str, config: TopicConfig) -> None:
    """Look at the drafts of the segments of ``bases``, which are to hold the offsets up to ``end_offset``.

    Raises CorruptRecord for one that cannot be a segment there, LogError for a tag that is none, OSError for one that
    is missing or cannot be read. Any thread may do it.
    """
    suffix = draft_suffix(tag)
    for base, end in pairwise((*sorted(bases), end_offset)):
        segment_path(directory, base, LOG_SUFFIX + suffix).stat()
        for path in segment_paths(directory, base, suffix):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise CorruptRecord(f"{path} is no file")
        _check_segment(directory, base, end, suffix, config)


def _check_segment(directory: Path, base: int, end: int, suffix: str, config: TopicConfig) -> None:
    largest = config.segment_index_bytes
    log = FileRecords(segment_path(directory, base, LOG_SUFFIX + suffix), writable=False)
    most = largest // OffsetIndex.FORM.size, largest // TimeIndex.FORM.size - 1
    scanner = make_scanner(ScanLimits(base, end, index_interval(config), *most))
    scan_batches(log, scanner, lambda _: None)
    if scanner.position != log.size:
        raise CorruptRecord(f"{log.path}: at position {scanner.position} is no whole batch that belongs there")
    offsets, times = scanner.entries()
    _check_index(segment_path(directory, base, OFFSET_INDEX_SUFFIX + suffix), offsets)
    last = TimeIndex.FORM.unpack(times[-TimeIndex.FORM.size :])[0] if times else -1
    if scanner.latest_timestamp > last:  # the entry that a segment gets when it is complete
        times += TimeIndex.FORM.pack(scanner.latest_timestamp, scanner.latest_offset - base)
    _check_index(segment_path(directory, base, TIME_INDEX_SUFFIX + suffix), times)
    transactions = TransactionIndex(segment_path(directory, base, TRANSACTION_INDEX_SUFFIX + suffix), base)
    try:
        transactions.sanity_check()
    finally:
        transactions.close()


def _check_index(path: Path, entries: bytes) -> None:
    if path.read_bytes() != entries:
        raise CorruptRecord(f"{path} is not the index of its segment")


def adopt_drafts(directory: Path, bases: Sequence[int], tag: str) -> None:
    """Let the drafts of the segments of ``bases`` be ``.cleaned`` files, with which a swap begins (``swap``).

    Drafts themselves are none: those of segments that are written at the same time must not undo the swap of another.
    Raises OSError, with none of them left, if one cannot be renamed or is not there.
    """
    suffix = draft_suffix(tag)
    try:
        for base in bases:
            segment_path(directory, base, LOG_SUFFIX + suffix).stat()
            for path in segment_paths(directory, base, suffix):
                path.rename(path.with_name(path.name.removesuffix(suffix) + CLEANED_SUFFIX))
    except OSError:
        remove_files(path for base in bases for path in segment_paths(directory, base, CLEANED_SUFFIX))
        raise
