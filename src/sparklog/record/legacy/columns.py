"""Old messages as Arrow columns, the same columns that ``sparklog.record.columnar`` gives for record batches.

These formats are met once, when an old log is read or moved; so each record is a Python object on its way here.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from sparklog.errors import LogError
from sparklog.record import layout
from sparklog.record.columnar import HEADERS_TYPE, TIMESTAMP_TYPES, ColumnarDecoder, in_order
from sparklog.record.legacy.message import LegacyMessage
from sparklog.record.legacy.segment import iter_entries, unwrap
from sparklog.record.records import MAX_DECOMPRESSED

if TYPE_CHECKING:
    from collections.abc import Collection

    from typing_extensions import Buffer


class LegacyColumnarDecoder:
    """Accumulates messages as Arrow columns; settings, methods and columns are ColumnarDecoder's.

    ``headers`` are null throughout, ``timestamp`` and ``timestampType`` are -1 where the format has none.
    """

    def __init__(
        self,
        columns: Collection[str],
        *,
        timestamp_unit: Literal["ms", "us"] = "ms",
        max_decompressed: int = MAX_DECOMPRESSED,
    ) -> None:
        self._columns = in_order(columns)
        self._timestamp_type, self._scale = TIMESTAMP_TYPES[timestamp_unit]
        self._max_decompressed = max_decompressed
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._binaries: dict[str, list[bytes | None]] = {name: [] for name in ("key", "value") if name in self._columns}
        self._sizes = dict.fromkeys(self._binaries, 0)
        self._offsets = array("q")
        self._timestamps = array("q")
        self._timestamp_kinds = array("i")

    def append(self, message: LegacyMessage, start_offset: int = 0, end_offset: int = layout.MAX_INT64) -> int:
        """Take the records in ``message`` with ``start_offset <= offset < end_offset``; returns how many there were.

        CorruptRecord, or LogError when a column would outgrow Arrow's 2 GiB, leaves what was accumulated as it was.
        """
        rows, sizes = self._rows, dict(self._sizes)
        try:
            for each in unwrap(message, self._max_decompressed):
                if start_offset <= each.offset < end_offset:
                    self._add(each)
        except LogError:
            self._truncate(rows)
            self._sizes = sizes
            raise
        return self._rows - rows

    def _add(self, message: LegacyMessage) -> None:
        self._rows += 1
        self._offsets.append(message.offset)
        self._timestamps.append(max(layout.MIN_INT64, min(layout.MAX_INT64, message.timestamp * self._scale)))
        self._timestamp_kinds.append(message.timestamp_type)
        for name, column in self._binaries.items():
            field = message.key if name == "key" else message.value
            self._sizes[name] += 0 if field is None else len(field)
            if self._sizes[name] > layout.MAX_INT32:
                raise LogError("a decoded column would exceed 2 GiB: call finish() more often")
            column.append(None if field is None else bytes(field))

    def _truncate(self, rows: int) -> None:
        self._rows = rows
        for numbers in (self._offsets, self._timestamps, self._timestamp_kinds):
            del numbers[rows:]
        for binaries in self._binaries.values():
            del binaries[rows:]

    @property
    def rows(self) -> int:
        """Rows accumulated so far."""
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes accumulated so far, in all columns."""
        fixed = {"key": 4, "value": 4, "headers": 4, "offset": 8, "timestamp": 8, "timestampType": 4}
        return sum(self._sizes.values()) + self._rows * sum(fixed[name] for name in self._columns)

    def finish(self) -> dict[str, pa.Array]:
        """The columns, in the order of COLUMNS; the decoder is empty again afterwards."""
        columns = {name: self._array(name) for name in self._columns}
        self._clear()
        return columns

    def _array(self, name: str) -> pa.Array:
        if name == "headers":
            return pa.nulls(self._rows, HEADERS_TYPE)
        if name in self._binaries:
            return pa.array(self._binaries[name], pa.binary())
        kind, numbers = {
            "offset": (pa.int64(), self._offsets),
            "timestamp": (self._timestamp_type, self._timestamps),
            "timestampType": (pa.int32(), self._timestamp_kinds),
        }[name]
        return pa.Array.from_buffers(kind, self._rows, [None, pa.py_buffer(numbers)], 0)


def read_columns(
    buffer: Buffer,
    columns: Collection[str],
    *,
    timestamp_unit: Literal["ms", "us"] = "ms",
    base_offset: int = 0,
    max_decompressed: int = MAX_DECOMPRESSED,
) -> dict[str, pa.Array]:
    """The records of a segment file of any format (``segment.iter_entries``) as columns, an incomplete tail left out.

    All at once: for a large file append its entries to a decoder, and finish that whenever it is full.
    """
    old = LegacyColumnarDecoder(columns, timestamp_unit=timestamp_unit, max_decompressed=max_decompressed)
    new = ColumnarDecoder(columns, timestamp_unit=timestamp_unit, max_decompressed=max_decompressed)
    pieces = []
    for entry in iter_entries(buffer, base_offset=base_offset):
        if isinstance(entry, LegacyMessage):
            if new.rows:
                pieces.append(new.finish())
            old.append(entry)
        else:
            if old.rows:
                pieces.append(old.finish())
            entry.validate()
            new.append(entry)
    pieces.append(new.finish() if new.rows else old.finish())
    return {name: pa.concat_arrays([piece[name] for piece in pieces]) for name in pieces[0]}
