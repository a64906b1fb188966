"""The log on disk, one thread: appending beside ``pwrite``, reading beside ``sendfile``, recovery and opening.

``append`` goes through ``Log.append_as_leader`` with batches that are ready-made and lie in the CPU's cache, as those
do that a socket has just delivered; what it does to them (CRC-32C, header, producer state, indexes) is in the time,
making them ready is not. Beside it the same bytes are written to a file of the same disk with one ``pwrite`` a batch.
``read`` sends ranges of 1 MB over a TCP connection of this machine: ``Log.read`` and ``sendfile``, beside ``sendfile``
of the same ranges. The two sides take turns. Recovery: ``recovery.py``; opening: ``opening.py``.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import crc32c

from benchmarks import opening, recovery
from benchmarks.comparison import Comparison
from benchmarks.loads.records import NOW_MS, batch_of
from sparklog.clock import SystemClock
from sparklog.config.topic import TopicConfig
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.log.log import Log
from sparklog.record import layout
from sparklog.record.batch import patch_header, patch_producer
from sparklog.structs import NO_EPOCH, TopicPartition

APPEND_ROUNDS = 11
READ_ROUNDS = 9
RANGE = 1_000_000
"""Bytes of one read."""
_POOL = 4
"""Buffers that are appended in turn."""
_PRODUCER_ID = 4711
_READ_BYTES = 128_000_000


@dataclass(frozen=True)
class Shape:
    """Uncompressed batches of one kind; ``append_bytes``: how much of them a round of appending writes."""

    name: str
    record_size: int
    batch_bytes: int
    append_bytes: int


SHAPES = [
    Shape("1 KB in 1 MB batches", 1000, 1_000_000, 256_000_000),
    Shape("100 B in 1 MB batches", 100, 1_000_000, 256_000_000),
    Shape("1 KB in 16 KB batches", 1000, 16_000, 64_000_000),
    Shape("100 B in 16 KB batches", 100, 16_000, 64_000_000),
]

Write = Callable[[memoryview, int], object]
"""Appends a batch under a leader epoch."""


def run(say: Callable[[str], None] = lambda _: None, scale: float = 1.0) -> list[dict[str, Any]]:
    """A row a figure, see ``Comparison.row``; ``scale``: how much of everything that takes long."""
    with TemporaryDirectory(prefix="sparklog-bench-") as scratch:
        directory = Path(scratch)
        compared: list[Comparison] = []
        for shape in SHAPES:
            say(f"log: append and read, {shape.name}")
            for idempotent in (False, True):
                compared += append(directory, shape, scale, idempotent=idempotent)
            compared += [checksum(shape), *read(directory, shape, scale)]
        with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper:
            compared += recovery.run(directory, zookeeper.connect_string, say, scale)
            compared += opening.run(directory, zookeeper.connect_string, say, scale)
    return [each.row() for each in compared]


# Appending


def append(directory: Path, shape: Shape, scale: float, *, idempotent: bool) -> list[Comparison]:
    """MB/s and microseconds a batch, beside ``pwrite``."""
    name = f"append, {shape.name}" + ", idempotent" * idempotent
    rate, cost = Comparison(name, "MB/s", "pwrite"), Comparison(name, "us a batch", "pwrite")
    data, records = batch_of(shape.record_size, shape.batch_bytes)
    batches = max(int(shape.append_bytes * scale) // len(data), _POOL)
    work = directory / "append"
    for number in range(APPEND_ROUNDS):
        sides: list[tuple[Callable[[Path], Iterator[Write]], str]] = [(_log_writer, "ours"), (_plain_writer, "theirs")]
        for writer, side in sides if number % 2 else sides[::-1]:
            with contextmanager(writer)(work) as write:
                seconds = _time_appends(write, data, batches, records if idempotent else 0)
            getattr(rate, side).append(batches * len(data) / seconds / 1e6)
            getattr(cost, side).append(seconds / batches * 1e6)
    return [rate, cost]


def checksum(shape: Shape) -> Comparison:
    """Microseconds that a batch's CRC-32C takes, which no append can do without."""
    data, _ = batch_of(shape.record_size, shape.batch_bytes)
    times = [
        _time_appends(lambda view, _: crc32c.crc32c(view[layout.ATTRIBUTES :]), data, _POOL, 0) / _POOL * 1e6
        for _ in range(APPEND_ROUNDS)
    ]
    return Comparison(f"append, {shape.name}: CRC-32C of it", "us a batch", ours=times)


def _time_appends(write: Write, data: bytes, batches: int, sequences: int) -> float:
    """Seconds that ``write`` takes for all; ``sequences``: how many of a producer's a batch takes, 0 without one."""
    pool = [memoryview(bytearray(data)) for _ in range(_POOL)]
    spent = 0.0
    for number in range(batches):
        view = pool[number % _POOL]
        _make_ready(view, number, sequences)
        start = time.perf_counter()
        write(view, 0)
        spent += time.perf_counter() - start
    return spent


