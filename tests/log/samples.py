"""Batches and logs for the tests of this package."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.adoption import Offer, offer_path
from sparklog.log.indexes.time_index import TimestampOffset
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.log.segment import LogSegment
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

TP = TopicPartition("t", 0)
SMALL = {"segment.bytes": "700", "index.interval.bytes": "100", "segment.index.bytes": "400"}


def batch_of(*timestamps: int, size: int = 10, key: bytes | None = None, codec=CompressionType.NONE) -> memoryview:
    """A batch as a producer sends it: one record a timestamp, ``size`` bytes each."""
    builder = RecordBatchBuilder(compression=codec)
    for timestamp in timestamps or (1000,):
        builder.append(timestamp, key, b"v" * size)
    return memoryview(bytearray(builder.build()))


def open_log(directory: Path, settings: dict[str, str] | None = None, **how) -> Log:
    """A log whose background work is done at once."""
    directory.mkdir(parents=True, exist_ok=True)
    clock = how.pop("clock", None) or ManualClock()
    return Log(directory, TP, parse(TopicConfig, settings or {}), clock, lambda work: work(), Knowledge(**how))


def read_bytes(piece) -> bytes:
    """What a file slice stands for."""
    return b"" if piece is None else bytes(piece.file.read(piece.position, piece.size))


def whole(log: Log) -> bytes:
    """Every byte of every batch."""
    return b"".join(map(bytes, log.read_all(1 << 20)))


def abandon(log: Log) -> None:
    """Leave the log as a killed process does: what is in the page cache stays, nothing is closed or cut."""
    for segment in log._segments:
        for index in (segment.offset_index, segment.time_index):
            index.release()


def transactional(producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0) -> memoryview:
    """A batch of an open transaction, as its producer sends it."""
    builder = RecordBatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
    )
    for number in range(count):
        builder.append(1000 + number, b"k", b"%d" % producer_id)
    return memoryview(bytearray(builder.build()))


def marker_of(producer_id: int, kind: ControlType, *, epoch: int = 0, coordinator_epoch: int = 0) -> memoryview:
    """What a transaction coordinator ends a transaction with."""
    marker = EndTransactionMarker(kind, coordinator_epoch)
    return memoryview(bytearray(build_marker(marker, ProducerIdAndEpoch(producer_id, epoch), 2000)))


def write_cleaned(directory: Path, base: int, batches: list[bytes], config: TopicConfig) -> None:
    """A segment that holds ``batches`` (with their offsets), finished but for its names, as a rewrite leaves it."""
    with TemporaryDirectory() as scratch:
        segment = LogSegment(Path(scratch), base, config, active=True, create=True)
        for data in batches:
            batch = RecordBatch(data)
            latest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            segment.append(memoryview(data), batch.base_offset, batch.last_offset, latest)
        segment.close()
        for path in segment.paths:
            shutil.copy(path, directory / f"{path.name}.cleaned")


def in_a_row(batches: list[memoryview], first_offset: int = 0) -> list[bytes]:
    """The batches, with offsets one behind the other, as in a segment file."""
    placed = []
    for data in batches:
        batch = RecordBatch(bytearray(data))
        batch.assign(first_offset, batch.partition_leader_epoch)
        placed.append(bytes(batch.buffer))
        first_offset = batch.next_offset
    return placed


def write_offer(directory: Path, segments: list[list[bytes]], tag: str = "offered") -> Offer:
    """The files of an offer: a segment for each list of batches, which have their offsets."""
    for batches in segments:
        offer_path(directory, RecordBatch(batches[0]).base_offset, tag).write_bytes(b"".join(batches))
    bases = tuple(RecordBatch(batches[0]).base_offset for batches in segments)
    return Offer(tag, bases, RecordBatch(segments[-1][-1]).next_offset)
