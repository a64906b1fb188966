"""Rows in Avro's binary encoding: what cannot be written is refused in words, and never becomes another value."""

import datetime
import re
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import DataSourceError

pytest.importorskip("pyspark")
pytest.importorskip("fastavro")
types = pytest.importorskip("pyspark.sql.types")
to_arrow_type = pytest.importorskip("pyspark.sql.pandas.types").to_arrow_type
avro = pytest.importorskip("sparklog.spark.values.avro")

_BOOLEAN, _INT = types.BooleanType(), types.IntegerType()
_DATE = {"type": "int", "logicalType": "date"}
_MILLIS, _MICROS, _LOCAL = (
    {"type": "long", "logicalType": f"{each}"}
    for each in ("timestamp-millis", "timestamp-micros", "local-timestamp-micros")
)


def _of(kind: Any, **rest: Any) -> dict[str, Any]:
    """A record of one field, ``a``."""
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **rest}]}


def _nested(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "N", "fields": [{"name": "x", "type": kind}]}


def _struct(kind: Any) -> Any:
    return types.StructType([types.StructField("x", kind)])


def _encode(schema: Any, kind: Any, *values: Any) -> list[bytes]:
    """The rows of a column ``a``, written in the middle of a batch: an Arrow array may begin within its buffers."""
    columns = types.StructType([types.StructField("a", kind)])
    writer = avro.AvroWriter(schema, None, columns)
    rows = pa.array(
        [{"a": None}, *({"a": each} for each in values), {"a": None}], to_arrow_type(columns, timezone="UTC")
    )
    encoded: list[bytes] = writer.encode(rows.slice(1, len(values))).to_pylist()
    return encoded


@pytest.mark.parametrize(
    ("schema", "kind", "value", "where"),
    [
        (_of("boolean"), _BOOLEAN, None, "a"),
        (_of("boolean"), types.NullType(), None, "a"),
        (_of("boolean", default=True), _BOOLEAN, None, "a"),
        (_of({"type": "array", "items": "boolean"}), types.ArrayType(_BOOLEAN), [True, None], "a[]"),
        (_of({"type": "map", "values": "boolean"}), types.MapType(types.StringType(), _BOOLEAN), [("k", None)], "a{}"),
        (_of(_nested("boolean")), _struct(_BOOLEAN), {"x": None}, "a.x"),
        (_of(["null", _nested("boolean")]), _struct(_BOOLEAN), {"x": None}, "a.x"),
        (
            _of({"type": "array", "items": ["null", _nested({"type": "array", "items": "boolean"})]}),
            types.ArrayType(_struct(types.ArrayType(_BOOLEAN))),
            [None, {"x": [True]}, {"x": [None]}],
            "a[].x[]",
        ),
        (_of("int"), _INT, None, "a"),
        (_of("string", default="x"), types.StringType(), None, "a"),
    ],
)
def test_a_null_is_refused_where_the_schema_allows_none(schema, kind, value, where):
    told = f"SPARKLOG_UNSUPPORTED_VALUE] a value of {where} is null, which the Avro schema does not allow there"
    with pytest.raises(DataSourceError, match=re.escape(told)):
        _encode(schema, kind, value)


@pytest.mark.parametrize(
    ("schema", "kind", "value", "data"),
    [
        (_of(["null", "boolean"]), _BOOLEAN, None, b"\0"),
        (_of(["null", "boolean"]), _BOOLEAN, False, b"\2\0"),
        (_of({"type": "array", "items": ["null", "boolean"]}), types.ArrayType(_BOOLEAN), [None, True], b"\4\0\2\1\0"),
        (_of(["null", _nested("boolean")]), _struct(_BOOLEAN), None, b"\0"),
        (_of(["null", {"type": "array", "items": "boolean"}]), types.ArrayType(_BOOLEAN), None, b"\0"),
        (
            _of(["null", {"type": "map", "values": "boolean"}]),
            types.MapType(types.StringType(), _BOOLEAN),
            [("k", True)],
            b"\2\2\2k\1\0",
        ),
    ],
)
def test_a_null_is_written_where_the_schema_allows_it(schema, kind, value, data):
    assert _encode(schema, kind, value, value) == [data, data]


