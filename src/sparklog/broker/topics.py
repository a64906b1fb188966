"""Making topics: by a client's wish, or because one was asked for that is not there."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import uuid4

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.settings import Settings
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig, check_together
from sparklog.controller.assignment import assign_replicas
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.log.files import check_topic_name
from sparklog.replica.policies import check_installed
from sparklog.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import TopicAssignment

_logger = logging.getLogger(__name__)

_READY_TIMEOUT = 10.0
PATIENCE_S = 5.0
"""How long a client waits for the topics that it asked for by using them: what it asks next waits behind that."""


class TopicMaker:
    """Writes topics to ZooKeeper, from where the controller takes them up."""

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataCache,
        zk: ZkClient,
        run_zk: Callable[..., Awaitable[Any]],
        refusals: Callable[[str], Mapping[int, ErrorCode]] = lambda _: {},
    ) -> None:
        """``refusals`` tells which brokers cannot hold partitions of a topic, as far as it is known here."""
        self._settings = settings
        self._config = settings.layers.static
        self._metadata = metadata
        self._zk = zk
        self._run_zk = run_zk
        self._refusals = refusals
        self._making: dict[str, asyncio.Task[ErrorCode]] = {}

    def plan(
        self, name: str, partitions: int, replication_factor: int, properties: dict[str, str | None]
    ) -> tuple[TopicAssignment, dict[str, str]]:
        """The assignment and settings of a new topic; -1 takes the broker's default. Raises ApiError if refused."""
        check_topic_name(name)
        self._check_collision(name)
        config = self.check_config(properties)
        count = self.partition_count(partitions)
        factor = self._config.default_replication_factor if replication_factor == -1 else replication_factor
        check_replication_factor(factor)
        brokers = list(self._metadata.brokers)
        start = random.randrange(max(len(brokers), 1))
        racks = {broker.id: broker.rack for broker in self._metadata.brokers.values()}
        replicas = assign_replicas(brokers, count, factor, start=start, racks=racks)
        return TopicAssignment(name, replicas, uuid4()), config

    def partition_count(self, asked: int) -> int:
        """``asked``, where -1 takes the broker's default."""
        return self._config.num_partitions if asked == -1 else asked

    def check_config(self, properties: dict[str, str | None]) -> dict[str, str]:
        """The settings, if a topic may have them. Raises ApiError(INVALID_CONFIG)."""
        empty = [key for key, value in properties.items() if value is None]
        if empty:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"these settings need a value: {', '.join(empty)}")
        config = {key: value for key, value in properties.items() if value is not None}
        try:
            parsed = parse(TopicConfig, config, self._settings.topic_defaults)
            check_together(parsed)
            check_installed(parsed.retention_policies)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return config

    def _check_collision(self, name: str) -> None:
        """Names that differ in '.' and '_' only would share their metrics, in Kafka too."""
        for topic in self._metadata.topics() if {".", "_"} & set(name) else ():
            if topic.name != name and metric_name(topic.name) == metric_name(name):
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} collides with topic {topic.name!r}")

    async def create(self, assignment: TopicAssignment, config: dict[str, str], *, timeout: float) -> None:
        """Write the topic and wait until brokers hold all its partitions and lead them, as clients are told then.

        Raises ApiError(TOPIC_ALREADY_EXISTS or REQUEST_TIMED_OUT), the latter always for a ``timeout`` of 0, as Kafka.
        """
        if not await self._run_zk(self._zk.topics.create, assignment, config):
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {assignment.topic!r} exists already")
        if timeout <= 0 or not await self._metadata.wait_for(lambda: self._is_led(assignment), timeout):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, self._why_not_led(assignment))

    def _why_not_led(self, assignment: TopicAssignment) -> str:
        refusals = self._refusals(assignment.topic)
        if refusals:
            return f"topic {assignment.topic!r} was made, but {cannot_hold(refusals)}"
        return (
            f"topic {assignment.topic!r} was made, but not all its partitions have leaders yet; if it stays so, "
            f"see the logs of brokers {sorted({replicas[0] for replicas in assignment.partitions.values()})}"
        )

    def _is_led(self, assignment: TopicAssignment) -> bool:
        known = self._metadata.topic(assignment.topic)
        return (
            known is not None
            and known.partitions.keys() >= assignment.partitions.keys()
            and self._metadata.is_ready(assignment.topic)
        )

    async def ensure(self, name: str, patience_s: float = PATIENCE_S) -> ErrorCode:
        """Make a topic that a client asked for by using it; what a client is to be told meanwhile.

        It is made once for all requests, and also if none has the patience to wait for it.
        """
        making = self._making.get(name)
        if making is None:
            making = self._making[name] = asyncio.ensure_future(self._make(name))
            making.add_done_callback(lambda _: self._making.pop(name))
        done, _ = await asyncio.wait((making,), timeout=patience_s)
        return making.result() if done else ErrorCode.LEADER_NOT_AVAILABLE

    def is_making(self, name: str) -> bool:
        """Whether ``ensure`` is at it."""
        return name in self._making

    async def _make(self, name: str) -> ErrorCode:
        if not self._metadata.brokers:
            return ErrorCode.LEADER_NOT_AVAILABLE  # it may exist, and a broker for it is yet to be told of
        partitions, factor, properties = _shape(name, self._config)
        try:
            assignment, config = self.plan(name, partitions, factor, properties)
            await self.create(assignment, config, timeout=_READY_TIMEOUT)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                return ErrorCode.LEADER_NOT_AVAILABLE if error.code is ErrorCode.REQUEST_TIMED_OUT else error.code
            if not await self._metadata.wait_for(lambda: self._metadata.is_ready(name), _READY_TIMEOUT):
                return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.NONE


def _shape(name: str, config: BrokerConfig) -> tuple[int, int, dict[str, str | None]]:
    """Partitions, replicas and settings of a topic that is made because it is needed."""
    if name == OFFSETS_TOPIC:
        properties: dict[str, str | None] = {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        return config.offsets_topic_num_partitions, config.offsets_topic_replication_factor, properties
    if name == TRANSACTIONS_TOPIC:
        properties = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        }
        return config.transaction_state_log_num_partitions, config.transaction_state_log_replication_factor, properties
    return -1, -1, {}


def cannot_hold(refusals: Mapping[int, ErrorCode]) -> str:
    """Which brokers cannot hold partitions that were made, and why; completes "they were made, but"."""
    told = []
    for broker_id, why in sorted(refusals.items()):
        is_disk = why is ErrorCode.KAFKA_STORAGE_ERROR
        reason = f"{why.name}: a log directory of it is full or has failed" if is_disk else why.name
        told.append(f"broker {broker_id} cannot hold all of it ({reason}; its log says more)")
    return f"{', '.join(told)}; clients can use it as soon as that is mended"


def metric_name(name: str) -> str:
    """What the metrics of a topic go by: names that share it may not stand beside one another."""
    return name.replace(".", "_")


def check_replication_factor(factor: int) -> None:
    """Raises ApiError(INVALID_REPLICATION_FACTOR) unless a partition can have as many replicas."""
    if factor < 1:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: a partition has at least 1")
