"""Which partitions a query reads, asked of a real cluster."""

import json

import pytest
from confluent_kafka import Consumer

from sparklog.client.admin.admin import AdminClient
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.errors import ApiError, ErrorCode
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.read.resolver import OffsetResolver
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def resolver(servers):
    clusters = []

    def make(**options):
        settings = {"kafka.bootstrap.servers": servers, "kafka.default.api.timeout.ms": "1000", **options}
        asked = ReadOptions.for_stream(settings)
        clusters.append(ClusterMetadata(asked.client))
        return OffsetResolver(clusters[-1], asked)

    yield make
    for cluster in clusters:
        cluster.close()


def _topics(partitions):
    return {tp.topic for tp in partitions}


def test_a_pattern_is_looked_for_anywhere_in_a_name(resolver, make_topic, topic):
    first, second = make_topic(suffix="-first"), make_topic(suffix="-second")
    assert _topics(resolver(subscribePattern=topic).partitions()) == {first, second}
    assert _topics(resolver(subscribePattern="-fir[a-z]+$").partitions()) & {first, second} == {first}
    assert resolver(subscribePattern=f"^{topic}$").partitions() == {}


def test_a_pattern_leaves_the_clusters_own_topics_out(resolver, servers, make_topic):
    topic = make_topic()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "log_level": 0})
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment(), 60, "a group, and with it a topic for offsets")
    consumer.close()
    found = _topics(resolver(subscribePattern=".*").partitions())
    assert topic in found
    assert not [name for name in found if name.startswith("__")]


@pytest.mark.parametrize("options", [{"subscribe": "$gone,$there"}, {"assign": '{"$gone": [0], "$there": [0]}'}])
def test_a_topic_that_is_gone_is_left_out_if_it_was_read_before(resolver, metadata, make_topic, options):
    gone, there = make_topic(suffix="-gone"), make_topic(suffix="-there")
    options = {name: text.replace("$gone", gone).replace("$there", there) for name, text in options.items()}
    AdminClient(metadata).delete_topics([gone])
    asked = resolver(**options)
    with pytest.raises(ApiError) as caught:
        asked.partitions()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for read_before in ([TopicPartition(gone, 0)], None):
        assert list(asked.partitions(read_before)) == [TopicPartition(there, 0)]


@pytest.mark.parametrize("options", [{"subscribe": "$name"}, {"assign": '{"$name": [0]}'}])
def test_a_topic_that_is_misspelt_may_be_another_one(resolver, make_topic, options):
    there = make_topic(suffix="-clicks")
    options = {name: text.replace("$name", there[:-1]) for name, text in options.items()}
    with pytest.raises(ApiError, match=rf"topic '{there[:-1]}' .*; did you mean '{there}'\?$") as caught:
        resolver(**options).partitions()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("read_before", [(), (0,)])
def test_a_partition_that_never_was_is_refused_whatever_was_read_before(resolver, make_topic, read_before):
    topic = make_topic(partitions=2)
    asked = resolver(assign=json.dumps({topic: [0, 7]}))
    with pytest.raises(ApiError, match=f"{topic}-7") as caught:
        asked.partitions([TopicPartition(topic, number) for number in read_before])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(asked.partitions(None)) == [TopicPartition(topic, 0)], "who does not know yet what was read"


def test_all_of_a_topic_that_is_gone_is_left_out_though_some_was_never_read(resolver, metadata, make_topic):
    gone = make_topic(partitions=2)
    AdminClient(metadata).delete_topics([gone])
    assert resolver(assign=json.dumps({gone: [0, 1]})).partitions([TopicPartition(gone, 0)]) == {}
