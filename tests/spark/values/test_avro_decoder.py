"""Records in Avro's binary encoding: what is read of them, as which schema, and what is no record and why."""

import datetime
import decimal
import io
import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import DataSourceError

pytest.importorskip("pyspark")
fastavro = pytest.importorskip("fastavro")
avro = pytest.importorskip("sparklog.spark.values.avro")

_DATE = {"type": "int", "logicalType": "date"}
_MILLIS, _MICROS, _LOCAL_MILLIS = (
    {"type": "long", "logicalType": f"{each}"}
    for each in ("timestamp-millis", "timestamp-micros", "local-timestamp-millis")
)
_NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
_MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
_FINER = {**_MONEY, "scale": 4}
_FIXED_MONEY = {**_MONEY, "type": "fixed", "name": "F", "size": 2, "precision": 4}
_ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
_FIXED = {"type": "fixed", "name": "F", "size": 2}
_LONGS = {"type": "array", "items": "long"}
_BOOLEANS = {"type": "map", "values": "boolean"}
_TREE = {
    "type": "record",
    "name": "T",
    "fields": [{"name": "next", "type": ["null", "T"]}, {"name": "e", "type": _ENUM}],
}

_SECONDS = 1_700_000_000
_DAY = datetime.date(2022, 1, 8)
_INSTANT = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)


def _of(kind: Any, **rest: Any) -> dict[str, Any]:
    """A record of one field, ``a``."""
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **rest}]}


def _nested(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "N", "fields": list(fields)}


def _z(number: int) -> bytes:
    """A long of Avro."""
    rest, encoded = (number << 1) ^ (number >> 63), b""
    while rest > 127:
        encoded += bytes([rest & 127 | 128])
        rest >>= 7
    return encoded + bytes([rest])


def _read(reader: Any, data: bytes, writer: Any = None) -> tuple[Any, str | None]:
    """What the record is read as, and the reason if it is not."""
    if writer is None:
        (row,) = avro.AvroReader(reader, None).decode(pa.array([data])).to_pylist()
    else:
        (row,) = avro.AvroReader(reader, {7: writer}).decode(pa.array([b"\0\0\0\0\7" + data])).to_pylist()
    return row["data"] and row["data"].get("a"), row["error"]


@pytest.mark.parametrize(
    ("kind", "data", "told"),
    [
        (_ENUM, _z(-1), "a has the symbol -1 of an enum of 3"),
        (_ENUM, _z(3), "a has the symbol 3 of an enum of 3"),
        (["null", "int"], _z(-1) + _z(5), "a has the branch -1 of a union of 2"),
        (["null", "int"], _z(-2), "a has the branch -2 of a union of 2"),
        (["int", "null"], _z(2), "a has the branch 2 of a union of 2"),
        ("boolean", b"\2", "a is a boolean of the byte 2"),
        (["null", "boolean"], b"\2\xff", "a is a boolean of the byte 255"),
        (_BOOLEANS, _z(1) + _z(1) + b"k\3\0", "a{} is a boolean of the byte 3"),
        ("long", b"\x82" * 10 + b"\1", "a varint has more than 10 bytes"),
        ("long", b"\xff" * 9 + b"\x7f", "a varint has more than 64 bits"),
        ("long", b"\xff" * 9 + b"\2", "a varint has more than 64 bits"),
        ("int", _z(1 << 31), "a is 2147483648, which is no int"),
        ("int", _z(-(1 << 31) - 1), "a is -2147483649, which is no int"),
        ("string", _z(-1) + b"x", "a has the length -1"),
        ("bytes", _z(-5) + b"x", "a has the length -5"),
        ("string", _z(2) + b"\xff\xfe", "a is not UTF-8"),
        (_LONGS, _z(1 << 40) + _z(1), "a has 1099511627776 elements in the 1 bytes that are left"),
        (_DATE, _z(2_932_897), "a is the date 2932897, outside of the years 1 to 9999"),
        (_MILLIS, _z(-62135596800001), "a is the timestamp -62135596800001, outside of the years 1 to 9999"),
        (_MICROS, _z(1 << 60), "a is the timestamp 1152921504606846976, outside of the years 1 to 9999"),
        (_MONEY, _z(3) + (1_000_000).to_bytes(3, "big"), "a does not fit into a decimal of 6 digits"),
        (_nested({"name": "e", "type": _ENUM}), _z(9), "a.e has the symbol 9 of an enum of 3"),
    ],
)
def test_bytes_that_say_what_the_schema_has_not_are_a_dead_letter_that_says_so(kind, data, told):
    value, error = _read(_of(kind), data)
    assert value is None
    assert error.startswith("it is not of the schema: ")
    assert told in error


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("int", b""),
        ("long", b"\x80"),
        ("boolean", b""),
        ("float", b"abc"),
        ("double", b"abcdefg"),
        ("bytes", _z(1 << 40) + b"abc"),
        ("string", _z(4) + b"abc"),
        (_FIXED, b"a"),
        (_LONGS, _z(2) + _z(1)),
        (["null", "int"], _z(1)),
    ],
)
def test_a_record_that_ends_too_early_is_a_dead_letter_that_says_so(kind, data):
    assert _read(_of(kind), data) == (None, "it ends in the middle of a record")


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("long", b"\xff" * 9 + b"\1", -(1 << 63)),
        ("long", b"\xfe" + b"\xff" * 8 + b"\1", (1 << 63) - 1),
        ("int", b"\x82\x80\x00", 1),
        (_LONGS, _z(-2) + _z(2) + _z(1) + _z(2) + _z(1) + _z(3) + _z(0), [1, 2, 3]),
        (_BOOLEANS, _z(1) + _z(1) + b"k\1" + _z(0), [("k", True)]),
        (_DATE, _z(2_932_896), datetime.date.max),
        (_MICROS, _z(-62135596800 * 10**6), datetime.datetime.min.replace(tzinfo=datetime.UTC)),
        (_MONEY, _z(0), decimal.Decimal("0.00")),
        (_MONEY, _z(3) + (-999_999).to_bytes(3, "big", signed=True), decimal.Decimal("-9999.99")),
        ({"type": "array", "items": _nested()}, _z(3) + _z(0), [{}, {}, {}]),
    ],
)
def test_the_ends_of_what_the_bytes_may_say_are_read(kind, data, value):
    assert _read(_of(kind), data) == (value, None)


