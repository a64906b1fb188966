"""The entries of a ``.log`` file for people and scripts, whatever the format; fields by Kafka's names.

The CRC of every batch is checked. What is no batch is said with its place and first bytes, and the dump goes on where
the next good batch begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.log.files import find_base_offset
from sparklog.log.inspection.batch_walk import BatchWalk, TailKind
from sparklog.log.inspection.locks import is_in_use
from sparklog.log.inspection.old_formats import is_old_format, span_of
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, increment_sequence
from sparklog.record.control import parse_marker
from sparklog.record.legacy.message import Format, LegacyMessage
from sparklog.record.legacy.segment import iter_entries, unwrap
from sparklog.record.records import Record, iter_records

_TIMESTAMP_NAMES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


class Entry(NamedTuple):
    """One thing in a file. ``fields`` hold numbers, text, truths and bytes, None for what is not there."""

    kind: str
    """``batch``, ``record``, ``damage``, or what ``dump`` names."""
    fields: dict[str, Any]
    is_damage: bool = False


class DumpOptions(NamedTuple):
    """What to show of a ``.log`` file: offsets from ``first`` to ``last``, both included; at most ``batches``."""

    records: bool = False
    first: int = 0
    last: int = layout.MAX_INT64
    batches: int | None = None


def dump_log(path: Path, options: DumpOptions) -> Iterator[Entry]:
    """Raises OSError if the file cannot be read."""
    with BatchWalk(path) as walk:
        entries = _old_entries(walk, path, options) if is_old_format(walk) else _entries(walk, options)
        shown = 0
        for entry in entries:
            shown += entry.kind == "batch"
            if options.batches is not None and shown > options.batches:
                return
            yield entry


def _entries(walk: BatchWalk, options: DumpOptions) -> Iterator[Entry]:
    position: int | None = 0
    next_offset = 0
    while position is not None:
        for at, fields, view in walk.batches(position):
            if fields[0] > options.last:
                return
            if fields[0] + fields[6] < options.first:
                continue
            batch = RecordBatch(view)
            yield from _batch_entries(batch, at, options)
            next_offset = max(batch.next_offset, 0)
        tail = walk.tail()
        if tail is None:
            return
        position = walk.next_good(tail.position, min(next_offset, layout.MAX_INT64 >> 1))
        being_written = (
            position is None and tail.kind is not TailKind.FOREIGN and is_in_use(walk.path.absolute().parent.parent)
        )
        size = tail.size if position is None else position - tail.position
        what = f"{tail.kind}{' (being written)' if being_written else ''}"
        fields_ = {"position": tail.position, "size": size, "what": what, "nextGood": position, "head": tail.head}
        yield Entry("damage", fields_, not being_written)


def _batch_entries(batch: RecordBatch, position: int, options: DumpOptions) -> Iterator[Entry]:
    try:
        batch.validate()
    except CorruptRecord as failure:
        complaint: str | None = str(failure)
    else:
        complaint = None
    yield Entry("batch", _batch_fields(batch, position, complaint is None), complaint is not None)
    if complaint is not None:
        yield Entry("problem", {"severity": "error", "what": complaint, "position": position}, True)
    elif options.records:
        yield from _record_entries(batch, position, options)


def _batch_fields(batch: RecordBatch, position: int, is_valid: bool) -> dict[str, Any]:
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.record_count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.base_timestamp if batch.has_delete_horizon else None,
        "position": position,
        _TIMESTAMP_NAMES[batch.timestamp_type]: batch.max_timestamp,
        "size": batch.size_in_bytes,
        "magic": batch.magic,
        "compresscodec": _codec_name(batch),
        "crc": batch.crc,
        "isvalid": is_valid,
    }


def _codec_name(entry: RecordBatch | LegacyMessage) -> str:
    try:
        return entry.compression.name.lower()
    except CorruptRecord:
        return f"unknown-{entry.attributes & layout.COMPRESSION_MASK}"


def _record_entries(batch: RecordBatch, position: int, options: DumpOptions) -> Iterator[Entry]:
    try:
        for record in iter_records(batch):
            if options.first <= record.offset <= options.last:
                fields = _record_fields(record, _TIMESTAMP_NAMES[batch.timestamp_type])
                if batch.base_sequence >= 0:
                    by = record.offset - batch.base_offset
                    fields["sequence"] = increment_sequence(batch.base_sequence, by)
                yield Entry("record", _marker_fields(fields, record) if batch.is_control else fields)
    except CorruptRecord as failure:
        yield Entry("problem", {"severity": "error", "what": str(failure), "position": position}, True)


def _record_fields(record: Record, timestamp_name: str) -> dict[str, Any]:
    key, value = record.key, record.value
    return {
        "offset": record.offset,
        timestamp_name: record.timestamp,
        "keySize": -1 if key is None else len(key),
        "valueSize": -1 if value is None else len(value),
        "sequence": layout.NO_SEQUENCE,
        "headers": list(record.headers),
        "key": key,
        "value": value,
    }


def _marker_fields(fields: dict[str, Any], record: Record) -> dict[str, Any]:
    """A control record's key and value, read; left as they are if they are no transaction's marker."""
    try:
        marker = parse_marker(record.key, record.value)
    except CorruptRecord:
        return fields
    kept = {name: value for name, value in fields.items() if name not in ("key", "value")}
    return {**kept, "endTxnMarker": marker.type.name, "coordinatorEpoch": marker.coordinator_epoch}


def _old_entries(walk: BatchWalk, path: Path, options: DumpOptions) -> Iterator[Entry]:
    """A file of a format before v2, read into memory whole; batches of v2 may follow in it."""
    data = walk.read(0, walk.size)
    base = find_base_offset(path) or 0
    position = 0
    try:
        for entry in iter_entries(data, base_offset=base):
            span = span_of(entry)
            is_wrapper = isinstance(entry, LegacyMessage) and entry.attributes & layout.COMPRESSION_MASK
            if span.first_offset > options.last and not is_wrapper:
                return
            if span.last_offset >= options.first:
                yield from _any_entries(entry, position, options)
            position += span.size
        what = str(TailKind.CUT)
    except CorruptRecord as failure:
        what = str(failure)
    if position < len(data):
        head = bytes(data[position : position + 32])
        fields = {"position": position, "size": len(data) - position, "what": what, "nextGood": None, "head": head}
        yield Entry("damage", fields, True)


def _any_entries(entry: LegacyMessage | RecordBatch, position: int, options: DumpOptions) -> Iterator[Entry]:
    if isinstance(entry, LegacyMessage):
        return _message_entries(entry, options)
    return _batch_entries(entry, position, options)


def _message_entries(message: LegacyMessage, options: DumpOptions) -> Iterator[Entry]:
    timestamp_name = _TIMESTAMP_NAMES[message.timestamp_type]
    fields = {
        "offset": message.offset,
        "position": message.position,
        timestamp_name: message.timestamp,
        "size": message.size,
        "magic": message.magic,
        "compresscodec": _codec_name(message),
        "crc": message.crc,
        "isvalid": message.crc_ok,
    }
    if message.format is Format.FIRST:
        fields["format"] = Format.FIRST.value
    yield Entry("batch", fields, not message.crc_ok)
    if not options.records or not message.crc_ok:
        return
    try:
        for each in unwrap(message):
            if options.first <= each.offset <= options.last:
                name = _TIMESTAMP_NAMES[each.timestamp_type]
                yield Entry("record", _record_fields(each.record(), name))
    except CorruptRecord as failure:
        yield Entry("problem", {"severity": "error", "what": str(failure), "position": message.position}, True)
