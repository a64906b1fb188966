"""The two kernels of log compaction: the map of the record that wins for each key, and the rewriting of batches by it.

A plain batch (not compressed, not transactional, no control batch) goes through the codec whole: ``index_batches`` and
``take`` stop before any other. That one the caller looks at: whether its transaction was aborted, whether its marker is
needed still. Then ``index_batch`` and ``rewrite_batch`` do with it what the codec does with the plain ones.

The rules are those of Kafka 3.9 (``Cleaner.shouldRetainRecord``, ``MemoryRecords.filterTo``): ``abc.BatchRewriter``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple

from sparklog.record import _impl
from sparklog.record._impl.abc import (
    BatchFields,
    BatchRewriter,
    OffsetMap,
    Retained,
    RewriteRules,
    ScanLimits,
    Versions,
)
from sparklog.record._impl.map_file import map_file_size
from sparklog.record.batch import RecordBatch
from sparklog.record.rebuilding import empty_header, rebuilt
from sparklog.record.records import MAX_DECOMPRESSED, batch_fields, records_section

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "BatchRewriter",
    "OffsetMap",
    "Retained",
    "RewriteRules",
    "ScanLimits",
    "Verdict",
    "Versions",
    "empty_header",
    "index_batch",
    "index_keys",
    "make_offset_map",
    "make_rewriter",
    "map_file_size",
    "open_offset_map",
    "rebuilt",
    "rewrite_batch",
    "skip_plain",
]


class Verdict(NamedTuple):
    """What the caller knows of one batch.

    The rules of the rewriter may keep an empty batch that ``retain_empty`` does not.
    """

    discard: bool = False
    """No record stays: its transaction was aborted, or its marker is no longer needed."""
    retain_empty: bool = False
    """The batch stays even when it is empty."""
    needs_horizon: bool = False
    """It gets a delete horizon without a tombstone: it is the marker of a transaction of which nothing is left."""


def make_offset_map(
    max_bytes: int,
    load_factor: float,
    seed: bytes,
    part: tuple[int, int] = (0, 1),
    versions: Versions | None = None,
) -> OffsetMap:
    """An empty map, of the codec that is in use."""
    return _impl.codec.OffsetMap(max_bytes, load_factor, seed, part, versions)


def open_offset_map(paths: Sequence[str | PathLike[str]]) -> OffsetMap:
    """The map of all keys whose parts were dumped to ``paths``, read where they lie; for looking up alone.

    Raises OSError, CorruptRecord, ValueError where they are not the parts of one map.
    """
    return _impl.codec.OffsetMap.open(paths)


def skip_plain(buffer: Buffer) -> int:
    """How many bytes the batches at the beginning of ``buffer`` take that have nothing to do with transactions."""
    return _impl.codec.skip_plain(buffer)


def make_rewriter(offset_map: OffsetMap, rules: RewriteRules, limits: ScanLimits) -> BatchRewriter:
    """A rewriter that writes one segment, of the codec that is in use; the map must be of the same."""
    return _impl.codec.BatchRewriter(offset_map, rules, limits)


def index_batch(
    offset_map: OffsetMap, batch: RecordBatch, start_offset: int, max_decompressed: int = MAX_DECOMPRESSED
) -> None:
    """Put the records of one batch of any kind into the map, and let its latest offset follow unless it became full."""
    batch.validate()
    if batch.record_count:
        offset_map.index(records_section(batch, max_decompressed), batch_fields(batch), start_offset)
    if not offset_map.is_full and batch.last_offset >= start_offset:
        offset_map.advance(batch.last_offset)


def index_keys(offset_map: OffsetMap, keys: Iterable[bytes], offset: int) -> None:
    """Put ``keys`` into the map as if the last record of each had ``offset``."""
    fields = BatchFields(1, offset, 0, None, 0)
    for key in keys:
        section = bytearray()
        _impl.codec.write_record(section, 0, 0, key, None, ())
        offset_map.index(section, fields, offset)


def rewrite_batch(
    rewriter: BatchRewriter, batch: RecordBatch, verdict: Verdict, max_decompressed: int = MAX_DECOMPRESSED
) -> None:
    """Write what stays of one batch of any kind. The records of a control batch stay unless it is discarded.

    Raises CorruptRecord for a batch that is damaged or malformed; nothing of it is written or counted then.
    """
    batch.validate()
    stays = verdict.retain_empty or rewriter.rules.keeps_empty(batch.producer_id, batch.last_offset)
    if stays or not verdict.discard:
        _rewrite(rewriter, batch, verdict, stays, max_decompressed)
    rewriter.count_batch(batch.size_in_bytes)


def _rewrite(rewriter: BatchRewriter, batch: RecordBatch, verdict: Verdict, stays: bool, max_decompressed: int) -> None:
    retained = rewriter.retain(
        records_section(batch, max_decompressed) if batch.record_count else b"",
        batch_fields(batch),
        batch.base_timestamp if batch.has_delete_horizon else None,
        all_gone=verdict.discard,
        keep_all=batch.is_control,
        needs_horizon=verdict.needs_horizon,
    )
    if retained.kept == 0:
        if stays:
            rewriter.write(empty_header(batch))
    elif retained.section is None:
        rewriter.write(batch.buffer)
    else:
        rewriter.write(rebuilt(batch, retained))
