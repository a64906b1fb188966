"""Keys and values as columns: what parses, what does not and why, and back again."""

import datetime
import decimal
import io
import json
import random
import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType

from sparklog.errors import DataSourceError
from sparklog.spark import avro_values, json_values, to_avro_values, to_json_values
from sparklog.spark.values.avro import AvroReader, AvroWriter

pytestmark = pytest.mark.spark
fastavro = pytest.importorskip("fastavro")

_ORDER = "id bigint NOT NULL, name string, price double, at timestamp"
_RIGHT = {
    b'{"id": 1, "name": "a", "price": 1.5, "at": "2024-05-01T10:00:00Z"}': 1,
    b'  {"id": 2}  ': 2,
    b'{"id": 3, "name": null, "more": [{}]}': 3,
    b'{"id": 0, "id": 5}': 5,
    '{"id": 4, "name": "ö]}"}'.encode(): 4,
}
_WRONG = {
    b"": "it is not JSON",
    b"nope": "it is not JSON",
    b'{"id": 1': "it is not JSON",
    b'{"id": 1}]': "something follows the JSON object",
    b'{"id": 1}{"id": 2}': "something follows the JSON object",
    b'{"id": 1} rubbish': "something follows the JSON object",
    b'{"id": 1},"x":2': "something follows the JSON object",
    b'{"id": 1},{"id": 2}': "something follows the JSON object",
    b'{"id":1}],"x":[{"id":2}': "something follows the JSON object",
    b'{"id":1}],"v":[{"id":2}': "something follows the JSON object",
    b'{"id":1}],"_sparklog_end":1,"x":[{"id":2}': "something follows the JSON object",
    b'{"id":1}],"_sparklog_end":1} {"v":[{"id":2}': "something follows the JSON object",
    b'{"id":1},{"id":2},{"id":3}': "something follows the JSON object",
    b'{"id":1}]}': "something follows the JSON object",
    b'],"v":[{"id":1}': "it is not JSON",
    b'{"id":1},': "something follows the JSON object",
    b'{"id":1,"name":"': "it is not JSON",
    b"{'id':1,'name':'": "it is not JSON",
    b'[{"id": 1}]': "it is not a JSON object",
    b"5": "it is not a JSON object",
    b"null": "it is not a JSON object",
    b'{"id": 1, "name": "\xff"}': "it is not UTF-8",
    b'{"name": "x"}': "it has no id",
    b'{"id": "x", "price": "cheap"}': "it is not of the schema: id is not bigint, price is not double",
    b'{"id": 1, "price": NaN}': "it is not JSON",
    b"{'id': 1}": "it is not JSON",
    b'{"id": 1.5}': "it is not of the schema: id is not bigint",
    b'{"id": 1, "at": "soon"}': "it is not of the schema: at is not timestamp",
}

_PLAIN = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
    ],
}
_EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "shop",
    "fields": [
        {"name": "yes", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "half", "type": "float"},
        {"name": "raw", "type": "bytes"},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "again", "type": ["null", "shop.Colour"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "of_day", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}
_ONE_OF_EACH: dict[str, Any] = {
    "yes": True,
    "small": -7,
    "half": 0.5,
    "raw": b"\x00\xff",
    "code": b"ab",
    "colour": "BLUE",
    "again": None,
    "tags": ["x", ""],
    "counts": {"a": 1},
    "inner": {"x": 1.25},
    "day": datetime.date(2024, 2, 29),
    "at": datetime.datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=datetime.UTC),
    "local": datetime.datetime(2024, 2, 29, 12, 0, 0, 123456),
    "price": decimal.Decimal("12.34"),
    "of_day": 1000,
}


def _binary(schema, *records):
    encoded = []
    for record in records:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), record)
        encoded.append(stream.getvalue())
    return encoded


def _rows(spark, values):
    return spark.createDataFrame([(b"k", value, "t", 0, n) for n, value in enumerate(values)], _RECORD)


