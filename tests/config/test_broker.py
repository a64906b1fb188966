"""The settings of a broker, and the file they come from."""

import re

import pytest

from sparklog.config.broker import BrokerConfig, parse_broker_config, topic_synonyms
from sparklog.config.definition import definitions, describe, parse
from sparklog.config.kafka_broker import divide
from sparklog.config.listeners import Listeners, plain_listener
from sparklog.config.properties import load_properties
from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError
from sparklog.structs import Endpoint


def test_a_brokers_synonym_gives_the_default_of_topics():
    config = parse_broker_config({"log.retention.ms": "5", "message.max.bytes": "99", "broker.id": "7"})
    assert (config.broker_id, config.topic_defaults.retention_ms, config.topic_defaults.max_message_bytes) == (7, 5, 99)
    assert parse_broker_config({}).topic_defaults == TopicConfig()


def test_a_topics_own_name_is_no_broker_setting():
    with pytest.raises(ConfigError, match=r"retention\.ms"):
        parse_broker_config({"retention.ms": "5"})


def test_every_setting_of_a_topic_has_one_synonym():
    names = definitions(TopicConfig).keys() - {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "sparklog.offload.group",
        "sparklog.offload.max.bytes",
        "sparklog.offload.required",
        "sparklog.retention.policies",
    }
    assert sorted(topic_synonyms().values()) == sorted(names)
    assert not topic_synonyms().keys() & definitions(BrokerConfig).keys()


def test_a_synonym_is_checked_as_the_topics_setting():
    with pytest.raises(ConfigError, match="at least 14"):
        parse_broker_config({"log.segment.bytes": "1"})


def test_topics_defaults_must_go_together():
    lags = {"log.cleaner.min.compaction.lag.ms": "6", "log.cleaner.max.compaction.lag.ms": "5"}
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms=6 is more than max\.compaction\.lag\.ms=5"):
        parse_broker_config(lags)
    assert parse_broker_config(lags | {"log.cleaner.max.compaction.lag.ms": "6"}).topic_defaults


def test_the_default_strategy_of_compaction_needs_its_header():
    strategy = {"log.cleaner.compaction.strategy": "header"}
    with pytest.raises(ConfigError, match=r"needs compaction\.strategy\.header"):
        parse_broker_config(strategy)
    found = parse_broker_config(strategy | {"log.cleaner.compaction.strategy.header": "v"})
    assert found.topic_defaults.compaction_rule == ("header", "v")


def test_a_description_parses_to_the_same_settings():
    config = parse(BrokerConfig, {"broker.id": "3", "log.dirs": "a,b", "auto.create.topics.enable": "false"})
    assert parse(BrokerConfig, describe(config)) == config


