"""A few bytes of an Avro value never become millions of parts."""

import json

import pytest

from sparklog.errors import SerializationError
from sparklog.registry import AvroDeserializer, Schema
from sparklog.registry.decoding import ValueDecoder
from sparklog.registry.wire import FRAME

pytest.importorskip("fastavro")

_THIRTY_MILLION = b"\x80\x8e\xce\x1c"
_EMPTY = {"type": "record", "name": "E", "fields": []}
_DOUBLED = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "null"}]}
for _n in range(1, 30):
    _fields = [{"name": "a", "type": _DOUBLED}, {"name": "b", "type": f"R{_n - 1}"}]
    _DOUBLED = {"type": "record", "name": f"R{_n}", "fields": _fields}


def _row(*types, name="Row"):
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": it} for n, it in enumerate(types)]}


def _read(registry, schema, data):
    schema_id = registry.register(json.dumps(schema)[:100], Schema(json.dumps(schema)))
    return [
        read(FRAME.pack(0, schema_id) + data) for read in (AvroDeserializer(registry), ValueDecoder(registry).decode)
    ]


@pytest.mark.parametrize(
    "items",
    ["null", _EMPTY, _row("null", _EMPTY, name="Inner"), {"type": "fixed", "name": "F", "size": 0}, {"type": "null"}],
)
def test_an_array_of_what_takes_no_bytes_is_refused(registry, items):
    for schema in (
        {"type": "array", "items": items},
        _row({"type": "map", "values": {"type": "array", "items": items}}),
    ):
        with pytest.raises(SerializationError, match="no bytes"):
            _read(registry, schema, _THIRTY_MILLION + b"\0")


@pytest.mark.parametrize("schema", [_DOUBLED, ["null", _DOUBLED], _row("long", _DOUBLED), _row("long", *["null"] * 21)])
def test_a_record_of_very_many_nulls_is_refused(registry, schema):
    with pytest.raises(SerializationError, match="parts that take no bytes"):
        _read(registry, schema, b"\2")


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        (_row("null", _EMPTY, "long", "null"), b"\2", {"f0": None, "f1": {}, "f2": 1, "f3": None}),
        ({"type": "array", "items": ["null", "long"]}, b"\4\0\2\2\0", [None, 1]),
        ({"type": "map", "values": "null"}, b"\2\2a\0", {"a": None}),
        (_row("long", *["null"] * 20), b"\2", {"f0": 1} | {f"f{n}": None for n in range(1, 21)}),
        (_row({"type": "array", "items": ["null", "Row"]}), b"\2\0\0", {"f0": [None]}),
    ],
)
def test_nulls_elsewhere_are_read(registry, schema, data, value):
    assert _read(registry, schema, data) == [value, json.dumps(value)]


def test_more_items_than_bytes_are_no_value(registry):
    with pytest.raises(SerializationError, match="EOFError"):
        _read(registry, {"type": "array", "items": "boolean"}, _THIRTY_MILLION + b"\1")


def test_a_decimal_of_very_many_zeros_is_not_written_out(registry):
    scale = 1_000_000_000
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": scale, "scale": scale}
    assert _read(registry, decimal, b"\2\1")[1] == f'"1E-{scale}"'


def test_a_schema_of_too_many_levels_is_refused(registry):
    deep: object = "int"
    for _ in range(600):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SerializationError, match="nested too deeply"):
        _read(registry, deep, b"\0")