_RECORD = "key binary, value binary, topic string, partition int, offset bigint"


def test_json_that_fits_and_json_that_does_not(spark):
    frame = json_values(_rows(spark, [*_RIGHT, *_WRONG, None]), _ORDER)
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "_error", "data"]
    rows = {row.value and bytes(row.value): row for row in frame.collect()}
    assert {value: rows[value].data.id for value in _RIGHT} == _RIGHT
    assert [rows[value]._error for value in _RIGHT] == [None] * len(_RIGHT)
    assert {value: rows[value]._error for value in _WRONG} == _WRONG
    assert [rows[value].data for value in _WRONG] == [None] * len(_WRONG)
    assert (rows[None].data, rows[None]._error) == (None, None)


def test_json_without_dead_letters_fails_and_says_where(spark):
    frame = _rows(spark, [b'{"id": 1}', b"nope"])
    with pytest.raises(PySparkException, match=r"UNPARSED_VALUE.*topic t partition 0 offset 1: it is not JSON"):
        json_values(frame, _ORDER, dead_letter=None).select("data.id").collect()
    assert json_values(frame.limit(1), _ORDER, dead_letter=None).first().data.id == 1


def test_options_of_from_json_and_a_column_of_another_name(spark):
    frame = spark.createDataFrame([('{"on": "1.5.2024"}',)], "body string")
    parsed = json_values(frame, "on date", value="body", into="parsed", options={"dateFormat": "d.M.yyyy"})
    assert parsed.first().parsed.on == datetime.date(2024, 5, 1)


def _nested():
    ddl = "`it's` int, inner struct<x: int NOT NULL, deep: struct<y: string NOT NULL>>"
    rows = ArrayType(StructType.fromDDL("n int NOT NULL"), containsNull=False)
    counts = MapType(StringType(), IntegerType(), valueContainsNull=False)
    return StructType.fromDDL(ddl).add("rows", rows).add("counts", counts)


_WITHIN = {
    b'{"inner": {"x": 1, "deep": {"y": "z"}}, "rows": [{"n": 1}], "counts": {"a": 1}}': None,
    b'{"inner": null, "rows": [], "counts": {}}': None,
    b'{"inner": {"x": 1}}': None,
    b'{"inner": {}}': "it has no inner.x",
    b'{"inner": {"x": 1, "deep": {}}}': "it has no inner.deep.y",
    b'{"rows": [{"n": 1}, null]}': "it has a null in rows",
    b'{"rows": [{"n": 1}, {}]}': "it has no rows[].n",
    b'{"counts": {"a": 1, "b": null}}': "it has a null in counts",
    b'{"inner": {"x": "1"}}': "it is not of the schema: inner is not struct<x:int,deep:struct<y:string>>",
    b'{"rows": [{"n": []}], "it\'s": ""}': "it is not of the schema: it's is not int, rows is not array<struct<n:int>>",
}


def test_json_within_json(spark):
    rows = json_values(_rows(spark, [*_WITHIN]), _nested()).collect()
    assert {bytes(row.value): row._error for row in rows} == _WITHIN
    assert [row.data is None for row in rows] == [row._error is not None for row in rows]


_NARROW = "a tinyint, b decimal(3,2), c array<struct<d: decimal(30,0)>>, e map<string, tinyint>, f smallint"
_FITTING = {
    b'{"a": -128, "b": 1.230, "c": [{"d": 1e2}, null, {}], "e": {"x": 127, "y": null}, "f": -32768}': (
        -128,
        "1.23",
        "100",
    ),
    b'{"b": "-9.99", "c": [{"d": 999999999999999999999999999999}]}': (None, "-9.99", "9" * 30),
    b"{}": (None, None, None),
}
_NOT_FITTING = {
    b'{"a": 128}': "a is not tinyint",
    b'{"a": 255}': "a is not tinyint",
    b'{"a": -129}': "a is not tinyint",
    b'{"a": 70000}': "a is not tinyint",
    b'{"b": 1.239}': "b is not decimal(3,2)",
    b'{"b": 9.999}': "b is not decimal(3,2)",
    b'{"b": "1.2301"}': "b is not decimal(3,2)",
    b'{"b": 12}': "b is not decimal(3,2)",
    b'{"c": [{"d": 1}, {"d": 0.5}]}': "c[].d is not decimal(30,0)",
    b'{"e": {"x": 1, "y": 200}}': "e[] is not tinyint",
    b'{"f": 32768}': "f is not smallint",
}


