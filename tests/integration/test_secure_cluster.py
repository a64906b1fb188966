"""A cluster as ``sparklog up --secure`` makes it, and its two users with the files that they are given."""

import contextlib
import re
import stat
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from web.serving import Browser

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.errors import ApiError, AuthenticationFailed, ConnectionFailed
from sparklog.local.broker import BrokerProcess
from sparklog.local.process import ChildProcess
from sparklog.testing.cluster import SecureClusterHarness
from sparklog.testing.librdkafka import librdkafka_settings

pytestmark = pytest.mark.integration

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="guessed";'
PATIENCE = {"default.api.timeout.ms": 1000}


class Shown(SecureClusterHarness):
    """With the web page."""

    web_port = 0


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BrokerProcess, "child", ChildProcess)  # /proc is to show how they are started
        cluster = Shown(tmp_path_factory.mktemp("secure"))
    with cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(secure):
    """A topic with one record, that the administrator has written."""
    with Admin(secure.client("admin")) as admin:
        admin.create_topics([NewTopic("greetings", 1, 1)])
    producer = Producer(librdkafka_settings(secure.client("admin")))
    producer.produce("greetings", b"hello")
    assert producer.flush(60) == 0
    return "greetings"


def for_kafka_python(client):
    found = librdkafka_settings(client)
    names = {
        "sasl.username": "sasl_plain_username",
        "sasl.password": "sasl_plain_password",
        "ssl.ca.location": "ssl_cafile",
    }
    return {names.get(name, name.replace(".", "_")): value for name, value in found.items()}


def test_the_administrator_writes_and_reads(secure, topic):
    reading = {"group.id": "admins", "auto.offset.reset": "earliest"}
    consumer = Consumer(librdkafka_settings(secure.client("admin")) | reading)
    consumer.subscribe([topic])
    try:
        assert consumer.poll(60).value() == b"hello"
    finally:
        consumer.close()


def test_spark_writes_and_reads_and_commits(secure, topic):
    settings = for_kafka_python(secure.client("spark"))
    producer = KafkaProducer(**settings)
    producer.send(topic, b"again").get(30)
    producer.close()
    reading = {"group_id": "spark", "auto_offset_reset": "earliest", "consumer_timeout_ms": 60_000}
    with contextlib.closing(KafkaConsumer(topic, **settings, **reading)) as consumer:
        assert [next(consumer).value for _ in range(2)] == [b"hello", b"again"]
        consumer.commit()


def test_spark_is_no_administrator(secure, topic):
    with Admin(secure.client("spark")) as spark, pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED"):
        spark.delete_topics([topic])


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"security.protocol": "PLAINTEXT"}, ConnectionFailed),
        ({"security.protocol": "SSL"}, ConnectionFailed),
        ({"sasl.jaas.config": LOGIN.format("admin")}, AuthenticationFailed),
        ({"sasl.jaas.config": LOGIN.format("nobody")}, AuthenticationFailed),
    ],
)
def test_nobody_else_comes_in(secure, changed, error):
    settings = secure.client("admin") | changed
    if "security.protocol" in changed:
        wanted = ("bootstrap.servers", "ssl.")[: 1 + (changed["security.protocol"] == "SSL")]
        settings = {name: value for name, value in settings.items() if name.startswith(wanted)} | changed
    with pytest.raises(error), Admin(settings, **PATIENCE) as admin:
        admin.list_topics()


def test_the_brokers_listener_asks_for_a_certificate(secure):
    files = secure.secured.zookeeper_tls
    settings = {
        "bootstrap.servers": f"127.0.0.1:{secure.brokers[0].spec.inner_port}",
        "security.protocol": "SSL",
        "ssl.truststore.location": str(files.trust_store),
    }
    with pytest.raises(AuthenticationFailed, match="wants one"), Admin(settings) as admin:
        admin.list_topics()
    with Admin(settings, **{"ssl.keystore.location": str(files.key_store)}) as broker:
        assert isinstance(broker.list_topics(), list)


def test_secrets_are_in_their_files_alone(secure, topic):
    """In no log, no argument of a process, no record and no znode: everything on the disk, but ``secure/``."""
    clients = [librdkafka_settings(secure.client(user)) for user in ("admin", "spark")]
    secrets = [each["sasl.password"].encode() for each in clients]
    secrets += re.findall(
        rb"\n([A-Za-z0-9+/=]{60,})\n-----END PRIVATE", secure.secured.zookeeper_tls.key_store.read_bytes()
    )
    assert len(secrets) >= 2
    processes = [each.pid for each in (*secure.brokers, *secure.zookeepers)]
    places = {Path(f"/proc/{pid}/{name}") for pid in processes for name in ("cmdline", "environ")}
    places |= {each for each in secure.directory.root.rglob("*") if each.is_file()}
    places -= set(secure.secured.root.iterdir())
    assert secure.brokers[0].log_path in places
    assert {str(path) for path in places for secret in secrets if secret in path.read_bytes()} == set()


def test_the_files_of_the_log_are_not_everybodys(secure, topic):
    (directory,) = secure.directory.broker(0).glob(f"{topic}-*")
    assert {each.stat().st_mode & 0o027 for each in (directory, *directory.iterdir())} == {0}
    private = (secure.secured.root, secure.zookeeper.data_dir, secure.directory.logs)
    assert {stat.S_IMODE(each.stat().st_mode) for each in private} == {0o700}


def test_visitors_of_the_brokers_page_log_in(secure, topic):
    broker = secure.brokers[0]
    browser = Browser(re.fullmatch(r"http://(127\.0\.0\.1:\d+)/", broker.web_url)[1])
    assert browser.get("/api/cluster").status == 401
    password = re.search(r'password="([^"]+)"', secure.client("admin")["sasl.jaas.config"])[1]
    assert browser.log_in("admin", password).status == 200
    assert topic in [each["name"] for each in browser.rows("/api/topics")["rows"]]
    assert password not in broker.output()
