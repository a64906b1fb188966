"""Partition directories full of what a cleaner has to get right, written through our own log; the same for one seed.

A ``LogWriter`` plays every client of a partition: producers of all kinds, the transaction coordinator, the leaders, and
the one who deletes records from the front. Its settings are drawn first, then every step. It can go on with the log
where it stopped, in the same directory or in a copy, after that was cleaned.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.files import LOG_SUFFIX, segment_path
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.log.origin import AppendOrigin
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.record.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

START_MS = 1_700_000_000_000
TP = TopicPartition("t", 0)

_TIMESTAMPS = "message.timestamp.type"
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_STEPS = {"plain": 40, "idempotent": 22, "transaction": 30, "epoch": 3, "roll": 2, "idle": 3, "lone marker": 3}
"""How often each is taken, of a hundred and some."""
_RARE = {"timestamps": 3, "delete": 2}
"""Likewise, of logs in which it occurs at all."""
_CODECS = tuple(CompressionType)[1:]
_HEADERS = (("a", b"1"), ("a", b"2"), ("none", None), ("", b""), ("\u00e4", b"\x00" * 20))


@dataclass(frozen=True)
class Written:
    """A log as it stands when it was closed."""

    directory: Path
    settings: dict[str, str]
    """The topic's, as Kafka spells them."""
    now_ms: int
    log_start_offset: int
    log_end_offset: int


@dataclass
class _Producer:
    """An idempotent or transactional producer."""

    id: int
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False
    """Whether it has a transaction open here."""

    def raise_epoch(self) -> None:
        self.epoch += 1
        self.sequence = 0


class _Habits(NamedTuple):
    """What this log has more of than another: shares of its records, its batches, its ends of transactions."""

    tombstones: float
    without_key: float
    large: float
    compressed: float
    aborted: float
    hot_keys: int
    cold_keys: int
    rare_steps: frozenset[str]
    leaves_open: bool
    """Whether the last transactions stay open when the log is closed, so that the last stable offset stands still."""


