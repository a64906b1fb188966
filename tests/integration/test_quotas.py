"""Quotas on a real broker: who is held, by what, and what he is told.

Where something is to be held it is held for longer than any test lasts.
"""

import select

import pytest
from integration import wire

from sparklog.client import Consumer, Producer
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.quotas import ANY, ClientQuota
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.leases import RangeAsked, RangeLease, lease_ranges
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.connection import BlockingConnection
from sparklog.net.throttle import throttle_seconds
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import CreateTopicsRequest, MetadataRequest
from sparklog.quota.entity import DEFAULT, Entity, IpEntity
from sparklog.quota.keys import CLIENT_KEYS
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

A_BATCH = 100_000
AGES_S = 1000


@pytest.fixture
def client_id(topic):
    """One that no other test has."""
    return f"client of {topic}"


@pytest.fixture
def held(bootstrap, client_id):
    """A connection that goes by the client id. It sends what it is told to, whatever it was asked to wait."""

    class Deaf(BlockingConnection):
        def _keep_silent(self):
            pass

    with Deaf(wire.endpoint_of(bootstrap), client_id=client_id, request_timeout=60) as opened:
        yield opened


@pytest.fixture
def limit(admin, client_id):
    """Sets quotas of the client id."""
    entity = Entity(client_id=client_id)
    yield lambda **quotas: admin.alter_client_quotas({entity: quotas})
    admin.alter_client_quotas({entity: dict.fromkeys(CLIENT_KEYS)})


def throttled_s(connection):
    """How long the answer that is due asks its client to wait."""
    return throttle_seconds(*connection.receive())


def assert_muted(held, other):
    """What is sent on the connection is not served, though others are."""
    wire.send_fetch(held, {TopicPartition("none", 0): 0})
    for _ in range(3):
        assert wire.metadata(other).brokers
    assert not select.select([held._socket], [], [], 0)[0]


def test_a_producer_over_its_quota_is_told_to_wait_and_not_read(held, connection, tp, limit):
    batch = wire.batch_of(b"v" * A_BATCH)
    wire.send_produce(held, tp, batch)
    assert throttled_s(held) == 0
    limit(producer_byte_rate=10)
    wire.send_produce(held, tp, batch)
    assert throttled_s(held) > AGES_S
    assert_muted(held, connection)
    assert wire.produce(connection, tp, batch)[0] is ErrorCode.NONE
    assert wire.list_offset(connection, tp, -1)[1] == 3


def test_who_has_not_authenticated_is_held_by_the_quota_of_anonymous(held, tp, admin):
    anonymous, batch = Entity("ANONYMOUS"), wire.batch_of(b"v" * A_BATCH)
    try:
        for user, is_held in ((Entity("alice"), False), (anonymous, True)):
            admin.alter_client_quotas({user: {"producer_byte_rate": 10}})
            wire.send_produce(held, tp, batch)
            assert (throttled_s(held) > AGES_S) == is_held
    finally:
        admin.alter_client_quotas({each: {"producer_byte_rate": None} for each in (anonymous, Entity("alice"))})


def test_a_producer_that_wants_no_answer_is_not_read_either(held, connection, tp, limit):
    limit(producer_byte_rate=10)
    wire.send_produce(held, tp, wire.batch_of(b"v" * A_BATCH), acks=0)
    assert_muted(held, connection)
    assert wire.list_offset(connection, tp, -1)[1] == 1


def test_our_producer_shows_what_it_is_told_to_wait(bootstrap, client_id, tp, limit):
    with Producer(bootstrap_servers=bootstrap, client_id=client_id) as producer:
        producer.send(tp.topic, b"v" * A_BATCH).result(60)
        assert producer.metrics()["throttle-count"] == 0
        limit(producer_byte_rate=10)
        producer.send(tp.topic, b"v" * A_BATCH).result(60)
        assert producer.metrics()["throttle-time-max"] > AGES_S * 1000
        assert producer.metrics()["throttle-count"] == 1


def test_our_consumer_shows_what_it_is_told_to_wait(bootstrap, client_id, connection, tp, limit):
    for _ in range(2):
        wire.produce(connection, tp, wire.batch_of(b"v" * A_BATCH))
    with Consumer(bootstrap_servers=bootstrap, client_id=client_id, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        eventually(lambda: consumer.poll(timeout=0.1))
        assert consumer.metrics()["throttle-count"] == 0
        limit(consumer_byte_rate=10)
        consumer.seek(tp, 0)
        eventually(lambda: consumer.poll(timeout=0.1) is not None and consumer.metrics()["throttle-count"])
        assert consumer.metrics()["throttle-time-max"] > AGES_S * 1000
        assert consumer.metrics()["throttle-count"] == 1, "nothing is asked for meanwhile"


def test_our_admin_shows_what_it_is_told_to_wait(bootstrap, client_id, limit):
    with Admin(bootstrap_servers=bootstrap, client_id=client_id) as held:
        held.describe_cluster()
        assert set(held.metrics().values()) == {0}
        limit(request_percentage=0.001)
        eventually(lambda: held.describe_cluster() and held.metrics()["throttle-count"])
        told = held.metrics()
        assert 0 < told["throttle-time-max"] <= told["throttle-time-total"]


def test_a_consumer_over_its_quota_is_given_nothing(held, connection, tp, limit):
    for _ in range(2):
        wire.produce(connection, tp, wire.batch_of(b"v" * A_BATCH))
    limit(consumer_byte_rate=10)
    given = wire.fetch(held, tp, 0)
    assert wire.offsets_in(given) == [0], "the first batch, however large it is"
    wire.send_fetch(held, {tp: 1}, max_wait_ms=60_000)
    api, version, body = held.receive()
    assert throttle_seconds(api, version, body) > AGES_S
    assert len(body) < A_BATCH
    assert_muted(held, connection)


def test_time_is_held_too(held, connection, limit):
    limit(request_percentage=0.001)
    waits = []
    for _ in range(3):
        wire.send_fetch(held, {TopicPartition("none", 0): 0})
        waits.append(throttled_s(held))
    assert waits[0] == 0
    assert 0 < waits[-1] <= 1


def test_changes_of_topics_are_refused_where_the_client_knows_that(held, topic, limit):
    limit(controller_mutation_rate=0.0001)
    assert wire.create_topic(held, topic)[0] is ErrorCode.NONE
    error, message = wire.create_topic(held, f"{topic}-2")
    assert error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "wait" in message


def test_an_older_client_is_told_to_wait_after_the_change(held, topic, connection, limit):
    limit(controller_mutation_rate=0.0001)
    asked = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[asked], timeout_ms=20_000, validate_only=False)
    answer = wire.ask(held, ApiKey.CREATE_TOPICS, 5, request)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert answer.throttle_time_ms > AGES_S * 1000
    assert topic in wire.topic_names(connection)
    assert_muted(held, connection)


