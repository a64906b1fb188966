"""JSON values of a batch as a column of structs, by pyarrow's JSON reader; ``json_value.py`` has the rules.

Invariants:

1. What becomes of a value depends on that value alone. The reader is given the values as one text, and would let one
   flow into the next: ``{"a":`` and ``1}`` are an object for it. So each value is put between two sentinels,
   ``{"v":[{"MARK":1},VALUE,{"MARK":2}]}``, with a random MARK that no value knows. Where there are as many lists as
   values, each of three that begins and ends with the right sentinel, each value is exactly one JSON value: then each
   list begins with a sentinel that only we can have written, and there are no more of these than lists.
2. The reader decides only for batches that it takes whole, and then as ``json_value`` would. It is more liberal at some
   points (NaN, invalid UTF-8, halves of surrogate pairs, infinities by overflow): each has a check of its own here.
   A batch that it does not take is halved, and a few values are decoded one by one.

Types that the reader does not have (maps from objects, decimals) are decoded one by one, always.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
)

from sparklog.spark.values.decoded import Decoded, Unreadable, nullable
from sparklog.spark.values.json_value import STORED, as_moments, json_value

_FEW = 32
"""So many values are decoded one by one, if the reader does not take them."""
_MOST = 50_000
"""Values that the reader is given at once. It takes no more than 100,000."""
_MOST_BYTES = 1 << 30
_NO_NUMBER = r"[:\[,]\s*-?(NaN|Inf)"
"""What may be a number that is not JSON. It may be within a text, too: then the value is decoded one by one."""


class JsonDecoder:
    """Decodes values of a schema; what is NOT NULL there, each value must have.

    Raises DataSourceError for a type that JSON does not have here.
    """

    def __init__(self, schema: StructType) -> None:
        self.schema = nullable(schema)
        self._wanted = schema
        self._kind = to_arrow_type(self.schema, timezone="UTC")
        self._decode = json_value(schema)
        self._reader = _Reader(schema) if _is_read_in_bulk(schema) else None

    def __reduce__(self) -> tuple[type[JsonDecoder], tuple[StructType]]:
        return JsonDecoder, (self._wanted,)

    def decode(self, values: pa.Array) -> Decoded:
        """``values`` are binary. Each is null, decoded, or has a reason why not."""
        parts: list[pa.StructArray] = []
        reasons: dict[int, str] = {}
        at = 0
        for part in self._parts(values):
            parts.append(part.data)
            reasons.update((at + row, reason) for row, reason in part.reasons.items())
            at += len(part.data)
        return Decoded(pa.concat_arrays(parts) if parts else pa.array([], self._kind), reasons)

    def _parts(self, values: pa.Array) -> Iterator[Decoded]:
        """The values in order: in bulk where the reader takes them, else in halves."""
        if not len(values):
            return
        whole = self._in_bulk(values)
        if whole is not None:
            yield Decoded(whole, {})
        elif len(values) <= _FEW or self._reader is None:
            yield self._one_by_one(values)
        else:
            half = len(values) // 2
            yield from self._parts(values[:half])
            yield from self._parts(values[half:])

    def _in_bulk(self, values: pa.Array) -> pa.StructArray | None:
        """None if the reader does not take them."""
        if self._reader is None or len(values) > _MOST or values.nbytes > _MOST_BYTES:
            return None
        if not values.null_count:
            return self._reader.read(values)
        found = self._reader.read(values.drop_null())
        if found is None:
            return None
        valid = np.asarray(values.is_valid())
        rows = pa.array(np.cumsum(valid) - 1, mask=~valid)
        return found.take(rows)

    def _one_by_one(self, values: pa.Array) -> Decoded:
        rows: list[object] = []
        reasons: dict[int, str] = {}
        for number, value in enumerate(values):
            try:
                rows.append(self._decode(value.as_py()) if value.is_valid else None)
            except Unreadable as error:
                rows.append(None)
                reasons[number] = str(error)
        return Decoded(pa.array(rows, self._kind), reasons)


def _is_read_in_bulk(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return bool(kind.fields) and all(_is_read_in_bulk(each.dataType) for each in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_read_in_bulk(kind.elementType)
    return not isinstance(kind, MapType | DecimalType)


class _NotPlain(Exception):
    """Some value is not what the reader may decide on."""


class _Marks(NamedTuple):
    """What is put around each value."""

    name: str

    @property
    def before(self) -> bytes:
        return b'{"v":[{"%s":1},' % self.name.encode()

    @property
    def after(self) -> bytes:
        return b',{"%s":2}]}\n' % self.name.encode()


class _Reader:
    """Reads many values at once, or refuses."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema
        self._marks = _Marks(secrets.token_hex(8))
        element = pa.struct([*_plain_fields(schema), pa.field(self._marks.name, pa.int8())])
        self._parsing = arrow_json.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", pa.list_(element))]), unexpected_field_behavior="ignore"
        )

    def read(self, values: pa.Array) -> pa.StructArray | None:
        """None if a value is not decoded, or is one that the reader might take wrongly."""
        if not len(values):
            return pa.array([], to_arrow_type(nullable(self._schema), timezone="UTC"))
        try:
            return self._read(values)
        except (_NotPlain, pa.ArrowException):
            return None

    def _read(self, values: pa.Array) -> pa.StructArray:
        values.cast(pa.string())  # raises if one is not UTF-8
        text = self._marked(values)
        if (b"NaN" in text or b"Inf" in text) and pc.any(pc.match_substring_regex(values, _NO_NUMBER)).as_py():
            raise _NotPlain
        table = arrow_json.read_json(
            pa.BufferReader(text), arrow_json.ReadOptions(use_threads=False, block_size=len(text)), self._parsing
        )
        roots = _roots(table, len(values), self._marks.name)
        if b"\\ud" in text or b"\\uD" in text:
            roots.validate(full=True)  # raises if a text is not UTF-8: half of a surrogate pair
        return _converted(roots, self._schema)

    def _marked(self, values: pa.Array) -> bytes:
        joined = pc.binary_join_element_wise(
            pa.scalar(self._marks.before), values, pa.scalar(self._marks.after), pa.scalar(b"")
        )
        ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset :]
        return bytes(memoryview(joined.buffers()[2])[ends[0] : ends[len(joined)]])


