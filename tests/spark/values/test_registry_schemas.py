"""What workers ask a registry, and what they make of its answers; without Spark."""

import json
import pickle

import pyarrow as pa
import pytest

from sparklog.errors import DataSourceError
from sparklog.registry import Reference, Schema, SchemaRegistry
from sparklog.testing.registry import Refusal, schema_registry

pytest.importorskip("pyspark")
pytest.importorskip("fastavro")
avro = pytest.importorskip("sparklog.spark.values.avro")
schemas = pytest.importorskip("sparklog.spark.values.registry_schemas")

_TRIP = {"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def served():
    with schema_registry() as found:
        yield found


@pytest.fixture
def settings(served):
    return schemas.registry_settings(
        {"schema.registry.url": served[0], "schema.registry.max.retries": 0, "basic.auth.user.info": "ann:secret"}
    )


@pytest.fixture
def registry(served):
    return SchemaRegistry(schema_registry_url=served[0])


def _decoded(settings, *values, schema=_TRIP):
    reader = pickle.loads(pickle.dumps(avro.AvroReader(schema, schemas.RegistryWriters(settings))))
    return reader.decode(pa.array(values, pa.binary())).to_pylist()


def test_an_id_is_asked_once_in_a_process(settings, registry, served):
    registry.register("s", Schema(json.dumps(_TRIP)))
    for _ in range(2):
        assert _decoded(settings, b"\0\0\0\0\1\2", None)[0] == {"data": {"id": 1}, "error": None}
    assert served[1].requests["GET /schemas/ids/1"] == 1


def test_an_id_that_the_registry_does_not_have_is_a_reason(settings):
    assert _decoded(settings, b"\0\0\0\0\7\2")[0]["error"] == "its schema has id 7, which the registry does not have"


def test_a_registry_that_is_away_is_none(settings, served):
    served[1].broken = lambda: Refusal(503, 50301, "electing")
    with pytest.raises(DataSourceError, match=r"\[SPARKLOG_REGISTRY_UNAVAILABLE\] .*electing"):
        _decoded(settings, b"\0\0\0\0\7\2")


def test_a_user_that_the_registry_does_not_know_is_none(settings, served):
    served[1].user = "bob:b"
    with pytest.raises(DataSourceError, match=r"\[SPARKLOG_REGISTRY_REFUSED\] .*basic.auth.user.info") as caught:
        _decoded(settings, b"\0\0\0\0\7\2")
    assert "secret" not in str(caught.value)


def test_a_schema_that_refers_to_another_is_read(settings, registry):
    registry.register("trip", Schema(json.dumps(_TRIP)))
    day = {"type": "record", "name": "Day", "fields": [{"name": "trip", "type": "Trip"}]}
    registry.register("day", Schema(json.dumps(day), "AVRO", (Reference("Trip", "trip", 1),)))
    whole = {**day, "fields": [{"name": "trip", "type": _TRIP}]}
    assert _decoded(settings, b"\0\0\0\0\2\2", schema=whole)[0]["data"] == {"trip": {"id": 1}}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (Schema("{}", "JSON"), "its schema, of id 1, is of JSON, not of Avro"),
        (Schema('{"type": "nonsense"}'), "its schema, of id 1, cannot be read"),
    ],
)
def test_a_schema_that_is_none_of_avro_is_a_reason(settings, registry, schema, reason):
    registry.register("s", schema)
    assert _decoded(settings, b"\0\0\0\0\1\2")[0]["error"].startswith(reason)


def test_a_reference_to_what_cannot_be_read_is_a_reason_that_is_found_once(settings, registry, monkeypatch):
    bad = {"type": "record", "name": "Bad", "fields": [{"name": "a"}]}
    registry.register("bad", Schema(json.dumps(bad)))
    trip = {**_TRIP, "fields": [{"name": "bad", "type": "Bad"}]}
    registry.register("trip", Schema(json.dumps(trip), "AVRO", (Reference("Bad", "bad", 1),)))
    looked_at, read = [], schemas.of_writer
    monkeypatch.setattr(schemas, "of_writer", lambda *given: looked_at.append(given) or read(*given))
    for row in _decoded(settings, *[b"\0\0\0\0\2\2"] * 3):
        assert row["error"].startswith("its schema, of id 2, cannot be read: ")
    assert len(looked_at) == 1


def test_a_default_that_is_not_of_its_type_does_not_matter_in_a_schema_that_was_written_with(settings, registry):
    old = {**_TRIP, "fields": [{"name": "id", "type": "long", "default": "none"}]}
    registry.register("s", Schema(json.dumps(old)))
    assert _decoded(settings, b"\0\0\0\0\1\2") == [{"data": {"id": 1}, "error": None}]


def test_no_password_is_shown(settings):
    assert "secret" not in repr(schemas.RegistryWriters(settings))
