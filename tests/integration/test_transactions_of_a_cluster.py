"""Transactions over two brokers: the coordinator writes markers at the other one, which may be away for a while."""

import pytest
from confluent_kafka import TopicPartition
from integration import wire
from integration.raw_producer import RawProducer
from integration.test_transactions import consumer_of, producer_of, read, state_of, write

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import FindCoordinatorRequest
from sparklog.structs import TopicPartition as Tp
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
PARTITIONS = 4


@pytest.fixture
def pair(tmp_path):
    with ClusterHarness(tmp_path, brokers=2) as harness:
        eventually(lambda: any(make_topic_at(harness.broker(each)) for each in (0, 1)), 60)
        eventually(lambda: all(knows_the_leaders(broker) for broker in harness.brokers), 60)
        yield harness


def make_topic_at(broker):
    """False if this broker is not the controller."""
    with wire.connect(broker.address) as connection:
        return wire.create_topic(connection, "t", PARTITIONS)[0] is ErrorCode.NONE


def knows_the_leaders(broker):
    with wire.connect(broker.address) as connection:
        return sorted(wire.leaders(connection, "t").values()) == [0, 0, 1, 1]


def coordinator_of(pair, transactional_id):
    request = FindCoordinatorRequest(key=transactional_id, key_type=1, coordinator_keys=[transactional_id])

    def found():
        with wire.connect(pair.bootstrap_servers) as connection:
            answer = connection.request(ApiKey.FIND_COORDINATOR, lambda _: request)
        return answer.coordinators[0] if answer.coordinators[0].error_code == 0 else None

    return eventually(found, 60).node_id


def id_of(pair, broker_id):
    """A transactional id that this broker coordinates."""
    return next(name for name in map(str, range(100)) if coordinator_of(pair, name) == broker_id)


def everything(bootstrap):
    return sorted(value for number in range(PARTITIONS) for value in read(bootstrap, "t", number))


def leaders_of(pair):
    with wire.connect(pair.bootstrap_servers) as connection:
        return wire.leaders(connection, "t")


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_every_leader_gets_its_markers(pair, end):
    for coordinator in (0, 1):
        transactional_id = id_of(pair, coordinator)
        producer = producer_of(pair.bootstrap_servers, transactional_id)
        consumer = consumer_of(pair.bootstrap_servers, f"readers-{coordinator}")
        producer.begin_transaction()
        for number in range(PARTITIONS):
            write(producer, "t", b"%d %d" % (coordinator, number), partition=number)
        offsets = [TopicPartition("t", number, 9) for number in range(PARTITIONS)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        getattr(producer, f"{end}_transaction")(30)
        address = pair.broker(coordinator).address
        eventually(lambda at=address, who=transactional_id: state_of(at, who).startswith("Complete"), 60)
        stored = [each.offset for each in consumer.committed(offsets, 20)]
        consumer.close()
        assert (stored == [9] * PARTITIONS) == (end == "commit")
    expected = sorted(b"%d %d" % (coordinator, number) for coordinator in (0, 1) for number in range(PARTITIONS))
    assert everything(pair.bootstrap_servers) == (expected if end == "commit" else [])


def test_markers_wait_for_a_leader_that_is_away(pair):
    transactional_id = id_of(pair, 0)
    away = next(number for number, leader in leaders_of(pair).items() if leader == 1)
    producer = producer_of(pair.bootstrap_servers, transactional_id)
    producer.begin_transaction()
    for number in range(PARTITIONS):
        write(producer, "t", b"%d" % number, partition=number)
    pair.kill_broker(1)
    address = pair.broker(0).address
    producer.commit_transaction(30)
    assert state_of(address, transactional_id) == "PrepareCommit"
    pair.start_broker(1)
    eventually(lambda: state_of(address, transactional_id) == "CompleteCommit")
    assert read(pair.bootstrap_servers, "t", away) == [b"%d" % away]


@pytest.mark.parametrize("coordinator", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_leaders_ask_the_coordinator_wherever_it_is(pair, coordinator):
    """A batch that nobody named is refused, one of the second version is added, by brokers that must ask another."""
    everywhere = [Tp("t", number) for number in range(PARTITIONS)]
    bootstrap = pair.bootstrap_servers.split(",")[0]
    classic = RawProducer(bootstrap, id_of(pair, coordinator), version=1)
    assert classic.init() is ErrorCode.NONE
    assert {classic.write(tp, b"unnamed") for tp in everywhere} == {ErrorCode.TRANSACTION_ABORTABLE}
    assert classic.add(*everywhere) is ErrorCode.NONE
    assert {classic.write(tp, b"named") for tp in everywhere} == {ErrorCode.NONE}
    assert classic.end(commit=True) is ErrorCode.NONE
    second = RawProducer(bootstrap, classic.id)
    assert second.init() is ErrorCode.NONE
    for commit in (True, False, True):
        word = b"added" if commit else b"aborted"
        assert {second.write(tp, word) for tp in everywhere} == {ErrorCode.NONE}
        assert {second.commit_offset(f"group-{number}", everywhere[0], 1) for number in range(4)} == {ErrorCode.NONE}
        assert second.end(commit=commit) is ErrorCode.NONE
    address = pair.broker(coordinator).address
    eventually(lambda: state_of(address, classic.id) == "CompleteCommit")
    expected = sorted([b"named", b"added", b"added"] * PARTITIONS)
    eventually(lambda: everything(pair.bootstrap_servers) == expected)
