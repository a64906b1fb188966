"""Kafka with its AclAuthorizer and a broker of ours are given the same lists and asked the same: they refuse the same.

Each seed is a client by its address, so that one start of both serves all of them. What is compared is which things an
answer names, their error codes, and which operations it says are allowed; what else it says is compared in
``tests/differential``. No request changes what the next one is asked about, whatever its client may do.
"""

import itertools
import random
import socket
from typing import Any

import pytest
from broker.requests_of_strangers import BETWEEN_BROKERS, CASES, KNOWN_ID, OWN, body_of
from kazoo.client import KazooClient

from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.messages import decode_response
from sparklog.security.access import CLUSTER, Operation, ResourceType
from sparklog.security.acl.entry import AclEntry, Permission
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.security.acl.znode import encode_list, list_path
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

pytestmark = pytest.mark.peer

SEEDS = range(12)
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "log.retention.ms": -1,  # records of the year 1970 are written
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}
OWNER = "127.0.0.1"
NAMED = {
    ResourceType.TOPIC: ("t", "u", "new", "__consumer_offsets"),
    ResourceType.GROUP: ("g", "h"),
    ResourceType.TRANSACTIONAL_ID: ("x", "y"),
    ResourceType.CLUSTER: (CLUSTER.name,),
}
PREFIXES = {ResourceType.TOPIC: ("t", "n", "__"), ResourceType.GROUP: ("g",), ResourceType.TRANSACTIONAL_ID: ("x",)}
"""What lists of all names that begin so are drawn for."""
DRAWN = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip
"""Every operation that there is on each kind."""
ON_TOP_ONLY = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
}
"""Where the whole is refused, Kafka says so of each partition too, and of each user, without the name."""
_STALE = {"controller_id": 0, "controller_epoch": 0, "broker_epoch": 1, "topic_states": []}
_NOBODYS = {"principal": "User:nobody", "host": "*", "operation": 8, "permission_type": 3}
HARMLESS: dict[str, dict[str, Any]] = {
    "CreateTopics": {
        "validate_only": True,
        "topics": [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in ("t", "new")
        ],
    },
    "DeleteTopics": {"topic_names": ["missing", "new"]},
    "DeleteRecords": {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}]},
    "CreatePartitions": {"validate_only": True},
    "AlterConfigs": {"validate_only": True},
    "IncrementalAlterConfigs": {"validate_only": True},
    "AlterPartitionReassignments": {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [77]}]}]
    },
    "JoinGroup": {
        "session_timeout_ms": 1,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    },
    "CreateAcls": {"creations": [_NOBODYS | {"resource_type": 4, "resource_name": "elsewhere"}]},
    "DeleteAcls": {
        "filters": [{"resource_type_filter": 2, "resource_name_filter": "n", "operation": 1, "permission_type": 1}]
    },
    "AlterClientQuotas": {"validate_only": True},
    "AlterUserScramCredentials": {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": []},
    "LeaderAndIsr": _STALE,
    "StopReplica": _STALE,
    "UpdateMetadata": _STALE,
    "WriteTxnMarkers": {"markers": [{"producer_id": 5, "topics": [{"name": "missing", "partition_indexes": [0]}]}]},
}
"""Requests of such fields that they change nothing."""
UNKNOWN_TO_KAFKA = {"ProbeBroker", "GetReplicaLogInfo", *(each.name for each in OWN)}
LEFT_OUT = {
    "Metadata-that-creates": "it makes the topic",
    "DeleteTopics-by-id": "it deletes the topic",
    "DeleteTopics-by-id-that-may-be-described": "it deletes the topic",
    "AddPartitionsToTxn-of-leader": "Kafka asks the leader, which is itself, and is not answered",
    "AllocateProducerIds": "Kafka says another code of a broker that it does not know",
    "ControlledShutdown": "as above",
    "AlterPartition": "as above",
}
"""Asked of a client without any right alone, who is refused before any of this happens."""


def _is_asked(case: Any) -> bool:
    return (
        case.name not in UNKNOWN_TO_KAFKA
        and case.protocol is SecurityProtocol.PLAINTEXT  # the others are in ``test_token_rights``
        # Kafka has these with KRaft, or a group coordinator that it has not with ZooKeeper.
        and not case.name.startswith(("ConsumerGroup", "DescribeTopicPartitions"))
    )


ASKED = [case._replace(fields=case.fields | HARMLESS.get(case.name, {})) for case in CASES if _is_asked(case)]
KEYS = ("name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name", "partition_index",
        "index", "partition", "partition_id", "user", "resource_type")  # fmt: skip
WITHOUT_RIGHTS = 100
"""A seed of whom no list says anything."""


def address(seed):
    return f"127.0.0.{10 + seed}"


def lists():
    """The entries of each resource: all for the owner, and for each seed what it draws."""
    found = {ResourcePattern(kind, "*"): {AclEntry("User:ANONYMOUS", OWNER)} for kind in NAMED}
    for seed in SEEDS:
        chance = random.Random(seed)
        for kind, names in NAMED.items():
            patterns = [ResourcePattern(kind, name) for name in (*names, "*")]
            patterns += [ResourcePattern(kind, name, PatternType.PREFIXED) for name in PREFIXES.get(kind, ())]
            for pattern, operation in itertools.product(patterns, DRAWN[kind]):
                if chance.random() < (0.3 if pattern.name in names else 0.12):
                    denied = chance.random() < 0.2
                    entry = AclEntry(
                        "User:ANONYMOUS", address(seed), operation, Permission.DENY if denied else Permission.ALLOW
                    )
                    found.setdefault(pattern, set()).add(entry)
    return found


