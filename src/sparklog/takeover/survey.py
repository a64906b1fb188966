"""What a running cluster says of itself: its znodes, and its brokers when they are asked. Nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparklog.client.cluster.config import ClientConfig
from sparklog.clock import SystemClock
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import MalformedZnode, SparklogError
from sparklog.net.async_connection import AsyncConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeConfigsRequest
from sparklog.structs import Endpoint
from sparklog.zk import znodes
from sparklog.zk.client import ZkClient

_BROKER = 4
"""What DescribeConfigs calls a broker."""
_DESCRIBE_CONFIGS_MOST = 4
_BY_DEFAULT = 5
"""What DescribeConfigs calls the source of a setting that nobody has given."""
_ACLS = ("/kafka-acl", "/kafka-acl-extended")
_TOKENS = "/delegation_token/tokens"
_QUOTAS = ("users", "clients", "ips")
_FETCH_OF_FOLLOWERS = 12
_TIMEOUT_S = 15.0


class Listener(NamedTuple):
    """Where a broker says that it listens."""

    name: str
    protocol: str


@dataclass(frozen=True)
class SurveyedBroker:
    """A registered broker; ``settings`` are empty and ``silence`` says why, where it was asked and did not answer."""

    id: int
    listeners: tuple[Listener, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    by_default: frozenset[str] = frozenset()
    """The names of the settings that nobody has given."""
    is_recent: bool = True
    """Whether it speaks what replicas of the two kinds say to each other (Kafka 2.8)."""
    silence: str = ""


@dataclass(frozen=True)
class SurveyedTopic:
    """A topic, as its znodes have it."""

    name: str
    has_id: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)
    is_moving: bool = False
    """Whether replicas of it are added or removed."""
    single: tuple[int, ...] = ()
    """The partitions with one replica."""
    lagging: tuple[int, ...] = ()
    """Those with a replica that is not in sync."""
    leaderless: tuple[int, ...] = ()


@dataclass(frozen=True)
class Survey:
    """The whole cluster."""

    brokers: tuple[SurveyedBroker, ...] = ()
    topics: tuple[SurveyedTopic, ...] = ()
    has_controller: bool = True
    is_migrating: bool = False
    """Whether the cluster goes over to KRaft."""
    features: tuple[str, ...] = ()
    acls: int = 0
    tokens: int = 0
    quotas: int = 0
    is_reassigning: bool = False


async def survey(zk: ZkClient, client: ClientConfig) -> Survey:
    """``client`` says how brokers are asked. Raises CoordinationError where ZooKeeper does not answer."""
    ids = sorted(int(name) for name in zk.names(znodes.BROKER_IDS) if name.isdecimal())
    controller = _json(zk, znodes.CONTROLLER)
    migration = _json(zk, "/migration")
    return Survey(
        brokers=tuple([await _broker(zk, id_, client) for id_ in ids]),
        topics=tuple(_topic(zk, name) for name in zk.names(znodes.BROKER_TOPICS)),
        has_controller=bool(controller),
        is_migrating=max(_epoch(controller, "kraftControllerEpoch"), _epoch(migration, "kraft_controller_epoch")) >= 0,
        features=tuple(sorted(_json(zk, "/feature").get("features") or {})),
        acls=sum(len(zk.names(f"{root}/{kind}")) for root in _ACLS for kind in zk.names(root)),
        tokens=len(zk.names(_TOKENS)),
        quotas=sum(bool(_json(zk, path).get("config")) for path in _quota_paths(zk)),
        is_reassigning=zk.data("/admin/reassign_partitions") is not None,
    )


def _json(zk: ZkClient, path: str) -> dict[str, Any]:
    """Empty where there is no such znode, or nothing to be read in it."""
    try:
        value = json.loads(zk.data(path) or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _epoch(value: Mapping[str, Any], name: str) -> int:
    found = value.get(name)
    return found if isinstance(found, int) else -1


def _quota_paths(zk: ZkClient) -> Iterator[str]:
    """Of users, client ids and addresses, and of the client ids of a user."""
    for kind in _QUOTAS:
        for name in zk.names(f"{znodes.CONFIG}/{kind}"):
            path = f"{znodes.CONFIG}/{kind}/{name}"
            yield path
            yield from (f"{path}/clients/{client}" for client in zk.names(f"{path}/clients"))


async def _broker(zk: ZkClient, broker_id: int, client: ClientConfig) -> SurveyedBroker:
    path = znodes.broker_path(broker_id)
    value = _json(zk, path)
    protocols = value.get("listener_security_protocol_map") or {}
    names = [str(each).partition("://")[0] for each in value.get("endpoints") or ()]
    listeners = tuple(Listener(name, str(protocols.get(name, name))) for name in names)
    try:
        found = znodes.decode_broker(broker_id, zk.data(path) or b"", -1)
    except MalformedZnode:
        return SurveyedBroker(broker_id, listeners, silence="it says no address to ask it at")
    protocol = SecurityProtocol[client.security_protocol.upper()]
    endpoint = next((each.endpoint for each in found.all_listeners if each.protocol is protocol), None)
    if endpoint is None:
        silence = f"it has no listener of {protocol.name}: --command-config FILE says how clients speak to it"
        return SurveyedBroker(broker_id, listeners, silence=silence)
    try:
        return await _ask(endpoint, broker_id, listeners, client)
    except SparklogError as error:
        return SurveyedBroker(broker_id, listeners, silence=str(error))


async def _ask(
    endpoint: Endpoint, broker_id: int, listeners: tuple[Listener, ...], client: ClientConfig
) -> SurveyedBroker:
    security = client.connection_security(SystemClock())
    connection = await AsyncConnection.open(endpoint, client_id=client.client_id, timeout=_TIMEOUT_S, security=security)
    try:
        versions = await connection.versions(timeout=_TIMEOUT_S)
        is_recent = all(map(versions.serves, (ApiKey.ALTER_PARTITION, ApiKey.LEADER_AND_ISR, ApiKey.FETCH)))
        is_recent = is_recent and versions.best(ApiKey.FETCH) >= _FETCH_OF_FOLLOWERS
        asked = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(
            resources=[asked(resource_type=_BROKER, resource_name=str(broker_id), configuration_keys=None)],
            include_synonyms=False,
            include_documentation=False,
        )
        answer = await connection.request(
            ApiKey.DESCRIBE_CONFIGS, lambda _: request, timeout=_TIMEOUT_S, ceiling=_DESCRIBE_CONFIGS_MOST
        )
    finally:
        connection.abort()  # over TLS a close waits for the broker, and the loop ends before
    told = [each for result in answer.results for each in result.configs]
    settings = {each.name: each.value or "" for each in told}
    by_default = frozenset(each.name for each in told if each.config_source == _BY_DEFAULT)
    return SurveyedBroker(broker_id, listeners, settings, by_default, is_recent)


def _topic(zk: ZkClient, name: str) -> SurveyedTopic:
    value = _json(zk, znodes.topic_path(name))
    replicas: dict[str, list[int]] = value.get("partitions") or {}
    states = {number: _json(zk, f"{znodes.topic_path(name)}/partitions/{number}/state") for number in replicas}

    def where(holds: Callable[[str], bool]) -> tuple[int, ...]:
        return tuple(sorted(int(number) for number in replicas if holds(number)))

    return SurveyedTopic(
        name,
        has_id="topic_id" in value,
        settings=zk.configs.of_topic(name),
        is_moving=any(any((value.get(each) or {}).values()) for each in ("adding_replicas", "removing_replicas")),
        single=where(lambda number: len(replicas[number]) == 1),
        lagging=where(lambda number: not set(replicas[number]) <= set(states[number].get("isr") or ())),
        leaderless=where(lambda number: states[number].get("leader", -1) < 0),
    )
