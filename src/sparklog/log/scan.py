"""Reading a ``.log`` file that cannot be believed: which batches are good, and what lies behind the first bad byte.

Which batch is good, ``BatchScanner`` says. The file is read in blocks, so that a scan takes the memory of one block or
of one batch, whichever is larger.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.file_records import FileRecords
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.scanner import BatchScanner, ScanLimits, make_scanner

_logger = logging.getLogger(__name__)
_BLOCK = 4 << 20
_SCAN_BLOCK = 1 << 20
_HEAD = layout.HEADER_SIZE
_OFFSETS_OF_A_SEGMENT = layout.MAX_INT32 + 1
_MAY_BE_A_MAGIC = re.compile(rb"\x02(?=.{4}\x00[\x00-\x7f][\x00-\x7f])", re.DOTALL)
"""A magic, a CRC, attributes that exist, and a delta that is not negative."""
_PATIENCE = 8
"""How many times the bytes of a file are checked while a good batch is looked for."""


class Located(NamedTuple):
    """A good batch, and where in the file it lies. The batch is a view that lasts as long as the caller holds it."""

    position: int
    batch: RecordBatch


class OffsetRange(NamedTuple):
    """The offsets that may be in the file: ``first`` up to, not with, ``end``."""

    first: int
    end: int


class DamageKind(Enum):
    """The two ways in which a crash or a disk damages a log."""

    TORN_TAIL = "torn tail"
    """Nothing good lies behind the damage: a write that was cut short."""
    CORRUPT_MIDDLE = "corrupt block in the middle"
    """Good batches lie behind the damage."""


class Damage(NamedTuple):
    """What is wrong with a ``.log`` file."""

    kind: DamageKind
    position: int
    """Of the first byte that is not part of a good batch."""
    size: int
    """Bytes from there to the end of the file."""
    next_good: Located | None
    """The first good batch behind the damage."""


def scan_batches(log: FileRecords, scanner: BatchScanner, visit: Callable[[RecordBatch], None]) -> None:
    """Have ``scanner`` take the good batches from the beginning of the file up to the first bad byte or the end.

    ``visit`` is shown those that bear a producer's id, in order; the batch is good while it looks at it.
    """
    block = bytearray(min(_SCAN_BLOCK, log.size))  # one for all, so that it stays in the processor's cache
    while scanner.position < log.size and not scanner.is_bad:
        start = scanner.position
        view = log.read_into(block, start)
        for at in scanner.scan(view):
            visit(RecordBatch(view, at))
        if scanner.position == start:
            wanted = _claimed_size(view)
            if not len(view) < wanted <= log.size - start:
                return
            block = bytearray(wanted)


def good_batches(log: FileRecords, base_offset: int, block: int) -> Iterator[memoryview]:
    """The good batches of the file of a segment, copied into memory about ``block`` bytes at a time.

    What is damaged is left out, and the log says where it lies.
    """
    position, scanner = 0, make_scanner(_walking(base_offset, base_offset))
    while position < log.size:
        view = log.read(position, min(block, log.size - position))
        if len(view) < (wanted := _claimed_size(view)) <= log.size - position:
            view = log.read(position, wanted)
        before = scanner.position
        scanner.scan(view)
        taken = scanner.position - before
        if taken:
            yield view[:taken]
            position += taken
            continue
        found = next_good(log, position, OffsetRange(scanner.next_offset, base_offset + _OFFSETS_OF_A_SEGMENT))
        end = log.size if found is None else found.position
        _logger.error(
            "%s: %d bytes from position %d on, where offset %d is due, are damaged and left out; 'sparklog log verify' "
            "tells more of them",
            *(log.path, end - position, position, scanner.next_offset),
        )
        position = end
        if found is not None:
            scanner = make_scanner(_walking(base_offset, found.batch.base_offset))


def _walking(base_offset: int, next_offset: int) -> ScanLimits:
    """To look at batches only, from ``next_offset`` on."""
    return ScanLimits(next_offset, base_offset + _OFFSETS_OF_A_SEGMENT, 0, 0, 0)


def _claimed_size(view: memoryview) -> int:
    """What the batch at the beginning of ``view`` says of its size."""
    if len(view) < layout.LOG_OVERHEAD:
        return 0
    return int(layout.OFFSET_AND_LENGTH.unpack_from(view)[1]) + layout.LOG_OVERHEAD


class Readable(Protocol):
    """A file of batches."""

    @property
    def size(self) -> int: ...

    def read(self, position: int, size: int) -> memoryview:
        """At most ``size`` bytes from ``position``."""


def examine(log: FileRecords, position: int, offsets: OffsetRange) -> Damage:
    """What lies from ``position`` on, where the last good batch ends and the file does not.

    Raises LogError if it is no damage but a message of format 0 or 1, which a newer Kafka may have left in the log.
    """
    _refuse_old_format(log, position)
    found = next_good(log, position, offsets)
    kind = DamageKind.TORN_TAIL if found is None else DamageKind.CORRUPT_MIDDLE
    return Damage(kind, position, log.size - position, found)


def _refuse_old_format(log: FileRecords, position: int) -> None:
    head = log.read(position, layout.CRC)
    if len(head) < layout.CRC or head[layout.MAGIC] >= layout.MAGIC_V2:
        return
    size = _claimed_size(head)
    if not layout.CRC < size <= log.size - position:
        return
    message = log.read(position + layout.LOG_OVERHEAD, size - layout.LOG_OVERHEAD)
    if zlib.crc32(message[4:]) == layout.UINT32.unpack_from(message)[0]:
        raise LogError(
            f"{log.path}: the message at position {position} is of format {head[layout.MAGIC]}, from before Kafka "
            "0.11; nothing was changed. Read it with sparklog log dump, or let a Kafka before 4.0 rewrite the topic"
        )


def next_good(log: Readable, position: int, offsets: OffsetRange) -> Located | None:
    """The first good batch that begins behind ``position``. Looked for at every byte that may be a magic.

    Bytes made to look like headers of large batches could keep a start busy for days. Once CRCs over many times the
    file were wrong, the next that looks like a batch counts as good: too much is kept then, but nothing is lost.
    """
    start, unchecked = position + 1, _PATIENCE * log.size
    while start + _HEAD <= log.size:
        view = log.read(start, _BLOCK)
        if not view:  # the owner of the file has cut it meanwhile
            return None
        for magic in _MAY_BE_A_MAGIC.finditer(view, layout.MAGIC):
            at = magic.start() - layout.MAGIC
            size = _plausible_size(view, at, log.size - start, offsets)
            unchecked -= size
            if size and (_is_good(log, start + at, size) or unchecked < 0):
                return Located(start + at, RecordBatch(log.read(start + at, size)))
        start += max(len(view) - _HEAD + 1, 1)
    return None


def _plausible_size(view: memoryview, at: int, room: int, offsets: OffsetRange) -> int:
    """The size of the batch that may begin at ``at`` of ``view``, if the file goes on for ``room``; 0 if none may."""
    if len(view) - at < _HEAD:
        return 0
    base, length, _, _, _, _, delta, *_ = layout.HEADER.unpack_from(view, at)
    size = int(length) + layout.LOG_OVERHEAD
    is_plausible = _HEAD <= size <= room - at and offsets.first <= base and base + delta < offsets.end
    return size if is_plausible else 0


def _is_good(log: Readable, position: int, size: int) -> bool:
    try:
        RecordBatch(log.read(position, size)).validate()
    except CorruptRecord:
        return False
    return True
