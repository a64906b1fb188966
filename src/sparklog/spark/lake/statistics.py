"""What a table keeps of a file for those who filter: rows, nulls, and the least and the greatest value of columns.

As Delta's protocol has it ("Per-file Statistics"). An end is told only where that costs little and is
sure: of numbers, dates, timestamps and text, also within structs; of no column with a NaN or an infinity, nor with a
time outside of the years 1 to 9999. Text is cut to 32 characters, and the greatest then made greater. Timestamps are in
milliseconds.
"""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.spark.lake.columns import moment_of

_MOST_CHARACTERS = 32
_LAST_CHARACTER = "\U0010ffff"
"""Behind a text that was cut, so that none which it stands for is greater."""
_DAYS = range(-719_162, 2_932_897)
"""Since 1970, of the years 1 to 9999."""


class FileStatistics:
    """The statistics of one file, which grow with its rows."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, _Column] = {}

    def add(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        for field, column in zip(rows.schema, rows.columns, strict=True):
            self._columns.setdefault(field.name, _column(field.type)).add(column)

    def to_json(self) -> str:
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": _told(self._columns, "least"),
                "maxValues": _told(self._columns, "greatest"),
                "nullCount": _told(self._columns, "nulls"),
            }
        )


def is_measured(kind: pa.DataType) -> bool:
    """Whether the ends of a column of this type are told."""
    return type(_column(kind)) not in (_Column, _Nested, _Struct)


def _told(columns: dict[str, _Column], what: str) -> dict[str, Any]:
    found = {name: getattr(column, what)() for name, column in columns.items()}
    return {name: value for name, value in found.items() if value is not None}


def _column(kind: pa.DataType) -> _Column:
    if pa.types.is_struct(kind):
        return _Struct()
    if pa.types.is_nested(kind):
        return _Nested()
    if pa.types.is_string(kind):
        return _Text()
    if pa.types.is_date(kind):
        return _Date()
    if pa.types.is_timestamp(kind):
        return _Timestamp(is_local=kind.tz is None)
    if pa.types.is_floating(kind):
        return _Float()
    if pa.types.is_decimal(kind):
        return _Decimal()
    if pa.types.is_integer(kind):
        return _Measured()
    return _Column()


class _Column:
    """A column of which only nulls are counted."""

    def __init__(self) -> None:
        self._nulls = 0

    def add(self, values: pa.ChunkedArray) -> None:
        self._nulls += values.null_count

    def nulls(self) -> Any:
        return self._nulls

    def least(self) -> Any:
        """As JSON, or None if it is not told."""
        return None

    def greatest(self) -> Any:
        return None


class _Nested(_Column):
    """A list or a map, of which nothing is told."""

    def nulls(self) -> Any:
        return None


class _Struct(_Column):
    """A struct: each field by itself. Where the struct is null, its fields are."""

    def __init__(self) -> None:
        super().__init__()
        self._fields: dict[str, _Column] = {}

    def add(self, values: pa.ChunkedArray) -> None:
        for field, column in zip(values.type, values.flatten(), strict=True):
            self._fields.setdefault(field.name, _column(field.type)).add(column)

    def nulls(self) -> Any:
        return _told(self._fields, "nulls")

    def least(self) -> Any:
        return _told(self._fields, "least") or None

    def greatest(self) -> Any:
        return _told(self._fields, "greatest") or None


class _Measured(_Column):
    """A column with a least and a greatest value."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: tuple[Any, Any] | None = None

    def add(self, values: pa.ChunkedArray) -> None:
        super().add(values)
        found = pc.min_max(self._stored(values))
        least, greatest = found["min"].as_py(), found["max"].as_py()
        if least is None:
            return
        if self._ends is not None:
            least, greatest = min(self._ends[0], least), max(self._ends[1], greatest)
        self._ends = least, greatest

    def least(self) -> Any:
        ends = self._told()
        return None if ends is None else ends[0]

    def greatest(self) -> Any:
        ends = self._told()
        return None if ends is None else ends[1]

    def _stored(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """The values in a type that Python has all values of."""
        return values

    def _told(self) -> tuple[Any, Any] | None:
        """Both ends as JSON has them; an end that is not told is None."""
        return self._ends


class _Float(_Measured):
    def __init__(self) -> None:
        super().__init__()
        self._is_finite = True

    def add(self, values: pa.ChunkedArray) -> None:
        super().add(values)
        self._is_finite = self._is_finite and pc.all(pc.is_finite(values)).as_py() is not False

    def _told(self) -> tuple[Any, Any] | None:
        return self._ends if self._is_finite else None


class _Decimal(_Measured):
    """JSON's numbers are doubles for the library that writes them: only what they hold is told."""

    def _told(self) -> tuple[Any, Any] | None:
        if self._ends is None:
            return None
        least, greatest = (float(each) if Decimal(repr(float(each))) == each else None for each in self._ends)
        return least, greatest


class _Text(_Measured):
    def _told(self) -> tuple[Any, Any] | None:
        if self._ends is None:
            return None
        least, greatest = self._ends
        return least[:_MOST_CHARACTERS], _not_less(greatest)


def _not_less(text: str) -> str | None:
    """A text of 32 characters and one more that is not less than this one, or None."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    return None if text[_MOST_CHARACTERS] == _LAST_CHARACTER else text[:_MOST_CHARACTERS] + _LAST_CHARACTER


class _Date(_Measured):
    def _stored(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        return values.cast(pa.int32())

    def _told(self) -> tuple[Any, Any] | None:
        if self._ends is None or not all(each in _DAYS for each in self._ends):
            return None
        least, greatest = (date.fromordinal(each - _DAYS.start + 1).isoformat() for each in self._ends)
        return least, greatest


class _Timestamp(_Measured):
    def __init__(self, *, is_local: bool) -> None:
        super().__init__()
        self._zone = "" if is_local else "Z"

    def _stored(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        return values.cast(pa.int64())

    def _told(self) -> tuple[Any, Any] | None:
        if self._ends is None:
            return None
        least, greatest = moment_of(self._ends[0]), moment_of(-(-self._ends[1] // 1000) * 1000)
        if least is None or greatest is None:
            return None
        first, last = (each.isoformat(timespec="milliseconds").removesuffix("+00:00") for each in (least, greatest))
        return first + self._zone, last + self._zone
