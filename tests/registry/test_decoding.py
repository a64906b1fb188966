"""Values of any schema as a line of JSON."""

import datetime
import decimal
import json

import pytest

from sparklog.errors import SchemaNotFound, SerializationError
from sparklog.registry import AvroSerializer, JsonSerializer, Schema, ValueDecoder
from sparklog.registry.decoding import as_line

pytest.importorskip("fastavro")


def _avro(kind):
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("string", "Zürich\n", "Zürich\n"),
        ("bytes", b"\0\xff", "\0\xff"),
        ("double", float("inf"), "inf"),
        ({"type": "array", "items": "float"}, [float("nan")], ["nan"]),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC),
            "2024-01-02T00:00:00+00:00",
        ),
        ({"type": "int", "logicalType": "date"}, datetime.date(2024, 1, 2), "2024-01-02"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            decimal.Decimal("1.50"),
            "1.50",
        ),
    ],
)
def test_a_value_becomes_one_line(registry, kind, value, shown):
    line = ValueDecoder(registry).decode(AvroSerializer(registry, _avro(kind)).serialize("t", {"a": value}))
    assert "\n" not in line
    assert json.loads(line, parse_constant=pytest.fail) == {"a": shown}


def test_values_of_both_kinds_are_told_apart_by_their_ids(registry, server):
    written = [
        AvroSerializer(registry, _avro("int")).serialize("t", {"a": 1}),
        JsonSerializer(registry, {}).serialize("u", {"a": 2}),
    ]
    decoder = ValueDecoder(registry)
    assert [decoder.decode(each) for each in written * 2] == ['{"a": 1}', '{"a": 2}'] * 2
    assert server.requests["GET /schemas/ids/1"] == 1


def test_what_cannot_be_shown_is_said(registry):
    decoder = ValueDecoder(registry)
    registry.register("s", Schema('syntax = "proto3";', "PROTOBUF"))
    with pytest.raises(SerializationError, match="of PROTOBUF; only AVRO and JSON"):
        decoder.decode(b"\0\0\0\0\1\0")
    with pytest.raises(SchemaNotFound):
        decoder.decode(b"\0\0\0\0\2\0")
    with pytest.raises(SerializationError, match="begins with byte 104"):
        decoder.decode(b"hello")


def test_half_of_a_surrogate_pair_is_shown_as_it_is_written():
    assert as_line("\ud800é") == '"\\ud800\\u00e9"'


def test_too_many_levels_are_refused():
    value: object = float("inf")
    for _ in range(100_000):
        value = [value]
    with pytest.raises(SerializationError, match="levels"):
        as_line(value)
