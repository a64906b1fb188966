"""A group in ZooKeeper on a real ZooKeeper and a real broker: who owns what, and that nothing is lost."""

import contextlib
import json
import threading

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.client.zookeeper import group
from sparklog.client.zookeeper.consumer import ZooKeeperConsumer
from sparklog.client.zookeeper.registry import GroupRegistry
from sparklog.config.zookeeper_security import OPEN
from sparklog.errors import (
    ClientClosed,
    ConfigError,
    ConsumerIdTaken,
    CoordinationError,
    LayoutConflict,
    LocalProtocolError,
)
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually
from sparklog.testing.zookeeper import CuttingProxy
from sparklog.zk.holding import HoldingClient

pytestmark = pytest.mark.integration


class Tree:
    """The znodes of one group, looked at from beside."""

    def __init__(self, zk, name):
        self.zk, self.group = zk, name

    def names(self, path):
        return self.zk.names(f"/consumers/{self.group}/{path}")

    def data(self, path):
        found = self.zk.data(f"/consumers/{self.group}/{path}")
        return None if found is None else found.decode()

    def owners(self, topic):
        """Partition to owner. Fails where one is claimed twice."""
        found = {}
        for name in self.names(f"owners/{topic}"):
            partition = group.partition_of(name)
            assert partition not in found
            found[partition] = self.data(f"owners/{topic}/{name}")
        return found

    def offsets(self, topic):
        return {
            group.partition_of(name): int(self.data(f"offsets/{topic}/{name}"))
            for name in self.names(f"offsets/{topic}")
        }


@pytest.fixture(scope="module")
def zk(cluster):
    client = HoldingClient(
        cluster.zookeeper_connect, session_timeout=6.0, on_session=lambda _: None, makes_chroot=False, security=OPEN
    )
    yield client
    client.close()


@pytest.fixture
def tree(zk, topic):
    return Tree(zk, topic)


@pytest.fixture
def join(cluster, topic):
    """``join({topic: 1})``: a member of this test's group."""
    with contextlib.ExitStack() as stack:

        def joined(streams=None, white_list=None, count=1, **settings):
            consumer = stack.enter_context(
                ZooKeeperConsumer(
                    group_id=topic,
                    **{
                        "zookeeper_connect": cluster.zookeeper_connect,
                        "auto_offset_reset": "earliest",
                        "rebalance_backoff_ms": 50,
                    }
                    | settings,
                )
            )
            if white_list is None:
                consumer.subscribe({topic: 1} if streams is None else streams)
            else:
                consumer.subscribe_filter(white_list=white_list, streams=count)
            return consumer

        yield joined


def produce(cluster, topic, partitions, values):
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for place, value in enumerate(values):
            producer.send(topic, value.encode(), partition=place % partitions)


def read(consumer, count):
    """The values of so many records, or more."""
    found = []

    def enough():
        found.extend(record.value.decode() for record in consumer.poll(0.5))
        return len(found) >= count

    eventually(enough, what="records")
    return found


def partitions(consumer):
    return {tp.partition for tp in consumer.assignment}


def owns(consumer, *wanted):
    """Wait until it does; it is given no records meanwhile."""

    def does():
        assert consumer.poll(0.0) == []
        return partitions(consumer) == set(wanted)

    eventually(does, what=f"{wanted} owned")


def test_one_member_owns_all_and_leaves_its_offsets(cluster, make, join, tree, topic):
    make(3)
    produce(cluster, topic, 3, map(str, range(9)))
    consumer = join()
    assert consumer.assignment == {TopicPartition(topic, each) for each in range(3)}
    assert sorted(read(consumer, 9)) == sorted(map(str, range(9)))
    broker = cluster.brokers[0].spec.broker_id
    assert tree.names(f"owners/{topic}") == [f"{broker}-{each}" for each in range(3)]
    assert set(tree.owners(topic).values()) == {f"{consumer.id}-0"}
    registered = json.loads(tree.data(f"ids/{consumer.id}"))
    assert registered["subscription"] == {topic: 1}
    assert consumer.id.startswith(f"{topic}_")
    consumer.close()
    assert tree.offsets(topic) == {0: 3, 1: 3, 2: 3}
    assert tree.names("ids") == tree.names(f"owners/{topic}") == []
    produce(cluster, topic, 3, ["new"])
    assert read(join(), 1) == ["new"]