def test_a_number_that_its_type_would_change_is_a_dead_letter(spark):
    frame = json_values(_rows(spark, [*_FITTING, *_NOT_FITTING]), _NARROW)
    assert frame.schema["data"].dataType == StructType.fromDDL(_NARROW)
    rows = {bytes(row.value): row for row in frame.collect()}
    assert {value: rows[value]._error for value in _FITTING} == dict.fromkeys(_FITTING)
    found = {value: (row.data.a, row.data.b, row.data.c and row.data.c[0].d) for value, row in rows.items() if row.data}
    assert found == {
        value: (a, b and decimal.Decimal(b), d and decimal.Decimal(d)) for value, (a, b, d) in _FITTING.items()
    }
    told = {value: f"it is not of the schema: {reason}" for value, reason in _NOT_FITTING.items()}
    assert {value: rows[value]._error for value in _NOT_FITTING} == told


_INFINITE = {
    b'{"a": 3.4028235e38, "b": 1.7976931348623157e308}': None,
    b'{"a": 1e-50, "b": 0.1}': None,
    b'{"a": 1e39}': "a is not float",
    b'{"a": -1e39}': "a is not float",
    b'{"b": 1e400}': "b is not double",
    b'{"c": [1, {"x": 1e39}]}': "c is not array<struct<x:float>>",
    b'{"c": [{}, {"x": 1e39}]}': "c[].x is not float",
    b'{"d": {"k": -1e400}}': "d[] is not double",
}


def test_a_number_beyond_its_type_is_a_dead_letter_and_not_infinity(spark):
    ddl = "a float, b double, c array<struct<x: float>>, d map<string, double>"
    found = {bytes(row.value): row._error for row in json_values(_rows(spark, [*_INFINITE]), ddl).collect()}
    told = {value: reason and f"it is not of the schema: {reason}" for value, reason in _INFINITE.items()}
    assert found == told


_FAR = {
    b'{"at": 9223372036854, "id": 1700000000000000}': None,
    b'{"at": "2024-05-01T10:00:00Z", "id": 1700000000000000}': None,
    b'{"at": 1700000000000000}': "it is not of the schema: at is not timestamp",
    b'{"at": -9223372036854775808}': "it is not of the schema: at is not timestamp",
    b'{"rows": [{"at": "2024-05-01"}, {"at": 9223372036855}]}': "it is not of the schema: rows[].at is not timestamp",
    b'{"times": {"a": 9223372036855}}': "it is not of the schema: times[] is not timestamp",
    b'{"times": {"a": "2026-01-01", "b": 99999999999999}}': "it is not of the schema: times[] is not timestamp",
    b'{"times": {"a": "2026-01-01", "b": null, "c": 9223372036854}, "id": 1700000000000000}': None,
    b'{"each": ["2026-01-01", null, 99999999999999]}': "it is not of the schema: each[] is not timestamp",
    b'{"each": [-99999999999999, "2026-01-01"]}': "it is not of the schema: each[] is not timestamp",
    b'{"each": ["2026-01-01", 5], "id": 1700000000000000}': None,
    b'{"deep": [{"a": ["2026-01-01", 5]}, {"a": [], "b": ["2026-01-01", 99999999999999]}]}': (
        "it is not of the schema: deep[][][] is not timestamp"
    ),
}