@pytest.mark.parametrize(
    ("writer", "reader", "data", "value"),
    [
        ("long", _MILLIS, _z(_SECONDS * 1000), _INSTANT),
        ("long", _MICROS, _z(_SECONDS * 10**6), _INSTANT),
        ("long", _LOCAL_MILLIS, _z(_SECONDS * 1000), _INSTANT.replace(tzinfo=None)),
        ("int", _MILLIS, _z(86_400_000), datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)),
        (["null", "long"], ["null", _MILLIS], _z(1) + _z(_SECONDS * 1000), _INSTANT),
        (_LONGS, {"type": "array", "items": _MILLIS}, _z(1) + _z(_SECONDS * 1000) + _z(0), [_INSTANT]),
        (_MILLIS, _MICROS, _z(_SECONDS * 1000), _INSTANT),
        (_MICROS, _MILLIS, _z(_SECONDS * 10**6), _INSTANT),
        (_NANOS, _MICROS, _z(_SECONDS * 10**9 + 999), _INSTANT),
        (_NANOS, _MICROS, _z(-1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)),
        (_NANOS, _MILLIS, _z(_SECONDS * 10**9), _INSTANT),
        (_MICROS, _NANOS, _z(_SECONDS * 10**6), _SECONDS * 10**9),
        (_LOCAL_MILLIS, _NANOS, _z(_SECONDS * 1000), _SECONDS * 10**9),
        (_NANOS, _NANOS, _z(7), 7),
        ("long", _NANOS, _z(7), 7),
        (_NANOS, "long", _z(7), 7),
        (_MILLIS, "long", _z(_SECONDS * 1000), _SECONDS * 1000),
        (_MILLIS, "double", _z(_SECONDS * 1000), _SECONDS * 1000.0),
        ("int", _DATE, _z(19_000), _DAY),
        (_DATE, "int", _z(19_000), 19_000),
        (_DATE, "long", _z(19_000), 19_000),
        ("bytes", _MONEY, _z(2) + b"\x04\xd2", decimal.Decimal("12.34")),
        (_MONEY, "bytes", _z(2) + b"\x04\xd2", b"\x04\xd2"),
        (_FIXED, _FIXED_MONEY, b"\x04\xd2", decimal.Decimal("12.34")),
        (_FIXED_MONEY, _FIXED, b"\x04\xd2", b"\x04\xd2"),
        (_FINER, _MONEY, _z(2) + b"\x04\xb0", decimal.Decimal("0.12")),
        (_MONEY, _FINER, _z(2) + b"\x04\xd2", decimal.Decimal("12.3400")),
        ("int", "double", _z(5), 5.0),
        ("float", "double", struct.pack("<f", 0.5), 0.5),
        ("bytes", "string", _z(2) + b"ab", "ab"),
        ("string", "bytes", _z(2) + b"ab", b"ab"),
        ("int", ["null", "long"], _z(4), 4),
        (["int", "string", "null"], ["null", "long"], _z(0) + _z(4), 4),
        (["int", "string", "null"], ["null", "long"], _z(2), None),
        (_ENUM, {**_ENUM, "symbols": ["C", "A"]}, _z(2), "C"),
        (_ENUM, {**_ENUM, "symbols": ["A"], "default": "A"}, _z(2), "A"),
        ({**_ENUM, "name": "X"}, {**_ENUM, "aliases": ["X"]}, _z(1), "B"),
    ],
)
def test_a_value_is_read_as_the_type_of_another_schema(writer, reader, data, value):
    assert _read(_of(reader), data, _of(writer)) == (value, None)


