"""Groups of the consumer protocol (KIP-848), with librdkafka's consumers and admin client."""

from contextlib import ExitStack, closing, suppress

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from integration.test_confluent import send

from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

PATIENCE = 60
SETTINGS = {"group.consumer.heartbeat.interval.ms": 200, "group.consumer.session.timeout.ms": 20_000}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A broker that asks for a heartbeat every 200 ms, so that moves are quick."""
    with ClusterHarness(tmp_path_factory.mktemp("quick"), settings=SETTINGS) as harness:
        yield harness


@pytest.fixture
def admin(quick):
    return AdminClient({"bootstrap.servers": quick.bootstrap_servers, "log_level": 0})


@pytest.fixture
def made(admin, topic):
    """This test's topic, of four partitions; it gives its name to the group too."""
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(PATIENCE)
    return topic


class Readers:
    """Consumers of one group, polled together."""

    def __init__(self, bootstrap, group):
        self.bootstrap, self.group = bootstrap, group
        self.stack = ExitStack()
        self.consumers = []
        self.messages = []
        self.lost = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stack.close()

    def add(self, topics, **settings):
        settings = {"group.protocol": "consumer", **settings}
        consumer = self.stack.enter_context(new_consumer(self.bootstrap, self.group, **settings))
        consumer.subscribe(topics, on_lost=lambda _, partitions: self.lost.extend(partitions))
        self.consumers.append(consumer)
        return consumer

    def poll(self):
        for consumer in self.consumers:
            for message in consumer.consume(100, 0.05):
                if message.error() is None:
                    self.messages.append(message.value())

    def shares(self):
        self.poll()
        return [frozenset((each.topic, each.partition) for each in one.assignment()) for one in self.consumers]

    def settle(self, sizes, partitions=4):
        """Wait until the consumers have this many partitions each, and each partition one owner."""

        def settled():
            shares = self.shares()
            return sorted(map(len, shares)) == sorted(sizes) and len(frozenset().union(*shares)) == partitions

        eventually(settled, PATIENCE, f"shares of {sizes}")
        return self.shares()

    def read(self, values):
        def all_read():
            self.poll()
            return len(self.messages) >= len(values)

        eventually(all_read, PATIENCE, f"{len(values)} messages")
        assert sorted(self.messages) == sorted(values), "each is read once"


def new_consumer(bootstrap, group, **settings):
    """Closed at the end; a session timeout is given to classic members only, it is the broker's business otherwise."""
    if settings["group.protocol"] == "classic":
        settings = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200, **settings}
    given = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    return closing(Consumer({**given, "enable.auto.commit": False, **settings}))


def describe(admin, group):
    return admin.describe_consumer_groups([group])[group].result(PATIENCE)


def test_partitions_go_to_who_joins_and_come_back_from_who_leaves(quick, admin, made):
    with Readers(quick.bootstrap_servers, made) as readers:
        readers.add([made])
        readers.settle([4])
        first = readers.consumers[0]
        readers.add([made])
        readers.settle([2, 2])
        readers.add([made])
        readers.settle([1, 1, 2])
        described = describe(admin, made)
        assert described.type == ConsumerGroupType.CONSUMER
        assert described.state.name == "STABLE"
        assert len(described.members) == 3
        readers.consumers.pop().close()
        readers.settle([2, 2])
        assert readers.consumers[0] is first
        assert readers.lost == [], "nobody was ever fenced"


def test_what_is_committed_is_where_the_next_goes_on(quick, admin, made):
    values = [b"%d" % number for number in range(50)]
    for partition in range(4):
        assert (
            send(quick.bootstrap_servers, made, [(None, v, []) for v in values[partition::4]], partition=partition)
            == []
        )
    with Readers(quick.bootstrap_servers, made) as readers:
        consumer = readers.add([made])
        readers.read(values)
        consumer.commit(asynchronous=False)
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(made)])[made].result(PATIENCE)
    assert sum(each.offset for each in offsets.topic_partitions) == 50
    assert send(quick.bootstrap_servers, made, [(None, b"more", [])]) == []
    with Readers(quick.bootstrap_servers, made) as readers:
        readers.add([made])
        readers.read([b"more"])
    assert describe(admin, made).state.name == "EMPTY"
    admin.delete_consumer_groups([made])[made].result(PATIENCE)
    listed = admin.list_consumer_groups().result(PATIENCE)
    assert made not in {each.group_id for each in listed.valid}


