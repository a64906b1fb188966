"""Avro values by ids: what is written is read, whatever the versions; damage never becomes a value."""

import datetime
import decimal
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import ConfigError, IncompatibleSchema, RegistryUnavailable, SchemaNotFound, SerializationError
from sparklog.registry import AvroDeserializer, AvroSerializer, Reference, Schema
from sparklog.registry.avro import parsed, refers_to_itself
from sparklog.registry.decoding import ValueDecoder
from sparklog.registry.schema import AVRO
from sparklog.registry.wire import framed
from sparklog.testing.registry import Refusal

pytest.importorskip("fastavro")

_ONE = {"type": "record", "name": "org.Trip", "fields": [{"name": "id", "type": "long"}]}
_TWO = {
    **_ONE,
    "fields": [*_ONE["fields"], {"name": "tip", "type": ["null", "double", "string"], "default": None}],
}


def test_a_value_is_read_by_the_schema_that_it_was_written_with(registry, server):
    old, new = AvroSerializer(registry, _ONE), AvroSerializer(registry, _TWO)
    written = [old.serialize("t", {"id": 1}), new.serialize("t", {"id": 2, "tip": 0.5}), new.serialize("t", {"id": 3})]
    assert [each[:5] for each in written] == [b"\0\0\0\0\1", b"\0\0\0\0\2", b"\0\0\0\0\2"]
    assert list(map(AvroDeserializer(registry), written)) == [{"id": 1}, {"id": 2, "tip": 0.5}, {"id": 3, "tip": None}]
    assert list(map(AvroDeserializer(registry, _ONE), written)) == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert [each["tip"] for each in map(AvroDeserializer(registry, _TWO), written)] == [None, 0.5, None]
    assert max(server.requests.values()) == 2
    assert {path: n for path, n in server.requests.items() if "ids" in path} == {
        "GET /schemas/ids/1": 1,
        "GET /schemas/ids/2": 1,
    }


def test_a_null_is_a_tombstone_and_asks_nobody(registry, server):
    assert AvroSerializer(registry, _ONE).serialize("t", None) is None
    assert not server.requests


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "t-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "org.Trip"),
        ("TopicRecordNameStrategy", "t-org.Trip"),
        (lambda topic, is_key, record: f"{topic}/{is_key}/{record}", "t/False/org.Trip"),
    ],
)
def test_the_subject_is_named_by_the_strategy(registry, strategy, subject):
    AvroSerializer(registry, _ONE, subject_name_strategy=strategy).prepare("t")
    assert registry.subjects() == [subject]


def test_keys_have_a_subject_of_their_own(registry):
    key = AvroSerializer(registry, '"string"', is_key=True)
    assert AvroDeserializer(registry)(key.serialize("t", "k")) == "k"
    assert registry.subjects() == ["t-key"]


def test_a_serializer_may_be_told_not_to_register(registry):
    serializer = AvroSerializer(registry, _ONE, auto_register_schemas=False)
    with pytest.raises(SchemaNotFound, match="not registered under t-value"):
        serializer.serialize("t", {"id": 1})
    assert registry.subjects() == []
    registry.register("t-value", Schema(json.dumps(_ONE)))
    assert serializer.serialize("t", {"id": 1}) == b"\0\0\0\0\1\2"


def test_a_serializer_may_take_the_newest_version(registry):
    AvroSerializer(registry, _ONE).prepare("t")
    AvroSerializer(registry, _TWO).prepare("t")
    written = AvroSerializer(registry, use_latest_version=True).serialize("t", {"id": 1, "tip": "much"})
    assert written[:5] == b"\0\0\0\0\2"
    with pytest.raises(ConfigError, match="needs a schema"):
        AvroSerializer(registry)


def test_an_incompatible_schema_is_refused_at_the_first_value(registry):
    AvroSerializer(registry, _ONE).prepare("t")
    other = {**_ONE, "fields": [{"name": "place", "type": "string"}]}
    with pytest.raises(IncompatibleSchema, match=r"t-value.*BACKWARD.*place"):
        AvroSerializer(registry, other).serialize("t", {"place": "x"})


@pytest.mark.parametrize("value", [{"id": None}, {"id": "1"}, {"id": 1 << 63}, {"id": True}, {}, 1])
def test_a_value_that_is_not_of_the_schema_is_refused(registry, value):
    with pytest.raises(SerializationError, match="not of the Avro schema"):
        AvroSerializer(registry, _ONE).serialize("t", value)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "it has 0 bytes"),
        (b"\0\0\0\1", "it has 4 bytes"),
        (b'{"id": 1}', "begins with byte 123"),
        (b"\1" + bytes(17), "named by a GUID"),
        (b"\0\0\0\0\1", "no value of its Avro schema"),
        (b"\0\0\0\0\1\2\2", "1 bytes follow"),
    ],
)
def test_damage_is_refused_with_a_reason(registry, data, complaint):
    AvroSerializer(registry, _ONE).prepare("t")
    with pytest.raises(SerializationError, match=complaint):
        AvroDeserializer(registry)(data)


def test_an_unknown_id_and_a_registry_that_is_away_are_two_things(registry, server):
    deserializer = AvroDeserializer(registry)
    with pytest.raises(SchemaNotFound):
        deserializer(b"\0\0\0\0\7\2")
    server.broken = lambda: Refusal(503, 50301, "electing")
    with pytest.raises(RegistryUnavailable, match="electing"):
        deserializer(b"\0\0\0\0\1\2")


