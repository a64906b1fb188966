"""The reference of the two kernels of compaction; see ``abc.OffsetMap`` and ``abc.BatchRewriter``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from sparklog.errors import CorruptRecord, LogError
from sparklog.record import layout
from sparklog.record._impl.abc import NO_VERSION, BatchFields, Retained, RewriteRules, ScanLimits, Versions
from sparklog.record._impl.abc import OffsetMap as AnyOffsetMap
from sparklog.record._impl.map_file import FOLLOWED, MAP_FILE_HEAD, SLOT, MapHead, open_map_files
from sparklog.record._impl.pure_reading import Prefix, RawBody, iter_prefixes, read_body, read_raw_body, wrap64
from sparklog.record._impl.pure_scanner import BatchScanner
from sparklog.record._impl.siphash import siphash128
from sparklog.record.batch import RecordBatch
from sparklog.record.rebuilding import empty_header, rebuilt
from sparklog.record.varint import write_varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

_ENTRY = 24
_VERSION = 8
_SEED = 16
_NOT_PLAIN = layout.COMPRESSION_MASK | layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT


def _plain_batch(view: memoryview) -> RecordBatch | None:
    """The batch at the beginning, if it is whole, sound, and of the kind that the kernels take."""
    try:
        batch = RecordBatch(view)
        if batch.attributes & _NOT_PLAIN or not 0 <= batch.base_offset <= layout.MAX_INT64 - batch.last_offset_delta:
            return None
        batch.validate()
    except CorruptRecord:
        return None
    return batch


def _fields(batch: RecordBatch) -> BatchFields:
    append_time = batch.max_timestamp if batch.timestamp_type else None
    return BatchFields(
        batch.record_count, batch.base_offset, batch.base_timestamp, append_time, batch.last_offset_delta
    )


def _version(versions: Versions | None, prefix: Prefix, body: RawBody) -> int:
    """The version of a record; the same of all where offsets decide alone."""
    if versions is None:
        return NO_VERSION
    if versions.header is None:
        return max(prefix.timestamp, NO_VERSION)
    name = versions.header.encode()
    value = next((content for each, content in reversed(body.headers) if each == name), None)
    if value is None or len(value) != layout.INT64.size:
        return NO_VERSION
    return max(int.from_bytes(value, "big", signed=True), NO_VERSION)


class _Winner(NamedTuple):
    """What is known of a key."""

    version: int
    offset: int
    is_followed: bool

    def to_slot(self) -> int:
        return self.offset + 1 | (FOLLOWED if self.is_followed else 0)

    @classmethod
    def from_slot(cls, stored: int, *, is_versioned: bool) -> _Winner:
        is_followed = is_versioned and stored >= FOLLOWED
        return cls(NO_VERSION, (stored & ~FOLLOWED if is_followed else stored) - 1, is_followed)


_NOBODY = _Winner(NO_VERSION, -1, is_followed=False)


class OffsetMap:
    """A dictionary; keys are told apart by their bytes, and hashed only to tell the parts apart."""

    def __init__(
        self,
        max_bytes: int,
        load_factor: float,
        seed: bytes,
        part: tuple[int, int] = (0, 1),
        versions: Versions | None = None,
    ) -> None:
        if not 0 < load_factor <= 1 or len(seed) != _SEED or max_bytes < 0:
            raise ValueError("an offset map needs a load factor above 0 and at most 1, and a seed of 16 bytes")
        if not 0 <= part[0] < part[1]:
            raise ValueError(f"{part} is no part of the keys: (i, n) with 0 <= i < n")
        entry = _ENTRY if versions is None else _ENTRY + _VERSION
        self.slots = max_bytes // entry
        self.nbytes = self.slots * entry
        self.is_versioned = versions is not None
        self._versions = versions
        self.most = int(self.slots * load_factor)
        self._seed = bytes(seed)
        self._part = part
        self.clear()

    def clear(self) -> None:
        self._winners: dict[bytes, _Winner] = {}
        self._opened: dict[bytes, _Winner] | None = None  # by the keys' hashes, of a map that was opened
        self.is_full = False
        self.latest_offset = -1
        self.messages = 0

    @property
    def size(self) -> int:
        return len(self._winners if self._opened is None else self._opened)

    def advance(self, offset: int) -> None:
        self.latest_offset = max(self.latest_offset, offset)

    def covers(self, key: bytes) -> bool:
        number, count = self._part
        high = int.from_bytes(siphash128(self._seed, key)[8:], "little") if count > 1 else 0
        return high * count >> 64 == number

    def get(self, key: bytes) -> int:
        return self._find(key).offset

    def outdates(self, key: bytes, offset: int) -> bool:
        winner = self.get(key)
        return winner >= 0 and offset != winner if self.is_versioned else offset < winner

    def is_followed(self, key: bytes) -> bool:
        return self._find(key).is_followed

    def _find(self, key: bytes) -> _Winner:
        if self._opened is not None:
            return self._opened.get(siphash128(self._seed, key), _NOBODY)
        return self._winners.get(key, _NOBODY)

    def dump(self, path: str | os.PathLike[str], first_offset: int = 0) -> None:
        if self._opened is not None:
            raise ValueError("a map that was opened is in files already")
        room = max(min(self.slots, 2 * self.size), 1)
        slots: list[bytes | None] = [None] * room
        for key, winner in self._winners.items():
            hashed = siphash128(self._seed, key)
            at = int.from_bytes(hashed[:8], "little") * room >> 64
            while slots[at] is not None:
                at = (at + 1) % room
            slots[at] = hashed + winner.to_slot().to_bytes(8, "little")
        numbers = (*self._part, first_offset, room, self.size, self.latest_offset, self.messages)
        head = MapHead(self._seed, *numbers, self.is_versioned)
        with open(path, "xb") as file:
            file.write(head.to_bytes())
            file.writelines(each or bytes(_ENTRY) for each in slots)

    @classmethod
    def open(cls, paths: Sequence[str | os.PathLike[str]]) -> OffsetMap:
        opened = open_map_files(paths)
        found = cls(0, 1.0, opened.heads[0].seed)
        found.is_versioned = opened.heads[0].is_versioned
        found._opened = {
            low.to_bytes(8, "little") + high.to_bytes(8, "little"): _Winner.from_slot(
                stored, is_versioned=found.is_versioned
            )
            for mapping in reversed(opened.mappings)  # those of later records come last, and count
            for low, high, stored in SLOT.iter_unpack(mapping[MAP_FILE_HEAD:])
            if stored
        }
        found.latest_offset = opened.latest_offset
        found.messages = opened.messages
        return found

    def index(self, payload: Buffer, fields: BatchFields, start_offset: int) -> None:
        self._index(payload, fields, start_offset)

    def _index(self, payload: Buffer, fields: BatchFields, start_offset: int) -> bool:
        """False where the map has become full."""
        start_offset, view = max(start_offset, 0), memoryview(payload)
        for prefix in iter_prefixes(view, fields):
            body = read_raw_body(view, prefix)
            if body.key is not None and prefix.offset >= start_offset and self.covers(body.key):
                if self.size >= self.most and not (self.is_versioned and body.key in self._winners):
                    self.is_full = True
                    return False
                self._put(body.key, _version(self._versions, prefix, body), prefix.offset)
                self.advance(prefix.offset)
            self.messages += 1
        return True

    def _put(self, key: bytes, version: int, offset: int) -> None:
        known = self._winners.get(key, _NOBODY)
        if (version, offset) > known[:2]:
            self._winners[key] = _Winner(version, offset, is_followed=offset < known.offset)
        elif offset > known.offset:
            self._winners[key] = known._replace(is_followed=True)

    def index_batches(self, buffer: Buffer, start_offset: int) -> int:
        view = memoryview(buffer)
        at = 0
        while not self.is_full and (batch := _plain_batch(view[at:])):
            try:
                if not self._index(batch.payload, _fields(batch), start_offset):
                    break
            except CorruptRecord:
                break
            if batch.last_offset >= start_offset:
                self.advance(batch.last_offset)
            at += batch.size_in_bytes
        return at


class _Raw(NamedTuple):
    """A record, and its bytes from its key on."""

    offset: int
    offset_delta: int
    timestamp: int
    key: bytes | None
    has_value: bool
    rest: memoryview


def _raw_records(payload: Buffer, fields: BatchFields) -> Iterator[_Raw]:
    view = memoryview(payload)
    for prefix in iter_prefixes(view, fields):
        record = read_body(view, prefix)
        rest = view[prefix.position : prefix.end]
        yield _Raw(prefix.offset, prefix.offset_delta, prefix.timestamp, record.key, record.value is not None, rest)


def _write(out: bytearray, record: _Raw, base_timestamp: int) -> None:
    body = bytearray(1)
    write_varint(body, wrap64(record.timestamp - base_timestamp))
    write_varint(body, record.offset_delta)
    body += record.rest
    write_varint(out, len(body))
    out += body


class _Segment(BatchScanner):
    """What is written, scanned as it is written."""

    def write(self, batch: memoryview) -> None:
        size = self._whole(batch)
        self.is_bad = False
        if not size or size != len(batch):
            raise CorruptRecord("a batch to be written is malformed, or its offsets do not follow those before it")
        if self.position + size > layout.MAX_INT32:
            raise LogError("a compacted segment would exceed 2 GiB")
        *_, delta, _, timestamp, _, _, _, _ = layout.HEADER.unpack_from(batch)
        self._take(layout.INT64.unpack_from(batch)[0] + delta, timestamp, size)


class BatchRewriter:
    """One segment, a buffer or a batch at a time."""

    def __init__(self, offset_map: AnyOffsetMap, rules: RewriteRules, limits: ScanLimits) -> None:
        self.rules = rules
        self._map = offset_map
        self._limits = limits
        self._segment = _Segment(limits)
        self._out = bytearray()
        self.messages_read = self.messages_kept = self.invalid = 0
        self.bytes_read = self.bytes_written = self.batches_read = self.batches_written = 0

    @property
    def size(self) -> int:
        return self._segment.position

    @property
    def next_offset(self) -> int:
        return self._segment.next_offset

    @property
    def latest_timestamp(self) -> int:
        return self._segment.latest_timestamp

    @property
    def latest_offset(self) -> int:
        return self._segment.latest_offset

    @property
    def bytes_since_entry(self) -> int:
        return self._segment.bytes_since_entry

    def entries(self) -> tuple[bytes, bytes]:
        return self._segment.entries()

    def drain(self) -> memoryview:
        done, self._out = self._out, bytearray()
        return memoryview(done).toreadonly()

    def write(self, batch: Buffer) -> None:
        view = memoryview(batch)
        self._segment.write(view)
        self._out += view
        self.bytes_written += len(view)
        self.batches_written += 1

    def count_batch(self, size: int) -> None:
        self.bytes_read += size
        self.batches_read += 1

    def take(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        at = 0
        while batch := _plain_batch(view[at:]):
            in_order = batch.base_offset >= self.next_offset and batch.last_offset < self._limits.end_offset
            if not in_order:
                break
            try:
                self._rewrite(batch)
            except CorruptRecord:
                break
            at += batch.size_in_bytes
        return at

    def _rewrite(self, batch: RecordBatch) -> None:
        horizon = batch.base_timestamp if batch.has_delete_horizon else None
        payload = batch.payload if batch.record_count else b""
        retained, invalid = self._retain(payload, _fields(batch), horizon)
        if retained.kept == 0:
            if self.rules.keeps_empty(batch.producer_id, batch.last_offset):
                self.write(empty_header(batch))
        else:
            self.write(batch.buffer if retained.section is None else rebuilt(batch, retained))
        self._count(retained, invalid)
        self.count_batch(batch.size_in_bytes)

    def _count(self, retained: Retained, invalid: int) -> None:
        self.messages_read += retained.read
        self.messages_kept += retained.kept
        self.invalid += invalid

    def retain(
        self,
        payload: Buffer,
        fields: BatchFields,
        horizon_ms: int | None,
        *,
        all_gone: bool = False,
        keep_all: bool = False,
        needs_horizon: bool = False,
    ) -> Retained:
        always = False if all_gone else True if keep_all else None
        retained, invalid = self._retain(payload, fields, horizon_ms, always, needs_horizon)
        self._count(retained, invalid)
        return retained

    def _retain(
        self,
        payload: Buffer,
        fields: BatchFields,
        horizon_ms: int | None,
        always: bool | None = None,
        needs_horizon: bool = False,
    ) -> tuple[Retained, int]:
        """What is left, and how many records went for lack of a key. ``always`` keeps or drops each; None judges it."""
        kept, invalid = [], 0
        for record in _raw_records(payload, fields):
            if always or (always is None and self._keeps(record, horizon_ms)):
                kept.append(record)
            elif always is None and record.key is None:
                invalid += 1
        return self._retained(kept, fields, horizon_ms, needs_horizon), invalid

    def _keeps(self, record: _Raw, horizon_ms: int | None) -> bool:
        if record.offset > self._map.latest_offset:
            return True
        if record.key is None:
            return self.rules.erases
        if not self._map.covers(record.key):
            return True
        if self._map.outdates(record.key, record.offset):
            return False
        is_over = horizon_ms is not None and self.rules.now_ms >= horizon_ms and not self.rules.erases
        return record.has_value or not is_over or self._map.is_followed(record.key)

    def _retained(self, kept: list[_Raw], fields: BatchFields, horizon_ms: int | None, needs_horizon: bool) -> Retained:
        read = fields.record_count
        if not kept:
            return Retained(read, 0, False, bytearray(), layout.NO_TIMESTAMP, layout.NO_TIMESTAMP, None)
        has_tombstones = not all(record.has_value for record in kept)
        greatest = max(layout.NO_TIMESTAMP, *(record.timestamp for record in kept))
        if fields.append_time is not None:
            greatest = fields.append_time
        gets_horizon = horizon_ms is None and (has_tombstones or needs_horizon) and not self.rules.erases
        if len(kept) == read and not gets_horizon:
            return Retained(read, read, has_tombstones, None, fields.base_timestamp, greatest, horizon_ms)
        if gets_horizon:
            horizon_ms = self.rules.new_horizon
        base = kept[0].timestamp if horizon_ms is None else horizon_ms
        section = bytearray()
        for record in kept:
            _write(section, record, base)
        return Retained(read, len(kept), has_tombstones, section, base, greatest, horizon_ms)
