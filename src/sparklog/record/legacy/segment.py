"""Segment files of whatever format: which it is, the entries, the records.

A topic that was upgraded holds magic 0, magic 1 and v2 entries in that order in one file or another; the first
format stands alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.errors import CorruptRecord
from sparklog.record import layout, records
from sparklog.record.batch import RecordBatch
from sparklog.record.legacy import first_format, message_set
from sparklog.record.legacy.message import Format, LegacyMessage
from sparklog.record.records import MAX_DECOMPRESSED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from sparklog.record._impl.abc import Record


def detect_format(buffer: Buffer) -> Format:
    """The format of a segment file that begins as ``buffer`` does.

    The first entry must be in ``buffer`` whole, with the right CRC: CorruptRecord says why it is none of them.
    """
    view = memoryview(buffer)
    try:
        return _format_with_offsets(view)
    except CorruptRecord as error:
        reason = error
    try:
        first_format.read_message(view, 0).validate()
    except CorruptRecord as error:
        raise CorruptRecord(
            f"{len(view)} bytes that begin no segment file: not with an offset ({reason}), nor without ({error})"
        ) from error
    return Format.FIRST


def iter_any(buffer: Buffer, position: int = 0, *, partial_tail: bool = True) -> Iterator[LegacyMessage | RecordBatch]:
    """The entries of magic 0, 1 and 2, wrappers and batches as they are, in the order of the file.

    No CRC is checked. With ``partial_tail`` an incomplete last entry ends the iteration quietly.
    """
    view = memoryview(buffer)
    while position < len(view):
        if message_set.is_cut_short(view, position) and partial_tail:
            return
        entry = _read_entry(view, position)
        yield entry
        position += entry.size if isinstance(entry, LegacyMessage) else entry.size_in_bytes


def iter_entries(
    buffer: Buffer, *, base_offset: int = 0, partial_tail: bool = True
) -> Iterator[LegacyMessage | RecordBatch]:
    """The entries of a segment file of any format, which is found out from its beginning; none if it is empty.

    ``base_offset`` is the one in the file's name; the first format alone needs it.
    """
    view = memoryview(buffer)
    if len(view) == 0:
        return iter(())
    if detect_format(view) is Format.FIRST:
        return first_format.iter_messages(view, base_offset=base_offset, partial_tail=partial_tail)
    return iter_any(view, partial_tail=partial_tail)


def unwrap(message: LegacyMessage, max_decompressed: int = MAX_DECOMPRESSED) -> Iterator[LegacyMessage]:
    """The message itself, or the messages in it, with their final offset and timestamp; every CRC is checked."""
    if message.format is Format.FIRST:
        return first_format.unwrap(message, max_decompressed)
    return message_set.unwrap(message, max_decompressed)


def iter_records(
    buffer: Buffer, *, base_offset: int = 0, max_decompressed: int = MAX_DECOMPRESSED, partial_tail: bool = True
) -> Iterator[Record]:
    """The records of a segment file of any format as Python objects: for people and tests, never for bulk data.

    Every CRC is checked; the records of control batches are left out.
    """
    for entry in iter_entries(buffer, base_offset=base_offset, partial_tail=partial_tail):
        if isinstance(entry, LegacyMessage):
            for message in unwrap(entry, max_decompressed):
                yield message.record()
        else:
            entry.validate()
            if not entry.is_control:
                yield from records.iter_records(entry, max_decompressed)


def _format_with_offsets(view: memoryview) -> Format:
    if len(view) == 0:
        raise CorruptRecord("there are none")
    if message_set.is_cut_short(view, 0):
        raise CorruptRecord("the first entry is not whole")
    entry = _read_entry(view, 0)
    entry.validate()
    offset = entry.offset if isinstance(entry, LegacyMessage) else entry.base_offset
    if offset < 0:
        raise CorruptRecord(f"the first offset is {offset}")
    return entry.format if isinstance(entry, LegacyMessage) else Format.V2


def _read_entry(view: memoryview, position: int) -> LegacyMessage | RecordBatch:
    magic = position + layout.MAGIC
    if magic < len(view) and view[magic] == layout.MAGIC_V2:
        return RecordBatch(view, position)
    return message_set.read_message(view, position)
