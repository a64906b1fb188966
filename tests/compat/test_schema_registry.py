"""Confluent's serializers and ours: each reads what the other wrote, and both are of one mind about subjects.

With ``SPARKLOG_TEST_REGISTRY=URL`` they ask that registry, a real one; else the tests' own.
"""

import os
import uuid

import pytest

from sparklog.registry import AvroDeserializer, AvroSerializer, JsonDeserializer, JsonSerializer, SchemaRegistry
from sparklog.testing.registry import schema_registry

for _package in ("fastavro", "jsonschema", "authlib", "cachetools"):
    pytest.importorskip(_package)
pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

_TRIP = (
    '{"type": "record", "name": "Trip", "namespace": "org", "fields": [{"name": "id", "type": "long"},'
    ' {"name": "place", "type": ["null", "string"], "default": null}]}'
)
_JSON = '{"title": "Trip", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'


@pytest.fixture
def both():
    """Our client of a registry, and Confluent's."""
    confluent = pytest.importorskip("confluent_kafka.schema_registry", exc_type=ImportError)
    with schema_registry() as (own, _):
        url = os.environ.get("SPARKLOG_TEST_REGISTRY", own)
        with confluent.SchemaRegistryClient({"url": url}) as theirs:
            yield SchemaRegistry(schema_registry_url=url), theirs


@pytest.fixture
def topic():
    """No broker has it: it names subjects."""
    return f"t-{uuid.uuid4().hex}"


@pytest.fixture
def context(topic):
    serialization = pytest.importorskip("confluent_kafka.serialization")
    return serialization.SerializationContext(topic, serialization.MessageField.VALUE)


def test_avro_goes_both_ways(both, topic, context):
    from confluent_kafka.schema_registry import avro

    ours, theirs = both
    value = {"id": 7, "place": "Zürich"}
    mine = AvroSerializer(ours, _TRIP).serialize(topic, value)
    assert avro.AvroSerializer(theirs, _TRIP)(value, context) == mine
    assert avro.AvroDeserializer(theirs)(mine, context) == value
    assert AvroDeserializer(ours)(mine) == value
    assert ours.versions(f"{topic}-value") == [1]


def test_json_goes_both_ways(both, topic, context):
    from confluent_kafka.schema_registry import json_schema

    ours, theirs = both
    written = json_schema.JSONSerializer(_JSON, theirs, to_dict=lambda value, _: value)({"id": 7}, context)
    assert JsonDeserializer(ours)(written) == {"id": 7}
    mine = JsonSerializer(ours, _JSON).serialize(topic, {"id": 7})
    assert mine[:5] == written[:5]
    assert json_schema.JSONDeserializer(_JSON, schema_registry_client=theirs)(mine, context) == {"id": 7}


@pytest.mark.parametrize("strategy", ["TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"])
def test_a_subject_has_one_name(both, topic, context, strategy):
    import confluent_kafka.schema_registry as confluent
    from confluent_kafka.schema_registry import avro

    ours, theirs = both
    functions = {
        "TopicNameStrategy": confluent.topic_subject_name_strategy,
        "RecordNameStrategy": confluent.record_subject_name_strategy,
        "TopicRecordNameStrategy": confluent.topic_record_subject_name_strategy,
    }
    conf = {"subject.name.strategy": functions[strategy]}
    written = avro.AvroSerializer(theirs, _TRIP, conf=conf)({"id": 7}, context)
    own = AvroSerializer(ours, _TRIP, subject_name_strategy=strategy, auto_register_schemas=False)
    assert own.serialize(topic, {"id": 7}) == written
