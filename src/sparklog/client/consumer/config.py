"""The settings of a consumer, by Kafka's names, and what of them does not go together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sparklog.client.cluster.config import ClientConfig, as_properties
from sparklog.client.consumer.assignors import assignors_named
from sparklog.client.consumer.offset_reset import OffsetReset, parse_reset
from sparklog.config.definition import ConfigType, at_least, between, setting
from sparklog.errors import ConfigError

_MAX_INT = 2**31 - 1


def _ms(name: str, default: int, doc: str, least: int = 1) -> int:
    return setting(name, ConfigType.INT, default, doc, between(least, _MAX_INT))  # type: ignore[no-any-return]


def _classic(value: str) -> str | None:
    if value.lower() == "classic":
        return None
    return "this client speaks the classic protocol only; brokers serve members of both"


@dataclasses.dataclass(frozen=True)
class ConsumerConfig(ClientConfig):
    """What a consumer is told besides; names and defaults are Kafka's. Sizes are bytes, times milliseconds."""

    group_id: str = setting("group.id", ConfigType.STRING, "", "The group that shares the topics; empty for none.")
    group_protocol: str = setting(
        "group.protocol", ConfigType.STRING, "classic", "How the member speaks to its group.", _classic
    )
    group_instance_id: str = setting(
        "group.instance.id", ConfigType.STRING, "", "Makes the member static: a restart moves no partition."
    )
    session_timeout_ms: int = _ms("session.timeout.ms", 45_000, "How long a silent member stays in its group.")
    heartbeat_interval_ms: int = _ms("heartbeat.interval.ms", 3_000, "How often a member says that it lives.")
    max_poll_interval_ms: int = _ms("max.poll.interval.ms", 300_000, "Longest time between polls of a live member.")
    max_poll_records: int = setting(
        "max.poll.records", ConfigType.INT, 500, "Most records that a poll returns.", at_least(1)
    )
    offset_reset: str = setting(
        "auto.offset.reset",
        ConfigType.STRING,
        "latest",
        "Where to begin where nothing is committed: earliest, latest, none, by_duration:PnDTnHnMnS.",
    )
    enable_auto_commit: bool = setting(
        "enable.auto.commit", ConfigType.BOOLEAN, True, "Whether positions are committed by themselves."
    )
    auto_commit_interval_ms: int = _ms("auto.commit.interval.ms", 5_000, "How often they are.", least=0)
    assignment_strategy: tuple[str, ...] = setting(
        "partition.assignment.strategy",
        ConfigType.LIST,
        ("range", "cooperative-sticky"),
        "How the group shares partitions: range, roundrobin, sticky, cooperative-sticky, most wanted first.",
    )
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics", ConfigType.BOOLEAN, True, "Whether a broker may create topics that are read."
    )
    fetch_min_bytes: int = setting(
        "fetch.min.bytes", ConfigType.INT, 1, "Bytes for which a broker waits before it answers.", at_least(0)
    )

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None = None, **more: Any) -> ConsumerConfig:
        """From Kafka's names, with dots or (as keywords) with underscores; values as text or as they are."""
        given = as_properties(settings, more)
        return cls.from_properties(given)._checked("enable.auto.commit" in given)

    @property
    def reset(self) -> OffsetReset:
        return parse_reset(self.offset_reset)

    @property
    def auto_commit_interval(self) -> float | None:
        """Seconds between commits; None for none."""
        return self.auto_commit_interval_ms / 1000 if self.enable_auto_commit and self.group_id else None

    def _checked(self, auto_commit_asked_for: bool) -> ConsumerConfig:
        parse_reset(self.offset_reset)
        assignors_named(self.assignment_strategy)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be below session.timeout.ms="
                f"{self.session_timeout_ms}; a third of it is usual"
            )
        if not self.group_id and self.group_instance_id:
            raise ConfigError("group.instance.id needs group.id")
        if not self.group_id and self.enable_auto_commit and auto_commit_asked_for:
            raise ConfigError("enable.auto.commit=true needs group.id: offsets are committed for a group")
        return self
