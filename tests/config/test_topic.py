"""The settings of a topic."""

import pytest

from sparklog.config.definition import definitions, describe, parse
from sparklog.config.topic import TopicConfig, check_together
from sparklog.errors import ConfigError

# Apache Kafka 3.9, TopicConfig and LogConfig.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.message.bytes": "1048588",
    "message.downconversion.enable": "true",
    "message.format.version": "3.0-IV1",
    "message.timestamp.difference.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_the_defaults_are_kafkas():
    described = describe(TopicConfig())
    assert {name: described.get(name) for name in KAFKA_DEFAULTS} == KAFKA_DEFAULTS


def test_a_description_parses_to_the_same_settings():
    config = parse(TopicConfig, {"cleanup.policy": "compact,delete", "retention.ms": "-1", "segment.bytes": "1000"})
    assert parse(TopicConfig, describe(config)) == config


def test_every_default_is_within_its_own_limits():
    for name, (_, definition) in definitions(TopicConfig).items():
        assert definition.parse(definition.format(definition.default)) == definition.default, name


@pytest.mark.parametrize(
    "setting",
    [
        {"cleanup.policy": "shred"},
        {"cleanup.policy": ""},
        {"compaction.strategy": "newest"},
        {"compaction.strategy": "Header"},
        {"compression.type": "rar"},
        {"message.timestamp.type": "createtime"},
        {"segment.bytes": "13"},
        {"segment.ms": "0"},
        {"retention.ms": "-2"},
        {"min.insync.replicas": "0"},
        {"sparklog.min.isr.visibility": "never"},
        {"max.message.bytes": "-1"},
        {"flush.messages": "0"},
    ],
)
def test_limits(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        parse(TopicConfig, setting)


@pytest.mark.parametrize(
    ("strategy", "header", "rule"),
    [
        ("offset", "v", ("offset", "")),
        ("timestamp", "v", ("timestamp", "")),
        ("header", "v", ("header", "v")),
        ("header", "", ("offset", "")),
    ],
)
def test_the_header_counts_for_its_own_strategy_alone(strategy, header, rule):
    config = TopicConfig(compaction_strategy=strategy, compaction_strategy_header=header)
    assert config.compaction_rule == rule


def test_the_strategy_header_needs_a_name():
    with pytest.raises(ConfigError, match=r"compaction\.strategy=header needs compaction\.strategy\.header"):
        check_together(parse(TopicConfig, {"compaction.strategy": "header"}))
    check_together(parse(TopicConfig, {"compaction.strategy": "header", "compaction.strategy.header": "v"}))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"sparklog.offload.required": "true"}, "required=true needs sparklog.offload.max.bytes"),
        ({"sparklog.offload.max.bytes": "9"}, "means nothing without sparklog.offload.required=true"),
    ],
)
def test_to_wait_for_the_offload_takes_a_limit_and_a_limit_takes_waiting(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        check_together(parse(TopicConfig, settings))
    check_together(parse(TopicConfig, {"sparklog.offload.required": "true", "sparklog.offload.max.bytes": "9"}))


@pytest.mark.parametrize("name", ["sparklog.offload.max.bytes", "sparklog.retention.policies"])
@pytest.mark.parametrize("text", ["", "0", " , "])
def test_what_retention_cannot_mean_is_refused(name, text):
    if (name, text) != ("sparklog.retention.policies", "0"):  # a name like any other
        with pytest.raises(ConfigError, match=name):
            parse(TopicConfig, {name: text})


@pytest.mark.parametrize("release", ["0.10.0.0", "0.9.0", "2.8", "3.0-IV1"])
def test_a_message_format_of_any_release_is_kept(release):
    assert parse(TopicConfig, {"message.format.version": release}).message_format_version == release


@pytest.mark.parametrize("release", ["", "two", "3.0-IV", "2."])
def test_a_message_format_is_a_release(release):
    with pytest.raises(ConfigError, match="release"):
        parse(TopicConfig, {"message.format.version": release})