def test_seconds_beyond_a_timestamp_are_a_dead_letter_and_not_another_time(spark):
    """As microseconds that somebody takes for seconds."""
    ddl = (
        "id bigint, at timestamp, rows array<struct<at: timestamp>>, times map<string, timestamp>,"
        " each array<timestamp>, deep array<map<string, array<timestamp>>>"
    )
    frame = json_values(_rows(spark, [*_FAR]), ddl).select("value", "_error")
    assert {bytes(row.value): row._error for row in frame.collect()} == _FAR


def test_digits_in_quotes_are_a_timestamp_in_its_format_and_no_seconds(spark):
    told = {
        b'{"each": ["20240501100000", 5]}': None,
        b'{"each": ["20240501100000", 20240501100000]}': "it is not of the schema: each[] is not timestamp",
    }
    frame = json_values(_rows(spark, [*told]), "each array<timestamp>", options={"timestampFormat": "yyyyMMddHHmmss"})
    assert {bytes(row.value): row._error for row in frame.select("value", "_error").collect()} == told


def test_a_key_twice_in_a_map_is_a_dead_letter(spark):
    values = {
        b'{"a": {"x": 1, "X": 2}, "a": {"y": 3}}': None,
        b'{"a": {"x": 1, "x": 1}}': "it has a key twice in a",
        b'{"b": [{"c": {"": {"k": 1, "k": null}}}]}': "it has a key twice in b[].c[]",
    }
    frame = json_values(_rows(spark, [*values]), "a map<string,int>, b array<struct<c: map<string, map<string,int>>>>")
    assert {bytes(row.value): row._error for row in frame.select("value", "_error").collect()} == values


def test_infinity_may_be_asked_for_in_any_case(spark):
    values = [b'{"a": Infinity}', b'{"a": "-INF"}', b'{"a": 1e39}']
    frame = json_values(_rows(spark, values), "a float", options={"ALLOWnonNumericNumbers": "true", "MODE": "FAILFAST"})
    assert sorted(row.data.a for row in frame.collect()) == [-float("inf"), float("inf"), float("inf")]


@pytest.mark.parametrize("taken", [{"into": "Key"}, {"dead_letter": "value"}, {"into": "_error"}])
def test_a_column_that_is_there_is_not_replaced(spark, taken):
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNSUPPORTED_SCHEMA.*already"):
        json_values(_rows(spark, []), _ORDER, **taken)
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNSUPPORTED_SCHEMA.*already"):
        avro_values(
            _rows(spark, []), {"type": "record", "name": "one", "fields": [{"name": "id", "type": "int"}]}, **taken
        )


def test_values_are_decoded_twice_under_other_names(spark):
    once = json_values(_rows(spark, [b'{"id": 1}', b"nope"]), "id int")
    with pytest.raises(DataSourceError, match="'data' already"):
        json_values(once, "id string")
    twice = json_values(once, "id string", into="again", dead_letter="_again")
    assert [(row.data, row._error is None) for row in twice.collect()] == [((1,), True), (None, False)]


def test_a_json_schema_that_is_no_struct_is_refused(spark):
    with pytest.raises(DataSourceError, match="SPARKLOG_UNSUPPORTED_SCHEMA"):
        json_values(_rows(spark, []), "array<int>")


