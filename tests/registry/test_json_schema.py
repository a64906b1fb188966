"""JSON values by ids, checked by their schemas at both ends."""

import pytest

from sparklog.errors import SerializationError
from sparklog.registry import JsonDeserializer, JsonSerializer, Reference, Schema
from sparklog.registry.json_schema import checker
from sparklog.registry.schema import JSON

pytest.importorskip("jsonschema")

_TRIP = {
    "title": "Trip",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "place": {"type": "string"}},
    "required": ["id"],
}


def test_a_value_is_written_and_read(registry, server):
    written = JsonSerializer(registry, _TRIP).serialize("t", {"id": 1, "place": "Zürich"})
    assert written == b"\0\0\0\0\1" + '{"id":1,"place":"Zürich"}'.encode()
    assert JsonDeserializer(registry)(written) == {"id": 1, "place": "Zürich"}
    assert registry.schema(1).kind == "JSON"


def test_the_title_names_the_record(registry):
    JsonSerializer(registry, _TRIP, subject_name_strategy="RecordNameStrategy").prepare("t")
    assert registry.subjects() == ["Trip"]
    with pytest.raises(SerializationError, match="has no name"):
        JsonSerializer(registry, {}, subject_name_strategy="RecordNameStrategy").prepare("t")


def test_a_value_that_is_not_of_the_schema_is_refused_at_both_ends(registry):
    with pytest.raises(SerializationError, match=r"\$.id: 'x' is not of type 'integer'"):
        JsonSerializer(registry, _TRIP).serialize("t", {"id": "x"})
    unchecked = JsonSerializer(registry, _TRIP, validate=False).serialize("t", {"id": "x"})
    with pytest.raises(SerializationError, match="'x' is not of type"):
        JsonDeserializer(registry)(unchecked)
    assert JsonDeserializer(registry, validate=False)(unchecked) == {"id": "x"}


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"id": NaN}'])
def test_damage_is_refused(registry, text):
    JsonSerializer(registry, _TRIP).prepare("t")
    with pytest.raises(SerializationError, match="it is not JSON"):
        JsonDeserializer(registry)(b"\0\0\0\0\1" + text)


def test_what_json_cannot_hold_is_refused(registry):
    serializer = JsonSerializer(registry, {}, validate=False)
    for value in (float("nan"), {1, 2}):
        with pytest.raises(SerializationError, match="cannot be written as JSON"):
            serializer.serialize("t", value)


def test_a_schema_may_refer_to_another_and_to_nothing_on_the_network(registry):
    registry.register("trip", Schema('{"type": "integer"}', "JSON"))
    serializer = JsonSerializer(
        registry, {"items": {"$ref": "trip.json"}}, references=(Reference("trip.json", "trip", 1),)
    )
    assert serializer.serialize("t", [1, 2])[5:] == b"[1,2]"
    with pytest.raises(SerializationError):
        serializer.serialize("t", ["x"])


def test_a_schema_that_is_none_is_refused(registry):
    with pytest.raises(SerializationError, match="JSON Schema cannot be read"):
        JsonSerializer(registry, {"type": 7})
    registry.register("s", Schema('"int"'))
    with pytest.raises(SerializationError, match="of AVRO, not of JSON"):
        JsonDeserializer(registry)(b"\0\0\0\0\x011")


@pytest.mark.parametrize(
    "schema", ["5", "[" * 100_000, '{"$schema": ["x"]}', '{"$ref": "#"}', '{"$ref": "http://127.0.0.1:1/x"}']
)
def test_a_schema_that_nothing_can_be_checked_by_is_refused(registry, schema):
    with pytest.raises(SerializationError):
        checker(registry, Schema(schema, JSON))({"a": "b"})


@pytest.mark.parametrize("factor", [0.5, 1e-200])
def test_a_number_that_is_too_large_for_a_check_is_refused(registry, factor):
    serializer = JsonSerializer(registry, {"multipleOf": factor})
    assert serializer.serialize("t", 1)[5:] == b"1"
    with pytest.raises(SerializationError, match="a value cannot be checked by its JSON Schema"):
        serializer.serialize("t", 10**400)
