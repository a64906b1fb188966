"""Brokers with a listener for each protocol that is measured, ours and Kafka's with the same settings.

Those that are ``guarded`` have an authorizer with ``LISTS`` lists, and quotas that nobody reaches, beside what the
others have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from kazoo.client import KazooClient

from benchmarks.peers import Peer, kafka_heap
from sparklog.clock import SystemClock
from sparklog.config.broker import ACL_AUTHORIZER
from sparklog.local.broker import BrokerProcess, BrokerSpec
from sparklog.local.ports import free_port
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl import znode
from sparklog.security.acl.entry import ALL, AclEntry, Permission
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from sparklog.testing.broker import settings_arguments
from sparklog.testing.certificates import Certificates
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker
from sparklog.zk.client import ZkClient
from sparklog.zk.entities import user_entity

LISTS = 10_000
USER, PASSWORD = "loader", "loader-secret"
PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
_PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
_MECHANISM = ScramMechanism.SHA_256
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_TOPICS_OF_LOADS = "r"
_TOGETHER = 500
_UNREACHED = {"producer_byte_rate": str(10**15), "consumer_byte_rate": str(10**15), "request_percentage": str(10**9)}


@dataclass(frozen=True)
class SecuredPeer(Peer):
    """A peer whose ``bootstrap`` is its plain listener; what loads connect to is in ``ends``, by protocol."""

    ends: Mapping[str, str] = field(default_factory=dict)

    def end(self, protocol: str) -> str:
        return self.ends[protocol]


@dataclass(frozen=True)
class Secrets:
    """What clients and brokers prove themselves with, in files under ``directory``."""

    directory: Path

    def make(self) -> None:
        certificates = Certificates()
        certificates.server.write_pem(self._keys)
        certificates.authority.write_pem(self.authority)

    @property
    def authority(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def _keys(self) -> Path:
        return self.directory / "server.pem"

    def of_brokers(self) -> dict[str, object]:
        """Settings that both read."""
        settings: dict[str, object] = {
            "security.inter.broker.protocol": PLAINTEXT,
            "sasl.enabled.mechanisms": _MECHANISM.title,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._keys,
        }
        for protocol in (SASL_PLAINTEXT, SASL_SSL):
            prefix = f"listener.name.{protocol.lower()}.{_MECHANISM.title.lower()}"
            settings[f"{prefix}.sasl.jaas.config"] = f"{_LOGIN};"
        return settings

    def of_librdkafka(self, protocol: str) -> dict[str, str]:
        """Settings of a client, as librdkafka calls them."""
        named = {"sasl.mechanism": _MECHANISM.title, "sasl.username": USER, "sasl.password": PASSWORD}
        return self._of_client(protocol, named, {"ssl.ca.location": str(self.authority)})

    def of_kafka(self, protocol: str) -> dict[str, str]:
        """Settings of a client, as Kafka and sparklog call them."""
        login = f'{_LOGIN} username="{USER}" password="{PASSWORD}";'
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority)}
        return self._of_client(protocol, {"sasl.mechanism": _MECHANISM.title, "sasl.jaas.config": login}, trusted)

    @staticmethod
    def _of_client(protocol: str, sasl: dict[str, str], tls: dict[str, str]) -> dict[str, str]:
        settings = {"security.protocol": protocol}
        if protocol.startswith("SASL"):
            settings |= sasl
        if protocol.endswith("SSL"):
            settings |= tls
        return settings


@contextmanager
def secured_brokers(directory: Path, secrets: Secrets, *, guarded: bool) -> Iterator[list[SecuredPeer]]:
    """sparklog and Kafka, their data under ``directory``; stopped at the end."""
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper, ExitStack() as stack:
        settings = secrets.of_brokers()
        if guarded:
            settings |= {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:ANONYMOUS"}
        trees = {name: f"{zookeeper.connect_string}/{name}" for name in ("sparklog", "kafka")}
        for tree in trees.values():
            _prepare(tree, guarded=guarded)
        peers = [
            _sparklog(stack, directory, trees["sparklog"], settings),
            _kafka(stack, directory, trees["kafka"], settings),
        ]
        for peer in peers:
            eventually(peer.knows_its_controller, what=f"{peer.name} to serve administrators")
        yield peers


def _prepare(tree: str, *, guarded: bool) -> None:
    """Write the user, its quotas and the lists before the broker starts."""
    zk = ZkClient(tree, session_timeout=10, on_session=lambda _: None)
    try:
        zk.ensure_tree()
        credential = {_MECHANISM.title: ScramCredential.of_password(_MECHANISM, PASSWORD).format()}
        zk.configs.update(user_entity(USER), credential | (_UNREACHED if guarded else {}))
    finally:
        zk.close()
    if guarded:
        write_lists(tree)


def write_lists(tree: str) -> None:
    """``LISTS`` lists, before a broker starts: without telling of them, for nobody follows them yet."""
    zk = ZkClient(tree, session_timeout=10, on_session=lambda _: None)
    try:
        zk.ensure_tree()
        zk.ensure(znode.PERSISTENT_PATHS)
    finally:
        zk.close()
    kazoo = KazooClient(tree)
    kazoo.start()
    try:
        lists = _lists()
        while some := [*islice(lists, _TOGETHER)]:
            transaction = kazoo.transaction()
            for pattern, entry in some:
                transaction.create(znode.list_path(pattern), znode.encode_list([entry]))
            if failures := [each for each in transaction.commit() if isinstance(each, Exception)]:
                raise failures[0]
    finally:
        kazoo.stop()
        kazoo.close()


def _lists() -> Iterator[tuple[ResourcePattern, AclEntry]]:
    """``LISTS`` of them: what others may do with their topics and groups, and what ``USER`` may."""
    everything = AclEntry(f"User:{USER}", permission=Permission.ALLOW, operation=ALL)
    yield ResourcePattern(ResourceType.TOPIC, _TOPICS_OF_LOADS, PatternType.PREFIXED), everything
    yield ResourcePattern(ResourceType.GROUP, "*", PatternType.LITERAL), everything
    kinds = (
        (ResourceType.TOPIC, PatternType.LITERAL),
        (ResourceType.TOPIC, PatternType.PREFIXED),
        (ResourceType.GROUP, PatternType.LITERAL),
    )
    for number in range(LISTS - 2):
        kind, type_ = kinds[number % len(kinds)]
        entry = AclEntry(f"User:team-{number % 100}", permission=Permission.ALLOW, operation=Operation.READ)
        yield ResourcePattern(kind, f"team-{number}-", type_), entry


def _listeners() -> tuple[dict[str, int], str]:
    ports = {protocol: free_port() for protocol in _PROTOCOLS}
    return ports, ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items())


def _ends(ports: Mapping[str, int]) -> dict[str, str]:
    return {protocol: f"127.0.0.1:{port}" for protocol, port in ports.items()}


def _sparklog(stack: ExitStack, directory: Path, tree: str, settings: Mapping[str, object]) -> SecuredPeer:
    ports, listeners = _listeners()
    arguments = settings_arguments({**settings, "listeners": listeners})
    spec = BrokerSpec(0, tree, directory / "sparklog", ports[PLAINTEXT], arguments=arguments)
    process = BrokerProcess(spec, directory / "sparklog.log", SystemClock())
    process.start()
    stack.callback(process.stop)
    return SecuredPeer("sparklog", process.address, process.pid, ends=_ends(ports))


def _kafka(stack: ExitStack, directory: Path, tree: str, settings: Mapping[str, object]) -> SecuredPeer:
    ports, listeners = _listeners()
    with kafka_heap():
        more = {"listeners": listeners, "advertised.listeners": listeners, "log.segment.delete.delay.ms": 0}
        broker = KafkaBroker(directory / "kafka", tree, ports[PLAINTEXT], extra_props={**settings, **more})
        broker.start()
    stack.callback(broker.stop)
    return SecuredPeer("kafka", broker.bootstrap_servers, broker.pid, ends=_ends(ports))