@pytest.mark.parametrize(
    ("writer", "reader", "data", "told"),
    [
        ("string", "int", _z(0), "a was written as string, not as int"),
        ("double", "float", b"\0" * 8, "a was written as double, not as float"),
        (_DATE, _MILLIS, _z(1), "a was written as date, not as timestamp-millis"),
        (_DATE, _NANOS, _z(1), "a was written as date, not as timestamp-nanos"),
        (_MILLIS, _NANOS, _z(10**13), "a is the timestamp 10000000000000, which is too far for nanoseconds"),
        ("string", _MONEY, _z(2) + b"12", "a was written as string, not as decimal"),
        (_MONEY, "string", _z(2) + b"12", "a was written as decimal, not as string"),
        (["null", "int"], "int", _z(0), "a was written as null, not as int"),
        (["int", "string"], ["null", "long"], _z(1) + _z(0), "a was written as string, not as long"),
        (_FIXED, {**_FIXED, "size": 3}, b"ab", "a was written as F of 2 bytes, not as F of 3 bytes"),
        (_ENUM, {**_ENUM, "name": "X"}, _z(0), "a was written as E, not as X"),
        (_ENUM, {**_ENUM, "symbols": ["A"]}, _z(2), "a is C, which is no symbol of the schema"),
        (_FINER, _MONEY, _z(2) + b"\x04\xd2", "a does not fit into a decimal of 6 digits, 2 of them fractional"),
    ],
)
def test_a_value_that_the_other_schema_has_no_type_for_is_a_dead_letter(writer, reader, data, told):
    assert _read(_of(reader), data, _of(writer)) == (None, f"it is not of the schema: {told}")


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("bytes", "\u00ff\u0000", b"\xff\0"),
        (_FIXED, "\u00ff\u0001", b"\xff\1"),
        (_MONEY, "\u0004\u00d2", decimal.Decimal("12.34")),
        (_MILLIS, _SECONDS * 1000, _INSTANT),
        (_DATE, 19_000, _DAY),
        ({"type": "array", "items": _MILLIS}, [_SECONDS * 1000], [_INSTANT]),
        ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
        ("double", 1, 1.0),
        ("boolean", True, True),
        (_ENUM, "B", "B"),
        (["null", "int"], None, None),
        (["int", "null"], 3, 3),
        (["null", "int"], 3, 3),
        (
            _nested({"name": "x", "type": "int", "default": 7}, {"name": "y", "type": ["null", "int"]}),
            {"y": 1},
            {"x": 7, "y": 1},
        ),
        (_nested({"name": "x", "type": _MILLIS, "default": _SECONDS * 1000}), {}, {"x": _INSTANT}),
    ],
)
def test_a_field_that_was_not_written_has_its_default(kind, default, value):
    writer = {"type": "record", "name": "R", "fields": [{"name": "other", "type": "int"}]}
    assert _read(_of(kind, default=default), _z(1), writer) == (value, None)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (_ENUM, "X"),
        (_FIXED, "\u0001"),
        ("bytes", "\u0100"),
        (_DATE, 5_000_000),
        (_nested({"name": "x", "type": "int"}), {}),
        ({"type": "array", "items": "int"}, ["x"]),
    ],
)
def test_a_default_that_is_not_of_its_type_is_refused_at_once(kind, default):
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNSUPPORTED_SCHEMA.*default of a"):
        avro.AvroReader(_of(kind, default=default), {7: {"type": "record", "name": "R", "fields": []}})


