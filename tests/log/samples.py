"""Batches and logs for the tests of this package."""

from pathlib import Path

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.log import Log
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
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
    return Log(directory, TP, parse(TopicConfig, settings or {}), clock, lambda work: work(), **how)


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
            if index._map is not None:
                index._map.close()
                index._map = None