@pytest.mark.parametrize(
    "setting",
    [
        {"port": "65536"},
        {"port": "-1"},
        {"broker.id": "-1"},
        {"broker.id": "one"},
        {"num.partitions": "0"},
        {"fetch.max.bytes": "1023"},
        {"offsets.topic.replication.factor": "0"},
        {"auto.create.topics.enable": "maybe"},
    ],
)
def test_limits(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        parse_broker_config(setting)


def test_assignors_go_by_their_names_or_by_kafkas_class_names():
    names = "range,org.apache.kafka.coordinator.group.assignor.UniformAssignor"
    config = parse_broker_config({"group.consumer.assignors": names})
    assert config.group_consumer_assignors == tuple(names.split(","))
    for wrong in ("", "sticky", "range,mine"):
        with pytest.raises(ConfigError, match=r"group\.consumer\.assignors"):
            parse_broker_config({"group.consumer.assignors": wrong})
    with pytest.raises(ConfigError, match="bidirectional"):
        parse_broker_config({"group.consumer.migration.policy": "sometimes"})


STOCK = """\
# Kafka 3.9's config/server.properties: its settings, in its order
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
COMMENTED_OUT = """\
listeners=PLAINTEXT://:9093
advertised.listeners=PLAINTEXT://your.host.name:9094
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL
log.flush.interval.messages=10000
log.flush.interval.ms=1000
log.retention.bytes=1073741824
log.segment.bytes=1073741824
"""


def test_the_file_that_kafka_ships_is_taken(tmp_path, caplog):
    path = tmp_path / "server.properties"
    path.write_text(STOCK)
    config = parse_broker_config(load_properties(path))
    assert (config.log_dirs, config.zookeeper_connect) == (("/tmp/kafka-logs",), "localhost:2181")
    assert (config.group_initial_rebalance_delay_ms, config.topic_defaults.retention_ms) == (0, 168 * 3_600_000)
    (record,) = caplog.records
    assert record.message == (
        "these settings of Kafka's mean nothing here and are left out: num.io.threads, num.network.threads,"
        " socket.receive.buffer.bytes, socket.send.buffer.bytes, zookeeper.connection.timeout.ms"
    )


@pytest.mark.parametrize(
    ("name", "key"),
    [("quota.producer.default", "producer_byte_rate"), ("quota.consumer.default", "consumer_byte_rate")],
)
def test_the_old_defaults_of_quotas_are_taken_with_a_warning(caplog, name, key):
    config = parse_broker_config({name: "1000"})
    assert {config.quota_producer_default, config.quota_consumer_default} == {1000, 2**63 - 1}
    (record,) = caplog.records
    assert record.message.startswith(f"{name} is deprecated: set {key} of the default client id instead")


def test_the_old_name_of_the_tokens_key_is_taken_with_a_warning_and_the_key_is_not_shown(caplog):
    old, new = "delegation.token.master.key", "delegation.token.secret.key"
    config = parse_broker_config({old: "s3cret"})
    assert config.delegation_token_secret_key == "s3cret"
    assert "s3cret" not in repr(config)
    (record,) = caplog.records
    assert record.message == f"{old} is deprecated: write {new}"
    assert parse_broker_config({old: "old", new: "new"}).delegation_token_secret_key == "new"


def test_so_is_the_file_with_what_it_has_in_comments(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(STOCK + COMMENTED_OUT)
    config = parse_broker_config(load_properties(path))
    assert [each.endpoint for each in config.ends.bound] == [("", 9093)]
    assert [each.endpoint for each in config.ends.advertised] == [("your.host.name", 9094)]
    assert config.topic_defaults.flush_messages == 10_000


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://127.0.0.1:9092", "127.0.0.1", 9092),
        ("plaintext://[::1]:1", "::1", 1),
        ("PLAINTEXT://a-host:0", "a-host", 0),
    ],
)
def test_a_listener_is_an_address(text, host, port):
    config = parse_broker_config({"listeners": text})
    assert config.ends.bound == config.ends.advertised == (plain_listener(Endpoint(host, port)),)


def test_host_and_port_are_the_listener_where_none_is_named():
    ends = parse_broker_config({"host.name": "a", "port": "1", "advertised.host.name": "b"}).ends
    assert ends == Listeners((plain_listener(Endpoint("a", 1)),), (plain_listener(Endpoint("b", 0)),), "PLAINTEXT")


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "two listeners are called PLAINTEXT"),
        ({"listeners": "a:1"}, "is not NAME://HOST:PORT"),
        ({"listeners": "OTHER://a:1"}, "listener OTHER has no protocol"),
        ({"listener.security.protocol.map": "OTHER:TLS"}, "'TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"listeners": "PLAINTEXT://a:1", "advertised.listeners": "SSL://a:2"}, "names SSL, where nothing listens"),
        ({"inter.broker.listener.name": "SSL"}, "by listener SSL, which is not among PLAINTEXT"),
        ({"inter.broker.listener.name": "A", "security.inter.broker.protocol": "SSL"}, "not both"),
        ({"listeners": "PLAINTEXT://:1"}, "set advertised.listeners=PLAINTEXT://NAME:PORT too"),
        ({"host.name": "0.0.0.0"}, "listens on every address of this machine"),
        ({"host.name": "::"}, "listens on every address of this machine"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "is no address that a client can connect to"),
        ({"process.roles": "broker,controller"}, "KRaft"),
        ({"controller.quorum.voters": "1@a:1"}, "KRaft"),
        ({"control.plane.listener.name": "CONTROLLER"}, "remove the setting, and CONTROLLER from listeners"),
        ({"authorizer.class.name": "org.apache.ranger.Authorizer"}, "there is kafka.security.authorizer.AclAuthorizer"),
        ({"super.users": "User:admin"}, "set authorizer.class.name=kafka.security.authorizer.AclAuthorizer too"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "by listener SASL_SSL"),
        (
            {
                "sparklog.metrics.port": "0",
                "sparklog.metrics.host": "0.0.0.0",
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            },
            "set sparklog.metrics.token.file too",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_would_be_another_broker_is_refused(properties, named):
    with pytest.raises(ConfigError, match=re.escape(named)):
        parse_broker_config(properties)


def test_what_asks_for_no_security_is_left_out():
    asked = {"zookeeper.set.acl": "false", "super.users": "", "zookeeper.ssl.client.enable": "false"}
    assert parse_broker_config(asked | {"control.plane.listener.name": " "}) == BrokerConfig()


def test_settings_of_kafkas_that_are_left_out_are_none_of_ours():
    ours = definitions(BrokerConfig).keys() | topic_synonyms().keys()
    assert divide(dict.fromkeys(ours, "")) == (dict.fromkeys(ours, ""), [])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "each needs more than 1048576"),
        ({"log.cleaner.dedupe.buffer.size": "4194304", "log.cleaner.threads": "4"}, "log.cleaner.threads=4"),
        ({"log.cleaner.io.buffer.load.factor": "0"}, "must be more than 0, and at most 1"),
        ({"log.cleaner.io.buffer.load.factor": "1.1"}, "must be more than 0, and at most 1"),
        ({"log.cleaner.io.buffer.load.factor": "nan"}, "must be more than 0, and at most 1"),
        ({"log.cleaner.io.max.bytes.per.second": "0"}, "must be more than 0"),
        ({"log.cleaner.threads": "-1"}, "must be at least 0"),
    ],
)
def test_a_cleaner_that_could_not_work_is_refused(settings, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse_broker_config(settings)


def test_what_a_cleaner_may_have(caplog):
    least = parse_broker_config({"log.cleaner.dedupe.buffer.size": "4194308", "log.cleaner.threads": "4"})
    assert (least.log_cleaner_dedupe_buffer_size, least.log_cleaner_threads) == (4_194_308, 4)
    assert parse_broker_config({"log.cleaner.dedupe.buffer.size": "0", "log.cleaner.threads": "0"})
    assert parse_broker_config({"log.cleaner.io.buffer.load.factor": "1", "log.cleaner.io.max.bytes.per.second": "0.5"})
    assert parse_broker_config({"log.cleanup.policy": "compact"}).topic_defaults.cleanup_policy == ("compact",)
    assert caplog.text == ""


def test_a_name_is_only_taken_for_one_that_is_like_it():
    with pytest.raises(ConfigError, match=r"unknown setting 'log\.shredder\.speed'$"):
        parse_broker_config({"log.shredder.speed": "7"})
    with pytest.raises(ConfigError, match=r"did you mean log\.cleaner\.enable\?"):
        parse_broker_config({"log.cleaner.enabled": "true"})
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions\?"):
        parse_broker_config({"num.partition": "1"})