def test_partitions_and_topics_that_are_made_later_are_assigned(quick, admin, made):
    with Readers(quick.bootstrap_servers, made) as readers:
        readers.add([made, f"{made}-later"])
        readers.settle([4])
        readers.add([made, f"{made}-later"])
        readers.settle([2, 2])
        admin.create_partitions([NewPartitions(made, 6)])[made].result(PATIENCE)
        readers.settle([3, 3], 6)
        admin.create_topics([NewTopic(f"{made}-later", 2, 1)])[f"{made}-later"].result(PATIENCE)
        readers.settle([4, 4], 8)


def test_an_expression_is_resolved_by_the_broker(quick, admin, made):
    with Readers(quick.bootstrap_servers, made) as readers:
        readers.add([f"^{made}.*"])
        readers.settle([4])
        admin.create_topics([NewTopic(f"{made}x", 2, 1)])[f"{made}x"].result(PATIENCE)
        readers.settle([6], 6)


def test_a_static_member_finds_its_partitions_again(quick, made):
    with Readers(quick.bootstrap_servers, made) as readers:
        readers.add([made], **{"group.instance.id": "one"})
        readers.add([made], **{"group.instance.id": "two"})
        before = readers.settle([2, 2])
        readers.consumers.pop().close()
        eventually(lambda: readers.shares() == before[:1], PATIENCE)
        readers.add([made], **{"group.instance.id": "two"})
        assert readers.settle([2, 2]) == before, "the other gave nothing up"


def test_a_classic_group_is_upgraded_and_downgraded_again(quick, admin, made):
    classic = {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"}
    with Readers(quick.bootstrap_servers, made) as readers:
        readers.add([made], **classic)
        readers.settle([4])
        assert describe(admin, made).type == ConsumerGroupType.CLASSIC
        readers.add([made])
        readers.settle([2, 2])
        assert describe(admin, made).type == ConsumerGroupType.CONSUMER
        readers.add([made], **classic)
        readers.settle([1, 1, 2])
        readers.consumers.pop(1).close()
        readers.settle([2, 2])
        assert describe(admin, made).type == ConsumerGroupType.CLASSIC


def test_members_and_offsets_outlive_the_broker(tmp_path, topic):
    with ClusterHarness(tmp_path, settings=SETTINGS) as harness:
        settings = {"bootstrap.servers": harness.bootstrap_servers, "log_level": 0}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(PATIENCE)
        with Readers(harness.bootstrap_servers, topic) as readers:
            consumer = readers.add([topic])
            readers.add([topic])
            before = readers.settle([2, 2])
            mine = consumer.assignment()
            consumer.commit(
                offsets=[TopicPartition(each.topic, each.partition, 7) for each in mine], asynchronous=False
            )
            members = {each.member_id for each in describe(admin, topic).members}
            harness.kill_broker(0)
            harness.start_broker(0)
            # librdkafka 2.16 bootstraps anew when all brokers were gone, and then may ask nobody: what it remembers as
            # the group's coordinator is a connection that it has given up. A new client remembers none.
            admin = AdminClient(settings)

            def same_again():
                with suppress(KafkaException):  # while the group is loaded
                    return {each.member_id for each in describe(admin, topic).members} == members

            eventually(same_again, PATIENCE)
            assert readers.settle([2, 2]) == before
            assert {each.offset for each in consumer.committed(mine, PATIENCE)} == {7}
            assert readers.lost == []
