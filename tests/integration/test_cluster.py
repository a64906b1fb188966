"""Three brokers: topics spread over them, one controller at a time, and what a death of either kind changes.

The tests kill brokers of one cluster in turn; each leaves it whole.
"""

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from integration import wire

from sparklog.errors import ConnectionFailed, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.hot import produce as produce_wire
from sparklog.protocol.hot.fetch import FetchPartition, FetchRequest
from sparklog.protocol.messages import decode_response
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

BROKERS = (0, 1, 2)
NOTICED_S = 60.0
"""A session, of 3 s, has timed out within this time, however busy the machine is."""


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("trio"), brokers=len(BROKERS)) as harness:
        yield harness


@pytest.fixture(autouse=True)
def _whole_again(trio):
    yield
    for broker in trio.brokers:
        if not broker.alive:
            broker.start()
    for broker in trio.brokers:
        eventually(lambda: describe(broker).live == set(BROKERS), NOTICED_S, "every broker knows all")  # noqa: B023


class describe:  # noqa: N801
    """The cluster as one broker sees it."""

    def __init__(self, broker, *topics):
        with wire.connect(broker.address) as connection:
            answer = wire.metadata(connection, *topics)
        self.live = {each.node_id for each in answer.brokers}
        self.controller = answer.controller_id
        self.leaders = {
            TopicPartition(topic.name, each.partition_index): each.leader_id
            for topic in answer.topics
            for each in topic.partitions
        }


def controller_of(trio):
    return describe(next(broker for broker in trio.brokers if broker.alive)).controller


def make_topic(trio, name, partitions=6):
    """Made by the controller; every live broker knows who leads each partition."""
    with wire.connect(trio.broker(controller_of(trio)).address) as connection:
        assert wire.create_topic(connection, name, partitions) == (ErrorCode.NONE, "")
    for broker in trio.brokers:
        if broker.alive:
            eventually(
                lambda: sum(leader >= 0 for leader in describe(broker, name).leaders.values()) == partitions,  # noqa: B023
                NOTICED_S,
                f"{broker.name} knows the topic's leaders",
            )


def leaders_of(trio, name):
    return describe(next(broker for broker in trio.brokers if broker.alive), name).leaders


def send(trio, tp, *values):
    """To the partition's leader."""
    with wire.connect(trio.broker(leaders_of(trio, tp.topic)[tp]).address) as connection:
        for value in values:
            assert wire.produce(connection, tp, wire.batch_of(value))[0] is ErrorCode.NONE


def stored(trio, tp):
    """From the partition's leader."""
    with wire.connect(trio.broker(leaders_of(trio, tp.topic)[tp]).address) as connection:
        return wire.read_all(connection, tp)


def consume(consumer, count):
    """The values of the next ``count`` messages."""
    values = []

    def enough():
        values.extend(each.value() for each in consumer.consume(count - len(values), 0.3) if each.error() is None)
        return len(values) >= count

    eventually(enough, 60, f"{count} messages")
    return values


def settings(bootstrap, **more):
    return {"bootstrap.servers": bootstrap, "log_level": 0, **more}


def test_partitions_are_spread_over_the_brokers(trio, topic):
    make_topic(trio, topic, partitions=6)
    views = [describe(broker, topic).leaders for broker in trio.brokers]
    assert views[0] == views[1] == views[2]
    assert sorted(views[0].values()) == [0, 0, 1, 1, 2, 2]
    for broker in trio.brokers:
        led = {str(tp) for tp, leader in views[0].items() if leader == broker.spec.broker_id}
        assert {path.name for path in broker.spec.data_dir.glob(f"{topic}-*")} == led