def test_json_there_and_back(spark):
    frame = spark.createDataFrame([(7, None, "eu"), (8, "b", "us")], "id int, name string, topic string")
    record = to_json_values(frame, key="id", keep=["topic"])
    assert record.columns == ["value", "topic", "key"]
    assert record.first().value == '{"id":7,"name":null}'
    back = json_values(record, "id int, name string").select("key", "data.*", "topic")
    assert [tuple(row) for row in back.collect()] == [("7", 7, None, "eu"), ("8", 8, "b", "us")]


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/St_Johns"])
def in_time_zone(request, spark):
    """The session is in a time zone for as long as the test runs."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def test_a_timestamp_in_json_is_read_again_to_the_microsecond(spark, in_time_zone):
    times = [
        "2024-01-02 03:04:05.123456",
        "2024-10-27 02:30:00.000001",
        "1880-01-01 12:00:00.000001",
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
    ]
    frame = spark.createDataFrame([(each,) for each in times], "text string").selectExpr(
        "cast(text as timestamp) as at",
        "cast(text as timestamp) + interval 1 hour as later",
        "cast(text as timestamp_ntz) as local",
        "array(cast(text as timestamp)) as within",
    )
    back = json_values(to_json_values(frame), frame.schema).select("data.*")
    exact = ["unix_micros(at)", "unix_micros(later)", "cast(local as string)", "unix_micros(within[0])"]
    assert back.selectExpr(*exact).collect() == frame.selectExpr(*exact).collect()


def test_every_avro_type(spark):
    (value,) = _binary(_EVERYTHING, _ONE_OF_EACH)
    frame = avro_values(_rows(spark, [value]), json.dumps(_EVERYTHING))
    row = frame.first()
    assert row._error is None
    found = row.data.asDict(recursive=True)
    assert {**found, "raw": bytes(found["raw"]), "code": bytes(found["code"])} == {
        **_ONE_OF_EACH,
        "at": datetime.datetime.fromtimestamp(_ONE_OF_EACH["at"].timestamp()),  # as Spark shows an instant: local time
    }
    back = to_avro_values(frame.select("data.*"), _EVERYTHING).first()
    assert bytes(back.value) == value


def test_avro_that_does_not_parse_is_a_dead_letter(spark):
    (right,) = _binary(_PLAIN, {"id": 5, "name": "x"})
    wrong = {right[:-1]: "ends in the middle", right + b"!": "1 bytes follow", b"": "ends in the middle"}
    rows = avro_values(_rows(spark, [right, *wrong, None]), _PLAIN).orderBy("offset").collect()
    assert (rows[0].data.id, rows[0].data.name, rows[0]._error) == (5, "x", None)
    for row in rows[1:-1]:
        assert row.data is None
        assert wrong[bytes(row.value)] in row._error
    assert (rows[-1].data, rows[-1]._error) == (None, None)


def test_avro_that_no_column_can_hold_is_a_dead_letter_alone():
    narrow, wide = ({**_PLAIN, "fields": [{"name": "id", "type": kind}]} for kind in ("int", "long"))
    values = _binary(wide, {"id": 1}, {"id": 1 << 40}, {"id": 3})
    parsed = AvroReader(narrow, None).decode(pa.array([*values, b"\x80" * 3]))
    assert parsed.field("data").to_pylist() == [{"id": 1}, None, {"id": 3}, None]
    assert [error and error[:25] for error in parsed.field("error").to_pylist()] == [
        None,
        "it is not of the schema: ",
        None,
        "it ends in the middle of ",
    ]


def test_any_bytes_are_a_record_or_a_dead_letter():
    chance = random.Random(7)
    values = [chance.randbytes(chance.randrange(60)) for _ in range(5000)]
    parsed = AvroReader(_EVERYTHING, None).decode(pa.array(values, pa.binary()))
    for data, error in zip(parsed.field("data"), parsed.field("error"), strict=True):
        assert data.is_valid != error.is_valid


def test_avro_with_the_id_of_its_schema(spark):
    old = {**_PLAIN, "fields": _PLAIN["fields"][:1]}
    (first,), (second,) = _binary(old, {"id": 1}), _binary(_PLAIN, {"id": 2, "name": "b"})
    values = [b"\0\0\0\0\1" + first, b"\0\0\0\0\2" + second, b"\0\0\0\0\3" + second, second, b"\0"]
    rows = avro_values(_rows(spark, values), _PLAIN, writers={1: old, 2: _PLAIN}).orderBy("offset").collect()
    assert [row.data and tuple(row.data) for row in rows] == [(1, None), (2, "b"), None, None, None]
    assert rows[2]._error == "its schema has id 3; given are 1, 2"
    assert rows[3]._error.startswith("it has 4 bytes, and the wire format")
    framed = to_avro_values(spark.createDataFrame([(2, "b")], "id long, name string"), _PLAIN, schema_id=2)
    assert bytes(framed.first().value) == values[1]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (["null", "int", "string"], "Order.x is a union"),
        ("shop.Order", "no recursive types"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "50 digits"),
        ("unheard", "unheard"),
    ],
)
def test_what_spark_cannot_hold_is_refused(spark, kind, told):
    schema = {**_PLAIN, "fields": [{"name": "x", "type": kind}]}
    with pytest.raises(DataSourceError, match=f"SPARKLOG_UNSUPPORTED_SCHEMA.*{re.escape(told)}"):
        avro_values(_rows(spark, []), schema)


def test_a_row_that_the_avro_schema_cannot_hold_fails_the_write(spark):
    frame = spark.createDataFrame([(None, "x")], "id long, name string")
    with pytest.raises(PySparkException, match="SPARKLOG_UNSUPPORTED_VALUE"):
        to_avro_values(frame, _PLAIN).collect()
    with pytest.raises(DataSourceError, match="no columns: id"):
        to_avro_values(frame.drop("id"), _PLAIN)


def _of(kind):
    return {**_PLAIN, "fields": [{"name": "a", "type": kind}]}


def _written(kind, ddl, *values, zone="Europe/Berlin"):
    """What is read again of values that were written as the Avro type from a column of Spark's type."""
    columns = StructType.fromDDL(f"a {ddl}")
    rows = pa.array([{"a": value} for value in values], to_arrow_type(columns, timezone=zone))
    read = AvroReader(_of(kind), None).decode(AvroWriter(_of(kind), None, columns).encode(rows))
    assert read.field("error").to_pylist() == [None] * len(values)
    return [each["a"] for each in read.field("data").to_pylist()]


