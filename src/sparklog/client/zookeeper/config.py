"""The settings of a consumer whose group lives in ZooKeeper, by the names of Kafka's old consumer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from sparklog.client.cluster.config import as_properties
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.zookeeper import group
from sparklog.client.zookeeper.group import Layout
from sparklog.config.definition import ConfigType as T
from sparklog.config.definition import at_least, between, definitions, one_of, parse, setting
from sparklog.config.zookeeper_connect import parse_connect
from sparklog.config.zookeeper_security import OPEN, ZooKeeperSecurity
from sparklog.errors import ConfigError

_MAX_INT = 2**31 - 1
_RESET = "auto.offset.reset"
_OLD_RESETS = {"smallest": "earliest", "largest": "latest"}
_OLD_NAMES = {"enable.auto.commit": "auto.commit.enable"}
_ANY_BROKER = "localhost:1"
"""Stands for the brokers while the settings are checked; they are found in ZooKeeper."""


def _ms(name: str, default: int, doc: str) -> int:
    return setting(name, T.INT, default, doc, between(1, _MAX_INT))  # type: ignore[no-any-return]


@dataclasses.dataclass(frozen=True)
class ZooKeeperConsumerConfig:
    """Immutable. Times are milliseconds. What is said of brokers and fetches is in ``fetching``."""

    zookeeper_connect: str = setting("zookeeper.connect", T.STRING, "", "The ensemble, host:port,host:port/chroot.")
    group_id: str = setting("group.id", T.STRING, "", "The group that shares the topics.")
    consumer_id: str = setting("consumer.id", T.STRING, "", "This consumer's name in the group; empty for a new one.")
    session_timeout_ms: int = _ms(
        "zookeeper.session.timeout.ms", 6_000, "How long ZooKeeper keeps the claims of a consumer that is silent."
    )
    connection_timeout_ms: int = _ms(
        "zookeeper.connection.timeout.ms", 15_000, "How long a first connection to ZooKeeper is waited for."
    )
    rebalance_backoff_ms: int = _ms(
        "rebalance.backoff.ms", 2_000, "Pause before a claim that another has, or a failed rebalance, is tried again."
    )
    auto_commit: bool = setting(
        "auto.commit.enable",
        T.BOOLEAN,
        True,
        "Whether offsets are written by themselves, and when a claim is given up.",
    )
    auto_commit_interval_ms: int = _ms("auto.commit.interval.ms", 60_000, "How often they are.")
    max_poll_interval_ms: int = _ms(
        "max.poll.interval.ms", 300_000, "How long records in hand keep a partition from its next owner."
    )
    max_poll_records: int = setting("max.poll.records", T.INT, 500, "Most records that a poll returns.", at_least(1))
    exclude_internal: bool = setting(
        "exclude.internal.topics", T.BOOLEAN, True, "Whether filters leave the brokers' own topics out."
    )
    layout_name: str = setting(
        "sparklog.registry.layout",
        T.STRING,
        Layout.BROKER_PARTITION.value,
        "How claims are named and partitions shared: broker-partition as in the first design, kafka as in Kafka 0.8"
        " to 1.1. All members of a group need the same.",
        one_of(*(each.value for each in Layout)),
    )
    security: ZooKeeperSecurity = OPEN
    """How the connection to ZooKeeper is secured."""
    fetching: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The settings of the consumers that fetch, without brokers where none are named."""

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """From Kafka's names, with dots or (as keywords) with underscores. Raises ConfigError."""
        given = as_properties(settings, more)
        security, given = ZooKeeperSecurity.divide({_OLD_NAMES.get(name, name): text for name, text in given.items()})
        known = definitions(cls)
        own = parse(cls, {name: text for name, text in given.items() if name in known})
        fetching = {name: text for name, text in given.items() if name not in known}
        if _RESET in fetching:
            fetching[_RESET] = _OLD_RESETS.get(fetching[_RESET].strip().lower(), fetching[_RESET])
        fetching["max.poll.records"] = str(own.max_poll_records)
        config = dataclasses.replace(own, security=security, fetching=fetching)
        config._check()
        return config

    def _check(self) -> None:
        for name, value in (("zookeeper.connect", self.zookeeper_connect), ("group.id", self.group_id)):
            if not value:
                raise ConfigError(f"{name} is not set, and a consumer whose group lives in ZooKeeper needs it")
        parse_connect(self.zookeeper_connect)
        group.group_path(self.group_id)
        if self.consumer_id:
            group.id_path(self.group_id, self.consumer_id)
        ConsumerConfig.of({"bootstrap.servers": _ANY_BROKER} | dict(self.fetching))

    @property
    def layout(self) -> Layout:
        return Layout(self.layout_name)

    @property
    def names_brokers(self) -> bool:
        """Whether it is said where brokers are."""
        return "bootstrap.servers" in self.fetching