@pytest.mark.parametrize(
    ("schema", "kind", "value"),
    [
        (_DATE, types.DateType(), -719_163),
        (_DATE, types.DateType(), 2_932_897),
        (_MICROS, types.TimestampType(), -62_135_596_800_000_001),
        (_MILLIS, types.TimestampType(), 253_402_300_800_000_000),
        (_LOCAL, types.TimestampNTZType(), 253_402_300_800_000_000),
    ],
)
def test_a_time_outside_of_the_years_of_python_is_refused(schema, kind, value):
    with pytest.raises(DataSourceError, match=r"UNSUPPORTED_VALUE\] a value of a is outside of the years 1 to 9999"):
        _encode(_of(["null", schema]), kind, None, value)
    with pytest.raises(
        DataSourceError, match=r"UNSUPPORTED_VALUE\] a value of a\[\] is outside of the years 1 to 9999"
    ):
        _encode(_of({"type": "array", "items": schema}), types.ArrayType(kind), [0, value])


@pytest.mark.parametrize(
    ("schema", "kind", "value", "read"),
    [
        (_DATE, types.DateType(), -719_162, datetime.date.min),
        (_DATE, types.DateType(), 2_932_896, datetime.date.max),
        (_LOCAL, types.TimestampNTZType(), -62_135_596_800_000_000, datetime.datetime.min),
        (_LOCAL, types.TimestampNTZType(), 253_402_300_799_999_999, datetime.datetime.max),
    ],
)
def test_the_first_and_the_last_time_are_written(schema, kind, value, read):
    (row,) = avro.AvroReader(_of(schema), None).decode(pa.array(_encode(_of(schema), kind, value))).to_pylist()
    assert row == {"data": {"a": read}, "error": None}


def test_a_key_that_occurs_twice_in_a_map_is_refused():
    kind = types.MapType(types.BinaryType(), _INT)
    schema = _of({"type": "map", "values": "int"})
    assert _encode(schema, kind, [(b"k", 1)]) == [b"\2\2k\2\0"]
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNSUPPORTED_VALUE\] a key occurs twice in a map"):
        _encode(schema, kind, [(b"k", 1), (b"k", 2)])


@pytest.mark.parametrize("names", ["xx", "xyy"])
def test_a_field_that_a_struct_has_twice_is_refused_at_once(names):
    twice = types.StructType([types.StructField(name, _INT) for name in names])
    columns = types.StructType([types.StructField("a", twice)])
    told = rf"SPARKLOG_UNSUPPORTED_SCHEMA\] columns that occur twice cannot be written as Avro: a\.{names[-1]}$"
    with pytest.raises(DataSourceError, match=told):
        avro.AvroWriter(_of(_nested("int")), None, columns)


def test_text_that_is_not_utf_8_is_refused():
    columns = types.StructType([types.StructField("a", types.StringType())])
    text = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNSUPPORTED_VALUE\] a text is not UTF-8"):
        avro.AvroWriter(_of("string"), None, columns).encode(pa.StructArray.from_arrays([text], ["a"]))


@pytest.mark.parametrize("base", ["long", "string", "bytes"])
def test_a_decimal_that_the_type_beneath_cannot_be_is_that_type(base):
    precision = {} if base == "bytes" else {"precision": 4, "scale": 1}
    schema = _of({"type": base, "logicalType": "decimal", **precision})
    assert avro.spark_schema(schema) == avro.spark_schema(_of(base))
    (row,) = avro.AvroReader(schema, None).decode(pa.array([b"\0"])).to_pylist()
    assert row == {"data": {"a": {"long": 0, "string": "", "bytes": b""}[base]}, "error": None}
