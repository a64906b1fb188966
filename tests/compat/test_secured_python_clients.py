"""librdkafka, kafka-python and aiokafka on a secured broker of ours, by each protocol and mechanism that they have.

What ``tests/integration/test_sasl.py`` and ``test_listeners.py`` try is not tried again.
"""

import asyncio
import time

import pytest
from compat import secured
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from sparklog.clock import SystemClock
from sparklog.security.oauth.unsecured import UnsecuredLogin
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.peer, pytest.mark.slow]
VALUES = [b"value %d" % number for number in range(100)]
SASL = ("SASL_PLAINTEXT", "SASL_SSL")


def signed(stores, **claims):
    return secured.token(stores.issuer, int(time.time()), **claims)


def unsigned(subject):
    return UnsecuredLogin({"unsecuredLoginStringClaim_sub": subject}, SystemClock())()


# librdkafka


def of_librdkafka(broker, listener, **more):
    protocol = secured.PROTOCOLS[listener]
    trusted = {"ssl.ca.location": broker.stores["ca.pem"]} if protocol.endswith("SSL") else {}
    address = f"127.0.0.1:{broker.ports[listener]}"
    return {"bootstrap.servers": address, "security.protocol": protocol, "log_level": 0, **trusted, **more}


def by_librdkafka(settings, topic):
    producer = ConfluentProducer(settings)
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    consumer = ConfluentConsumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = []
    eventually(lambda: found.extend(each.value() for each in consumer.consume(100, 1.0)) or len(found) >= len(VALUES))
    consumer.close()
    return found


@pytest.mark.parametrize("listener", SASL)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_by_a_password(secured_ours, topic, listener, mechanism):
    login = {"sasl.username": "alice", "sasl.password": secured.PASSWORDS["alice"]}
    settings = of_librdkafka(secured_ours, listener, **{"sasl.mechanism": mechanism}, **login)
    assert by_librdkafka(settings, topic) == VALUES


@pytest.mark.parametrize("listener", SASL)
def test_librdkafka_by_a_token_that_nobody_signed(secured_ours, topic, listener):
    own = {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": "principal=alice"}
    assert (
        by_librdkafka(of_librdkafka(secured_ours, listener, **{"sasl.mechanism": "OAUTHBEARER"}, **own), topic)
        == VALUES
    )


def test_librdkafka_by_a_signed_token(secured_ours, stores, topic):
    own = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (signed(stores), time.time() + 3600)}
    assert by_librdkafka(of_librdkafka(secured_ours, "SIGNED", **own), topic) == VALUES


@pytest.mark.parametrize("own", ["pem", "p12"])
def test_librdkafka_by_a_certificate(secured_ours, stores, topic, own):
    keys = {"ssl.certificate.location": stores["client.pem"], "ssl.key.location": stores["client.pem"]}
    if own == "p12":
        keys = {"ssl.keystore.location": stores["client.p12"], "ssl.keystore.password": secured.STORE_PASSWORD}
    assert by_librdkafka(of_librdkafka(secured_ours, "MUTUAL", **keys), topic) == VALUES


@pytest.mark.parametrize("what", ["authority", "host"])
def test_librdkafka_does_not_speak_to_whom_it_does_not_trust(secured_ours, stores, what):
    found = {
        "authority": of_librdkafka(secured_ours, "SSL") | {"ssl.ca.location": stores["other-ca.pem"]},
        "host": of_librdkafka(secured_ours, "ELSEWHERE"),
    }
    errors = []
    producer = ConfluentProducer({**found[what], "error_cb": errors.append})
    eventually(lambda: producer.poll(0.1) or any(each.code() == KafkaError._SSL for each in errors))


# kafka-python


class Tokens(AbstractTokenProvider):
    def __init__(self, made):
        super().__init__()
        self._made = made

    def token(self):
        return self._made


def of_kafka_python(broker, listener, **more):
    protocol = secured.PROTOCOLS[listener]
    trusted = {"ssl_cafile": broker.stores["ca.pem"]} if protocol.endswith("SSL") else {}
    address = f"localhost:{broker.ports[listener]}"
    return {"bootstrap_servers": address, "security_protocol": protocol, **trusted, **more}


def by_kafka_python(settings, topic):
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value, partition=0)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        topic, **settings, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    return found


@pytest.mark.parametrize("listener", SASL)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_kafka_python(secured_ours, topic, listener, mechanism):
    login = {"sasl_plain_username": "alice", "sasl_plain_password": secured.PASSWORDS["alice"]}
    if mechanism == "OAUTHBEARER":
        login = {"sasl_oauth_token_provider": Tokens(unsigned("alice"))}
    settings = of_kafka_python(secured_ours, listener, sasl_mechanism=mechanism, **login)
    assert by_kafka_python(settings, topic) == VALUES


def test_kafka_python_by_a_signed_token(secured_ours, stores, topic):
    login = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Tokens(signed(stores))}
    assert by_kafka_python(of_kafka_python(secured_ours, "SIGNED", **login), topic) == VALUES


# aiokafka


def of_aiokafka(broker, listener, own=None, **more):
    from aiokafka.helpers import create_ssl_context

    protocol = secured.PROTOCOLS[listener]
    if protocol.endswith("SSL"):
        more["ssl_context"] = create_ssl_context(cafile=broker.stores["ca.pem"], certfile=own, keyfile=own)
    return {"bootstrap_servers": f"localhost:{broker.ports[listener]}", "security_protocol": protocol, **more}


async def by_aiokafka(settings, topic):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async with AIOKafkaProducer(**settings) as producer:
        for value in VALUES:
            await producer.send(topic, value, partition=0)
    consumer = AIOKafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest")
    async with consumer, asyncio.timeout(60):
        return [(await consumer.getone()).value for _ in VALUES]


@pytest.fixture
def _aiokafka():
    pytest.importorskip("aiokafka")


@pytest.mark.usefixtures("_aiokafka")
@pytest.mark.parametrize("listener", SASL)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_aiokafka_by_a_password(secured_ours, topic, listener, mechanism):
    login = {"sasl_plain_username": "alice", "sasl_plain_password": secured.PASSWORDS["alice"]}

    async def tried():
        return await by_aiokafka(of_aiokafka(secured_ours, listener, sasl_mechanism=mechanism, **login), topic)

    assert asyncio.run(tried()) == VALUES


@pytest.mark.usefixtures("_aiokafka")
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL", "SIGNED"])
def test_aiokafka_by_a_token(secured_ours, stores, topic, listener):
    from aiokafka.abc import AbstractTokenProvider as Provider

    class Own(Provider):
        async def token(self):
            return signed(stores) if listener == "SIGNED" else unsigned("alice")

    async def tried():
        login = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Own()}
        return await by_aiokafka(of_aiokafka(secured_ours, listener, **login), topic)

    assert asyncio.run(tried()) == VALUES


@pytest.mark.usefixtures("_aiokafka")
def test_aiokafka_by_a_certificate(secured_ours, stores, topic):
    async def tried():
        return await by_aiokafka(of_aiokafka(secured_ours, "MUTUAL", stores["client.pem"]), topic)

    assert asyncio.run(tried()) == VALUES


@pytest.mark.usefixtures("_aiokafka")
def test_aiokafka_is_told_of_a_wrong_password(secured_ours):
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaConnectionError
    from aiokafka.errors import KafkaError as AiokafkaError

    async def tried():
        login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "alice", "sasl_plain_password": "guess"}
        producer = AIOKafkaProducer(**of_aiokafka(secured_ours, "SASL_PLAINTEXT", **login))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises((KafkaConnectionError, AiokafkaError)):
        asyncio.run(tried())
