"""Lines of JSON as values of a registry: what is shown of a value is written again as that value."""

import json

import pytest

from sparklog.errors import IncompatibleSchema, SchemaNotFound, SerializationError
from sparklog.registry import AvroDeserializer, JsonDeserializer, Schema, ValueDecoder, ValueEncoder
from sparklog.registry.schema import JSON, PROTOBUF

pytest.importorskip("fastavro")


def _record(kind, **more):
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **more}]}


def _avro(kind, **more):
    return Schema(json.dumps(_record(kind, **more)))


def encoded(registry, schema, value):
    return ValueEncoder(registry, schema).encode("t", json.dumps(value).encode())


DAY = {"type": "int", "logicalType": "date"}
INSTANT = {"type": "long", "logicalType": "timestamp-millis"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
TREE = {"type": "record", "name": "Tree", "fields": [{"name": "next", "type": ["null", "Tree"]}]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "Zürich\n"),
        ("bytes", "\0\xff"),
        ({"type": "fixed", "name": "Two", "size": 2}, "\0\xff"),
        ({"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}, "BLUE"),
        ("boolean", True),
        ("long", -(1 << 63)),
        ("double", 0.1),
        ("double", "nan"),
        ("float", "-inf"),
        (DAY, "2024-02-29"),
        ({"type": "long", "logicalType": "time-micros"}, "12:30:00.000001"),
        (INSTANT, "2024-01-02T03:04:05.678000+00:00"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "2024-01-02T03:04:05.678901"),
        (MONEY, "123456789012345678.90"),
        ({"type": "string", "logicalType": "uuid"}, "00000000-0000-0000-0000-000000000001"),
        (["null", INSTANT], None),
        (["null", INSTANT], "2024-01-02T03:04:05.678000+00:00"),
        ({"type": "array", "items": ["null", "bytes"]}, [None, "\xe9"]),
        ({"type": "map", "values": "double"}, {"x": 1.5}),
        (TREE, {"next": {"next": None}}),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_shown_is_written_again(registry, kind, value):
    data = encoded(registry, _avro(kind), {"a": value})
    assert json.loads(ValueDecoder(registry).decode(data)) == {"a": value}


@pytest.mark.parametrize(
    ("kind", "given", "shown"),
    [
        (DAY, 19782, "2024-02-29"),
        (INSTANT, 1000, "1970-01-01T00:00:01+00:00"),
        (MONEY, 1.1, "1.10"),
        ("double", 1, 1.0),
    ],
    ids=str,
)  # fmt: skip
def test_numbers_may_stand_for_dates_times_and_decimals(registry, kind, given, shown):
    data = encoded(registry, _avro(kind), {"a": given})
    assert json.loads(ValueDecoder(registry).decode(data)) == {"a": shown}


def test_a_field_with_a_default_may_be_left_out(registry):
    data = encoded(registry, _avro("string", default="Zug"), {})
    assert AvroDeserializer(registry)(data) == {"a": "Zug"}


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        ("long", "7", "a: '7' is not of Avro's long"),
        ("long", 1.5, "a: '1.5' is not of Avro's long"),
        ("long", True, "a: True is not of Avro's long"),
        ("double", False, "a: False is not of Avro's double"),
        ("long", 1 << 63, "a value is not of the Avro schema"),
        ("bytes", "€", "a: '€' is not of Avro's bytes"),
        ("bytes", 1, "a: 1 is not of Avro's bytes"),
        (DAY, "2024-02-30", "a: '2024-02-30' is not of Avro's date"),
        (DAY, None, "a: None is not of Avro's date"),
        (MONEY, "x", "a: 'x' is not of Avro's decimal"),
        (MONEY, "1e999999999", "a: '1e999999999' is not of Avro's decimal"),
        (MONEY, "1e-999999999", "a: '1e-999999999' is not of Avro's decimal"),
        (MONEY, "NaN", "a value is not of the Avro schema"),
        ("double", 10**400, "a: 10+ is not of Avro's double"),
        (["null", "float"], -(10**400), "a: -10+ is not of Avro's float"),
        (["null", "long"], "x", "a: 'x' is not of Avro's long"),
        ({"type": "array", "items": "long"}, [1, "x"], r"a\[1\]: 'x' is not of Avro's long"),
        ({"type": "map", "values": "long"}, {"x": None}, "a.x: None is not of Avro's long"),
        (TREE, {"next": {}}, "a.next: the field 'next' of record Tree is missing"),
        ({"type": "enum", "name": "Color", "symbols": ["RED"]}, "BLUE", "a value is not of the Avro schema"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_value_of_the_schema_is_refused_with_its_place(registry, kind, given, why):
    with pytest.raises(SerializationError, match=why):
        encoded(registry, _avro(kind), {"a": given})


def test_text_of_another_length_is_of_no_fixed_type(registry):
    two = {"type": "fixed", "name": "Two", "size": 2}
    with pytest.raises(SerializationError, match="a: 'abc' is not of Avro's fixed Two"):
        encoded(registry, _avro(two), {"a": "abc"})
    for value in ("abc", "ab"):
        data = encoded(registry, _avro([two, "string"]), {"a": value})
        assert json.loads(ValueDecoder(registry).decode(data)) == {"a": value}


def test_a_number_that_is_too_great_does_not_become_infinity(registry):
    with pytest.raises(SerializationError, match=r"a: '1E\+999' is not of Avro's double"):
        ValueEncoder(registry, _avro("double")).encode("t", b'{"a": 1e999}')


def test_a_misspelt_field_is_not_left_out(registry):
    with pytest.raises(SerializationError, match="record R has no field 'b'"):
        encoded(registry, _avro("string", default=""), {"b": "x"})


@pytest.mark.parametrize("line", [b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000, b"1" * 5000])
def test_a_line_that_is_no_json_is_refused(registry, line):
    with pytest.raises(SerializationError):
        ValueEncoder(registry, _avro("double")).encode("t", line)


def test_a_null_is_a_tombstone_and_asks_nobody(registry, server):
    assert ValueEncoder(registry, _avro("long")).encode("t", None) is None
    assert not server.requests


def test_values_of_json_schema_are_checked(registry):
    schema = Schema('{"type": "object", "properties": {"a": {"type": "number"}}}', JSON)
    assert JsonDeserializer(registry)(encoded(registry, schema, {"a": 1.5})) == {"a": 1.5}
    with pytest.raises(SerializationError, match=r"\$\.a: 'x' is not of type 'number'"):
        encoded(registry, schema, {"a": "x"})


def test_without_a_schema_the_newest_version_is_taken(registry):
    with pytest.raises(SchemaNotFound):
        ValueEncoder(registry).prepare("t")
    registry.register("t-value", _avro("long"))
    two = Schema(
        json.dumps(
            {**_record("long"), "fields": [*_record("long")["fields"], {"name": "b", "type": "string", "default": ""}]}
        )
    )
    newest = registry.register("t-value", two)
    data = encoded(registry, None, {"a": 1, "b": "x"})
    assert data[1:5] == newest.to_bytes(4)
    assert AvroDeserializer(registry)(data) == {"a": 1, "b": "x"}


def test_a_schema_that_does_not_go_with_the_earlier_is_refused(registry):
    registry.register("t-value", _avro("long"))
    with pytest.raises(IncompatibleSchema):
        ValueEncoder(registry, _avro("string")).prepare("t")


def test_protobuf_is_refused_in_words(registry):
    with pytest.raises(SerializationError, match="PROTOBUF"):
        ValueEncoder(registry, Schema("syntax = 'proto3';", PROTOBUF))