class LogWriter:
    """Writes the log of one seed; ``settings`` are laid over those that are drawn."""

    def __init__(
        self,
        seed: int,
        settings: Mapping[str, str] | None = None,
        *,
        start_ms: int = START_MS,
        without: Collection[str] = (),
    ) -> None:
        """``without`` are steps that are never taken."""
        self._random = Random(seed)
        self._versions = Random(seed)  # apart, so that a log is the same with them and without
        self._habits = _draw_habits(self._random)
        self._without = without
        self.settings = {**_draw_settings(self._random), **(settings or {})}
        self._clock = ManualClock(start_ms)
        self._ids = count(10)
        self._idempotent = [_Producer(next(self._ids)) for _ in range(3)]
        self._transactional = [_Producer(next(self._ids)) for _ in range(4)]
        self._leader_epoch = 0
        self._log_start = 0
        self._keys_made = 0
        self._steps: dict[str, Callable[[Log], None]] = {
            "plain": self._write_plainly,
            "idempotent": self._write_idempotently,
            "transaction": self._go_on_with_a_transaction,
            "epoch": self._change_leader,
            "roll": Log.roll,
            "idle": self._idle,
            "lone marker": self._end_nothing,
            "timestamps": self._switch_timestamps,
            "delete": self._delete_records,
        }

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    def pass_time(self, ms: int) -> None:
        """Let nothing happen for a while."""
        self._clock.advance(ms / 1000)

    def write(self, directory: Path, steps: int = 120) -> Written:
        """Take so many steps, most of them a batch or a marker, in the log in ``directory``, and close it.

        The directory is that of an earlier call or a copy, cleaned or not, or a new one. Each segment's file is as old
        as its last batch.
        """
        directory.mkdir(parents=True, exist_ok=True)
        known = Knowledge(log_start_offset=self._log_start, high_watermark=2**62)
        log = Log(directory, TP, self._config(), self._clock, lambda work: work(), known)
        ages: dict[int, int] = {}
        for name in self._random.choices(*self._weighted_steps(), k=steps):
            self._take(self._steps[name], log, ages)
        if not self._habits.leaves_open:
            for producer in self._transactional:
                if producer.is_open:
                    self._take(partial(self._end, producer=producer), log, ages)
        self._log_start, end = log.log_start_offset, log.log_end_offset
        log.close()
        for base, age in ages.items():
            path = segment_path(directory, base, LOG_SUFFIX)
            if path.exists():
                os.utime(path, ns=(age * 1_000_000,) * 2)
        return Written(directory, dict(self.settings), self.now_ms, self._log_start, end)

    def _take(self, step: Callable[[Log], None], log: Log, ages: dict[int, int]) -> None:
        self.pass_time(self._random.randrange(2000))
        step(log)
        log.on_high_watermark(log.log_end_offset)
        ages[log.end.segment_base] = self.now_ms

    def _weighted_steps(self) -> tuple[list[str], list[int]]:
        weights = _STEPS | {name: weight for name, weight in _RARE.items() if name in self._habits.rare_steps}
        weights = {name: weight for name, weight in weights.items() if name not in self._without}
        return list(weights), list(weights.values())

    def _config(self, **changed: str) -> TopicConfig:
        """The settings to write with: records without a key are of the time before the topic was compacted."""
        policy = {"cleanup.policy": "delete", "retention.ms": "-1"} if self._habits.without_key else {}
        self.settings |= changed
        return parse(TopicConfig, self.settings | policy)

    # The steps

    def _write_plainly(self, log: Log) -> None:
        self._append(log, _Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE))

    def _write_idempotently(self, log: Log) -> None:
        producer = self._random.choice(self._idempotent)
        if self._random.random() < 0.05:
            producer.raise_epoch()
            producer = self._perhaps_another(producer, self._idempotent)
        self._append(log, producer)

    def _go_on_with_a_transaction(self, log: Log) -> None:
        producer = self._random.choice(self._transactional)
        if producer.is_open and self._random.random() < 0.4:
            self._end(log, producer)
            return
        producer.is_open |= self._append(log, producer, is_transactional=True)

    def _end(self, log: Log, producer: _Producer) -> None:
        """A marker; at times one that fences the producer, or that it raises the epoch with by itself."""
        aborts = self._random.random() < self._habits.aborted
        is_last = self._random.random() < 0.2
        if is_last:
            producer.raise_epoch()
        self._mark(log, producer, ControlType.ABORT if aborts else ControlType.COMMIT)
        producer.is_open = False
        if is_last:
            self._perhaps_another(producer, self._transactional)

    def _end_nothing(self, log: Log) -> None:
        """A marker of a transaction that wrote nothing here."""
        closed = [each for each in self._transactional if not each.is_open]
        if closed:
            producer = self._random.choice(closed)
            if self._random.random() < 0.3:
                producer.raise_epoch()
            self._mark(log, producer, self._random.choice((ControlType.ABORT, ControlType.COMMIT)))

    def _perhaps_another(self, producer: _Producer, among: list[_Producer]) -> _Producer:
        """The one who goes on: the producer itself, or a new one in its place, so that it is never heard of again."""
        if self._random.random() < 0.5:
            return producer
        among[among.index(producer)] = other = _Producer(next(self._ids))
        return other

    def _change_leader(self, log: Log) -> None:
        self._leader_epoch += self._random.randrange(1, 4)
        log.begin_epoch(self._leader_epoch)

    def _idle(self, log: Log) -> None:
        """Long enough at times for producers to be forgotten."""
        self.pass_time(self._random.choice((10 * _MINUTE_MS, _HOUR_MS, _HOUR_MS, 30 * _HOUR_MS)))

    def _switch_timestamps(self, log: Log) -> None:
        other = {"CreateTime": "LogAppendTime", "LogAppendTime": "CreateTime"}
        log.config = self._config(**{_TIMESTAMPS: other[self.settings[_TIMESTAMPS]]})

    def _delete_records(self, log: Log) -> None:
        """DeleteRecords, up to somewhere in the first half of what is there; the segments before that go."""
        first, end = log.log_start_offset, log.first_unstable_offset or log.log_end_offset
        log.advance_start(first + self._random.randrange((end - first) // 2 + 1))
        for path in log.delete_old_segments(log.high_watermark):
            path.unlink()

    # Batches and records

    def _append(self, log: Log, producer: _Producer, *, is_transactional: bool = False) -> bool:
        """Whether a batch was written. A producer of which all was forgotten but its epoch begins a new one."""
        records = memoryview(bytearray(self._batch(producer, is_transactional=is_transactional)))
        try:
            log.append_as_leader(records, self._leader_epoch, verification=lambda *_: None)
        except ApiError as error:
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
            producer.raise_epoch()
            return False
        return True

    def _mark(self, log: Log, producer: _Producer, kind: ControlType) -> None:
        marker = EndTransactionMarker(kind, coordinator_epoch=3)
        records = build_marker(marker, ProducerIdAndEpoch(producer.id, producer.epoch), self.now_ms)
        log.append_as_leader(memoryview(bytearray(records)), self._leader_epoch, AppendOrigin.COORDINATOR)

    def _batch(self, producer: _Producer, *, is_transactional: bool = False) -> bytes:
        draw = self._random
        is_compressed = draw.random() < self._habits.compressed
        builder = RecordBatchBuilder(
            compression=draw.choice(_CODECS) if is_compressed else CompressionType.NONE,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            is_transactional=is_transactional,
        )
        room = int(self.settings["segment.bytes"]) * 3 // 4
        about = self._time_of_batch()
        for _ in range(draw.choices((1, draw.randint(2, 5), draw.randint(6, 40)), (50, 35, 15))[0]):
            value = self._value(room)
            if builder.record_count and builder.size_estimate + len(value or b"") + 200 > room:
                break
            timestamp = about + draw.randint(-500, 500) if about >= 0 else NO_TIMESTAMP
            headers = draw.sample(_HEADERS, draw.randint(1, 3)) if draw.random() < 0.15 else ()
            builder.append(timestamp, self._key(), value, [*headers, *self._version()])
        if producer.id != NO_PRODUCER_ID:
            producer.sequence += builder.record_count
        return builder.build()

    def _time_of_batch(self) -> int:
        """About now, mostly; -1 for a batch without timestamps."""
        away = self._random.choices((0, 50 * _MINUTE_MS, -_HOUR_MS, -10 * _DAY_MS, None), (85, 3, 5, 4, 3))[0]
        return NO_TIMESTAMP if away is None else self.now_ms + away

    def _key(self) -> bytes | None:
        draw, habits = self._random, self._habits
        if draw.random() < habits.without_key:
            return None
        kind = draw.choices(("hot", "cold", "once", "empty"), (60, 30, 7, 3))[0]
        if kind == "empty":
            return b""
        if kind == "once":
            self._keys_made += 1
            return b"once-%d" % self._keys_made
        return b"%s-%d" % (kind.encode(), draw.randrange(habits.hot_keys if kind == "hot" else habits.cold_keys))

    def _version(self) -> list[tuple[str, bytes | None]]:
        """The header that the log is compacted by, if it is by one."""
        name = self.settings.get("compaction.strategy.header")
        if name is None:
            return []
        draw = self._versions
        version = struct.pack(">q", draw.choice((draw.randrange(-2, 5), draw.randrange(1 << 40))))
        return [
            (name, each)
            for each in draw.choices((version, None, version[1:]), (20, 1, 1), k=draw.choice((0, 1, 1, 1, 2)))
        ]

    def _value(self, room: int) -> bytes | None:
        draw, habits = self._random, self._habits
        if draw.random() < habits.tombstones:
            return None
        if draw.random() < habits.large:
            return draw.randbytes(draw.randrange(room // 4, room - 200))
        size = draw.choice((0, 1, 10, 40, 150))
        return draw.randbytes(size) if draw.random() < 0.5 else b"v" * size


def _draw_habits(draw: Random) -> _Habits:
    return _Habits(
        tombstones=draw.choice((0.02, 0.1, 0.35)),
        without_key=draw.choice((0.0, 0.0, 0.0, 0.05)),
        large=draw.choice((0.0, 0.02, 0.1)),
        compressed=draw.choice((0.0, 0.3, 0.8)),
        aborted=draw.choice((0.1, 0.5, 0.9)),
        hot_keys=draw.randint(1, 8),
        cold_keys=draw.randint(20, 300),
        rare_steps=frozenset(name for name in _RARE if draw.random() < 0.3),
        leaves_open=draw.random() < 0.25,
    )


def _draw_settings(draw: Random) -> dict[str, str]:
    return {
        "cleanup.policy": "compact",
        "segment.bytes": str(draw.choice((2_000, 5_000, 10_000, 20_000))),
        "segment.index.bytes": str(draw.choice((10_485_760, 10_485_760, 10_485_760, 1_200))),
        "index.interval.bytes": str(draw.choice((0, 300, 4_096))),
        _TIMESTAMPS: draw.choice(("CreateTime", "CreateTime", "CreateTime", "LogAppendTime")),
        "delete.retention.ms": str(draw.choice((0, _MINUTE_MS, _DAY_MS))),
        "min.compaction.lag.ms": str(draw.choice((0, 0, 0, _MINUTE_MS))),
    }
