"""The leaders of partitions, for callers that block: asks brokers for metadata, and drives ``Leaders`` with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.pool import ConnectionPool
from sparklog.client.cluster.retry import Backoff, retrying
from sparklog.clock import Clock, SystemClock
from sparklog.cluster.info import ClusterInfo, TopicInfo, metadata_request, no_such_partition, read_metadata
from sparklog.cluster.leaders import Leaders
from sparklog.config.likeness import alike
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, SparklogError
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import A, MetadataResponse, Request
from sparklog.structs import BrokerId, Endpoint, TopicPartition

T = TypeVar("T")


class ClusterMetadata:
    """The way to a cluster: connections, and the leader of each partition. Close it, or use it in a ``with``."""

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.pool = ConnectionPool(config, self.clock)
        self._bootstrap = config.bootstrap
        self._leaders = Leaders()
        self.cluster_id: str | None = None
        """As the first answer told it, which is one of the bootstrap servers'."""

    def __enter__(self) -> ClusterMetadata:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.pool.close()

    def backoff(self, timeout_ms: int | None = None) -> Backoff:
        """A fresh deadline for retries, ``default.api.timeout.ms`` away if not said otherwise."""
        return Backoff(self.config, self.clock, self.config.api_timeout_ms if timeout_ms is None else timeout_ms)

    def retrying(self, attempt: Callable[[], T], *, between: Callable[[], None] | None = None) -> T:
        """The first success of ``attempt`` within ``default.api.timeout.ms``, which bounds what it asks as well."""
        backoff = self.backoff()

        def in_time() -> T:
            with self.pool.within(lambda: backoff.seconds_left):
                return attempt()

        return retrying(backoff, in_time, between=between)

    def fetch(self, topics: Collection[str] | None = None, *, create: bool = False) -> ClusterInfo:
        """Ask now: these topics, or all for None. Retries while no broker answers; errors of topics are returned.

        ``create`` lets a broker that is configured so create the topics that are missing.
        """
        return self.retrying(lambda: self._fetch_once(topics, create))

    def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """What is known of a topic, asking only if nothing is. Raises ApiError if the topic cannot be described."""
        known = self._leaders.topic(name)
        return known if known is not None else self.describe([name], create=create)[name]

    def describe(self, topics: Collection[str], *, create: bool = False) -> dict[str, TopicInfo]:
        """These topics as they are now. Raises ApiError naming the first that cannot be described.

        An unknown topic is asked for again for a moment only: it may just have been created.
        """
        return self.retrying(lambda: self._describe_once(topics, create))

    def suggestion(self, name: str) -> str:
        """Behind the name of a topic that is not there: was another one meant? Nothing where none is like it."""
        try:
            return alike(name, self._fetch_once(None, create=False).topics)
        except SparklogError:  # this is only a word about what has failed already
            return ""

    def _describe_once(self, topics: Collection[str], create: bool) -> dict[str, TopicInfo]:
        info = self._fetch_once(topics, create)
        for topic, code in info.errors.items():
            raise ApiError(code, f"topic {topic!r} at {self.config.bootstrap_servers}: {code.name}")
        return {topic: self._leaders.last_known(topic) or info.topic(topic) for topic in topics}

    def leader(self, tp: TopicPartition) -> tuple[Endpoint, TopicInfo]:
        """Where the leader of ``tp`` listens. Raises ApiError: retriable while there is none, else not."""
        topic = self.topic(tp.topic)
        endpoint = self.known_leader(tp)
        if endpoint is None:
            self.invalidate(tp.topic)
            raise _leaderless(topic, tp)
        return endpoint, topic

    def known_leader(self, tp: TopicPartition) -> Endpoint | None:
        """Where the leader of ``tp`` listens, as far as that is known without asking."""
        leader = self._leaders.leader(tp)
        return None if leader is None else self._leaders.brokers.get(leader)

    @property
    def brokers(self) -> Mapping[BrokerId, Endpoint]:
        """The brokers that are in the cluster, as far as is known."""
        return self._leaders.brokers

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Endpoint, list[TopicPartition]]:
        """The partitions under the brokers that lead them; one Metadata request for all topics not known.

        Raises ApiError for the first that none leads.
        """
        groups, leaderless = self.led(partitions)
        for tp in leaderless:
            self.leader(tp)
        return groups

    def led(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[Endpoint, list[TopicPartition]], list[TopicPartition]]:
        """``by_leader`` of those that have a leader, and the others."""
        wanted = list(partitions)
        unknown = {topic for topic in {tp.topic for tp in wanted} if self._leaders.topic(topic) is None}
        if unknown:
            self._describe_once(sorted(unknown), create=False)
        groups: dict[Endpoint, list[TopicPartition]] = {}
        leaderless = []
        for tp in wanted:
            endpoint = self.known_leader(tp)
            if endpoint is None:
                leaderless.append(tp)
            else:
                groups.setdefault(endpoint, []).append(tp)
        return groups, leaderless

    def leaderless(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ApiError]:
        """Why some of these have no leader, as ``leader`` would say; one Metadata request for all topics not known."""
        _, found = self.led(partitions)
        topics = {tp.topic: self._leaders.topic(tp.topic) for tp in found}
        return {tp: _leaderless(topic, tp) for tp in found if (topic := topics[tp.topic]) is not None}

    def invalidate(self, topic: str) -> None:
        """Ask again before the next use of ``topic``: its leaders have moved, or may have."""
        self._leaders.invalidate(topic)

    def request(self, endpoint: Endpoint, api: ApiKey, build: Callable[[int], Request[A]]) -> A:
        """One question to one broker, on a pooled connection, not retried."""
        try:
            with self.pool.borrow(endpoint) as connection:
                return connection.request(api, build)
        except ConnectionFailed:
            self.pool.forget(endpoint)
            raise

    def request_any(self, api: ApiKey, build: Callable[[int], Request[A]]) -> A:
        """One question to whichever broker answers it first, on a pooled connection, not retried."""
        return self.pool.first_answer(self._candidates(), lambda connection: connection.request(api, build))

    def any_broker(self) -> BlockingConnection:
        """A connection to whichever broker answers first; the caller gives it back to the pool, or closes it."""
        return self.pool.first_reachable(self._candidates())

    def _candidates(self) -> list[Endpoint]:
        return list(dict.fromkeys([*self._leaders.brokers.values(), *self._bootstrap]))

    def _fetch_once(self, topics: Collection[str] | None, create: bool) -> ClusterInfo:
        def build(version: int) -> Request[MetadataResponse]:
            return metadata_request(version, topics, create)

        info = read_metadata(self.request_any(ApiKey.METADATA, build))
        self._leaders.apply(info)
        if self.cluster_id is None:
            self.cluster_id = info.cluster_id
        return info


def _leaderless(topic: TopicInfo, tp: TopicPartition) -> ApiError:
    if topic.partition(tp.partition) is None:
        return no_such_partition(topic, tp.partition)
    return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp} has no leader")
