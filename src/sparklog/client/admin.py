"""Topics and settings of a cluster: create, delete, list, describe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sparklog.client.cluster_info import ClusterInfo, TopicInfo
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.retry import retrying
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    Message,
)
from sparklog.structs import BrokerId

T = TypeVar("T")
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
_CreatableTopic = CreateTopicsRequest.CreatableTopic
_DeletableTopic = DeleteTopicsRequest.DeleteTopicState
_Resource = DescribeConfigsRequest.DescribeConfigsResource


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves partitions or replicas to the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class ConfigEntry(NamedTuple):
    """One setting as a broker describes it; ``source`` is Kafka's number (1 topic, 4 static broker, 5 default)."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool


class AdminClient:
    """Asks the broker that can answer: the controller for changes, any for the rest. Raises ApiError."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster

    def describe_cluster(self) -> ClusterInfo:
        """Brokers, controller and every topic."""
        return self._cluster.fetch(None)

    def list_topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """Every topic by name, the cluster's own only when asked for."""
        topics = self._cluster.fetch(None).topics
        return [topic for _, topic in sorted(topics.items()) if internal or not topic.internal]

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """These topics; the first unknown one raises."""
        return self._cluster.describe(names)

    def create_topics(self, topics: Collection[NewTopic], *, validate_only: bool = False) -> None:
        """Create them all, or raise the first error; those before it in the cluster's answer then exist."""
        for topic in topics:
            self._cluster.invalidate(topic.name)
        answer = self._ask_controller(
            ApiKey.CREATE_TOPICS, lambda version: _create_request(version, topics, self._timeout_ms, validate_only)
        )
        _raise_first(answer.topics, "cannot create topic")
        if not validate_only:
            self._await_leaders([topic.name for topic in topics])

    def delete_topics(self, names: Collection[str]) -> None:
        """Delete them all, or raise the first error; returns when they are gone from the cluster's metadata."""
        answer = self._ask_controller(
            ApiKey.DELETE_TOPICS, lambda version: _delete_request(version, names, self._timeout_ms)
        )
        for name in names:
            self._cluster.invalidate(name)
        _raise_first(answer.responses, "cannot delete topic")
        self._await_absence(names)

    def topic_configs(self, name: str) -> list[ConfigEntry]:
        """Every setting of a topic, in force."""
        return self._configs(TOPIC_RESOURCE, name, None)

    def broker_configs(self, broker_id: BrokerId) -> list[ConfigEntry]:
        """Every setting of a broker, as that broker tells it."""
        return self._configs(BROKER_RESOURCE, str(broker_id), broker_id)

    @property
    def _timeout_ms(self) -> int:
        return self._cluster.config.request_timeout_ms

    def _configs(self, kind: int, name: str, broker_id: BrokerId | None) -> list[ConfigEntry]:
        def build(version: int) -> Message:
            resource = _Resource(resource_type=kind, resource_name=name, configuration_keys=None)
            return DescribeConfigsRequest(
                version=version, resources=[resource], include_synonyms=False, include_documentation=False
            )

        def ask() -> Message:
            info = self._cluster.fetch([])
            target = min(info.brokers) if broker_id is None else broker_id
            (result,) = self._cluster.request(self._cluster.broker(target), ApiKey.DESCRIBE_CONFIGS, build).results
            code = ErrorCode(result.error_code)
            if code is not ErrorCode.NONE:
                raise ApiError(code, result.error_message or f"cannot describe {name!r}")
            return result

        entries = [_config_entry(each) for each in retrying(self._cluster.backoff(), ask).configs]
        return sorted(entries)

    def _ask_controller(self, api: ApiKey, build: Callable[[int], Message]) -> Message:
        def ask() -> Message:
            info = self._cluster.fetch([])
            answer = self._cluster.request(self._cluster.broker(info.controller), api, build)
            results = answer.topics if api is ApiKey.CREATE_TOPICS else answer.responses
            if any(ErrorCode(each.error_code) is ErrorCode.NOT_CONTROLLER for each in results):
                raise ApiError(ErrorCode.NOT_CONTROLLER, f"broker {info.controller} is not the controller any more")
            return answer

        return retrying(self._cluster.backoff(), ask)

    def _await_leaders(self, names: list[str]) -> None:
        def check() -> None:
            for topic in self._cluster.describe(names).values():
                if any(partition.leader < 0 for partition in topic.partitions):
                    raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name!r} has no leader yet")

        retrying(self._cluster.backoff(), check)

    def _await_absence(self, names: Collection[str]) -> None:
        def check() -> None:
            left = self._cluster.fetch(names).topics
            if left:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"topic {next(iter(left))!r} is still being deleted")

        retrying(self._cluster.backoff(), check)


def _raise_first(results: list[Message], what: str) -> None:
    for each in results:
        code = ErrorCode(each.error_code)
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"{what} {each.name!r}: {each.error_message or code.name}")


def _create_request(version: int, topics: Collection[NewTopic], timeout_ms: int, validate_only: bool) -> Message:
    return CreateTopicsRequest(
        version=version,
        topics=[
            _CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[
                    _CreatableTopic.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def _delete_request(version: int, names: Collection[str], timeout_ms: int) -> Message:
    if version < 6:
        return DeleteTopicsRequest(version=version, topic_names=list(names), timeout_ms=timeout_ms)
    topics = [_DeletableTopic(name=name, topic_id=None) for name in names]
    return DeleteTopicsRequest(version=version, topics=topics, timeout_ms=timeout_ms)


def _config_entry(each: Message) -> ConfigEntry:
    return ConfigEntry(each.name, each.value, each.config_source, each.read_only, each.is_sensitive)
