"""Where each znode lies and what it holds: path, encode, decode.

The tree and the JSON are Kafka 3.x's (``ZkData.scala``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.config.listeners import (
    DEFAULT_PROTOCOLS,
    PLAINTEXT,
    Listener,
    parse_listeners,
    parse_protocols,
    plain_listener,
    unless_plain,
)
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import MalformedZnode
from sparklog.security.acl.znode import is_storable
from sparklog.structs import NO_LEADER, Endpoint, TopicPartition, uuid_from_text, uuid_to_text
from sparklog.zk.entities import ENTITY_KINDS

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_TOPICS = "/config/topics"
CONFIG_CHANGE_PREFIX = "config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONSUMERS = "/consumers"
LIVES = "/sparklog/lives"
TERMS = "/sparklog/terms"

PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    BROKER_TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    "/brokers/seqid",
    "/isr_change_notification",
    LOG_DIR_EVENTS,
    CONFIG_TOPICS,
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    LIVES,
    TERMS,
)


_DIGITS = re.compile(r"-?[0-9]{9,10}")


def sequence_numbers(prefix: str, names: Iterable[str]) -> list[int]:
    """The numbers of the sequential znodes with this prefix, in order; names of other kinds are left out."""
    numbers = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return sorted(int(each) for each in numbers if _DIGITS.fullmatch(each) and each == f"{int(each):010d}")


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _parse(path: str, data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise MalformedZnode(f"znode {path} does not hold JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedZnode(f"znode {path} does not hold a JSON object")
    return value


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """A znode that lacks something, or holds it in another form, comes out as MalformedZnode with its path."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise MalformedZnode(f"znode {path} does not hold what it must: {error!r}") from error


_MAX_INT32 = (1 << 31) - 1
_LAST_LEADER_EPOCH = _MAX_INT32 - (1 << 20)
"""What is read: those of the elections that follow can be told too, or no broker would be told of anything."""
_MAX_PORT = (1 << 16) - 1
_LONGEST_TEXT = (1 << 15) - 1
"""Of a string in a request, in bytes of UTF-8."""
_UNBROKEN_SINCE = "sparklog_unbroken_since"


def _number(value: object, least: int = 0, most: int = _MAX_INT32) -> int:
    """A number that the protocol can tell of."""
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is not a number from {least} to {most}")
    return value


class BrokerInfo(NamedTuple):
    """A live broker; ``endpoint`` is for other brokers, ``epoch`` is the creation zxid of its znode."""

    id: int
    endpoint: Endpoint
    rack: str | None = None
    epoch: int = -1
    unbroken_since: int | None = None
    """The epoch since which it has lost nothing, as it says itself. Kafka's brokers say nothing."""
    listeners: tuple[Listener, ...] = ()
    """What it tells clients; empty for a broker that has ``endpoint`` alone, with neither TLS nor SASL."""

    @property
    def all_listeners(self) -> tuple[Listener, ...]:
        return self.listeners or (plain_listener(self.endpoint),)

    def endpoint_on(self, listener: str) -> Endpoint | None:
        """Where clients of this listener find it; None where it has none of the name."""
        return next((each.endpoint for each in self.all_listeners if each.name == listener), None)

    @property
    def life(self) -> int:
        """The epoch with which the present life began: what it had since then, it has."""
        return self.epoch if self.unbroken_since is None else self.unbroken_since


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def encode_broker(info: BrokerInfo, now_ms: int) -> bytes:
    listeners = info.all_listeners
    plain = next((each.endpoint for each in listeners if each.protocol is SecurityProtocol.PLAINTEXT), None)
    value: dict[str, Any] = {
        "listener_security_protocol_map": {each.name: each.protocol.name for each in listeners},
        "endpoints": [f"{each.name}://{each.endpoint}" for each in listeners],
        "jmx_port": -1,
        "features": {},
        "host": plain.host if plain else None,
        "timestamp": str(now_ms),
        "port": plain.port if plain else -1,
        "version": 5,
    }
    if info.rack is not None:
        value["rack"] = info.rack
    if info.unbroken_since is not None:
        value[_UNBROKEN_SINCE] = info.unbroken_since
    return _json(value)


