"""Producers and consumers whose values have schemas in a registry."""

import pytest

from sparklog.client import Consumer, Producer, TopicPartition
from sparklog.errors import DeserializationError, IncompatibleSchema, SchemaNotFound, SerializationError
from sparklog.registry import AvroDeserializer, AvroSerializer, JsonSerializer, SchemaRegistry, ValueDecoder
from sparklog.testing.registry import Refusal, schema_registry

pytest.importorskip("fastavro")
pytestmark = pytest.mark.integration

_ONE = {"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "long"}]}
_TWO = {**_ONE, "fields": [*_ONE["fields"], {"name": "place", "type": "string", "default": ""}]}


@pytest.fixture
def served():
    with schema_registry() as found:
        yield found


@pytest.fixture
def registry(served):
    return SchemaRegistry(schema_registry_url=served[0], schema_registry_max_retries=0)


def _read(bootstrap, topic, count, deserializer):
    with Consumer(bootstrap_servers=bootstrap, value_deserializer=deserializer) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found = []
        while len(found) < count:
            found += consumer.poll(60)
        return found


def test_values_of_two_versions_and_a_tombstone(bootstrap, topic, registry, served):
    for schema, values in ((_ONE, [{"id": 1}, None]), (_TWO, [{"id": 2, "place": "Zug"}])):
        serializer = AvroSerializer(registry, schema)
        key = AvroSerializer(registry, '"string"', is_key=True)
        with Producer(bootstrap_servers=bootstrap, value_serializer=serializer, key_serializer=key) as producer:
            for value in values:
                producer.send(topic, value, key="k").result()
    records = _read(bootstrap, topic, 3, AvroDeserializer(registry, _TWO))
    assert [each.value for each in records] == [{"id": 1, "place": ""}, None, {"id": 2, "place": "Zug"}]
    assert {AvroDeserializer(registry)(each.key) for each in records} == {"k"}
    assert registry.subjects() == [f"{topic}-key", f"{topic}-value"]
    assert max(n for path, n in served[1].requests.items() if path.startswith("GET /schemas")) == 1


def test_one_serializer_is_for_several_topics(bootstrap, topic, registry):
    with Producer(bootstrap_servers=bootstrap, value_serializer=JsonSerializer(registry, {})) as producer:
        for name in (topic, f"{topic}-2"):
            producer.send(name, {"a": name})
    assert registry.subjects() == sorted([f"{topic}-value", f"{topic}-2-value"])
    (record,) = _read(bootstrap, f"{topic}-2", 1, ValueDecoder(registry).decode)
    assert record.value == f'{{"a": "{topic}-2"}}'


def test_a_producer_is_refused_before_it_sends(bootstrap, topic, registry):
    with Producer(bootstrap_servers=bootstrap, value_serializer=AvroSerializer(registry, _ONE)) as producer:
        with pytest.raises(SerializationError):
            producer.send(topic, {"id": "x"})
        assert producer.send(topic, {"id": 1}).result().offset == 0
    other = {**_ONE, "fields": [{"name": "name", "type": "string"}]}
    with (
        Producer(bootstrap_servers=bootstrap, value_serializer=AvroSerializer(registry, other)) as producer,
        pytest.raises(IncompatibleSchema, match="BACKWARD"),
    ):
        producer.send(topic, {"name": "x"})
    assert len(_read(bootstrap, topic, 1, None)) == 1


def test_a_consumer_stays_before_what_it_cannot_read(bootstrap, topic, registry, served):
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"\0\0\0\0\1\2").result()
    with Consumer(bootstrap_servers=bootstrap, value_deserializer=AvroDeserializer(registry)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        with pytest.raises(DeserializationError) as caught:
            consumer.poll(60)
        assert isinstance(caught.value.__cause__, SchemaNotFound)
        served[1].broken = lambda: Refusal(503, 50301, "electing")
        with pytest.raises(DeserializationError):
            consumer.poll(60)
        served[1].broken = lambda: None
        AvroSerializer(SchemaRegistry(schema_registry_url=served[0]), _ONE).prepare(topic)
        registry._unknown.clear()  # five seconds later
        assert [each.value for each in consumer.poll(60)] == [{"id": 1}]