def _make_ready(view: memoryview, number: int, sequences: int) -> None:
    """The producer's next batch, its time a millisecond later for each MB. The CRC brings it into the CPU's cache."""
    patch_header(view, 0, 0, NO_EPOCH)
    layout.INT64.pack_into(view, layout.MAX_TIMESTAMP, NOW_MS + number * len(view) // 1_000_000)
    if sequences:
        patch_producer(view, 0, _PRODUCER_ID, 0, number * sequences)
    else:
        patch_producer(view, 0, layout.NO_PRODUCER_ID, layout.NO_PRODUCER_EPOCH, layout.NO_SEQUENCE)


def _log_writer(work: Path) -> Iterator[Write]:
    with _new_log(work) as log:
        yield log.append_as_leader


@contextmanager
def _new_log(work: Path) -> Iterator[Log]:
    work.mkdir()
    log = Log(work, TopicPartition("bench", 0), TopicConfig(), SystemClock(), lambda _: None)
    try:
        yield log
    finally:
        log.abandon()
        shutil.rmtree(work)


def _plain_writer(work: Path) -> Iterator[Write]:
    fd = os.open(work, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    position = 0

    def write(view: memoryview, _: int) -> None:
        nonlocal position
        position += os.pwrite(fd, view, position)

    try:
        yield write
    finally:
        os.close(fd)
        work.unlink()


# Reading


def read(directory: Path, shape: Shape, scale: float) -> list[Comparison]:
    """MB/s beside ``sendfile``; microseconds of one ``Log.read`` without it."""
    name = f"read, {shape.name}"
    rate, cost = Comparison(name, "MB/s", "sendfile"), Comparison(name, "us a Log.read")
    data, records = batch_of(shape.record_size, shape.batch_bytes)
    together = max(RANGE // len(data), 1)
    with _new_log(directory / "read") as log, closing(Sink()) as sink:
        ranges = max(int(_READ_BYTES * scale) // (together * len(data)), 1)
        fill(log, data, ranges * together)
        reads = Reads(log, range(0, log.log_end_offset, together * records), together * len(data))
        for number in range(READ_ROUNDS):
            sides = [(reads.through_log, rate.ours), (reads.plainly, rate.theirs)]
            for work, figures in sides if number % 2 else sides[::-1]:
                figures.append(log.size / work(sink) / 1e6)
            cost.ours.append(reads.without_sending() / ranges * 1e6)
    return [rate, cost]


def fill(log: Log, data: bytes, batches: int) -> None:
    """Append ``data`` so many times."""
    view = memoryview(bytearray(data))
    for number in range(batches):
        _make_ready(view, number, 0)
        log.append_as_leader(view, 0)


@dataclass(frozen=True)
class Reads:
    """The whole ``log`` in pieces of ``size`` bytes, which begin at ``offsets``; each way returns its seconds."""

    log: Log
    offsets: range
    size: int

    def through_log(self, sink: Sink) -> float:
        bound = self.log.end
        start = time.perf_counter()
        for offset in self.offsets:
            piece = self.log.read(offset, self.size, bound, min_one_batch=True)
            assert piece is not None
            sink.send(piece.file.fileno(), piece.position, piece.size)
        return time.perf_counter() - start

    def plainly(self, sink: Sink) -> float:
        first = self.log.read(0, self.size, self.log.end, min_one_batch=True)
        assert first is not None
        fd = first.file.fileno()
        start = time.perf_counter()
        for _, position in zip(self.offsets, count(0, self.size), strict=False):
            sink.send(fd, position, self.size)
        return time.perf_counter() - start

    def without_sending(self) -> float:
        bound = self.log.end
        start = time.perf_counter()
        for offset in self.offsets:
            self.log.read(offset, self.size, bound, min_one_batch=True)
        return time.perf_counter() - start


class Sink:
    """Both ends of one TCP connection of this thread, where what arrives is thrown away without being copied.

    So nothing is measured but the sender and the system; another process would add its luck with the scheduler.
    """

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._sender = socket.create_connection(listener.getsockname())
            self._receiver, _ = listener.accept()
        self._sender.setblocking(False)
        self._scratch = bytearray(RANGE)

    def send(self, fd: int, position: int, size: int) -> None:
        """``size`` bytes of the file ``fd`` from ``position`` on."""
        end, left = position + size, size
        while left:
            if position < end:
                with suppress(BlockingIOError):
                    position += os.sendfile(self._sender.fileno(), fd, position, end - position)
            left -= self._receiver.recv_into(self._scratch, 0, socket.MSG_TRUNC)

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()