def decode_broker(broker_id: int, data: bytes, epoch: int, between_brokers: str = PLAINTEXT) -> BrokerInfo:
    """``endpoint`` is that of the listener ``between_brokers``; where there is none of the name, the first one.

    Versions below 4 have a host and a port alone. Raises MalformedZnode.
    """
    value = _parse(broker_path(broker_id), data)
    with _reading(broker_path(broker_id)):
        rack, since = value.get("rack"), value.get(_UNBROKEN_SINCE)
        if not isinstance(rack, str | None):
            raise ValueError(f"rack {rack!r}")
        listeners = _listeners(value)
        for text in (rack or "", *(each.name for each in listeners), *(each.endpoint.host for each in listeners)):
            _check_sendable(text)
        endpoint = next((each.endpoint for each in listeners if each.name == between_brokers), listeners[0].endpoint)
        told = since if isinstance(since, int) and 0 <= since <= epoch else None
        return BrokerInfo(_number(broker_id), endpoint, rack, epoch, told, unless_plain(listeners))


def _check_sendable(text: str) -> None:
    """Raises ValueError for what no request can hold: those that tell brokers of each other would be refused whole."""
    if len(text.encode()) > _LONGEST_TEXT:
        raise ValueError(f"{text[:50]}... has {len(text)} characters")


def _listeners(value: dict[str, Any]) -> tuple[Listener, ...]:
    if value.get("host"):
        host = value["host"]
        if not isinstance(host, str):
            raise ValueError(f"host {host!r}")
        plain = Endpoint(host, _number(value["port"], 1, _MAX_PORT))
        if "endpoints" not in value:
            return (plain_listener(plain),)
    protocols = parse_protocols(
        ",".join(f"{name}:{each}" for name, each in value.get("listener_security_protocol_map", {}).items())
        or DEFAULT_PROTOCOLS
    )
    listeners = parse_listeners("endpoints", ",".join(value["endpoints"]), protocols)
    if not listeners or not all(each.endpoint.host and each.endpoint.port for each in listeners):
        raise ValueError(f"endpoints {value['endpoints']!r}")
    return listeners