def test_a_schema_of_another_kind_is_refused(registry):
    registry.register("s", Schema('syntax = "proto3";', "PROTOBUF"))
    with pytest.raises(SerializationError, match="of PROTOBUF, not of Avro"):
        AvroDeserializer(registry)(b"\0\0\0\0\1\2")


def test_a_schema_may_refer_to_another(registry):
    registry.register("trip", Schema(json.dumps(_ONE)))
    day = {
        "type": "record",
        "name": "Day",
        "fields": [{"name": "trips", "type": {"type": "array", "items": "org.Trip"}}],
    }
    serializer = AvroSerializer(registry, day, references=(Reference("org.Trip", "trip", 1),))
    written = serializer.serialize("t", {"trips": [{"id": 1}, {"id": 2}]})
    assert AvroDeserializer(registry)(written) == {"trips": [{"id": 1}, {"id": 2}]}


def test_objects_are_made_of_dictionaries_and_back(registry):
    serializer = AvroSerializer(registry, _ONE, to_dict=lambda number: {"id": number})
    assert AvroDeserializer(registry, from_dict=lambda found: found["id"])(serializer.serialize("t", 7)) == 7


_ALL = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "l", "type": "long"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "b", "type": "bytes"},
        {"name": "d", "type": "double"},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "boolean"}}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "next", "type": ["null", "All"]},
    ],
}
_ROW = st.fixed_dictionaries(
    {
        "l": st.integers(-(1 << 63), (1 << 63) - 1),
        "s": st.none() | st.text(),
        "b": st.binary(),
        "d": st.floats(allow_nan=False),
        "m": st.dictionaries(st.text(), st.lists(st.booleans())),
        "t": st.datetimes(timezones=st.just(datetime.UTC)),
        "n": st.decimals("-9999999.99", "9999999.99", places=2, allow_nan=False).map(decimal.Decimal),
    }
)


@given(_ROW, st.none() | _ROW)
@settings(max_examples=settings().max_examples)
def test_any_value_comes_back_as_it_was(row, following):
    registry = _Kept()
    value = {**row, "next": None if following is None else {**following, "next": None}}
    assert AvroDeserializer(registry)(AvroSerializer(registry, _ALL).serialize("t", value)) == value


class _Kept:
    """A registry of one schema, without a server."""

    def register(self, subject, schema, *, normalize=False):
        self.kept = schema
        return 1

    def schema(self, schema_id):
        return self.kept

    def referenced(self, schema):
        return {}


_LIST = '{"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}'


def test_a_value_of_too_many_levels_is_refused_and_ends_no_process(registry):
    number = registry.register("s", Schema(_LIST))
    read = AvroDeserializer(registry)
    assert read(framed(number) + b"\2\2\0") == {"next": {"next": {"next": None}}}
    with pytest.raises(SerializationError, match="recursion"):
        read(framed(number) + b"\2" * 200_000 + b"\0")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (_LIST, True),
        ('{"type": "record", "name": "a.R", "fields": [{"name": "m", "type": {"type": "map", "values": "R"}}]}', True),
        ('{"type": "array", "items": ["null", "string"]}', False),
        (
            '{"type": "record", "name": "P", "fields": [{"name": "a", "type":'
            ' {"type": "fixed", "name": "F", "size": 2}}, {"name": "b", "type": "F"}]}',
            False,
        ),
    ],
)
def test_a_schema_that_refers_to_itself_is_known(registry, schema, expected):
    assert refers_to_itself(parsed(registry, Schema(schema))) is expected


def test_a_default_that_is_not_of_its_type_does_not_matter_in_a_schema_that_was_written_with(registry):
    """Java's Avro before 1.9 let them be registered."""
    enum = {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}
    fields = [{"name": "a", "type": ["null", "int"], "default": "null"}, {"name": "e", "type": enum}]
    schema = {"type": "record", "name": "Old", "fields": fields}
    registry.register("old", Schema(json.dumps(schema)))
    registry.register("new", Schema('{"type": "array", "items": "Old"}', AVRO, (Reference("Old", "old", 1),)))
    assert AvroDeserializer(registry)(b"\0\0\0\0\1\2\4\0") == {"a": 2, "e": "A"}
    assert AvroDeserializer(registry)(b"\0\0\0\0\2\2\2\4\0\0") == [{"a": 2, "e": "A"}]
    assert ValueDecoder(registry).decode(b"\0\0\0\0\1\0\0") == '{"a": null, "e": "A"}'
    with pytest.raises(SerializationError, match="cannot be read"):
        AvroSerializer(registry, schema).serialize("t", {"a": 2, "e": "A"})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "fixed", "name": "F", "size": 10**400, "logicalType": "decimal", "precision": 3},
        {"type": "record", "name": 5, "fields": []},
        {"type": "record", "name": "R", "fields": 5},
        {"type": "record", "name": "R", "fields": [5]},
    ],
)
def test_a_schema_that_is_none_is_refused_whatever_is_wrong_with_it(registry, schema):
    registry.register("s", Schema(json.dumps(schema)))
    with pytest.raises(SerializationError, match="the Avro schema cannot be read"):
        AvroDeserializer(registry)(b"\0\0\0\0\1")