class Asking:
    """A connection from an address of one's choice."""

    def __init__(self, broker, source):
        self._socket = socket.create_connection(broker, timeout=30, source_address=(source, 0))
        self._protocol = ClientConnection("c")

    def ask(self, api, version, body):
        self._socket.sendall(b"".join(bytes(each) for each in self._protocol.request(api, version, [body])))
        size = int.from_bytes(self._read(4), "big")
        _, _, answer = self._protocol.response(memoryview(self._read(size)))
        told: Any = decode_response(api, version, answer)
        return told.to_dict()

    def _read(self, size):
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            assert more, "it hung up"
            found += more
        return found

    def close(self):
        self._socket.close()


def _key(told, number):
    """What a part of a list is told of by: its names and numbers, or else its place."""
    known = [str(told[key]) for key in KEYS if told.get(key) is not None]
    return "/".join(known) or str(told.get("topic_id", number))


def said(told, path=()):
    """What an answer names, and the codes and operations that it says of that, by where they are."""
    found = {}
    if isinstance(told, dict):
        for name, value in told.items():
            if name.endswith("error_code"):
                found[*path, name] = ErrorCode(value).name
            elif name.endswith("authorized_operations"):
                found[*path, name] = value
            elif name != "configs":
                found |= said(value, (*path, name))
    elif isinstance(told, list):
        for number, each in enumerate(told):
            if isinstance(each, dict):
                at = (*path, _key(each, number))
                found |= {at: "is there"} | said(each, at)
    return found


@pytest.fixture(scope="module")
def brokers(zookeeper, tmp_path_factory):
    home = tmp_path_factory.mktemp("authorization")
    both = [f"{zookeeper.connect_string}/{side}-with-lists" for side in ("kafka", "ours")]
    zk = KazooClient(zookeeper.connect_string)
    zk.start()
    for chroot in ("/kafka-with-lists", "/ours-with-lists"):
        for pattern, entries in lists().items():
            zk.create(chroot + list_path(pattern), encode_list(entries), makepath=True)
    zk.stop()
    zk.close()
    kafka = KafkaBroker(home / "kafka", both[0], extra_props=SETTINGS)
    ours = BrokerHarness(home, both[1], settings=SETTINGS)
    with kafka, ours:
        found = [(kafka.host, kafka.port), (ours.spec.host, ours.spec.port)]
        for each in found:
            make_topics(each)
        yield found


def make_topics(broker):
    asking = Asking(broker, OWNER)
    topics = [
        {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        for name in ("t", "u")
    ]
    message = {"topics": topics, "timeout_ms": 30_000, "validate_only": False}
    made = asking.ask(ApiKey.CREATE_TOPICS, 5, body_of(ApiKey.CREATE_TOPICS, 5, message))
    assert [each["error_code"] for each in made["topics"]] == [0, 0], made
    for kind in (0, 1):
        body = body_of(ApiKey.FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": ["g"]})
        eventually(lambda body=body: asking.ask(ApiKey.FIND_COORDINATOR, 4, body)["coordinators"][0]["error_code"] == 0)
    body = body_of(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None})
    eventually(lambda: asking.ask(ApiKey.INIT_PRODUCER_ID, 4, body)["error_code"] == 0)  # it has ids to give away
    asking.close()


@pytest.fixture(scope="module")
def topic_ids(brokers):
    """Of ``t``, which has another at each."""
    found = []
    for broker in brokers:
        asking = Asking(broker, OWNER)
        told = asking.ask(ApiKey.METADATA, 12, body_of(ApiKey.METADATA, 12, {"topics": [{"name": "t"}]}))
        found.append(told["topics"][0]["topic_id"])
        asking.close()
    return found


def _with_id(fields, own):
    if isinstance(fields, dict):
        return {name: _with_id(value, own) for name, value in fields.items()}
    if isinstance(fields, list):
        return [_with_id(each, own) for each in fields]
    return own if fields == KNOWN_ID else fields


def _answer(broker, topic_id, number, case):
    """What is said, with the id of ``t`` that all know it by."""
    asking = Asking(broker, address(number))
    try:
        told = asking.ask(case.api, case.version, body_of(case.api, case.version, _with_id(case.fields, topic_id)))
    finally:
        asking.close()
    found = {
        tuple(str(each).replace(str(topic_id), str(KNOWN_ID)) for each in path): what
        for path, what in said(told).items()
    }
    is_refused = "CLUSTER_AUTHORIZATION_FAILED" in found.values()
    if case.api in ON_TOP_ONLY and is_refused:
        return {path: what for path, what in found.items() if len(path) == 1}
    return found


def _differences(brokers, topic_ids, number, cases):
    for case in cases:
        kafkas, ours = (_answer(broker, own, number, case) for broker, own in zip(brokers, topic_ids, strict=True))
        for path in sorted(kafkas.keys() | ours.keys()):
            if kafkas.get(path) != ours.get(path):
                yield f"{case.name} {'/'.join(path)}: Kafka {kafkas.get(path)}, ours {ours.get(path)}"


@pytest.mark.parametrize("seed", SEEDS)
def test_both_say_the_same(brokers, topic_ids, seed):
    cases = [each for each in ASKED if each.name not in LEFT_OUT]
    found = list(_differences(brokers, topic_ids, seed, cases))
    assert not found, "\n".join(found)


def test_both_refuse_a_stranger_everything(brokers, topic_ids):
    assert {each.name for each in BETWEEN_BROKERS} - UNKNOWN_TO_KAFKA <= {each.name for each in ASKED}
    found = list(_differences(brokers, topic_ids, WITHOUT_RIGHTS, ASKED))
    assert not found, "\n".join(found)