_MICROS, _LOCAL_MICROS = ({"type": "long", "logicalType": f"{each}timestamp-micros"} for each in ("", "local-"))
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
_NESTED = {"type": "record", "name": "N", "fields": [{"name": "x", "type": ["null", "int"]}]}
_INSTANT = datetime.datetime(2024, 1, 2, 3, 4, 5, 123456, tzinfo=datetime.UTC)
_OLD = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "ddl", "values"),
    [
        ("int", "bigint", [-(1 << 31), (1 << 31) - 1, None]),
        ("int", "tinyint", [-128]),
        ("long", "smallint", [7]),
        ("float", "int", [1 << 24]),
        ("double", "bigint", [-(1 << 53)]),
        ("double", "float", [0.5]),
        ("string", "binary", [b"\xc3\xb6".decode()]),
        ("bytes", "string", [b"\xc3\xb6"]),
        ("string", "void", [None]),
        (_NESTED, "void", [None]),
        (_MONEY, "decimal(20,4)", [decimal.Decimal("-99.9900")]),
        (_MICROS, "timestamp", [_INSTANT, _OLD]),
        (_LOCAL_MICROS, "timestamp_ntz", [_INSTANT.replace(tzinfo=None)]),
        ({"type": "array", "items": ["null", "int"]}, "array<bigint>", [[1, None], [], None]),
        ({"type": "map", "values": "double"}, "map<string,int>", [[("k", 1.0)]]),
    ],
)
def test_a_column_is_written_as_another_avro_type_where_no_value_changes(spark, kind, ddl, values):
    given = [each.encode() if ddl == "binary" else each.decode() if kind == "bytes" else each for each in values]
    assert _written(["null", kind], ddl, *given) == values


def test_what_is_below_the_milliseconds_is_cut_off_as_by_spark(spark):
    assert _written(_MILLIS, "timestamp", _INSTANT, _OLD) == [
        _INSTANT.replace(microsecond=123000),
        _OLD.replace(microsecond=999000),
    ]


