"""Logs of keys and values for the tests of cleaning, and the table that such a log replays to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from compaction.dump import dump

from sparklog.log.files import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, find_base_offset
from sparklog.log.log import Log
from sparklog.log.origin import AppendOrigin
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.record.records import iter_batches, iter_records

START_MS = 1_700_000_000_000
Pair = tuple[bytes | None, bytes | None]


class Producer(NamedTuple):
    """What a batch says of its producer."""

    id: int
    epoch: int
    sequence: int
    is_transactional: bool = False


NOBODY = Producer(-1, -1, -1)


def batch_of(
    pairs: Iterable[Pair], producer: Producer = NOBODY, codec: CompressionType = CompressionType.NONE, base: int = 0
) -> memoryview:
    """A batch of these keys and values."""
    builder = RecordBatchBuilder(
        base_offset=base,
        compression=codec,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
        is_transactional=producer.is_transactional,
    )
    for number, (key, value) in enumerate(pairs):
        builder.append(START_MS + number, key, value)
    return memoryview(bytearray(builder.build()))


def append(log: Log, *pairs: Pair, producer: Producer = NOBODY, codec: CompressionType = CompressionType.NONE) -> int:
    """The offset of the first of them."""
    records = batch_of(pairs, producer, codec)
    done = log.append_as_leader(records, 0, verification=lambda *_: None)
    log.on_high_watermark(log.log_end_offset)
    return done.first_offset


def mark(log: Log, producer: Producer, kind: ControlType) -> int:
    """End the producer's transaction."""
    marker = EndTransactionMarker(kind, 0)
    records = build_marker(marker, ProducerIdAndEpoch(producer.id, producer.epoch), START_MS)
    done = log.append_as_leader(memoryview(bytearray(records)), 0, AppendOrigin.COORDINATOR)
    log.on_high_watermark(log.log_end_offset)
    return done.first_offset


def fill(log: Log, segments: int = 4, keys: int = 5, size: int = 100, name: str = "k") -> None:
    """So many more segments, all of the same few keys, a record a batch; the active one is another."""
    wanted = log.segment_count + segments
    while log.segment_count < wanted:
        end = log.log_end_offset
        append(log, (f"{name}{end % keys}".encode(), f"{end}".encode().ljust(size, b".")))


def records_of(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record, those of markers left out."""
    whole = b"".join(map(bytes, log.read_all(1 << 20)))
    return [
        (each.offset, each.key, each.value)
        for batch in iter_batches(whole, partial_tail=False)
        if not batch.is_control
        for each in iter_records(batch)
    ]


def table_of(log: Log) -> dict[bytes, bytes]:
    """What a changelog replays to."""
    found: dict[bytes, bytes] = {}
    for _, key, value in records_of(log):
        if key is not None and value is not None:
            found[key] = value
        elif key is not None:
            found.pop(key, None)
    return found


def table_in(directory: Path) -> dict[bytes, bytes]:
    """Likewise, of files; the records of aborted transactions are left out."""
    facts = dump(directory)
    found: dict[bytes, bytes] = {}
    for batch in facts.batches:
        is_aborted = any(
            each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset <= each.last_offset
            for each in facts.aborted
        )
        if batch.attributes & 0x20 or (is_aborted and batch.attributes & 0x10):
            continue
        for record in batch.records:
            if record.key is not None and record.value is not None:
                found[record.key] = record.value
            elif record.key is not None:
                found.pop(record.key, None)
    return found


def leftovers(directory: Path) -> list[str]:
    """What a cleaning or a swap leaves while it is under way."""
    ends = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(ends))


def segment_files(directory: Path) -> list[str]:
    """The names of all files but those that are written in the background at any time."""
    return sorted(
        path.name for path in directory.iterdir() if find_base_offset(path) is not None and ".snapshot" not in path.name
    )