class ReplicaAssignment(NamedTuple):
    """The replicas of one partition, preferred leader first; while it moves those that it is to have, and behind them
    the rest of those that it had.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    """Those that it had not before the move."""
    removing: tuple[int, ...] = ()
    """Those that it is to have no more."""

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Those that it had, though perhaps in another order."""
        return tuple(each for each in self.replicas if each not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """Those that it is to have."""
        return tuple(each for each in self.replicas if each not in self.removing)


@dataclass(frozen=True)
class TopicAssignment:
    """The replicas of each partition, and the topic's id; ``adding`` and ``removing`` name partitions that move."""

    topic: str
    partitions: dict[int, tuple[int, ...]]
    topic_id: UUID | None = None
    adding: dict[int, tuple[int, ...]] = field(default_factory=dict)
    removing: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def of(self, partition: int) -> ReplicaAssignment:
        """What one partition has. Raises KeyError if there is no such partition."""
        adding, removing = self.adding.get(partition, ()), self.removing.get(partition, ())
        return ReplicaAssignment(self.partitions[partition], adding, removing)

    def changed(self, changes: Mapping[int, ReplicaAssignment]) -> TopicAssignment:
        """The same with other replicas of some partitions."""
        return TopicAssignment(
            self.topic,
            self.partitions | {number: each.replicas for number, each in changes.items()},
            self.topic_id,
            _moving(self.adding | {number: each.adding for number, each in changes.items()}),
            _moving(self.removing | {number: each.removing for number, each in changes.items()}),
        )


def topic_path(topic: str) -> str:
    return f"{BROKER_TOPICS}/{topic}"


def encode_topic(assignment: TopicAssignment) -> bytes:
    value = {"version": 3} | _replicas(assignment)
    if assignment.topic_id is not None:
        value["topic_id"] = uuid_to_text(assignment.topic_id)
    return _json(value)


def _replicas(assignment: TopicAssignment) -> dict[str, Any]:
    tables = {
        "partitions": assignment.partitions,
        "adding_replicas": assignment.adding,
        "removing_replicas": assignment.removing,
    }
    return {name: {str(number): list(each) for number, each in table.items()} for name, table in tables.items()}


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    """Raises MalformedZnode."""
    value = _parse(topic_path(topic), data)
    with _reading(topic_path(topic)):
        partitions = _replica_table(value["partitions"])
        adding = _replica_table(value.get("adding_replicas") or {})
        removing = _replica_table(value.get("removing_replicas") or {})
        topic_id = uuid_from_text(value["topic_id"]) if "topic_id" in value else None
        for number, each in (*adding.items(), *removing.items()):
            if not set(each) <= set(partitions.get(number, ())):
                raise ValueError(f"partition {number} moves replicas {each} that it has not")
    return TopicAssignment(topic, partitions, topic_id, _moving(adding), _moving(removing))


def _replica_table(value: dict[str, list[int]]) -> dict[int, tuple[int, ...]]:
    return {_number(int(number)): tuple(map(_number, value[number])) for number in sorted(value, key=int)}


def _moving(table: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Kafka may leave the lists of partitions that have moved, empty."""
    return {number: each for number, each in table.items() if each}


def with_replicas(path: str, data: bytes, assignment: TopicAssignment) -> bytes:
    """The topic's znode with other partitions or replicas, and whatever else it holds."""
    return _json(_parse(path, data) | _replicas(assignment))


@dataclass(frozen=True)
class PartitionState:
    """A partition's leader and in-sync replicas; ``version`` is the znode's, for conditional writes, and ``zxid`` that
    of the last write, -1 where it is not known.

    What Kafka's znode has no room for is in one of our own beside it (``eligible_path``).
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int = field(default=-1, compare=False)
    zxid: int = field(default=-1, compare=False)
    eligible: tuple[int, ...] = ()
    """Replicas out of the ISR that have all that was ever acknowledged all the same."""
    last_known: tuple[int, ...] = ()
    """Replicas that had all that was ever acknowledged, and have begun another life since: they may lack what was not
    on their disks. One of them that is also in ``isr`` stands there because Kafka's znode wants somebody.
    """
    min_isr: int = field(default=1, compare=False)
    """The ``min.insync.replicas`` under which ``eligible`` was found."""


def partition_state_path(tp: TopicPartition) -> str:
    return f"{topic_path(tp.topic)}/partitions/{tp.partition}/state"


def encode_partition_state(state: PartitionState) -> bytes:
    return _json(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def decode_partition_state(tp: TopicPartition, data: bytes, version: int, zxid: int = -1) -> PartitionState:
    value = _parse(partition_state_path(tp), data)
    with _reading(partition_state_path(tp)):
        return PartitionState(
            _number(value["leader"], NO_LEADER),
            _number(value["leader_epoch"], most=_LAST_LEADER_EPOCH),
            tuple(map(_number, value["isr"])),
            _number(value["controller_epoch"]),
            version,
            zxid,
        )


def eligible_path(tp: TopicPartition) -> str:
    """Kafka neither reads nor writes it; it goes with the topic."""
    return f"{topic_path(tp.topic)}/partitions/{tp.partition}/eligible"


def encode_eligible(state: PartitionState, version: int) -> bytes:
    """What stands beside the state of this version."""
    return _json(
        {
            "version": 1,
            "state_version": version,
            "min_isr": state.min_isr,
            "eligible": list(state.eligible),
            "last_known": list(state.last_known),
        }
    )


def decode_eligible(tp: TopicPartition, data: bytes, state: PartitionState) -> PartitionState:
    """The state with what stands beside it. What was written beside another version is disbelieved: a controller of
    Kafka, which does not know of it, has changed the state since.
    """
    value = _parse(eligible_path(tp), data)
    with _reading(eligible_path(tp)):
        if _number(value["state_version"]) != state.version:
            return state
        return replace(
            state,
            eligible=tuple(map(_number, value["eligible"])),
            last_known=tuple(map(_number, value["last_known"])),
            min_isr=_number(value["min_isr"], 1),
        )


def encode_lives(lives: Mapping[int, int]) -> bytes:
    return _json({"version": 1, "lives": {str(broker_id): life for broker_id, life in sorted(lives.items())}})


def decode_lives(data: bytes) -> dict[int, int]:
    """For each broker the life of which the partition states are known to take account; none if none was ever told."""
    if not data:
        return {}
    value = _parse(LIVES, data)
    with _reading(LIVES):
        return {int(broker_id): int(life) for broker_id, life in value["lives"].items()}


def encode_terms(last: int, before: int) -> bytes:
    return _json({"version": 1, "last": last, "before": before})


def decode_terms(data: bytes) -> tuple[int, int]:
    """The controller epochs in which brokers of ours held the office last, and before that; 0 where none is known."""
    if not data:
        return 0, 0
    value = _parse(TERMS, data)
    with _reading(TERMS):
        return _number(value["last"]), _number(value["before"])


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    return _json({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    with _reading(CONTROLLER):
        return int(_parse(CONTROLLER, data)["brokerid"])


def encode_log_dir_event(broker_id: int) -> bytes:
    return _json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The broker of which a log directory has failed; -1 if it cannot be told."""
    try:
        return int(_parse(path, data)["broker"])
    except (MalformedZnode, LookupError, TypeError, ValueError):
        return -1


CLUSTER_ENTITY = "brokers/<default>"
"""The entity that holds what every broker has by default."""


def topic_entity(topic: str) -> str:
    return f"topics/{topic}"


def broker_entity(broker_id: int) -> str:
    return f"brokers/{broker_id}"


def config_path(entity: str) -> str:
    return f"{CONFIG}/{entity}"


def topic_config_path(topic: str) -> str:
    return config_path(topic_entity(topic))


def encode_config_change(entity: str) -> bytes:
    return _json({"version": 2, "entity_path": entity})


def decode_config_change(path: str, data: bytes) -> str:
    """The entity whose settings changed. Raises MalformedZnode, also where no znode can have that path."""
    with _reading(path):
        entity = str(_parse(path, data)["entity_path"])
        if not all(map(is_storable, entity.split("/"))):
            raise ValueError(entity)
        return entity


def encode_config(properties: dict[str, str]) -> bytes:
    return _json({"version": 1, "config": properties})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    with _reading(path):
        return {str(name): str(value) for name, value in _parse(path, data).get("config", {}).items()}


def decode_entity_config(entity: str, data: bytes | None) -> dict[str, str]:
    """``decode_config``; a user that stands there only for the client ids below it has no settings."""
    if not data and entity.partition("/")[0] in ENTITY_KINDS:
        return {}
    return decode_config(config_path(entity), data or b"")


def encode_cluster_id(cluster_id: str) -> bytes:
    return _json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    with _reading(CLUSTER_ID):
        return str(_parse(CLUSTER_ID, data)["id"])


def encode_producer_id_block(broker_id: int, block: range) -> bytes:
    return _json({"version": 1, "broker": broker_id, "block_start": str(block.start), "block_end": str(block.stop - 1)})


def decode_producer_id_block(data: bytes) -> range:
    """The block that was taken last; an empty one at 0 if none ever was."""
    if not data:
        return range(0)
    value = _parse(PRODUCER_ID_BLOCK, data)
    with _reading(PRODUCER_ID_BLOCK):
        return range(int(value["block_start"]), int(value["block_end"]) + 1)


def encode_deletion(topic_id: UUID | None) -> bytes:
    """What a request to delete a topic says; Kafka's says nothing, and its controller looks at the name alone."""
    return b"" if topic_id is None else str(topic_id).encode()


def decode_deletion(data: bytes | None) -> UUID | None:
    """The id that a request to delete a topic names; None if it names none that can be read.

    Kafka makes the znode without any data, which is another thing than empty data: ``data`` is None.
    """
    try:
        return UUID((data or b"").decode())
    except ValueError:
        return None


def encode_reassignments(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """The replicas that partitions are to have, as an operator asks for in ZooKeeper."""
    asked = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)} for tp, replicas in targets.items()
    ]
    return _json({"version": 1, "partitions": asked})


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    value = _parse(REASSIGN_PARTITIONS, data)
    with _reading(REASSIGN_PARTITIONS):
        return {
            TopicPartition(str(each["topic"]), int(each["partition"])): tuple(map(int, each["replicas"]))
            for each in value["partitions"]
        }


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"