def test_a_struct_is_written_by_the_names_of_its_fields(spark):
    kind = {**_NESTED, "fields": [*_NESTED["fields"], {"name": "y", "type": "string"}]}
    ddl = "struct<more:date,y:string,x:bigint>"
    value = {"more": None, "y": "b", "x": 1}
    assert _written(["null", kind], ddl, value, None) == [{"x": 1, "y": "b"}, None]


@pytest.mark.parametrize(
    ("kind", "ddl", "told"),
    [
        ("boolean", "string", "a is string, which is not written as boolean"),
        ("boolean", "int", "a is int, which is not written as boolean"),
        ("int", "double", "a is double, which is not written as int"),
        ("long", "decimal(3,2)", "a is decimal(3,2), which is not written as bigint"),
        ("long", "boolean", "a is boolean"),
        ("long", "string", "a is string"),
        ("float", "double", "a is double"),
        ("double", "string", "a is string"),
        ("string", "int", "a is int"),
        ({"type": "array", "items": "string"}, "string", "a is string, which is not written as array<string>"),
        ({"type": "array", "items": "int"}, "array<string>", "a[] is string, which is not written as int"),
        ({"type": "map", "values": "int"}, "map<int,int>", "the key of a is int, which is not written as string"),
        ({"type": "map", "values": "int"}, "struct<x:int>", "a is struct<x:int>"),
        (_MICROS, "timestamp_ntz", "a is timestamp_ntz, which is not written as timestamp"),
        (_MICROS, "bigint", "a is bigint"),
        (_LOCAL_MICROS, "timestamp", "a is timestamp, which is not written as timestamp_ntz"),
        ({"type": "int", "logicalType": "date"}, "timestamp", "a is timestamp"),
        (_MONEY, "double", "a is double, which is not written as decimal(4,2)"),
        (["null", _NESTED], "struct<y:int>", "no columns: a.x"),
        (["null", _NESTED], "struct<X:int>", "no columns: a.x"),
        ({"type": "array", "items": _NESTED}, "array<struct<x:double>>", "a[].x is double"),
    ],
)
def test_a_column_whose_values_avro_would_change_is_refused_at_once(spark, kind, ddl, told):
    frame = spark.createDataFrame([], f"a {ddl}")
    with pytest.raises(DataSourceError, match=f"SPARKLOG_UNSUPPORTED_SCHEMA.*{re.escape(told)}"):
        to_avro_values(frame, _of(kind))


@pytest.mark.parametrize(
    ("kind", "ddl", "value"),
    [
        ("int", "bigint", 1 << 31),
        ("float", "int", (1 << 24) + 1),
        ("double", "bigint", (1 << 53) + 1),
        ("string", "binary", b"\xff"),
        (_MONEY, "decimal(5,3)", decimal.Decimal("12.345")),
        (_MONEY, "decimal(5,2)", decimal.Decimal("123.45")),
        ({"type": "array", "items": "int"}, "array<bigint>", [1, 1 << 40]),
        (_NESTED, "struct<x:bigint>", {"x": -(1 << 40)}),
    ],
)
def test_a_value_that_avro_would_change_is_refused_by_the_name_of_its_column(spark, kind, ddl, value):
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNSUPPORTED_VALUE.* of a is not of the Avro schema"):
        _written(kind, ddl, value)


_DECODERS = {
    "from_json(StructField(v,": lambda frame: json_values(frame, _ORDER),
    "decode(": lambda frame: avro_values(frame, _PLAIN),
}
"""What is in a plan for each time that the values are decoded, and who puts it there."""


@pytest.fixture(params=list(_DECODERS), ids=["json", "avro"])
def decoded(request, spark):
    """Two values, the second of which does not parse; and how often the plan of a frame decodes them."""
    right = b'{"id": 1, "name": "a"}' if "json" in request.param else _binary(_PLAIN, {"id": 1, "name": "a"})[0]
    # Without the shuffle Spark would compute these few rows while it plans.
    frame = _DECODERS[request.param](_rows(spark, [right, b"\xff"]).repartition(1))
    return frame, lambda asked: asked._jdf.queryExecution().optimizedPlan().toString().count(request.param)


