"""What each znode holds: Kafka's JSON, and nothing but CoordinationError for anything else."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CoordinationError, MalformedZnode
from sparklog.structs import Endpoint, TopicPartition
from sparklog.zk import znodes
from sparklog.zk.znodes import BrokerInfo, PartitionState, ReplicaAssignment, TopicAssignment

TP = TopicPartition("t", 3)
STATE = PartitionState(1, 5, (1, 2), 9)


def test_a_broker_is_described_as_kafka_describes_one():
    data = znodes.encode_broker(BrokerInfo(7, Endpoint("host", 9092), "rack-1"), 1234)
    assert json.loads(data) == {
        "version": 5,
        "host": "host",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1234",
        "endpoints": ["PLAINTEXT://host:9092"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
        "rack": "rack-1",
    }
    assert znodes.decode_broker(7, data, 42) == BrokerInfo(7, Endpoint("host", 9092), "rack-1", 42)


def test_an_ipv6_address_is_in_brackets_as_kafka_has_it():
    broker = BrokerInfo(7, Endpoint("::1", 9092))
    data = znodes.encode_broker(broker, 1234)
    assert json.loads(data)["endpoints"] == ["PLAINTEXT://[::1]:9092"]
    assert znodes.decode_broker(7, data, -1) == broker


def test_a_brokers_rack_may_be_unknown():
    data = znodes.encode_broker(BrokerInfo(7, Endpoint("host", 9092)), 1)
    assert "rack" not in json.loads(data)
    assert znodes.decode_broker(7, data, -1).rack is None


def test_a_broker_may_say_since_when_it_has_lost_nothing():
    data = znodes.encode_broker(BrokerInfo(7, Endpoint("host", 9092), unbroken_since=40), 1)
    assert json.loads(data)["sparklog_unbroken_since"] == 40
    found = znodes.decode_broker(7, data, 42)
    assert (found.unbroken_since, found.life) == (40, 40)
    silent = znodes.decode_broker(7, znodes.encode_broker(BrokerInfo(7, Endpoint("host", 9092)), 1), 42)
    assert (silent.unbroken_since, silent.life) == (None, 42), "as Kafka's brokers"
    for nonsense in ("43", "-1", '"40"', "[]"):
        garbled = data.replace(b'since":40', f'since":{nonsense}'.encode())
        assert znodes.decode_broker(7, garbled, 42).life == 42


def test_a_topic_is_described_as_kafka_describes_one():
    topic = TopicAssignment("t", {0: (1, 2), 1: (2, 1), 10: (3,)}, UUID(int=1))
    data = znodes.encode_topic(topic)
    assert json.loads(data) == {
        "version": 3,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "partitions": {"0": [1, 2], "1": [2, 1], "10": [3]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert znodes.decode_topic("t", data) == topic


def test_a_topic_that_moves_is_described_as_kafka_describes_one():
    """``TopicZNode`` of Kafka 3.9 names only partitions that move."""
    still = TopicAssignment("t", {0: (1, 2), 1: (2, 1)}, UUID(int=1))
    moving = still.changed({0: ReplicaAssignment((3, 2, 1), (3,), (1,))})
    data = znodes.encode_topic(moving)
    assert json.loads(data) == {
        "version": 3,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "partitions": {"0": [3, 2, 1], "1": [2, 1]},
        "adding_replicas": {"0": [3]},
        "removing_replicas": {"0": [1]},
    }
    assert znodes.decode_topic("t", data) == moving
    assert (moving.of(0).target, moving.of(0).origin) == ((3, 2), (2, 1))
    assert not moving.of(1).is_moving
    over = moving.changed({0: ReplicaAssignment((3, 2))})
    assert json.loads(znodes.with_replicas("/t", data, over))["removing_replicas"] == {}
    empty = json.dumps({"partitions": {"0": [1]}, "adding_replicas": {"0": []}, "removing_replicas": None}).encode()
    assert not znodes.decode_topic("t", empty).of(0).is_moving
    with pytest.raises(MalformedZnode, match="has not"):
        znodes.decode_topic("t", b'{"partitions":{"0":[1]},"adding_replicas":{"0":[2]}}')


def test_what_an_operator_asks_for_is_read_as_kafka_writes_it():
    data = b'{"version":1,"partitions":[{"topic":"t","partition":3,"replicas":[1,2]}]}'
    assert znodes.decode_reassignments(data) == {TP: (1, 2)}
    assert znodes.encode_reassignments({TP: (1, 2)}) == data
    for broken in (b"", b"{}", b'{"partitions":[{}]}', b'{"partitions":3}'):
        with pytest.raises(MalformedZnode, match="reassign_partitions"):
            znodes.decode_reassignments(broken)


def test_an_older_kafkas_topic_has_no_id_and_its_partitions_any_order():
    topic = znodes.decode_topic("t", b'{"version":1,"partitions":{"10":[3],"2":[1]}}')
    assert topic.topic_id is None
    assert list(topic.partitions.items()) == [(2, (1,)), (10, (3,))]


def test_a_partition_state_is_described_as_kafka_describes_one():
    data = znodes.encode_partition_state(STATE)
    assert json.loads(data) == {"controller_epoch": 9, "leader": 1, "version": 1, "leader_epoch": 5, "isr": [1, 2]}
    decoded = znodes.decode_partition_state(TP, data, 17)
    assert (decoded, decoded.version) == (STATE, 17)


def test_paths():
    assert znodes.broker_path(3) == "/brokers/ids/3"
    assert znodes.topic_path("t") == "/brokers/topics/t"
    assert znodes.partition_state_path(TP) == "/brokers/topics/t/partitions/3/state"
    assert znodes.topic_config_path("t") == "/config/topics/t"
    assert znodes.delete_topic_path("t") == "/admin/delete_topics/t"


def test_the_small_ones():
    assert znodes.decode_controller(znodes.encode_controller(5, 1)) == 5
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("abc")) == "abc"
    assert znodes.decode_config("/c", znodes.encode_config({"retention.ms": "5"})) == {"retention.ms": "5"}
    assert znodes.decode_config("/c", b'{"version":1}') == {}


def test_a_leader_epoch_that_leaves_none_for_the_next_leaders_is_malformed():
    state = {"leader": 1, "isr": [1], "controller_epoch": 1, "version": 1}
    assert znodes.decode_partition_state(TP, json.dumps(state | {"leader_epoch": 2**30}).encode(), 0).leader_epoch
    with pytest.raises(MalformedZnode, match="2147483647 is not a number"):
        znodes.decode_partition_state(TP, json.dumps(state | {"leader_epoch": 2**31 - 1}).encode(), 0)


@pytest.mark.parametrize("odd", ["x" * 40_000, "\ud800"], ids=["longer than a string in a request", "no UTF-8"])
@pytest.mark.parametrize("where", ["rack", "host"])
def test_a_broker_of_which_no_request_can_tell_is_malformed(where, odd):
    """Else every request that tells brokers of each other would be refused by all of them."""
    value = {"version": 5, "endpoints": ["PLAINTEXT://host:9092"], "rack": None}
    value |= {"rack": odd} if where == "rack" else {"endpoints": [f"PLAINTEXT://{odd}:9092"]}
    with pytest.raises(MalformedZnode, match="znode /brokers/ids/1 does not hold what it must"):
        znodes.decode_broker(1, json.dumps(value).encode(), 0)


DECODERS = {
    "broker": lambda data: znodes.decode_broker(1, data, 0),
    "topic": lambda data: znodes.decode_topic("t", data),
    "state": lambda data: znodes.decode_partition_state(TP, data, 0),
    "controller": znodes.decode_controller,
    "cluster id": znodes.decode_cluster_id,
    "config": lambda data: znodes.decode_config("/c", data),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["host", "a", "0"]), inner, max_size=3),
    max_leaves=6,
)
NAMES = ["host", "port", "partitions", "topic_id", "leader", "isr", "leader_epoch", "controller_epoch", "config", "id"]


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'"text"', b"[" * 50, b"[" * 5000, b"1" * 5000])
def test_what_is_no_json_object_is_refused_with_its_path(name, data):
    with pytest.raises(CoordinationError, match=r"znode /"):
        DECODERS[name](data)


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "config"])
def test_what_lacks_something_is_refused_with_its_path(name):
    with pytest.raises(CoordinationError, match=r"znode /.* does not hold what it must"):
        DECODERS[name](b"{}")


@given(name=st.sampled_from(sorted(DECODERS)), value=st.dictionaries(st.sampled_from(NAMES), JSON))
def test_any_json_is_read_or_refused(name, value):
    try:
        DECODERS[name](json.dumps(value).encode())
    except CoordinationError as error:
        assert "znode /" in str(error)  # noqa: PT017
