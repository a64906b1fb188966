"""The settings of a topic (Kafka 3.9's topic-level configuration, those that sparklog keeps)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sparklog.config.definition import ConfigType as T
from sparklog.config.definition import any_of, at_least, between, matching, one_of, parse, setting
from sparklog.errors import ConfigError

_logger = logging.getLogger(__name__)

_LONG_MAX = (1 << 63) - 1
_REPLICA = re.compile("[0-9]+:[0-9]+")


def _complaint_about_replicas(entries: tuple[str, ...]) -> str | None:
    """Source: Kafka 3.9, ``ThrottledReplicaListValidator``."""
    if entries == ("*",) or all(_REPLICA.fullmatch(each) for each in entries):
        return None
    return "must be * for all replicas, or PARTITION:BROKER,PARTITION:BROKER"


OFFSET_STRATEGY, TIMESTAMP_STRATEGY, HEADER_STRATEGY = "offset", "timestamp", "header"
COMPRESSION_NAMES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


@dataclass(frozen=True)
class TopicConfig:
    """Immutable; a change makes a new one."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        T.LIST,
        ("delete",),
        "What becomes of old records: delete, old segments are deleted; compact, of each key the last record stays.",
        any_of("delete", "compact"),
        broker="log.cleanup.policy",
    )
    compaction_strategy: str = setting(
        "compaction.strategy",
        T.STRING,
        OFFSET_STRATEGY,
        "Which record of a key compaction keeps: offset, the last; timestamp, the one with the greatest timestamp;"
        " header, the one with the greatest version in its header compaction.strategy.header.",
        one_of(OFFSET_STRATEGY, TIMESTAMP_STRATEGY, HEADER_STRATEGY),
        broker="log.cleaner.compaction.strategy",
    )
    compaction_strategy_header: str = setting(
        "compaction.strategy.header",
        T.STRING,
        "",
        "The name of the header that holds a record's version, 8 bytes, big-endian, where compaction.strategy=header.",
        broker="log.cleaner.compaction.strategy.header",
    )
    compression_type: str = setting(
        "compression.type",
        T.STRING,
        "producer",
        "Codec on disk; producer keeps what was sent.",
        one_of(*COMPRESSION_NAMES),
        broker="compression.type",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        T.INT,
        -1,
        "Level where compression.type=gzip; -1 for the codec's own.",
        lambda level: None if level == -1 or 1 <= level <= 9 else "must be -1, or from 1 to 9",
        broker="compression.gzip.level",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        T.INT,
        9,
        "Kept for Kafka; sparklog compresses LZ4 at one level only.",
        between(1, 17),
        broker="compression.lz4.level",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        T.INT,
        3,
        "Level where compression.type=zstd.",
        between(-131_072, 22),
        broker="compression.zstd.level",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        T.LONG,
        86_400_000,
        "How long a tombstone stays in a compacted topic, from its first cleaning on.",
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
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        T.LIST,
        (),
        "Replicas that are fetched at follower.replication.throttled.rate: PARTITION:BROKER, ..., or * for all.",
        _complaint_about_replicas,
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        T.INT,
        4096,
        "Bytes of log between two index entries. More than 4096 count as 4096, so that every record is found at once.",
        at_least(0),
        broker="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        T.LIST,
        (),
        "Leaders that send at leader.replication.throttled.rate to followers out of sync: PARTITION:BROKER, ..., or *.",
        _complaint_about_replicas,
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        T.INT,
        1_048_588,
        "Largest record batch accepted, compressed.",
        at_least(0),
        broker="message.max.bytes",
    )
    message_downconversion_enable: bool = setting(
        "message.downconversion.enable",
        T.BOOLEAN,
        True,
        "Whether clients from before Kafka 0.11 may fetch; batches are made message sets for them.",
        broker="log.message.downconversion.enable",
    )
    message_format_version: str = setting(
        "message.format.version",
        T.STRING,
        "3.0-IV1",
        "Kept for Kafka; batches have format 2 whatever it says, as since Kafka 3.0.",
        matching(r"\d+\.\d+(\.\d+)*(-IV\d+)?", "a release of Kafka, such as 3.0-IV1"),
        broker="log.message.format.version",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        T.STRING,
        "CreateTime",
        "Whose clock stamps a record.",
        one_of("CreateTime", "LogAppendTime"),
        broker="log.message.timestamp.type",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        T.LONG,
        _LONG_MAX,
        "How far a record's time may lie ahead of the broker's.",
        at_least(0),
        broker="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        T.LONG,
        _LONG_MAX,
        "How far a record's time may lie behind the broker's.",
        at_least(0),
        broker="log.message.timestamp.before.max.ms",
    )
    message_timestamp_difference_max_ms: int = setting(
        "message.timestamp.difference.max.ms",
        T.LONG,
        _LONG_MAX,
        "Both bounds of a record's time at once, where they are not set one by one.",
        at_least(0),
        broker="log.message.timestamp.difference.max.ms",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        T.LONG,
        _LONG_MAX,
        "How long a record may stay uncompacted; then its log is cleaned, however little of it is dirty.",
        at_least(1),
        broker="log.cleaner.max.compaction.lag.ms",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        T.DOUBLE,
        0.5,
        "Share of a log that must be new before it is compacted: more takes more room and less work.",
        between(0, 1),
        broker="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        T.LONG,
        0,
        "How long a record stays uncompacted at least.",
        at_least(0),
        broker="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        T.INT,
        1,
        "Replicas that acks=all needs, all of them where there are fewer.",
        at_least(1),
        broker="min.insync.replicas",
    )
    min_isr_visibility: str = setting(
        "sparklog.min.isr.visibility",
        T.STRING,
        "strict",
        "What readers see while fewer replicas than min.insync.replicas are in sync: strict, nothing new; immediate,"
        " at once what acks=0 and acks=1 brought, as in Kafka before 3.9.1.",
        one_of("strict", "immediate"),
        broker="sparklog.min.isr.visibility",
    )
    offload_group: str = setting(
        "sparklog.offload.group",
        T.STRING,
        "",
        "The consumer group whose committed offsets say what has been offloaded; empty for sparklog-offload.TOPIC.",
    )
    offload_max_bytes: int = setting(
        "sparklog.offload.max.bytes",
        T.LONG,
        -1,
        "Most that a partition keeps beyond its retention until it is offloaded, with sparklog.offload.required=true;"
        " -1 without it.",
        lambda most: None if most == -1 or most >= 1 else "must be at least 1",
    )
    offload_required: bool = setting(
        "sparklog.offload.required",
        T.BOOLEAN,
        False,
        "Whether retention waits: records stay until they are offloaded, up to sparklog.offload.max.bytes.",
    )
    preallocate: bool = setting(
        "preallocate",
        T.BOOLEAN,
        False,
        "Only false: segment files grow as they are written.",
        one_of(False),
        broker="log.preallocate",
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
    retention_policies: tuple[str, ...] = setting(
        "sparklog.retention.policies",
        T.LIST,
        ("age", "size"),
        "What deletes old segments, in any order: age, by retention.ms; size, by retention.bytes; offload, as soon as"
        " they are offloaded; and what is installed by other names. A segment goes if one of them gives it up.",
        lambda names: None if names else "must name a policy",
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
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        T.LONG,
        0,
        "Most that is taken off segment.ms, at random, so that not all segments roll at once.",
        at_least(0),
        broker="log.roll.jitter.ms",
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

    @property
    def asks_what_is_offloaded(self) -> bool:
        """Whether retention depends on it."""
        wants = self.offload_required or "offload" in self.retention_policies
        return wants and "delete" in self.cleanup_policy

    @property
    def record_time_bounds_ms(self) -> tuple[int, int]:
        """How far a record's time may lie behind the broker's, and how far ahead of it."""
        both = self.message_timestamp_difference_max_ms
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        return (both if before == _LONG_MAX else before), (both if after == _LONG_MAX else after)

    @property
    def compaction_rule(self) -> tuple[str, str]:
        """The strategy of compaction that counts, and the header that it goes by, empty for another strategy.

        ``header`` without a name, which a broker refuses and a Kafka broker may have stored, counts as ``offset``.
        """
        header = self.compaction_strategy_header if self.compaction_strategy == HEADER_STRATEGY else ""
        is_nameless = self.compaction_strategy == HEADER_STRATEGY and not header
        return (OFFSET_STRATEGY if is_nameless else self.compaction_strategy), header

    @cached_property
    def decodes_records(self) -> bool:
        """Whether an append decodes a client's records: for their keys, for their times, or to compress them anew."""
        timed = self.message_timestamp_type == "CreateTime" and self.record_time_bounds_ms != (_LONG_MAX, _LONG_MAX)
        return self.compression_type != "producer" or "compact" in self.cleanup_policy or timed

    @cached_property
    def rule_of_batches(self) -> tuple[object, ...]:
        """All that decides what becomes of a batch that a client sends."""
        return (
            self.max_message_bytes,
            self.cleanup_policy,
            self.compression_type,
            self.compression_level,
            self.message_timestamp_type,
            self.record_time_bounds_ms,
        )

    @property
    def longest_segment_ms(self) -> int:
        """Age at which a segment is rolled: a compacted topic's must be in time for ``max.compaction.lag.ms``."""
        if "compact" in self.cleanup_policy:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def compression_level(self) -> int | None:
        """The level that goes with ``compression_type``; None for a codec's own, or one without levels."""
        if self.compression_type == "gzip" and self.compression_gzip_level > 0:
            return self.compression_gzip_level
        return self.compression_zstd_level if self.compression_type == "zstd" else None


def check_together(config: TopicConfig) -> None:
    """Raises ConfigError where settings that are each allowed do not go together."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            f"min.compaction.lag.ms={config.min_compaction_lag_ms} is more than"
            f" max.compaction.lag.ms={config.max_compaction_lag_ms}"
        )
    if config.compaction_strategy == HEADER_STRATEGY and not config.compaction_strategy_header:
        raise ConfigError(
            "compaction.strategy=header needs compaction.strategy.header: the name of the header that holds the version"
        )
    if config.offload_required and config.offload_max_bytes < 0:
        raise ConfigError(
            "sparklog.offload.required=true needs sparklog.offload.max.bytes: how many bytes of a partition are kept at"
            " most beyond its retention while they wait"
        )
    if config.offload_max_bytes >= 0 and not config.offload_required:
        raise ConfigError("sparklog.offload.max.bytes means nothing without sparklog.offload.required=true")


def parse_stored(topic: str, properties: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    """The settings as ZooKeeper has them; one that does not fit (a Kafka broker may have written it) is left out."""
    config = defaults
    for name, text in properties.items():
        try:
            config = parse(TopicConfig, {name: text}, config)
        except ConfigError as error:
            _logger.warning("topic %s keeps the default instead: %s", topic, error)
    return config