def test_any_broker_is_a_bootstrap_server(trio, topic):
    make_topic(trio, topic, partitions=6)
    values = {b"%d" % number for number in range(60)}
    for broker in trio.brokers:
        part = {value for value in values if int(value) % 3 == broker.spec.broker_id}
        producer = Producer(settings(broker.address))
        for value in part:
            producer.produce(topic, value, key=value)
        assert producer.flush(30) == 0
    for broker in trio.brokers:
        consumer = Consumer(settings(broker.address, **{"group.id": "none", "auto.offset.reset": "earliest"}))
        consumer.assign([Position(topic, partition, 0) for partition in range(6)])
        assert set(consume(consumer, 60)) == values
        consumer.close()


def test_a_broker_that_does_not_lead_says_so(trio, topic):
    make_topic(trio, topic, partitions=3)
    for tp, leader in leaders_of(trio, topic).items():
        for broker in trio.brokers:
            if broker.spec.broker_id != leader:
                with wire.connect(broker.address) as connection:
                    code, _, _ = wire.produce(connection, tp, wire.batch_of(b"x"))
                    assert code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    assert code.retriable
                    assert wire.fetch(connection, tp, 0).error.retriable


def test_a_broker_that_does_not_lead_says_who_does(trio, topic):
    make_topic(trio, topic, partitions=1)
    ((tp, leader),) = leaders_of(trio, topic).items()
    other = next(each for each in trio.brokers if each.spec.broker_id != leader)
    address = wire.endpoint_of(trio.broker(leader).address)
    with wire.connect(other.address) as connection:
        eventually(lambda: wire.metadata(connection, topic).topics[0].error_code == 0)
        produce = produce_wire.encode_request(-1, 20_000, {tp: [wire.batch_of(b"x")]}, 11)
        topic_id = wire.metadata(connection, topic).topics[0].topic_id
        asked = FetchPartition("", topic_id, tp.partition, 0, wire.MANY)
        fetch = fetch_wire.encode_request(FetchRequest(20_000, 1, wire.MANY, [asked]), 17)
        for api, version, body in ((ApiKey.PRODUCE, 11, produce), (ApiKey.FETCH, 17, fetch)):
            connection.send(api, version, body)
            answer = decode_response(api, version, connection.receive()[2])
            (told,) = getattr(answer.responses[0], "partitions" if api is ApiKey.FETCH else "partition_responses")
            assert ErrorCode(told.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert told.current_leader.leader_id == leader
            assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [(leader, *address)]


def test_only_the_controller_makes_and_deletes_topics(trio, topic):
    controller = controller_of(trio)
    for broker in trio.brokers:
        if broker.spec.broker_id != controller:
            with wire.connect(broker.address) as connection:
                assert wire.create_topic(connection, topic)[0] is ErrorCode.NOT_CONTROLLER
                assert wire.delete_topic(connection, topic) is ErrorCode.NOT_CONTROLLER


def test_a_deleted_topic_is_gone_everywhere(trio, topic):
    make_topic(trio, topic, partitions=6)
    with wire.connect(trio.broker(controller_of(trio)).address) as connection:
        assert wire.delete_topic(connection, topic) is ErrorCode.NONE
    for broker in trio.brokers:
        eventually(lambda: not describe(broker, topic).leaders, what="unknown to every broker")  # noqa: B023
        eventually(lambda: not list(broker.spec.data_dir.glob(f"{topic}-*")), what="its files are gone")  # noqa: B023


def test_another_controller_takes_over_from_a_killed_one(trio, topic):
    make_topic(trio, f"{topic}-before", partitions=6)
    dead = controller_of(trio)
    survivors = set(BROKERS) - {dead}
    trio.kill_broker(dead)
    for id_ in survivors:
        eventually(
            lambda: describe(trio.broker(id_)).controller in survivors,  # noqa: B023
            NOTICED_S,
            "a new controller is known",
        )
        eventually(lambda: describe(trio.broker(id_)).live == survivors, NOTICED_S, "the dead one is gone")  # noqa: B023
    make_topic(trio, f"{topic}-after", partitions=4)
    assert set(leaders_of(trio, f"{topic}-after").values()) == survivors
    tp = TopicPartition(f"{topic}-after", 0)
    send(trio, tp, b"still served")
    assert stored(trio, tp) == [b"still served"]
    before = leaders_of(trio, f"{topic}-before")
    assert {leader for leader in before.values() if leader >= 0} == survivors
    trio.start_broker(dead)
    assert controller_of(trio) in survivors
    eventually(
        lambda: set(leaders_of(trio, f"{topic}-before").values()) == set(BROKERS), NOTICED_S, "it leads its share again"
    )


def test_a_killed_broker_comes_back_and_leads_what_it_led(trio, topic):
    make_topic(trio, topic, partitions=6)
    before = leaders_of(trio, topic)
    for tp in before:
        send(trio, tp, b"kept by %d" % tp.partition)
    dead = next(id_ for id_ in BROKERS if id_ != controller_of(trio))
    trio.kill_broker(dead)
    with pytest.raises(ConnectionFailed):
        wire.connect(trio.broker(dead).address)
    eventually(lambda: dead not in leaders_of(trio, topic).values(), NOTICED_S, "its partitions have no leader")
    orphaned = [tp for tp, leader in before.items() if leader == dead]
    assert {leader for tp, leader in leaders_of(trio, topic).items() if tp in orphaned} == {-1}
    for tp in before.keys() - set(orphaned):
        send(trio, tp, b"meanwhile")
    trio.start_broker(dead)
    eventually(lambda: leaders_of(trio, topic) == before, NOTICED_S, "everyone leads as before")
    for tp in before:
        eventually(lambda: describe(trio.broker(dead), topic).leaders == before, what="it knows so itself")
        rest = [] if tp in orphaned else [b"meanwhile"]
        assert stored(trio, tp) == [b"kept by %d" % tp.partition, *rest]


def test_a_producer_rides_out_the_death_of_a_broker(trio, topic):
    make_topic(trio, topic, partitions=3)
    dead = controller_of(trio)
    producer = Producer(settings(trio.bootstrap_servers, **{"enable.idempotence": True, "linger.ms": 5}))
    failures = []
    values = [b"%d" % number for number in range(300)]
    for number, value in enumerate(values):
        if number == 100:
            assert producer.flush(30) == 0
            trio.kill_broker(dead)
        producer.produce(topic, value, partition=number % 3, on_delivery=lambda e, _: e and failures.append(e))
        producer.poll(0)
    trio.start_broker(dead)
    assert producer.flush(60) == 0
    assert failures == []
    eventually(lambda: -1 not in leaders_of(trio, topic).values(), NOTICED_S, "every partition has a leader")
    read = [stored(trio, TopicPartition(topic, partition)) for partition in range(3)]
    assert read == [values[partition::3] for partition in range(3)]


def test_a_groups_offsets_are_with_the_next_coordinator(trio, topic):
    make_topic(trio, topic, partitions=2)
    for partition in range(2):
        send(trio, TopicPartition(topic, partition), *(b"%d" % number for number in range(10)))
    member = settings(
        trio.bootstrap_servers,
        **{"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000},
    )
    consumer = Consumer(member)
    consumer.commit(offsets=[Position(topic, 0, 7), Position(topic, 1, 4)], asynchronous=False)
    coordinator = coordinator_of(trio, topic)
    trio.kill_broker(coordinator)
    eventually(lambda: coordinator_of(trio, topic) not in (-1, coordinator), NOTICED_S, "another coordinates")
    stored_offsets = consumer.committed([Position(topic, 0), Position(topic, 1)], 30)
    assert [each.offset for each in stored_offsets] == [7, 4]
    trio.start_broker(coordinator)
    consumer.subscribe([topic])
    assert sorted(consume(consumer, 9)) == sorted(b"%d" % n for n in [7, 8, 9, 4, 5, 6, 7, 8, 9])
    consumer.close()


def coordinator_of(trio, group):
    """The node id that a live broker names, -1 if it knows none."""
    broker = next(broker for broker in trio.brokers if broker.alive)
    with wire.connect(broker.address) as connection:
        return wire.find_coordinator(connection, group)
