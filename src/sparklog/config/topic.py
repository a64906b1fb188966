"""The settings of a topic (Kafka 3.9's topic-level configuration, those that sparklog keeps)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.config.definition import ConfigType as T
from sparklog.config.definition import any_of, at_least, one_of, parse, setting
from sparklog.errors import ConfigError

_logger = logging.getLogger(__name__)

_LONG_MAX = (1 << 63) - 1
COMPRESSION_NAMES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


@dataclass(frozen=True)
class TopicConfig:
    """Immutable; a change makes a new one."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        T.LIST,
        ("delete",),
        "What becomes of old segments.",
        any_of("delete", "compact"),
        broker="log.cleanup.policy",
    )
    compression_type: str = setting(
        "compression.type",
        T.STRING,
        "producer",
        "Codec on disk; producer keeps what was sent.",
        one_of(*COMPRESSION_NAMES),
        broker="compression.type",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        T.LONG,
        86_400_000,
        "How long a tombstone stays in a compacted topic.",
        at_least(0),
        broker="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        T.LONG,
        60_000,
        "How long a deleted file lingers under another name.",
        at_least(0),
        broker="log.segment.delete.delay.ms",
    )
    flush_messages: int = setting(
        "flush.messages",
        T.LONG,
        _LONG_MAX,
        "Records between two fsyncs.",
        at_least(1),
        broker="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        "flush.ms", T.LONG, _LONG_MAX, "Milliseconds between two fsyncs.", at_least(0), broker="log.flush.interval.ms"
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        T.INT,
        4096,
        "Bytes of log between two index entries.",
        at_least(0),
        broker="log.index.interval.bytes",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        T.INT,
        1_048_588,
        "Largest record batch accepted, compressed.",
        at_least(0),
        broker="message.max.bytes",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        T.STRING,
        "CreateTime",
        "Whose clock stamps a record.",
        one_of("CreateTime", "LogAppendTime"),
        broker="log.message.timestamp.type",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas", T.INT, 1, "Replicas that acks=all needs.", at_least(1), broker="min.insync.replicas"
    )
    retention_bytes: int = setting(
        "retention.bytes",
        T.LONG,
        -1,
        "Largest size of a partition, -1 for any.",
        at_least(-1),
        broker="log.retention.bytes",
    )
    retention_ms: int = setting(
        "retention.ms",
        T.LONG,
        604_800_000,
        "How long a segment is kept, -1 for ever.",
        at_least(-1),
        broker="log.retention.ms",
    )
    segment_bytes: int = setting(
        "segment.bytes",
        T.INT,
        1_073_741_824,
        "Size at which a segment is rolled.",
        at_least(14),
        broker="log.segment.bytes",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        T.INT,
        10_485_760,
        "Largest size of an index.",
        at_least(4),
        broker="log.index.size.max.bytes",
    )
    segment_ms: int = setting(
        "segment.ms", T.LONG, 604_800_000, "Age at which a segment is rolled.", at_least(1), broker="log.roll.ms"
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        T.BOOLEAN,
        False,
        "Whether a replica out of sync may lead.",
        broker="unclean.leader.election.enable",
    )


def parse_stored(topic: str, properties: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    """The settings as ZooKeeper has them; one that does not fit (a Kafka broker may have written it) is left out."""
    config = defaults
    for name, text in properties.items():
        try:
            config = parse(TopicConfig, {name: text}, config)
        except ConfigError as error:
            _logger.warning("topic %s keeps the default instead: %s", topic, error)
    return config
