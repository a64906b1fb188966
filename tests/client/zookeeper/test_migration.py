"""Moving a group between ZooKeeper and the brokers: nothing lost, nothing read twice."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client import Admin, Consumer, Producer
from sparklog.client.zookeeper.consumer import ZooKeeperConsumer
from sparklog.client.zookeeper.group import Layout
from sparklog.client.zookeeper.migration import Migration, Move, Plan, Side, plan_of
from sparklog.client.zookeeper.registry import GroupRegistry
from sparklog.config.zookeeper_security import OPEN
from sparklog.errors import ApiError, CoordinationError, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

_tps = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3))
_offsets = st.dictionaries(_tps, st.integers(0, 5))


@given(_offsets, _offsets, st.sets(_tps))
def test_after_the_moves_the_target_has_what_the_source_has(source, target, existing):
    plan = plan_of(source, target, existing)
    after = target | {each.tp: each.after for each in plan.moves}
    assert all(after[tp] == offset for tp, offset in source.items() if tp in existing)
    assert all(after[tp] == offset for tp, offset in target.items() if tp not in source or tp not in existing)
    assert set(plan.gone) == source.keys() - existing
    assert all(target.get(each.tp) == each.before != each.after for each in plan.moves)
    assert {each.tp for each in plan.going_back} == {
        tp for tp in source.keys() & target.keys() & existing if target[tp] > source[tp]
    }


@pytest.fixture
def migration(cluster, topic):
    """``migration(layout)``: of this test's group."""
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(Admin(bootstrap_servers=cluster.bootstrap_servers))

        def made(layout=Layout.BROKER_PARTITION):
            registry = GroupRegistry(
                cluster.zookeeper_connect,
                topic,
                layout,
                session_timeout=6.0,
                connect_timeout=15.0,
                on_session=lambda _: None,
                security=OPEN,
            )
            stack.callback(registry.close)
            return Migration(topic, admin, registry)

        yield made


def produce(cluster, topic, values):
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for place, value in enumerate(values):
            producer.send(topic, value.encode(), partition=place % 2)


def read(consumer, count):
    found = []
    eventually(lambda: found.extend(each.value.decode() for each in consumer.poll(0.5)) or len(found) >= count)
    return sorted(found)


def in_zookeeper(cluster, topic, layout):
    consumer = ZooKeeperConsumer(
        zookeeper_connect=cluster.zookeeper_connect,
        group_id=topic,
        auto_offset_reset="earliest",
        sparklog_registry_layout=layout.value,
    )
    consumer.subscribe({topic: 1})
    return consumer


def at_the_brokers(cluster, topic):
    consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=topic, auto_offset_reset="earliest")
    consumer.subscribe([topic])
    return consumer


@pytest.mark.parametrize("layout", Layout)
def test_a_group_goes_to_the_brokers_and_back(cluster, make, migration, topic, layout):
    make(2)
    produce(cluster, topic, ["a", "b"])
    with in_zookeeper(cluster, topic, layout) as first:
        assert read(first, 2) == ["a", "b"]
        with pytest.raises(ApiError, match="members in ZooKeeper") as refused:
            migration(layout).plan(Side.BROKERS)
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    there = migration(layout)
    plan = there.plan(Side.BROKERS)
    assert plan == Plan(tuple(Move(TopicPartition(topic, each), None, 1) for each in range(2)), ())
    there.carry_out(plan, Side.BROKERS)
    assert there.plan(Side.BROKERS) == Plan((), ())
    produce(cluster, topic, ["c", "d"])
    with at_the_brokers(cluster, topic) as second:
        assert read(second, 2) == ["c", "d"]
        with pytest.raises(ApiError, match="at the brokers"):
            there.plan(Side.ZOOKEEPER)
    back = there.plan(Side.ZOOKEEPER)
    assert back.moves == tuple(Move(TopicPartition(topic, each), 1, 2) for each in range(2))
    there.carry_out(back, Side.ZOOKEEPER)
    produce(cluster, topic, ["e", "f"])
    with in_zookeeper(cluster, topic, layout) as third:
        assert read(third, 2) == ["e", "f"]


def test_offsets_do_not_go_back_unasked(admin, cluster, make, migration, topic):
    make(2)
    admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 1})
    there = migration()
    there.carry_out(there.plan(Side.ZOOKEEPER), Side.ZOOKEEPER)
    admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 9})
    plan = there.plan(Side.BROKERS)
    with pytest.raises(ApiError, match=rf"{topic}-0 from 9 to 1.*--back"):
        there.carry_out(plan, Side.BROKERS)
    assert admin.group_offsets(topic)[TopicPartition(topic, 0)].offset == 9
    there.carry_out(plan, Side.BROKERS, may_go_back=True)
    assert admin.group_offsets(topic)[TopicPartition(topic, 0)].offset == 1


def test_a_group_that_has_read_on_since_it_was_looked_at_is_not_migrated(admin, make, migration, topic):
    make(1)
    tp = TopicPartition(topic, 0)
    admin.alter_group_offsets(topic, {tp: 1})
    there = migration()
    there.carry_out(there.plan(Side.ZOOKEEPER), Side.ZOOKEEPER)
    admin.delete_groups([topic])
    plan = there.plan(Side.BROKERS)
    admin.alter_group_offsets(topic, {tp: 5})
    with pytest.raises(CoordinationError, match="has read on"):
        there.carry_out(plan, Side.BROKERS)
    assert admin.group_offsets(topic)[tp].offset == 5


def test_a_topic_that_is_gone_stays_behind(admin, make, migration, topic):
    make(1, "-gone")
    make(1)
    gone, kept = TopicPartition(f"{topic}-gone", 0), TopicPartition(topic, 0)
    admin.alter_group_offsets(topic, {gone: 3, kept: 4})
    there = migration()
    there.carry_out(there.plan(Side.ZOOKEEPER), Side.ZOOKEEPER)
    admin.delete_topics([gone.topic])
    admin.delete_groups([topic])
    plan = eventually(lambda: (found := there.plan(Side.BROKERS)).gone and found, what="the topic's end")
    assert plan == Plan((Move(kept, None, 4),), (gone,))
    there.carry_out(plan, Side.BROKERS)
    assert {tp: each.offset for tp, each in admin.group_offsets(topic).items()} == {kept: 4}


def test_a_group_without_offsets_is_refused(migration):
    with pytest.raises(ApiError) as refused:
        migration().plan(Side.BROKERS)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