def test_values_are_decoded_once_whatever_is_asked_of_them(decoded):
    frame, times = decoded
    right = frame.where("_error is null").select("data.*")
    wrong = frame.where("_error is not null").select("offset", "_error")
    by_name = frame.where("_error is null and data.id > 0").groupBy("data.name").count()
    assert [times(each) for each in (frame, right, wrong, by_name, frame.where("partition = 0"))] == [1] * 5
    assert [(row.id, row.name) for row in right.collect()] == [(1, "a")]
    assert [row.offset for row in wrong.collect()] == [1]
    assert [tuple(row) for row in by_name.collect()] == [("a", 1)]


def test_values_with_narrow_numbers_are_decoded_once_too(spark):
    frame = json_values(_rows(spark, [b'{"a": 1, "b": 1.5}']).repartition(1), _NARROW).where("_error is null")
    plan = frame.select("data.a", "data.b")._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(StructField(v,") == 1


def test_values_that_are_not_asked_for_are_not_decoded(decoded):
    frame, times = decoded
    others = frame.where("offset = 1").select("key", "offset")
    assert times(others) == 0
    assert [row.offset for row in others.collect()] == [1]


@pytest.fixture
def ran(tmp_path):
    """``ran(frame, mode)``: the rows of a stream, when it has come to its end."""

    def run(frame, mode):
        writer = frame.writeStream.format("memory").queryName("ran").outputMode(mode)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(map(tuple, frame.sparkSession.table("ran").collect()))

    return run


@pytest.fixture
def orders(spark, servers, make_topic, produce):
    """``orders(kind)``: a stream of two orders, decoded and with a watermark, from where a value is that is none."""

    def load(kind):
        named = [{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]
        values = _binary(_PLAIN, *named) if kind == "avro" else [json.dumps(each).encode() for each in named]
        topic = make_topic(suffix=f"-{kind}")
        produce(topic, *({"value": value} for value in (values[0], b"\xff", values[1])))
        settings = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
        stream = spark.readStream.format("sparklog").options(**settings).load()
        parsed = avro_values(stream, _PLAIN) if kind == "avro" else json_values(stream, _ORDER)
        return parsed.where("_error is null").withWatermark("timestamp", "1 hour")

    return load


def test_a_stream_of_decoded_values_is_aggregated(orders, ran):
    by_name = orders("avro").groupBy(f.window("timestamp", "1000 days"), "data.name").agg(f.sum("data.id"))
    assert [row[1:] for row in ran(by_name, "complete")] == [("a", 3)]


@pytest.mark.slow
def test_streams_of_decoded_values_are_joined(orders, ran):
    left = orders("json").select("timestamp", "data.id")
    right = orders("avro").selectExpr("timestamp as until", "data.id as same", "data.name")
    near = "same = id and until between timestamp - interval 1 hour and timestamp + interval 1 hour"
    assert ran(left.join(right, f.expr(near)).select("id", "name"), "append") == [(1, "a"), (2, "a")]


def test_dead_letters_of_a_stream_go_to_a_topic_of_their_own(spark, servers, read, make_topic, produce, tmp_path):
    source, out = make_topic(), make_topic(suffix="-dead")
    produce(source, {"key": b"1", "value": b'{"id": 1}'}, {"key": b"2", "value": b"nope"})
    frame = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", servers)
    parsed = json_values(frame.options(subscribe=source, startingOffsets="earliest").load(), _ORDER)
    letters = to_json_values(parsed.where("_error is not null").select("key", "topic", "offset", "_error"), key="key")
    writer = letters.writeStream.format("sparklog").option("kafka.bootstrap.servers", servers)
    query = writer.options(topic=out, checkpointLocation=str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    (row,) = read(subscribe=out).collect()
    assert bytes(row.key) == b"2"
    assert json.loads(row.value)["_error"] == "it is not JSON"
