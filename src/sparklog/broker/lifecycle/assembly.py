"""What a broker is made of, and what of what: from its foundation, which a start has laid, to its context.

What is held here comes first, then the controller, which only asks ZooKeeper and brokers, then the coordinators, which
write into what is held here, then the copying between brokers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import BrokerContext
from sparklog.broker.coordinator_log import CoordinatorLog
from sparklog.broker.expressions import Expressions
from sparklog.broker.fence import ControllerFence
from sparklog.broker.fetch_sessions import FetchSessions
from sparklog.broker.group_topics import GroupTopics
from sparklog.broker.leases import Leases
from sparklog.broker.lifecycle.zookeeper_thread import ZooKeeperThread
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.preparation import Preparation
from sparklog.broker.registry import offered
from sparklog.broker.replication.fetchers import Fetchers
from sparklog.broker.replication.isr_changes import IsrChanges
from sparklog.broker.security.acls import Acls
from sparklog.broker.security.tokens import DelegationTokens
from sparklog.broker.settings import Settings
from sparklog.broker.topics import TopicMaker
from sparklog.broker.txn.coordinators import TransactionCoordinators
from sparklog.broker.txn.entry import TransactionEntry
from sparklog.broker.txn.markers import TransactionMarkers
from sparklog.broker.txn.producer_ids import ProducerIds
from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.config.protocol_version import parse_protocol_version
from sparklog.controller.runtime import Controller
from sparklog.controller.witnesses import Witnesses
from sparklog.group.runtime import GroupCoordinator
from sparklog.log.directories.manager import LogManager
from sparklog.net.peers import Peers
from sparklog.net.turns import Turns
from sparklog.net.vigil import Looks
from sparklog.replica.adopting import SegmentAdopter
from sparklog.replica.cleaning import LogCleaner
from sparklog.replica.cleaning_grants import CleaningGrants
from sparklog.replica.erasing import LogEraser
from sparklog.replica.manager import ReplicaManager
from sparklog.security.access import AllowEverything
from sparklog.security.connecting import ConnectionSecurity
from sparklog.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from sparklog.txn.runtime import TransactionCoordinator


@dataclass(frozen=True)
class Foundation:
    """What there is before the parts of a broker are made."""

    config: BrokerConfig
    clock: Clock
    loop: asyncio.AbstractEventLoop
    cluster_id: str
    zookeeper: ZooKeeperThread
    settings: Settings
    acls: Acls | None
    tokens: DelegationTokens | None
    logs: LogManager
    fence: ControllerFence
    quotas: ClientQuotas
    security: ConnectionSecurity
    """Of the connections to other brokers."""
    turns: Turns
    run_disk: Callable[..., asyncio.Future[Any]]


class _Held(NamedTuple):
    """The logs that are here, and what works on them."""

    replicas: ReplicaManager
    cleaner: LogCleaner
    grants: CleaningGrants
    eraser: LogEraser
    adopter: SegmentAdopter


class _Coordination(NamedTuple):
    """Of groups and transactions."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: TransactionMarkers
    producer_ids: ProducerIds
    of_transactions: TransactionCoordinators


class _Copying(NamedTuple):
    """From leaders elsewhere, and what the followers of leaders here have got."""

    isr_changes: IsrChanges
    fetchers: Fetchers