def test_a_topic_that_is_made_by_asking_for_it_counts_as_a_change(held, topic, limit):
    limit(controller_mutation_rate=0.0001)
    named = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(
        topics=named,
        allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    assert wire.ask(held, ApiKey.METADATA, 9, request).topics[0].error_code == ErrorCode.NONE
    assert wire.create_topic(held, f"{topic}-2")[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def leased_until(cluster, asked, **how):
    """The offset up to which the one range that is asked for was leased."""
    (lease,) = lease_ranges(cluster, asked, **how)
    assert isinstance(lease, RangeLease), lease
    return lease.end_offset


def test_a_lease_counts_as_consumed(bootstrap, connection, tp, client_id, limit):
    for _ in range(3):
        wire.produce(connection, tp, wire.batch_of(b"v" * A_BATCH))
    settings = {"bootstrap.servers": bootstrap, "client.id": client_id}
    with ClusterMetadata(ClientConfig.from_properties(settings)) as cluster:
        asked = [RangeAsked(tp, 0, 3)]
        assert leased_until(cluster, asked) == 3
        limit(consumer_byte_rate=A_BATCH // 9)
        assert leased_until(cluster, asked, duration_ms=0) == 3
    with ClusterMetadata(ClientConfig.from_properties(settings)) as cluster:
        assert 0 < leased_until(cluster, asked) < 3


def test_quotas_are_told_as_they_were_set(admin, client_id):
    alone, both, default = Entity(client_id=client_id), Entity(client_id, client_id), Entity(client_id, DEFAULT)
    admin.alter_client_quotas({alone: {"producer_byte_rate": 1000, "request_percentage": 12.5}, both: {}})
    admin.alter_client_quotas({both: {"consumer_byte_rate": 7}, default: {"controller_mutation_rate": 1.5}})
    assert admin.describe_client_quotas(client_id=client_id, strict=True) == [
        ClientQuota(alone, {"producer_byte_rate": 1000, "request_percentage": 12.5})
    ]
    assert dict(admin.describe_client_quotas(user=client_id, client_id=ANY)) == {
        both: {"consumer_byte_rate": 7},
        default: {"controller_mutation_rate": 1.5},
    }
    assert admin.describe_client_quotas(user=client_id, strict=True) == []
    admin.alter_client_quotas({alone: {"producer_byte_rate": None}, both: {"consumer_byte_rate": None}})
    assert admin.describe_client_quotas(client_id=client_id) == [ClientQuota(alone, {"request_percentage": 12.5})]
    admin.alter_client_quotas(dict.fromkeys((alone, default), dict.fromkeys(CLIENT_KEYS)))
    assert admin.describe_client_quotas(user=client_id) == admin.describe_client_quotas(client_id=client_id) == []


def test_an_address_has_a_quota_of_its_own(admin):
    there = IpEntity("192.0.2.7")
    admin.alter_client_quotas({there: {"connection_creation_rate": 5}})
    assert admin.describe_client_quotas(ip=ANY) == [ClientQuota(there, {"connection_creation_rate": 5})]
    admin.alter_client_quotas({there: {"connection_creation_rate": None}})
    assert admin.describe_client_quotas(ip="192.0.2.7") == []


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        (Entity(client_id="c"), {"speed": 1}),
        (Entity(client_id="c"), {"producer_byte_rate": -1}),
        (Entity(client_id="c"), {"producer_byte_rate": 1.5}),
        (Entity(client_id=".."), {"producer_byte_rate": 1}),
        (IpEntity("no such host"), {"connection_creation_rate": 1}),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(admin, entity, quotas):
    with pytest.raises(ApiError) as refusal:
        admin.alter_client_quotas({entity: {"request_percentage": 5, **quotas} if "c" in entity else quotas})
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert admin.describe_client_quotas(client_id="c") == []


def test_what_is_only_checked_changes_nothing(admin, client_id):
    admin.alter_client_quotas({Entity(client_id=client_id): {"producer_byte_rate": 5}}, validate_only=True)
    assert admin.describe_client_quotas(client_id=client_id) == []


def test_our_producer_goes_on_when_the_wait_is_over_and_loses_nothing(bootstrap, tp, client_id, limit):
    limit(producer_byte_rate=200_000)
    with Producer(bootstrap_servers=bootstrap, client_id=client_id, batch_size=50_000) as producer:
        sent = [producer.send(tp.topic, b"v" * 40_000) for _ in range(55)]
    assert [each.result().offset for each in sent] == list(range(55))