def _roots(table: pa.Table, count: int, mark: str) -> pa.StructArray:
    """The values between the sentinels. Raises _NotPlain unless each is exactly one object."""
    lists = table.column("v").combine_chunks()
    if len(lists) != count or lists.null_count:
        raise _NotPlain
    if not np.array_equal(np.asarray(lists.offsets), np.arange(count + 1) * 3):
        raise _NotPlain
    elements = lists.values
    marks = np.asarray(elements.field(mark).fill_null(0))
    if not (marks[0::3] == 1).all() or not (marks[2::3] == 2).all():
        raise _NotPlain
    roots = elements.take(pa.array(np.arange(1, 3 * count, 3)))
    if roots.null_count:
        raise _NotPlain
    names = [each.name for each in roots.type if each.name != mark]
    return pa.StructArray.from_arrays([roots.field(name) for name in names], names)


def _plain_fields(schema: StructType) -> list[pa.Field]:
    return [pa.field(each.name, _plain_type(each.dataType)) for each in schema.fields]


def _plain_type(kind: DataType) -> pa.DataType:
    """How the reader is to read a type: times as text."""
    if isinstance(kind, StructType):
        return pa.struct(_plain_fields(kind))
    if isinstance(kind, ArrayType):
        return pa.list_(_plain_type(kind.elementType))
    if isinstance(kind, FloatType):
        return pa.float64()
    return pa.string() if type(kind) in STORED else to_arrow_type(kind)


def _converted(values: pa.Array, kind: DataType) -> pa.Array:
    """What was read, in the types of the schema. Raises _NotPlain or ArrowException for what they do not hold."""
    if isinstance(kind, StructType):
        return _converted_struct(values, kind)
    if isinstance(kind, ArrayType):
        inner = _converted(values.values, kind.elementType)
        if not kind.containsNull and values.flatten().null_count:
            raise _NotPlain
        element = pa.field("element", inner.type)
        return pa.ListArray.from_arrays(values.offsets, inner, pa.list_(element), mask=_mask(values))
    if isinstance(kind, FloatType | DoubleType):
        return _finite(_finite(values).cast(to_arrow_type(kind), safe=False))
    return as_moments(values, kind) if type(kind) in STORED else values


def _converted_struct(values: pa.StructArray, kind: StructType) -> pa.StructArray:
    required = [each.name for each in kind.fields if not each.nullable]
    if required and any(values.drop_null().field(name).null_count for name in required):
        raise _NotPlain
    columns = [_converted(values.field(each.name), each.dataType) for each in kind.fields]
    return pa.StructArray.from_arrays(columns, kind.names, mask=_mask(values))


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _finite(numbers: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(numbers)).as_py() is False:  # None if all are null
        raise _NotPlain
    return numbers
