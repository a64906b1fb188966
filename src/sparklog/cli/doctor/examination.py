"""Asks a cluster, and has each noun's module judge the answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from http.client import HTTPException
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sparklog.cli.connection import GROUPS, TOPICS, TRANSACTIONAL_IDS, is_refusal, partial_kinds
from sparklog.cli.doctor.certificates import (
    certificate_findings,
    expired_findings,
    own_certificates,
    shown_certificate,
)
from sparklog.cli.doctor.directories import directory_findings
from sparklog.cli.doctor.finding import Finding, Severity, by_severity
from sparklog.cli.doctor.http_ports import Told, ask, http_findings, unheard_findings
from sparklog.cli.doctor.machine import (
    broker_limits,
    host_findings,
    inode_findings,
    kernel,
    local_directories,
    machine_findings,
)
from sparklog.cli.doctor.partitions import (
    broker_findings,
    controller_findings,
    partition_findings,
    zookeeper_findings,
)
from sparklog.cli.doctor.progress import (
    IO_LIMIT,
    GroupProgress,
    compaction_findings,
    group_findings,
    rebalance_findings,
    rebalancing,
    transaction_findings,
)
from sparklog.cli.doctor.settings import MIN_ISR, UNCLEAN, setting_findings
from sparklog.cli.extents import find_extents
from sparklog.cli.internal import is_internal_group
from sparklog.errors import AuthenticationFailed, SparklogError
from sparklog.structs import BrokerId, Endpoint, TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.log_dirs import LogDir
    from sparklog.client.admin.reassignments import PartitionReassignment
    from sparklog.client.admin.transactions import ActiveProducer
    from sparklog.client.cluster.config import ClientConfig
    from sparklog.clock import Clock
    from sparklog.cluster.info import ClusterInfo
    from sparklog.security.certificates import Description

T = TypeVar("T")

_ASK_S = 5.0
"""How long one broker may take to answer."""
_REBALANCE_S = 10.0
"""How long a rebalance may take: members hear of one by the next heartbeat, 3 s unless set otherwise."""

_AS_ANOTHER = (
    "ask as a user with DESCRIBE on the cluster, on topics '*', groups '*' and transactional ids '*':"
    " --command-config FILE"
)


class Limits(NamedTuple):
    """From where on something is worth a finding."""

    lag: int = 100_000
    """Records."""
    disk_percent: int = 85
    certificate_days: int = 30
    transaction_s: int = 900


class Examination:
    """Of the cluster that ``admin`` is connected to, with the client's settings."""

    def __init__(self, admin: Admin, config: ClientConfig, clock: Clock, limits: Limits) -> None:
        self._admin = admin
        self._config = config
        self._clock = clock
        self._limits = limits
        self._cluster: ClusterInfo = admin.describe_cluster()
        self._read: dict[str, dict[str, str]] = {}
        self._told_settings: dict[BrokerId, dict[str, str | None]] = {}
        self._rebalancing: tuple[set[str], float] = set(), clock.monotonic()
        """Groups in a rebalance when groups were looked at, and when that was, in seconds."""

    def run(self) -> list[Finding]:
        """All findings, the worst first; what cannot be looked at is among them."""
        parts: dict[str, Callable[[], Iterable[Finding]]] = {
            "rights": self._rights,
            "brokers": self._brokers,
            "ZooKeeper": self._zookeeper,
            "partitions": self._partitions,
            "log directories": self._directories,
            "settings": self._settings,
            "groups": self._groups,
            "transactions": self._transactions,
            "compaction": self._compaction,
            "certificates": self._certificates,
            "HTTP ports": self._http_ports,
            "this machine": self._machine,
            "rebalances": self._rebalances,
        }
        return by_severity(each for part, look in parts.items() for each in _looked_at(part, look))

    @cached_property
    def _controllers(self) -> tuple[dict[BrokerId, BrokerId], dict[BrokerId, SparklogError]]:
        """The controller that each broker names, and the brokers that do not answer."""
        return self._admin.controllers(timeout=_ASK_S)

    def _rights(self) -> Iterator[Finding]:
        if partial := partial_kinds(self._admin, TOPICS, GROUPS, TRANSACTIONAL_IDS):
            said = f"only {', '.join(partial)} that this user may describe were looked at"
            yield Finding(Severity.NOTE, said, ("the cluster",), _AS_ANOTHER)

    def _brokers(self) -> Iterator[Finding]:
        told, silent = self._controllers
        yield from broker_findings(self._cluster, silent)
        yield from controller_findings(self._cluster, told)

    @cached_property
    def _unread(self) -> dict[BrokerId, SparklogError]:
        """Brokers that answer, and cannot read what is in ZooKeeper."""
        found = self._admin.unread_settings(next(iter(self._cluster.topics), None), timeout=_ASK_S)
        return {broker: error for broker, error in found.items() if broker in self._controllers[0]}

    def _zookeeper(self) -> Iterator[Finding]:
        return zookeeper_findings(self._unread)

    def _partitions(self) -> Iterator[Finding]:
        min_isr: dict[str, str] = {}
        try:
            min_isr = self._setting(MIN_ISR)
        except SparklogError as failure:  # what is seen without it is told all the same
            yield _unseen(f"{MIN_ISR} of topics", failure)
        moves: dict[TopicPartition, PartitionReassignment] = {}
        try:
            moves = self._moves
        except SparklogError as failure:
            yield _unseen("moves of replicas", failure)
        yield from partition_findings(self._cluster, {name: int(value) for name, value in min_isr.items()}, moves)

    @cached_property
    def _moves(self) -> dict[TopicPartition, PartitionReassignment]:
        """What is on the move; nothing where the controller, which is asked, is gone or silent: that is told of."""
        told, _ = self._controllers
        return self._admin.list_partition_reassignments() if self._cluster.controller in told else {}

    def _setting(self, name: str) -> dict[str, str]:
        """Of every topic. Raises SparklogError at once where brokers are known not to tell."""
        for error in self._unread.values():
            raise error
        if name not in self._read:
            self._read[name] = self._admin.topics_setting(self._cluster.topics, name)
        return self._read[name]

    @cached_property
    def _log_dirs(self) -> tuple[dict[BrokerId, list[LogDir]], dict[BrokerId, SparklogError]]:
        return self._admin.reachable_log_dirs(timeout=_ASK_S)

    def _directories(self) -> Iterator[Finding]:
        found, failures = self._log_dirs
        yield from directory_findings(found, self._limits.disk_percent)
        for broker, error in sorted(failures.items()):
            yield _unseen(f"log directories of broker {broker}", error)

    def _settings(self) -> Iterator[Finding]:
        min_isr = {name: int(value) for name, value in self._setting(MIN_ISR).items()}
        return setting_findings(self._cluster, min_isr, self._setting(UNCLEAN), self._moves)

    def _groups(self) -> Iterator[Finding]:
        listed, failures = self._admin.reachable_groups(timeout=_ASK_S)
        self._rebalancing = rebalancing(listed), self._clock.monotonic()
        groups = []
        for each in listed:
            if not is_internal_group(each.group_id):
                try:
                    committed = self._admin.group_offsets(each.group_id)
                except SparklogError as failure:  # its coordinator is gone meanwhile
                    yield _unseen(f"group {each.group_id}", failure)
                    continue
                offsets = {tp: at.offset for tp, at in committed.items()}
                groups.append(GroupProgress(each.group_id, each.state, offsets))
        extents = find_extents(self._admin, sorted({tp for each in groups for tp in each.committed}))
        yield from group_findings(groups, extents, self._limits.lag)
        for broker, error in sorted(failures.items()):
            yield _unseen(f"groups of broker {broker}", error)

    def _rebalances(self) -> Iterator[Finding]:
        """The last part: what was looked at meanwhile has not to be waited for."""
        at_first, since = self._rebalancing
        if not at_first:
            return
        self._clock.sleep(max(0.0, since + _REBALANCE_S - self._clock.monotonic()))
        at_last = rebalancing(self._admin.reachable_groups(timeout=_ASK_S)[0])
        yield from rebalance_findings(at_first & at_last, _REBALANCE_S)

    def _transactions(self) -> Iterator[Finding]:
        partitions = [
            TopicPartition(topic.name, each.partition)
            for topic in self._cluster.topics.values()
            for each in topic.partitions
            if each.leader in self._controllers[0]
        ]
        open_s = self._limits.transaction_s
        since_ms = self._clock.now_ms() - open_s * 1000
        hanging: dict[TopicPartition, list[ActiveProducer]] = {}
        try:
            hanging = self._admin.hanging_transactions(partitions, silent_since_ms=since_ms)
        except SparklogError as failure:  # what is seen without it is told all the same
            yield _unseen("transactions that hang", failure)
        long_open = self._admin.list_transactions(states=["Ongoing"], open_longer_ms=open_s * 1000)
        yield from transaction_findings(hanging, long_open, open_s)

    def _compaction(self) -> Iterator[Finding]:
        found = self._admin.describe_compaction()
        limits = {broker: self._cleaner_limit(broker) for broker in found.brokers}
        return compaction_findings(found, {broker: each for broker, each in limits.items() if each is not None})

    def _cleaner_limit(self, broker: BrokerId) -> float | None:
        """Bytes a second; None for none. By default it is the greatest number that there is."""
        told = self._broker_settings(broker).get(IO_LIMIT)
        return None if not told or float(told) >= sys.float_info.max else float(told)

    def _certificates(self) -> Iterator[Finding]:
        from sparklog.config.security_protocol import SecurityProtocol
        from sparklog.security.certificates import utc_now

        found = own_certificates(self._config.security)
        if SecurityProtocol[self._config.security_protocol.upper()].has_tls:
            shown = self._of_brokers(self._cluster.brokers, self._shown, (OSError, ValueError))
            found |= {f"broker {broker} at {self._cluster.brokers[broker]}": each for broker, each in shown.items()}
        return certificate_findings(found, utc_now(self._clock.now_ms()), self._limits.certificate_days)

    def _shown(self, endpoint: Endpoint) -> Description:
        return shown_certificate(endpoint, self._config.security, _ASK_S)

    def _http_ports(self) -> Iterator[Finding]:
        ports = {broker: port for broker in self._cluster.brokers if (port := self._http_port(broker)) is not None}
        told: dict[BrokerId, Told] = self._of_brokers(
            ports, lambda port: ask(port, self._clock, _ASK_S), (OSError, HTTPException, ValueError)
        )
        yield from http_findings(told)
        yield from unheard_findings(self._controllers[0], told, self._here)

    @cached_property
    def _here(self) -> dict[BrokerId, list[Path]]:
        """The brokers that run on this machine, with their log directories."""
        return local_directories(self._log_dirs[0], self._cluster.cluster_id)

    def _http_port(self, broker: BrokerId) -> Endpoint | None:
        """Where it listens by HTTP, as far as its settings tell: a port of 0 is whichever was free."""
        port = int(self._broker_settings(broker).get("sparklog.metrics.port") or -1)
        return Endpoint(self._cluster.brokers[broker].host, port) if port > 0 else None

    def _broker_settings(self, broker: BrokerId) -> dict[str, str | None]:
        """By name; none where the broker does not tell."""
        if broker not in self._told_settings:
            try:
                told = {each.name: each.value for each in self._admin.broker_configs(broker)}
            except SparklogError:
                told = {}
            self._told_settings[broker] = told
        return self._told_settings[broker]

    def _machine(self) -> Iterator[Finding]:
        here = self._here
        limits = [found for broker, paths in sorted(here.items()) if (found := broker_limits(broker, paths[0]))]
        yield from machine_findings(limits, kernel())
        directories = [path for paths in here.values() for path in paths]
        yield from host_findings(directories)
        yield from inode_findings(directories)

    @staticmethod
    def _of_brokers(
        asked: dict[BrokerId, Endpoint], ask_one: Callable[[Endpoint], T], expected: tuple[type[Exception], ...]
    ) -> dict[BrokerId, T]:
        """What those tell that do; all are asked at once. That one is silent is told by ``_brokers``."""

        def attempt(endpoint: Endpoint) -> T | None:
            try:
                return ask_one(endpoint)
            except expected:
                return None

        with ThreadPoolExecutor(max_workers=max(1, min(len(asked), 16))) as threads:
            found = dict(zip(asked, threads.map(attempt, asked.values()), strict=True))
        return {broker: each for broker, each in found.items() if each is not None}


def _looked_at(part: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(look())
    except SparklogError as error:
        return [_unseen(part, error)]


def _unseen(part: str, error: SparklogError) -> Finding:
    advice = _AS_ANOTHER if is_refusal(error) else "mend that first"
    return Finding(Severity.NOTE, f"could not be looked at: {error}", (part,), advice)


def without_connection(config: ClientConfig, clock: Clock, error: AuthenticationFailed) -> list[Finding]:
    """What is found where a broker, or this client, is not what it should be.

    Raises ``error`` if that is not for an expired certificate: it says itself what to do.
    """
    found = expired_findings(config, clock, _ASK_S)
    if not found:
        raise error
    return [*found, _unseen("the cluster", error)]
