"""The settings of a broker, and the file they come from."""

import pytest

from sparklog.config.broker import BrokerConfig, load_properties, parse_broker_config, topic_synonyms
from sparklog.config.definition import definitions, describe, parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError


def test_a_brokers_synonym_gives_the_default_of_topics():
    config = parse_broker_config({"log.retention.ms": "5", "message.max.bytes": "99", "broker.id": "7"})
    assert (config.broker_id, config.topic_defaults.retention_ms, config.topic_defaults.max_message_bytes) == (7, 5, 99)
    assert parse_broker_config({}).topic_defaults == TopicConfig()


def test_a_topics_own_name_is_no_broker_setting():
    with pytest.raises(ConfigError, match=r"retention\.ms"):
        parse_broker_config({"retention.ms": "5"})


def test_every_setting_of_a_topic_has_one_synonym():
    names = definitions(TopicConfig)
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


def test_a_properties_file(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("# a comment\n! another\n\n  broker.id = 7 \nzookeeper.connect=h:1/a=b\nempty=\nbroker.id=8\n")
    assert load_properties(path) == {"broker.id": "8", "zookeeper.connect": "h:1/a=b", "empty": ""}


def test_a_line_that_sets_nothing_is_named(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("broker.id=1\nbroker.id\n")
    with pytest.raises(ConfigError, match=r"server\.properties line 2: 'broker\.id' is not key=value"):
        load_properties(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*none\.properties: No such file"):
        load_properties(tmp_path / "none.properties")


def test_a_file_that_is_not_text_is_named(tmp_path):
    path = tmp_path / "server.properties"
    path.write_bytes(b"a=\xff\xfe")
    with pytest.raises(ConfigError, match=r"server\.properties"):
        load_properties(path)


def test_assignors_go_by_their_names_or_by_kafkas_class_names():
    names = "range,org.apache.kafka.coordinator.group.assignor.UniformAssignor"
    config = parse_broker_config({"group.consumer.assignors": names})
    assert config.group_consumer_assignors == tuple(names.split(","))
    for wrong in ("", "sticky", "range,mine"):
        with pytest.raises(ConfigError, match=r"group\.consumer\.assignors"):
            parse_broker_config({"group.consumer.assignors": wrong})
    with pytest.raises(ConfigError, match="bidirectional"):
        parse_broker_config({"group.consumer.migration.policy": "sometimes"})