def test_a_member_that_joins_takes_its_share_and_one_that_leaves_gives_it_back(cluster, make, join, tree, topic):
    make(4)
    produce(cluster, topic, 4, map(str, range(40)))
    first = join(consumer_id="a")
    found = read(first, 40)
    second = join(consumer_id="b")
    owns(first, 0, 1)
    owns(second, 2, 3)
    assert tree.owners(topic) == {0: "a-0", 1: "a-0", 2: "b-0", 3: "b-0"}
    produce(cluster, topic, 4, map(str, range(40, 48)))
    found += read(first, 4) + read(second, 4)
    second.close()
    owns(first, 0, 1, 2, 3)
    assert sorted(map(int, found)) == list(range(48))
    first.close()
    assert set(tree.offsets(topic).values()) == {12}


def test_records_in_hand_keep_their_partitions(cluster, make, join, tree, topic):
    make(2)
    produce(cluster, topic, 2, ["x", "y"])
    first = join(consumer_id="a")
    got = first.poll(60.0)
    while {record.partition for record in got} != {0, 1} and got[-1].partition != 1:
        got = first.poll(60.0)
    second = join(consumer_id="b")
    eventually(lambda: partitions(first) == {0}, what="the share is computed")
    assert tree.owners(topic) == {0: "a-0", 1: "a-0"}
    assert second.poll(0.0) == []
    first.poll(0.0)
    owns(second, 1)
    assert tree.owners(topic) == {0: "a-0", 1: "b-0"}


def test_more_members_than_partitions_are_idle(make, join, tree, topic):
    make(1)
    first, second = join(consumer_id="a"), join(consumer_id="b")
    assert partitions(first) == {0}
    assert second.poll(0.0) == []
    assert partitions(second) == set()
    first.close()
    owns(second, 0)
    assert tree.owners(topic) == {0: "b-0"}


def test_each_stream_is_an_owner(cluster, make, join, tree, topic):
    make(3)
    produce(cluster, topic, 3, ["0", "1", "2"])
    consumer = join({topic: 2}, consumer_id="a")
    assert tree.owners(topic) == {0: "a-0", 1: "a-0", 2: "a-1"}
    assert sorted(read(consumer, 3)) == ["0", "1", "2"]


def test_streams_are_read_by_threads_of_their_own(cluster, make, join, topic):
    make(4)
    produce(cluster, topic, 4, map(str, range(100)))
    with ZooKeeperConsumer(
        zookeeper_connect=cluster.zookeeper_connect, group_id=topic, auto_offset_reset="smallest"
    ) as consumer:
        streams = consumer.subscribe({topic: 2})[topic]
        found = [[], []]

        def work(place):
            for record in streams[place]:
                found[place].append(int(record.value))
                if len(found[place]) == 50:
                    streams[place].commit()
                    return

        threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert sorted(found[0] + found[1]) == list(range(100))


def test_a_lost_session_loses_claims_and_nothing_else(cluster, make, join, zk, tree, topic):
    make(2)
    produce(cluster, topic, 2, map(str, range(10)))
    first = join(consumer_id="a")
    found = read(first, 10)
    first.commit()
    before = tree.data("ids/a")
    zk.end_session(first._member._registry._zk.session)
    eventually(lambda: tree.data("ids/a") not in (None, before), what="registered anew")
    owns(first, 0, 1)
    produce(cluster, topic, 2, ["10", "11"])
    found += read(first, 2)
    assert sorted(map(int, found)) == list(range(12))
    assert set(tree.owners(topic)) == {0, 1}


def test_what_was_in_hand_at_the_loss_of_the_session_is_given_again(cluster, make, join, zk, tree, topic):
    make(1)
    produce(cluster, topic, 1, ["x"])
    first = join(consumer_id="a")
    assert read(first, 1) == ["x"]
    before = tree.data("ids/a")
    zk.end_session(first._member._registry._zk.session)
    eventually(lambda: tree.data("ids/a") not in (None, before), what="registered anew")
    assert read(first, 1) == ["x"]


def test_new_partitions_are_shared(admin, cluster, make, join, topic):
    make(1)
    consumer = join()
    admin.create_partitions({topic: 3})
    owns(consumer, 0, 1, 2)