def test_a_field_that_was_not_written_and_has_no_default_is_told():
    writer = {"type": "record", "name": "R", "fields": []}
    told = "it is not of the schema: it was written without a, and there is no default"
    assert _read(_of("int"), b"", writer) == (None, told)


def test_fields_are_found_by_their_names_before_their_aliases():
    fields = [{"name": "b", "type": "int", "aliases": ["a"], "default": -1}, {"name": "a", "type": "int"}]
    reader = {"type": "record", "name": "R", "fields": fields}
    (row,) = avro.AvroReader(reader, {7: _of("int")}).decode(pa.array([b"\0\0\0\0\7" + _z(5)])).to_pylist()
    assert row == {"data": {"b": -1, "a": 5}, "error": None}
    renamed = {**_of("int"), "fields": [{"name": "a", "type": "int", "aliases": ["old"]}]}
    written = {**_of("int"), "fields": [{"name": "old", "type": "int"}]}
    assert _read(renamed, _z(5), written) == (5, None)


def test_what_is_not_read_is_skipped_and_checked_too():
    writer = {
        **_of("int"),
        "fields": [{"name": "t", "type": _TREE}, {"name": "u", "type": ["int", "E"]}, *_of("int")["fields"]],
    }
    tree = _z(1) + _z(0) + _z(2) + _z(0)
    assert _read(_of("int"), tree + _z(1) + _z(2) + _z(5), writer) == (5, None)
    assert _read(_of("int"), tree + _z(1) + _z(3) + _z(5), writer)[1] == (
        "it is not of the schema: a E that is not read has the symbol 3 of an enum of 3"
    )
    assert _read(_of("int"), _z(1) * 5000, writer) == (None, "it is nested too deeply")


_NULLS = {"type": "array", "items": "null"}


@pytest.mark.parametrize(
    "items", ["null", {"type": "fixed", "name": "Z", "size": 0}, _nested(), _nested({"name": "n", "type": "null"})]
)
def test_elements_that_take_no_bytes_and_are_not_read_cost_nothing(items):
    """A few bytes of a value can claim more of them than any memory holds."""
    writer = {**_of("int"), "fields": [{"name": "x", "type": {"type": "array", "items": items}}, *_of("int")["fields"]]}
    assert _read(_of("int"), _z(1 << 60) + _z(-(1 << 62)) + _z(0) + _z(0) + _z(5), writer) == (5, None)


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        ((1024,), None),
        ((24, 1000), None),
        ((1025,), "it is not of the schema: a has more than 1024 elements that take no bytes"),
        ((1000, 25), "it is not of the schema: a has more than 1024 elements that take no bytes"),
    ],
)
def test_only_few_elements_that_take_no_bytes_are_read(blocks, told):
    reader = _of({"type": "array", "items": ["null", "int"]})
    data = b"".join(map(_z, blocks)) + _z(0)
    padded = {**_of(_NULLS), "fields": [*_of(_NULLS)["fields"], {"name": "rest", "type": "bytes"}]}
    value, error = _read(reader, data + _z(9000) + bytes(9000), padded)
    assert (value and len(value), error) == (None if told else 1024, told)


def _beside_what_is_read(kind: Any) -> dict[str, Any]:
    """A writer's record with a field more, which the reader does not read."""
    return {**_of("int"), "fields": [{"name": "x", "type": kind}, *_of("int")["fields"]]}


def _doubled(times: int) -> dict[str, Any]:
    """A record of ``2 ** times`` nulls."""
    found = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "null"}]}
    for number in range(1, times + 1):
        fields = [{"name": "a", "type": found}, {"name": "b", "type": f"R{number - 1}"}]
        found = {"type": "record", "name": f"R{number}", "fields": fields}
    return found


def test_very_many_nulls_that_are_not_read_cost_nothing():
    assert _read(_of("int"), _z(5), _beside_what_is_read(_doubled(60))) == (5, None)
    writer = _beside_what_is_read({"type": "array", "items": _doubled(60)})
    assert _read(_of("int"), _z(1 << 60) + _z(0) + _z(5), writer) == (5, None)
    writer = _beside_what_is_read(_nested({"name": "n", "type": _doubled(60)}, {"name": "i", "type": "int"}))
    assert _read(_of("int"), _z(3) + _z(5), writer) == (5, None)


