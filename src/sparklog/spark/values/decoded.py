"""Values of a batch, decoded into one column of structs; and why some of them are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType


class Unreadable(Exception):
    """A value is not one of the schema; the message says why."""


class Decoded(NamedTuple):
    """What a decoder made of values."""

    data: pa.StructArray
    """As long as the values. Null where the value is null, or is in ``reasons``."""
    reasons: Mapping[int, str]
    """The rows whose values do not decode, in ascending order, and why."""


class ValueDecoder(Protocol):
    """Decodes values of one schema. It is pickled."""

    @property
    def schema(self) -> StructType:
        """The fields, all nullable: a null value has none of them."""

    def decode(self, values: pa.Array) -> Decoded:
        """``values`` are binary. What becomes of a value depends on that value alone."""


def nullable(schema: StructType) -> StructType:
    """The same fields, each of which may be null, and so may what is within them."""
    return StructType([StructField(each.name, _nullable(each.dataType)) for each in schema.fields])


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _nullable(kind.valueType))
    return kind