def test_a_filter_takes_topics_that_come_later(admin, cluster, make, join, tree, topic):
    make(1, "-a")
    consumer = join(white_list=f"{topic}-.*", consumer_id="c")
    assert consumer.assignment == {TopicPartition(f"{topic}-a", 0)}
    make(2, "-b")
    make(1, "other")
    expected = {TopicPartition(f"{topic}-a", 0), *(TopicPartition(f"{topic}-b", each) for each in range(2))}
    eventually(lambda: consumer.assignment == expected, what="the new topic")
    assert json.loads(tree.data("ids/c"))["pattern"] == "white_list"
    admin.delete_topics([f"{topic}-b"])
    eventually(lambda: consumer.assignment == {TopicPartition(f"{topic}-a", 0)}, what="the topic's end")


def test_a_topic_that_is_not_there_yet_is_read_when_it_is(make, join, topic):
    consumer = join()
    assert consumer.assignment == frozenset()
    make(1)
    owns(consumer, 0)


def test_a_claim_that_another_has_is_waited_for(make, join, zk, tree, topic, cluster):
    make(2)
    broker = cluster.brokers[0].spec.broker_id
    path = f"/consumers/{topic}/owners/{topic}/{broker}-1"
    assert path in zk.hold_each({path: b"stranger"})
    consumer = join(consumer_id="a")
    assert partitions(consumer) == {0}
    assert tree.owners(topic) == {0: "a-0", 1: "stranger"}
    zk.let_go([path])
    owns(consumer, 0, 1)


def test_a_partition_claimed_under_another_brokers_name_is_not_owned_twice(make, join, zk, tree, topic):
    make(1)
    path = f"/consumers/{topic}/owners/{topic}/77-0"
    assert path in zk.hold_each({path: b"stranger"})
    consumer = join(consumer_id="a")
    assert partitions(consumer) == set()
    assert tree.owners(topic) == {0: "stranger"}
    zk.let_go([path])
    owns(consumer, 0)


def test_two_members_of_one_id(make, join, tree, topic):
    make(1)
    first = join(consumer_id="a")
    before = tree.data("ids/a")
    with pytest.raises(ConsumerIdTaken, match=r"consumer\.id"):
        join(consumer_id="a", zookeeper_session_timeout_ms=1000)
    assert tree.data("ids/a") == before
    assert partitions(first) == {0}


def test_a_group_has_one_layout(make, join, topic):
    make(2)
    first = join(consumer_id="a")
    with pytest.raises(LayoutConflict, match="broker-partition"):
        join(consumer_id="b", sparklog_registry_layout="kafka")
    assert partitions(first) == {0, 1}


def test_a_member_yields_to_one_of_kafkas_layout(make, join, zk, tree, topic):
    make(2)
    first = join(consumer_id="a")
    member = group.Member("k", group.static_subscription({topic: 1}))
    assert zk.hold_each({f"/consumers/{topic}/ids/k": group.encode_member(member, 0)})

    def failed():
        try:
            return first.poll(0.1) and False
        except LayoutConflict:
            return True

    eventually(failed, what="the conflict")
    eventually(lambda: tree.names("ids") == ["k"], what="gone")
    assert tree.owners(topic) == {}
    zk.let_go([f"/consumers/{topic}/ids/k"])


def test_offsets_outlive_a_change_of_the_layout(cluster, make, join, tree, topic):
    make(1)
    produce(cluster, topic, 1, ["x"])
    first = join()
    read(first, 1)
    first.close()
    produce(cluster, topic, 1, ["y"])
    second = join(sparklog_registry_layout="kafka")
    assert tree.names(f"owners/{topic}") == ["0"]
    assert read(second, 1) == ["y"]
    second.close()
    assert tree.names(f"offsets/{topic}") == ["0"]
    assert tree.offsets(topic) == {0: 2}