def assemble(base: Foundation) -> BrokerContext:
    """Make the parts of a broker; none of them does anything yet."""
    config, zookeeper = base.config, base.zookeeper
    metadata = MetadataCache(config.ends.between_brokers)
    peers, looks, expressions = Peers("sparklog", base.security), Looks(), Expressions()
    held = _held(base)
    controller = _controller(base, peers)
    coordination = _coordination(base, held.replicas, metadata, peers, expressions)
    copying = _copying(base, held.replicas, metadata, peers, looks)
    return BrokerContext(
        config=config,
        settings=base.settings,
        cluster_id=base.cluster_id,
        clock=base.clock,
        loop=base.loop,
        metadata=metadata,
        replicas=held.replicas,
        cleaner=held.cleaner,
        cleaning_grants=held.grants,
        eraser=held.eraser,
        adopter=held.adopter,
        groups=coordination.groups,
        transactions=coordination.transactions,
        txn_markers=coordination.markers,
        fetch_sessions=_fetch_sessions(config),
        leases=Leases(base.clock),
        quotas=base.quotas,
        fetchers=copying.fetchers,
        isr_changes=copying.isr_changes,
        txn_coordinators=coordination.of_transactions,
        peers=peers,
        looks=looks,
        txn_entry=TransactionEntry(coordination.of_transactions, held.replicas),
        preparation=Preparation(held.replicas, base.clock),
        expressions=expressions,
        topics=TopicMaker(base.settings, metadata, zookeeper.client, zookeeper.ask, controller.refusals),
        controller=controller,
        zk=zookeeper.client,
        run_zk=zookeeper.ask,
        run_disk=base.run_disk,
        turns=base.turns,
        authorizer=AllowEverything() if base.acls is None else base.acls.authorizer,
        acls=base.acls,
        tokens=base.tokens,
        fence=base.fence,
        producer_ids=coordination.producer_ids,
        offered=offered(parse_protocol_version(config.inter_broker_protocol_version)),
    )


def _held(base: Foundation) -> _Held:
    config, logs, loop, clock = base.config, base.logs, base.loop, base.clock
    replicas = ReplicaManager(
        config.broker_id,
        logs,
        loop,
        clock=clock,
        max_lag_ms=config.replica_lag_time_max_ms,
        throttle_windows=(config.replication_quota_window_num, 1000 * config.replication_quota_window_size_seconds),
        moving_threads=config.num_replica_alter_log_dirs_threads or len(config.log_dirs),
    )
    cleaner = LogCleaner(logs, replicas.changing, loop, clock, base.settings.layers.in_force)
    grants = CleaningGrants(cleaner, loop, clock)
    eraser = LogEraser(logs, cleaner, loop, clock, lambda: base.settings.layers.in_force)
    adopter = SegmentAdopter(replicas, logs, loop, clock)
    return _Held(replicas, cleaner, grants, eraser, adopter)


def _controller(base: Foundation, peers: Peers) -> Controller:
    broker_id = base.config.broker_id
    return Controller(
        broker_id,
        base.zookeeper.client,
        base.zookeeper.run,
        base.clock,
        base.settings.topics,
        Witnesses(broker_id, peers) if base.config.failover_fast else None,
        security=base.security,
    )


def _coordination(
    base: Foundation, replicas: ReplicaManager, metadata: MetadataCache, peers: Peers, expressions: Expressions
) -> _Coordination:
    config, clock, loop, zk, ask_zk = base.config, base.clock, base.loop, base.zookeeper.client, base.zookeeper.ask
    offsets = CoordinatorLog(OFFSETS_TOPIC, config.offsets_topic_num_partitions, replicas, metadata)
    groups = GroupCoordinator(config, offsets, clock, loop, GroupTopics(metadata, expressions), turns=base.turns)
    markers = TransactionMarkers(replicas, metadata, groups.end_transaction, clock, zk, ask_zk, peers)
    producer_ids = ProducerIds(config.broker_id, zk, ask_zk)
    states = CoordinatorLog(TRANSACTIONS_TOPIC, config.transaction_state_log_num_partitions, replicas, metadata)
    transactions = TransactionCoordinator(config, states, markers, producer_ids.take, clock, loop)
    of_transactions = TransactionCoordinators(transactions, metadata, peers, clock)
    return _Coordination(groups, transactions, markers, producer_ids, of_transactions)


def _copying(
    base: Foundation, replicas: ReplicaManager, metadata: MetadataCache, peers: Peers, looks: Looks
) -> _Copying:
    def broker_epoch() -> int | None:
        return base.fence.broker_epoch

    isr_changes = IsrChanges(replicas, metadata, peers, base.clock, broker_epoch)
    replicas.on_proposal = isr_changes.propose
    replicas.lives = lambda id_: id_ in metadata.brokers
    fetchers = Fetchers(
        base.config, metadata, replicas, base.turns, base.clock, broker_epoch, looks, security=base.security
    )
    return _Copying(isr_changes, fetchers)


def _fetch_sessions(config: BrokerConfig) -> FetchSessions:
    return FetchSessions(
        config.max_incremental_fetch_session_cache_slots,
        config.min_incremental_fetch_session_eviction_ms,
        random.randrange,
    )
