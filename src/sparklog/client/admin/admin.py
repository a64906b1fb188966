"""Admin and AsyncAdmin: topics, settings, groups, offsets, transactions of a cluster.

``Admin`` blocks; ``AsyncAdmin`` is the same on the caller's loop. Both raise ApiError naming what was refused, and
retry what passes by itself for ``default.api.timeout.ms``. ``AdminClient`` is for code that has a ``ClusterMetadata``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from sparklog.client.admin.acls import AclAdmin
from sparklog.client.admin.adoption import AdoptedSegments, AdoptionAdmin, OfferedSegments
from sparklog.client.admin.compaction import (
    BrokerCompaction,
    Compaction,
    CompactionAdmin,
    CompactionDescription,
    CompactionOutcome,
    CompactionState,
)
from sparklog.client.admin.configs import ConfigAdmin, ConfigEntry
from sparklog.client.admin.erasure import (
    ErasedReplica,
    ErasureAdmin,
    ErasureProgress,
    ErasureReport,
    SearchedSegment,
)
from sparklog.client.admin.groups import GroupAdmin, GroupDescription, GroupListing, GroupMember
from sparklog.client.admin.log_dirs import LogDir, LogDirAdmin, Replica, ReplicaLogDir
from sparklog.client.admin.prepared import PreparedAdmin, PreparedTransaction
from sparklog.client.admin.quotas import ClientQuota, QuotaAdmin
from sparklog.client.admin.reassignments import PartitionReassignment, ReassignmentAdmin
from sparklog.client.admin.retention import RetentionAdmin, RetentionState
from sparklog.client.admin.tokens import DelegationToken, TokenAdmin
from sparklog.client.admin.topics import NewTopic, TopicAdmin, new_topics
from sparklog.client.admin.transactions import (
    ActiveProducer,
    TransactionAdmin,
    TransactionDescription,
    TransactionListing,
)
from sparklog.client.admin.users import UserAdmin, UserScramDeletion, UserScramUpsertion
from sparklog.client.cluster.arguments import checked_names
from sparklog.client.cluster.config import ClientConfig, as_properties
from sparklog.client.cluster.loop_thread import LoopThread
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.session import Session
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.cluster.info import ClusterInfo, TopicInfo
from sparklog.errors import ConfigError
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.binding import AclBinding, AclFilter
from sparklog.security.acl.entry import ALL, AclEntry, Permission
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.structs import BrokerId

__all__ = [
    "ALL",
    "AclBinding",
    "AclEntry",
    "AclFilter",
    "ActiveProducer",
    "Admin",
    "AdminClient",
    "AdoptedSegments",
    "AsyncAdmin",
    "BrokerCompaction",
    "ClientQuota",
    "Compaction",
    "CompactionDescription",
    "CompactionOutcome",
    "CompactionState",
    "ConfigEntry",
    "DelegationToken",
    "ErasedReplica",
    "ErasureProgress",
    "ErasureReport",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "LogDir",
    "NewTopic",
    "OfferedSegments",
    "OffsetAndMetadata",
    "Operation",
    "PartitionReassignment",
    "PatternType",
    "Permission",
    "PreparedTransaction",
    "Replica",
    "ReplicaLogDir",
    "ResourcePattern",
    "ResourceType",
    "RetentionState",
    "SearchedSegment",
    "TransactionDescription",
    "TransactionListing",
    "UserScramDeletion",
    "UserScramUpsertion",
]

P = ParamSpec("P")
R = TypeVar("R")


class AsyncAdmin(
    TopicAdmin,
    ReassignmentAdmin,
    ConfigAdmin,
    AclAdmin,
    QuotaAdmin,
    UserAdmin,
    TokenAdmin,
    LogDirAdmin,
    CompactionAdmin,
    ErasureAdmin,
    RetentionAdmin,
    AdoptionAdmin,
    GroupAdmin,
    PreparedAdmin,
):
    """On the caller's event loop; ``async with`` starts and closes it. Settings by Kafka's names, as for a producer.

    A method raises ApiError for what a broker refuses, and ConnectionFailed where none can be reached; what may pass by
    itself only when it has not for ``default.api.timeout.ms``.
    """

    def __init__(self, settings: Mapping[str, Any] | ClientConfig | None = None, **more: Any) -> None:
        """Raises ConfigError for settings that it does not know or cannot use."""
        if not isinstance(settings, ClientConfig):
            settings = ClientConfig.from_properties(as_properties(settings, more))
        elif more:
            raise ConfigError(
                f"a ClientConfig is whole; give {', '.join(sorted(more))} in it, or settings as a mapping"
            )
        super().__init__(Session(settings))

    async def __aenter__(self) -> AsyncAdmin:
        await self._session.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    def metrics(self) -> dict[str, float]:
        """What brokers have asked this client to wait for its quotas, since it began.

        ``throttle-count`` is the number of answers that did; ``throttle-time-avg``, ``throttle-time-max`` and
        ``throttle-time-total`` are ms, of these answers. Nothing was sent to the broker meanwhile.
        """
        return self._session.throttling.metrics()


def _blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Admin, P], R]:
    @functools.wraps(method)
    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._thread.run(method(self._admin, *args, **kwargs))

    return call


class Admin:
    """``AsyncAdmin`` for code that blocks; its loop runs in a thread of its own. ``with`` closes it.

    Its methods raise what those of ``AsyncAdmin`` do, and ClientClosed after ``close``.
    """

    def __init__(self, settings: Mapping[str, Any] | ClientConfig | None = None, **more: Any) -> None:
        self._admin = AsyncAdmin(settings, **more)
        self._thread = LoopThread("sparklog admin")
        self._thread.run(self._admin.__aenter__())

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; requests under way fail, and later calls raise ClientClosed."""
        if self._thread.is_usable:
            try:
                self._thread.run(self._admin.__aexit__(None, None, None))
            finally:
                self._thread.close()

    def metrics(self) -> dict[str, float]:
        """As ``AsyncAdmin.metrics``."""
        return self._admin.metrics()

    describe_cluster = _blocking(TopicAdmin.describe_cluster)
    controllers = _blocking(TopicAdmin.controllers)
    cluster_operations = _blocking(TopicAdmin.cluster_operations)
    list_topics = _blocking(TopicAdmin.list_topics)
    describe_topics = _blocking(TopicAdmin.describe_topics)
    eligible_replicas = _blocking(TopicAdmin.eligible_replicas)
    create_topics = _blocking(TopicAdmin.create_topics)
    delete_topics = _blocking(TopicAdmin.delete_topics)
    create_partitions = _blocking(TopicAdmin.create_partitions)
    elect_leaders = _blocking(TopicAdmin.elect_leaders)
    alter_partition_reassignments = _blocking(ReassignmentAdmin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(ReassignmentAdmin.list_partition_reassignments)
    list_offsets = _blocking(TopicAdmin.list_offsets)
    reachable_offsets = _blocking(TopicAdmin.reachable_offsets)
    lag_bytes = _blocking(TopicAdmin.lag_bytes)
    delete_records = _blocking(TopicAdmin.delete_records)
    topics_setting = _blocking(ConfigAdmin.topics_setting)
    releases = _blocking(ConfigAdmin.releases)
    unread_settings = _blocking(ConfigAdmin.unread_settings)
    topic_configs = _blocking(ConfigAdmin.topic_configs)
    broker_configs = _blocking(ConfigAdmin.broker_configs)
    broker_loggers = _blocking(ConfigAdmin.broker_loggers)
    alter_topic_configs = _blocking(ConfigAdmin.alter_topic_configs)
    alter_broker_configs = _blocking(ConfigAdmin.alter_broker_configs)
    alter_broker_loggers = _blocking(ConfigAdmin.alter_broker_loggers)
    describe_acls = _blocking(AclAdmin.describe_acls)
    create_acls = _blocking(AclAdmin.create_acls)
    delete_acls = _blocking(AclAdmin.delete_acls)
    describe_client_quotas = _blocking(QuotaAdmin.describe_client_quotas)
    alter_client_quotas = _blocking(QuotaAdmin.alter_client_quotas)
    describe_user_scram_credentials = _blocking(UserAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(UserAdmin.alter_user_scram_credentials)
    create_delegation_token = _blocking(TokenAdmin.create_delegation_token)
    wait_for_delegation_token = _blocking(TokenAdmin.wait_for_delegation_token)
    renew_delegation_token = _blocking(TokenAdmin.renew_delegation_token)
    expire_delegation_token = _blocking(TokenAdmin.expire_delegation_token)
    describe_delegation_tokens = _blocking(TokenAdmin.describe_delegation_tokens)
    log_dirs = _blocking(LogDirAdmin.log_dirs)
    reachable_log_dirs = _blocking(LogDirAdmin.reachable_log_dirs)
    describe_replica_log_dirs = _blocking(LogDirAdmin.describe_replica_log_dirs)
    alter_replica_log_dirs = _blocking(LogDirAdmin.alter_replica_log_dirs)
    describe_compaction = _blocking(CompactionAdmin.describe_compaction)
    compact = _blocking(CompactionAdmin.compact)
    erase = _blocking(ErasureAdmin.erase)
    describe_retention = _blocking(RetentionAdmin.describe_retention)
    adopting_brokers = _blocking(AdoptionAdmin.adopting_brokers)
    adopt = _blocking(AdoptionAdmin.adopt)
    restore = _blocking(AdoptionAdmin.restore)
    features = _blocking(ConfigAdmin.features)
    list_groups = _blocking(GroupAdmin.list_groups)
    sees_all_groups = _blocking(GroupAdmin.sees_all_groups)
    sees_all_topics = _blocking(TopicAdmin.sees_all_topics)
    reachable_groups = _blocking(GroupAdmin.reachable_groups)
    describe_groups = _blocking(GroupAdmin.describe_groups)
    delete_groups = _blocking(GroupAdmin.delete_groups)
    group_offsets = _blocking(GroupAdmin.group_offsets)
    alter_group_offsets = _blocking(GroupAdmin.alter_group_offsets)
    delete_group_offsets = _blocking(GroupAdmin.delete_group_offsets)
    list_transactions = _blocking(TransactionAdmin.list_transactions)
    reachable_transactions = _blocking(TransactionAdmin.reachable_transactions)
    sees_all_transactions = _blocking(TransactionAdmin.sees_all_transactions)
    describe_transactions = _blocking(TransactionAdmin.describe_transactions)
    describe_producers = _blocking(TransactionAdmin.describe_producers)
    end_transaction = _blocking(TransactionAdmin.end_transaction)
    hanging_transactions = _blocking(TransactionAdmin.hanging_transactions)
    abort_transaction = _blocking(TransactionAdmin.abort_transaction)
    init_prepared = _blocking(PreparedAdmin.init_prepared)
    begin_anew = _blocking(PreparedAdmin.begin_anew)
    add_to_prepared = _blocking(PreparedAdmin.add_to_prepared)
    add_offsets = _blocking(PreparedAdmin.add_offsets)
    open_transactions = _blocking(PreparedAdmin.open_transactions)
    open_under = _blocking(PreparedAdmin.open_under)
    committed_under = _blocking(PreparedAdmin.committed_under)
    end_prepared = _blocking(PreparedAdmin.end_prepared)
    retire_prepared = _blocking(PreparedAdmin.retire_prepared)


class AdminClient:
    """What the lower storey needs of administration, beside a ``ClusterMetadata``; open only during a call."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster

    def describe_cluster(self) -> ClusterInfo:
        """Brokers, controller and every topic."""
        return self._cluster.fetch(None)

    def list_topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """Every topic by name, the cluster's own only when asked for."""
        with self._admin() as admin:
            return admin.list_topics(internal=internal)

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """These topics; the first unknown one raises."""
        return self._cluster.describe(checked_names(names, "topics"))

    def create_topics(self, topics: Collection[NewTopic], *, validate_only: bool = False) -> None:
        """As ``Admin.create_topics``."""
        topics = new_topics(topics)
        self._forget([topic.name for topic in topics])
        with self._admin() as admin:
            admin.create_topics(topics, validate_only=validate_only)

    def delete_topics(self, names: Collection[str]) -> None:
        """As ``Admin.delete_topics``."""
        names = checked_names(names, "topics")
        self._forget(names)
        with self._admin() as admin:
            admin.delete_topics(names)

    def topic_configs(self, name: str) -> list[ConfigEntry]:
        """Every setting of a topic, in force."""
        with self._admin() as admin:
            return admin.topic_configs(name)

    def broker_configs(self, broker_id: BrokerId) -> list[ConfigEntry]:
        """Every setting of a broker, as that broker tells it."""
        with self._admin() as admin:
            return admin.broker_configs(broker_id)

    def _admin(self) -> Admin:
        return Admin(self._cluster.config)

    def _forget(self, names: Collection[str]) -> None:
        for name in names:
            self._cluster.invalidate(name)
