"""Our Python client on a secured Kafka 3.9.1: by each protocol and mechanism, and when Kafka does not let it in."""

import time

import pytest
from compat import secured
from compat.test_secured_clients import BY_PASSWORD, with_claims, with_token

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.topics import NewTopic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.errors import ApiError, AuthenticationFailed, ErrorCode
from sparklog.net.async_connection import AsyncConnection
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.peer, pytest.mark.slow]
VALUES = [b"value %d" % number for number in range(200)]


def of_alice(broker, way):
    """Settings by the name of the way in."""
    if way == "MUTUAL":
        return broker.client("MUTUAL") | broker.stores.own("client.pem")
    if way == "SIGNED":
        return with_token(broker, broker.stores.issuer, "ours")
    listener, mechanism = way.split(" ")
    if mechanism == "OAUTHBEARER":
        return with_claims(broker, listener, "alice")
    return broker.with_password(listener, mechanism)


WAYS = (
    "MUTUAL",
    "SIGNED",
    *(f"{listener} {each}" for listener in ("SASL_PLAINTEXT", "SASL_SSL") for each in secured.MODULES),
)


@pytest.mark.parametrize("way", WAYS)
def test_it_makes_writes_in_transactions_and_reads_in_a_group(secured_kafka, topic, way):
    settings = of_alice(secured_kafka, way)
    with Admin(settings) as admin:
        admin.create_topics([NewTopic(topic, 2)])
        write(settings, topic)
        assert sorted(read(settings, topic)) == sorted(VALUES)
        assert set(admin.group_offsets(topic)) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}


def write(settings, topic):
    """What is aborted is not among ``VALUES``."""
    with Producer({**settings, "transactional.id": topic}) as producer:
        producer.init_transactions()
        for is_kept, values in ((False, [b"aborted"] * 10), (True, VALUES)):
            producer.begin_transaction()
            for number, value in enumerate(values):
                producer.send(topic, value, partition=number % 2)
            if is_kept:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()


def read(settings, topic):
    asked = {"group.id": topic, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    with Consumer({**settings, **asked}) as consumer:
        consumer.subscribe([topic])
        found = []
        eventually(lambda: found.extend(each.value for each in consumer.poll(1.0)) or len(found) >= len(VALUES))
        consumer.commit()
    return found


@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_a_wrong_password_ends_at_once(secured_kafka, mechanism):
    settings = secured_kafka.with_password("SASL_SSL", mechanism, password="guess")
    with Admin(settings) as admin, pytest.raises(AuthenticationFailed) as caught:
        admin.list_topics()
    assert "guess" not in str(caught.value)
    with Producer(settings) as producer, pytest.raises(AuthenticationFailed):
        producer.send("t", b"v").result(60)
    with Consumer({**settings, "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(AuthenticationFailed):
            consumer.poll(60.0)


def refusals(broker):
    stores = broker.stores
    stranger = secured.ec.generate_private_key(secured.ec.SECP256R1())
    return {
        "authority": broker.client("SSL") | stores.trust("other-ca.pem"),
        "host": broker.client("ELSEWHERE"),
        "no certificate": broker.client("MUTUAL"),
        "certificate of a stranger": broker.client("MUTUAL") | stores.own("stranger.pem"),
        "mechanism": broker.with_password("SIGNED", "PLAIN"),
        "token": with_token(broker, stranger, "ours-strange"),
    }


@pytest.mark.parametrize(
    "what", ["authority", "host", "no certificate", "certificate of a stranger", "mechanism", "token"]
)
def test_what_kafka_refuses_is_a_failed_authentication(secured_kafka, what):
    with Admin(refusals(secured_kafka)[what]) as admin, pytest.raises(AuthenticationFailed):
        admin.list_topics()


def test_who_may_nothing_is_told_that(secured_kafka, topic):
    with Admin(secured_kafka.with_password("SASL_SSL", "SCRAM-SHA-512", "mallory")) as admin:
        assert admin.list_topics() == []
        with pytest.raises(ApiError) as caught:
            admin.create_topics([NewTopic(topic, 1)])
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def short_lived(zookeeper, tmp_path_factory, stores):
    """Kafka, whose clients must authenticate again every two seconds."""
    home = tmp_path_factory.mktemp("short-lived")
    settings = {"connections.max.reauth.ms": 2000}
    with secured.kafka(home, f"{zookeeper.connect_string}/short-lived", stores, **settings) as found:
        yield found


@pytest.mark.parametrize("way", ["SASL_SSL SCRAM-SHA-256", "SASL_PLAINTEXT OAUTHBEARER"])
def test_its_connections_outlive_their_authentication(short_lived, topic, way, monkeypatch):
    """For three of the times that Kafka lets them live, on the connections that they had."""
    opened, open_one = [], AsyncConnection.open

    async def counted(endpoint, **more):
        opened.append(endpoint)
        return await open_one(endpoint, **more)

    monkeypatch.setattr(AsyncConnection, "open", counted)
    settings = of_alice(short_lived, way)
    end = time.monotonic() + 7
    with Admin(settings) as admin, Producer({**settings, "linger.ms": 0}) as producer:
        admin.create_topics([NewTopic(topic, 1)])
        sent = 0
        while time.monotonic() < end:
            producer.send(topic, b"%d" % sent).result(30)
            sent += 1
            if sent == 1:
                before = len(opened)
        assert len(opened) == before
        assert topic in [each.name for each in admin.list_topics()]
    with Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        found = []
        eventually(lambda: found.extend(each.value for each in consumer.poll(1.0)) or len(found) >= sent)
    assert found == [b"%d" % number for number in range(sent)]
