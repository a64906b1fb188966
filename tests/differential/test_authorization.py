"""Kafka with its AclAuthorizer and a broker of ours are given the same lists and asked the same: they refuse the same.

Each seed is a client by its address, so that one start of both serves all of them. What is compared is where an answer
refuses for want of a right; what else it says is compared in ``tests/differential``.
"""

import itertools
import random
import socket
from typing import Any

import pytest
from broker.requests_of_strangers import ADMINISTRATION, GROUPS, METADATA, RECORDS, TOPICS, TRANSACTIONS, USERS, body_of
from kazoo.client import KazooClient

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.messages import decode_response
from sparklog.security.access import CLUSTER, Operation, ResourceType
from sparklog.security.acl.entry import AclEntry, Permission
from sparklog.security.acl.pattern import ResourcePattern
from sparklog.security.acl.znode import encode_list, list_path
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

pytestmark = pytest.mark.peer

SEEDS = range(12)
SETTINGS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
OWNER = "127.0.0.1"
NAMED = {
    ResourceType.TOPIC: ("t", "u", "new", "__consumer_offsets"),
    ResourceType.GROUP: ("g", "h"),
    ResourceType.TRANSACTIONAL_ID: ("x", "y"),
    ResourceType.CLUSTER: (CLUSTER.name,),
}
DRAWN = (
    Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.CREATE,
    Operation.IDEMPOTENT_WRITE,
)  # fmt: skip
"""None that lets a client change what the next one is asked about."""
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
ON_TOP_ONLY = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
}
"""Kafka says it of each partition too, and of each user, without the name."""
CASES = [
    each
    for each in (*RECORDS, *METADATA, *GROUPS, *TRANSACTIONS, *TOPICS, *ADMINISTRATION, *USERS)
    if not each.name.startswith(("ConsumerGroup", "DescribeTopicPartitions", "JoinGroup", "CreateTopics"))
    and "by-id" not in each.name
    and each.name not in ("Metadata-that-creates", "Fetch-of-follower")
]
KEYS = ("name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name", "partition_index",
        "index", "partition", "partition_id", "user")  # fmt: skip


def address(seed):
    return f"127.0.0.{10 + seed}"


def lists():
    """The entries of each resource: all for the owner, and for each seed what it draws."""
    found = {ResourcePattern(kind, "*"): {AclEntry("User:ANONYMOUS", OWNER)} for kind in NAMED}
    for seed in SEEDS:
        chance = random.Random(seed)
        for kind, names in NAMED.items():
            for name, operation in itertools.product((*names, "*"), DRAWN):
                if chance.random() < (0.12 if name == "*" else 0.3):
                    denied = chance.random() < 0.2
                    entry = AclEntry(
                        "User:ANONYMOUS", address(seed), operation, Permission.DENY if denied else Permission.ALLOW
                    )
                    found.setdefault(ResourcePattern(kind, name), set()).add(entry)
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


def refusals(told, path=()):
    """Where it is refused."""
    found = set()
    if isinstance(told, dict):
        for name, value in told.items():
            if name.endswith("error_code") and ErrorCode(value) in REFUSALS:
                found.add((*path, name, ErrorCode(value).name))
            found |= refusals(value, (*path, name))
    elif isinstance(told, list):
        for number, each in enumerate(told):
            key = next((each[key] for key in KEYS if key in each), number) if isinstance(each, dict) else number
            found |= refusals(each, (*path, key))
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
    asking.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_both_refuse_the_same(brokers, seed):
    differences = []
    for case in CASES:
        told = []
        for broker in brokers:
            asking = Asking(broker, address(seed))
            answer = asking.ask(case.api, case.version, body_of(case.api, case.version, case.fields))
            asking.close()
            found = refusals(answer)
            told.append({each for each in found if len(each) == 2} if case.api in ON_TOP_ONLY else found)
        if told[0] != told[1]:
            differences.append((case.name, told[0] - told[1], told[1] - told[0]))
    assert not differences, "\n".join(
        f"{name}: only Kafka {one}; only ours {other}" for name, one, other in differences
    )