def test_an_exception_leaves_what_is_in_hand_undone(cluster, make, tree, topic):
    make(1)
    produce(cluster, topic, 1, ["x"])
    consumer = ZooKeeperConsumer(
        zookeeper_connect=cluster.zookeeper_connect, group_id=topic, auto_offset_reset="earliest"
    )

    def work():
        with consumer:
            consumer.subscribe({topic: 1})
            assert read(consumer, 1) == ["x"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert tree.offsets(topic) == {0: 0}


def test_what_is_done_is_written_again_and_again(cluster, make, join, tree, topic):
    make(1)
    consumer = join(auto_commit_interval_ms=20)
    for done in (2, 4):
        produce(cluster, topic, 1, ["x", "y"])
        read(consumer, 2)
        assert consumer.poll(0.0) == []  # by this the two are done
        eventually(lambda done=done: tree.offsets(topic) == {0: done}, what="the offset is written")


def test_without_auto_commit_nothing_is_written_by_itself(cluster, make, join, tree, topic):
    make(1)
    produce(cluster, topic, 1, ["x"])
    consumer = join(auto_commit_enable=False, auto_commit_interval_ms=20)
    read(consumer, 1)
    assert consumer.poll(0.0) == []
    consumer.close()
    assert tree.offsets(topic) == {}


def test_iteration_counts_what_it_gave(cluster, make, tree, topic):
    make(1)
    produce(cluster, topic, 1, ["a", "b", "c", "d"])
    with ZooKeeperConsumer(
        zookeeper_connect=cluster.zookeeper_connect, group_id=topic, auto_offset_reset="earliest"
    ) as consumer:
        (stream,) = consumer.subscribe({topic: 1})[topic]
        for record in stream:
            if record.value == b"b":
                break
        assert consumer.commit() == {TopicPartition(topic, 0): 2}
        assert [each.value for each in consumer.poll(60.0)] == [b"c", b"d"]
    assert tree.offsets(topic) == {0: 4}


def test_a_consumer_subscribes_once_and_not_after_its_end(cluster, make, join, topic):
    make(1)
    consumer = join()
    with pytest.raises(LocalProtocolError, match="once"):
        consumer.subscribe({topic: 1})
    consumer.close()
    for call in (consumer.poll, consumer.commit):
        with pytest.raises(ClientClosed):
            call()
    consumer.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"group.id": "g"},
        {"zookeeper.connect": "localhost:1"},
        {"zookeeper.connect": "localhost:1", "group.id": "a/b"},
        {"zookeeper.connect": "localhost:1", "group.id": "g", "sparklog.registry.layout": "third"},
        {"zookeeper.connect": "localhost:1", "group.id": "g", "auto.offset.reset": "middle"},
    ],
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        ZooKeeperConsumer(settings)


def test_nothing_is_given_while_zookeeper_is_away(cluster, make, join, tree, topic):
    make(1)
    with CuttingProxy(cluster.zookeeper_connect) as proxy:
        consumer = join(zookeeper_connect=proxy.connect_string, zookeeper_session_timeout_ms=20_000)
        assert consumer.assignment == {TopicPartition(topic, 0)}
        proxy.set_down(True)
        eventually(lambda: consumer.assignment == frozenset(), what="the broken connection is noticed")
        produce(cluster, topic, 1, ["x"])
        assert consumer.poll(0.3) == []
        proxy.set_down(False)
        assert read(consumer, 1) == ["x"]
        consumer.close()


def test_records_held_too_long_go_to_the_next_owner(cluster, make, join, tree, topic):
    make(2)
    produce(cluster, topic, 2, ["x", "y"])
    first = join(consumer_id="a", max_poll_interval_ms=1)
    found = []
    eventually(lambda: found.extend(first.poll(0.5)) or {each.partition for each in found} >= {1}, what="a record of 1")
    second = join(consumer_id="b")
    assert "y" in read(second, 1)
    assert tree.owners(topic) == {0: "a-0", 1: "b-0"}


def test_a_claim_of_a_round_that_failed_is_given_up_when_it_is_anothers(join, tree, topic, make, monkeypatch):
    """Where a connection breaks after the claims, they stand, and nobody reads: that must end with the next share."""
    make(2)
    asked, fails = GroupRegistry.offsets, []

    def offsets(self, claims):
        if not fails:
            fails.append(self)
        if self in fails:
            raise CoordinationError("ZooKeeper: ConnectionLoss")
        return asked(self, claims)

    monkeypatch.setattr(GroupRegistry, "offsets", offsets)
    first = join()
    assert set(tree.owners(topic)) == {0, 1}
    second = join()
    eventually(lambda: len(tree.names("ids")) == 2, what="two members")
    fails[0] = None
    eventually(lambda: (partitions(first), partitions(second)) in (({0}, {1}), ({1}, {0})), what="a share each")
