"""JSON values of a batch as a column of structs, by pyarrow's JSON reader; ``json_value.py`` has the rules.

Invariants:

1. What becomes of a value depends on that value alone. The reader is given the values as one text, and would let one
   flow into the next: ``{"a":`` and ``1}`` are an object for it. So each value is followed by a sentinel,
   ``{"v":[VALUE,{"MARK":2}]}``, with a random MARK that no value knows. Where there are as many lists as values, each
   of two elements of which the second is a sentinel, each value is exactly one JSON value: a list ends with a sentinel,
   so what closes it, and opens the next, is ours and not in a value; and a value that closed its list itself would
   have made one without a sentinel. (A second ``"v"`` in the same object is an error of the reader.)
2. The reader decides only for values that it takes, and then as ``json_value`` would. It is more liberal at some points
   (NaN, invalid UTF-8, halves of surrogate pairs, infinities by overflow): each has a check of its own here. Values
   that it does not take are decoded one by one. The row that it names in an error only says where to look.

Types that the reader does not have (maps from objects, decimals) are decoded one by one, always.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
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

_FEW = 16
"""So many values are decoded one by one, if the reader does not take one of them: to ask it costs as much."""
_MOST_ALONE = 512
"""So many are, where it has not taken any for long."""
_GROWTH = 4
"""So many times as many values as it took last the reader is given next."""
_ROW = re.compile(r" in row ([0-9]+)$")
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
        """The values in order: what the reader takes at once, and the others one by one."""
        if self._reader is None:
            yield self._one_by_one(values)
            return
        at, window, alone = 0, len(values), _FEW
        while at < len(values):
            part = values[at : at + window]
            whole = _in_bulk(self._reader, part)
            if isinstance(whole, pa.StructArray):
                yield Decoded(whole, {})
                at, window, alone = at + len(part), _GROWTH * len(part), _FEW
            elif len(part) <= _FEW or (whole.row is not None and whole.row < _FEW):
                few = part[:alone]
                yield self._one_by_one(few)
                at, window, alone = at + len(few), max(window, _GROWTH * _FEW), min(2 * alone, _MOST_ALONE)
            else:
                window = whole.row or len(part) // 2

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


def _in_bulk(reader: _Reader, values: pa.Array) -> pa.StructArray | _NotTaken:
    """What the reader makes of the values, null for those that are."""
    if len(values) > _MOST or values.nbytes > _MOST_BYTES:
        return _NotTaken(None)
    if not values.null_count:
        return reader.read(values)
    found, valid = reader.read(values.drop_null()), np.asarray(values.is_valid())
    if isinstance(found, _NotTaken):
        return found if found.row is None else _NotTaken(int(np.flatnonzero(valid)[found.row]))
    return found.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


class _NotTaken(NamedTuple):
    """The reader does not decide about some of the values."""

    row: int | None
    """The first of them, as far as is known. Those before may be taken."""


class _NotPlain(Exception):
    """Some value is not what the reader may decide on."""


class _Reader:
    """Reads many values at once, or refuses."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema
        self._mark = secrets.token_hex(8)
        element = pa.struct([*_plain_fields(schema), pa.field(self._mark, pa.int8())])
        self._parsing = arrow_json.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", pa.list_(element))]), unexpected_field_behavior="ignore"
        )

    def read(self, values: pa.Array) -> pa.StructArray | _NotTaken:
        """The values, which are not null; _NotTaken if one does not decode, or the reader might take it wrongly."""
        if not len(values):
            return pa.array([], to_arrow_type(nullable(self._schema), timezone="UTC"))
        try:
            return self._read(values)
        except _NotPlain:
            return _NotTaken(None)
        except pa.ArrowException as error:
            named = _ROW.search(str(error))
            return _NotTaken(min(int(named[1]), len(values) - 1) if named else None)

    def _read(self, values: pa.Array) -> pa.StructArray:
        values.cast(pa.string())  # raises if one is not UTF-8
        text = self._marked(values)
        if _occurs(text, (b"NaN", b"Inf")) and pc.any(pc.match_substring_regex(values, _NO_NUMBER)).as_py():
            raise _NotPlain
        reading = arrow_json.ReadOptions(use_threads=False, block_size=text.size)
        roots = self._roots(arrow_json.read_json(pa.BufferReader(text), reading, self._parsing), len(values))
        roots.validate(full=True)  # raises if a text is not UTF-8: it had half of a surrogate pair
        return _converted(roots, self._schema)

    def _marked(self, values: pa.Array) -> pa.Buffer:
        """The values between what makes lists of them."""
        after = b',{"%s":2}]}\n' % self._mark.encode()
        joined = pc.binary_join_element_wise(pa.scalar(b'{"v":['), values, pa.scalar(after), pa.scalar(b""))
        ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset :]
        return joined.buffers()[2].slice(int(ends[0]), int(ends[len(joined)] - ends[0]))

    def _roots(self, table: pa.Table, count: int) -> pa.StructArray:
        """The values before the sentinels. Raises _NotPlain unless each is exactly one object."""
        lists = table.column("v").combine_chunks()
        if len(lists) != count or lists.null_count:
            raise _NotPlain
        if not np.array_equal(np.asarray(lists.offsets), np.arange(count + 1) * 2):
            raise _NotPlain
        elements = lists.values
        if not (np.asarray(elements.field(self._mark).fill_null(0))[1::2] == 2).all():
            raise _NotPlain
        roots = elements.take(pa.array(np.arange(0, 2 * count, 2)))
        if roots.null_count:
            raise _NotPlain
        return pa.StructArray.from_arrays([roots.field(name) for name in self._schema.names], self._schema.names)


def _occurs(text: pa.Buffer, words: Iterable[bytes]) -> bool:
    """Whether one of the words is in the text. Their first letters are rare, and found fast."""
    letters = np.frombuffer(text, np.uint8)
    for word in words:
        found = np.flatnonzero(letters[: len(letters) - len(word) + 1] == word[0])
        for ahead, letter in enumerate(word[1:], 1):
            found = found[letters[found + ahead] == letter]
        if len(found):
            return True
    return False


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