def test_many_records_of_one_name_in_unions_cost_no_more_than_their_number():
    """Each of thirty may be in each of thirty, which may be in each of thirty: as paths they are 30 ** 9."""
    depth, width = 9, 30
    reader: Any = "int"
    for level in range(depth):
        reader = {"type": "record", "name": f"L{level}", "fields": [{"name": "x", "type": reader}]}
    writer, names = ["int"], []
    for level in range(depth):
        named = [f"n{number}.L{level}" for number in range(width)]
        first, *rest = ({"type": "record", "name": name, "fields": [{"name": "x", "type": writer}]} for name in named)
        rest = [{**each, "fields": [{"name": "x", "type": names or ["int"]}]} for each in rest]
        writer, names = [first, *rest], named
    value = _z(7) * depth + _z(0) + _z(5)
    found, error = _read(_of(reader), value, _of(writer))
    for _ in range(depth):
        found = found["x"]
    assert (found, error) == (5, None)


def test_a_decimal_of_very_many_fractional_digits_is_a_dead_letter():
    writer = {**_MONEY, "precision": 10**9, "scale": 10**9}
    value, error = _read(_of(_MONEY), _z(1) + b"\1", _of(writer))
    assert (value, error) == (None, "it is not of the schema: a was written with 1000000000 fractional digits")


def _from_registry(writer: Any, data: bytes) -> Any:
    """The row of a value whose schema a registry gives."""
    reader = avro.AvroReader(_of("int"), lambda _: avro.parsed_schema(writer))
    (row,) = reader.decode(pa.array([b"\0\0\0\0\7" + data])).to_pylist()
    return row


def test_a_schema_of_many_levels_is_a_dead_letter():
    deep: Any = "int"
    for _ in range(400):
        deep = {"type": "array", "items": deep}
    assert _from_registry(_beside_what_is_read(deep), _z(0) + _z(5)) == {
        "data": None,
        "error": "its schema is nested too deeply",
    }


@pytest.mark.parametrize("size", [-1, "2", 1.5])
def test_a_fixed_of_a_size_that_is_none_is_a_dead_letter(size):
    """With a size below 0 the elements of an array would be read again and again."""
    items = {"type": "fixed", "name": "F", "size": size}
    row = _from_registry(_beside_what_is_read({"type": "array", "items": items}), _z(1) + _z(0) + _z(5))
    assert row == {"data": None, "error": f"its schema has a fixed of size {size!r}"}


@pytest.mark.parametrize("name", [5, ["a"], None])
def test_a_field_whose_name_is_no_text_is_a_dead_letter(name):
    writer = {**_of("int"), "fields": [{"name": name, "type": "int"}, *_of("int")["fields"]]}
    assert _from_registry(writer, _z(1) + _z(5))["error"].startswith("its schema cannot be read")


def test_the_batches_of_a_task_ask_for_a_schema_once():
    asked = []
    reader = avro.AvroReader(_of("int"), lambda number: asked.append(number) or avro.parsed_schema(_of("int")))
    for number in (3, 4):
        (row,) = reader.decode(pa.array([b"\0\0\0\0\7" + _z(number)])).to_pylist()
        assert row["data"] == {"a": number}
    assert asked == [7]


_EVERYTHING = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": f"f{number}", "type": kind}
        for number, kind in enumerate(
            ["boolean", ["null", "int"], _ENUM, "string", _LONGS, _BOOLEANS, _MILLIS, _MONEY, "double", _FIXED]
        )
    ],
}


@pytest.mark.fuzz
def test_a_damaged_record_is_another_record_or_a_dead_letter():
    """What is read is written again as the same bytes, unless those were longer than they had to be."""
    chance = random.Random(11)
    values = [True, -7, "B", "ö", [1 << 40, -3], {"k": False}, _INSTANT, decimal.Decimal("12.34"), 0.5, b"ab"]
    whole = _written({f"f{number}": value for number, value in enumerate(values)})
    damaged = [whole]
    for _ in range(5000):
        at = chance.randrange(len(whole))
        damaged.append(whole[:at] + chance.randbytes(1) + whole[at + 1 :])
    rows = avro.AvroReader(_EVERYTHING, None).decode(pa.array(damaged)).to_pylist(maps_as_pydicts="strict")
    for data, row in zip(damaged, rows, strict=True):
        assert (row["data"] is None) == (row["error"] is not None)
        if row["data"] is not None:
            again = _written(row["data"])
            assert again == data or len(again) < len(data)
    assert rows[0]["error"] is None


def _written(record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(_EVERYTHING), record)
    return stream.getvalue()
