"""Admin and AsyncAdmin against a cluster of ours and, under the marker ``peer``, against Kafka."""

import asyncio
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from sparklog.client import Admin, AsyncAdmin, Producer
from sparklog.client.admin.admin import NewTopic, OffsetAndMetadata
from sparklog.client.cluster.offsets import EARLIEST, LATEST
from sparklog.errors import ApiError, ClientClosed, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(servers):
    with Admin(bootstrap_servers=servers) as admin:
        yield admin


@pytest.fixture
def made(admin, topic):
    """A topic of two partitions with five records in each, at times 100 to 104."""
    admin.create_topics([NewTopic(topic, 2, 1)])
    with Producer(bootstrap_servers=admin._admin._session.config.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp=100 + number // 2)
    return topic


def _refused(call, *arguments):
    with pytest.raises(ApiError) as caught:
        call(*arguments)
    return caught.value.code


def test_every_broker_names_the_controller(admin):
    found = admin.describe_cluster()
    assert admin.controllers() == (dict.fromkeys(found.brokers, found.controller), {})


def test_topics_come_and_go(admin, topic):
    admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "5000"})])
    assert topic in [each.name for each in admin.list_topics()]
    assert all(each.leader >= 0 for each in admin.describe_topics([topic])[topic].partitions)
    assert _refused(admin.create_topics, [NewTopic(topic, 2, 1)]) is ErrorCode.TOPIC_ALREADY_EXISTS
    admin.create_partitions({topic: 5})
    assert len(admin.describe_topics([topic])[topic].partitions) == 5
    assert _refused(admin.create_partitions, {topic: 3}) is ErrorCode.INVALID_PARTITIONS
    admin.delete_topics([topic])
    assert _refused(admin.describe_topics, [topic]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_settings_of_a_topic(admin, made):
    admin.alter_topic_configs(made, {"retention.ms": "7000", "max.message.bytes": "5000"})
    admin.alter_topic_configs(made, {"max.message.bytes": None})
    # One broker of several may learn of a change later.
    eventually(lambda: _setting(admin.topic_configs(made), "retention.ms") == ("7000", 1))
    eventually(lambda: _setting(admin.topic_configs(made), "max.message.bytes")[1] != 1)
    assert _refused(admin.alter_topic_configs, made, {"retention.ms": "soon"}) is ErrorCode.INVALID_CONFIG


def _setting(entries, name):
    (found,) = [each for each in entries if each.name == name]
    return found.value, found.source


def test_settings_of_a_broker(admin):
    (broker,) = admin.describe_cluster().brokers
    admin.alter_broker_configs(broker, {"log.retention.ms": "123456789"})
    try:
        eventually(lambda: _setting(admin.broker_configs(broker), "log.retention.ms")[0] == "123456789")
    finally:
        admin.alter_broker_configs(broker, {"log.retention.ms": None})
    eventually(lambda: _setting(admin.broker_configs(broker), "log.retention.ms")[0] != "123456789")


def test_offsets_and_records(admin, made):
    both = [TopicPartition(made, number) for number in (0, 1)]
    assert [each.offset for each in admin.list_offsets(dict.fromkeys(both, LATEST)).values()] == [5, 5]
    found = admin.list_offsets({both[0]: 103, both[1]: 999})
    assert (found[both[0]], found[both[1]]) == ((3, 103, 0), None)
    assert admin.delete_records({both[0]: 2, both[1]: -1}) == {both[0]: 2, both[1]: 5}
    earliest = admin.list_offsets(dict.fromkeys(both, EARLIEST))
    assert [earliest[tp].offset for tp in both] == [2, 5]
    assert _refused(admin.delete_records, {both[0]: 99}) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_log_dirs(admin, made):
    (dirs,) = admin.log_dirs().values()
    sizes = {tp: size for each in dirs for tp, size in each.sizes.items() if tp.topic == made}
    assert set(sizes) == {TopicPartition(made, 0), TopicPartition(made, 1)}
    assert all(size > 0 for size in sizes.values())
    assert all(each.error is None for each in dirs)


@contextmanager
def _member(servers, group, topic):
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": group, "client.id": "me", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.2), timeout=60)
        yield
    finally:
        consumer.close()


def test_groups_and_their_offsets(admin, servers, made):
    group = f"group-of-{made}"
    both = [TopicPartition(made, number) for number in (0, 1)]
    with _member(servers, group, made):
        (found,) = admin.describe_groups([group]).values()
        assert (found.state, found.protocol_type, found.protocol) == ("Stable", "consumer", "range")
        assert [each.client_id for each in found.members] == ["me"]
        assert found.members[0].assignment
        assert _refused(admin.delete_groups, [group]) is ErrorCode.NON_EMPTY_GROUP
        assert _refused(admin.alter_group_offsets, group, {both[0]: 1}) is ErrorCode.UNKNOWN_MEMBER_ID
    admin.alter_group_offsets(group, {both[0]: 3, both[1]: OffsetAndMetadata(4, metadata="why")})
    assert admin.group_offsets(group) == {both[0]: (3, -1, ""), both[1]: (4, -1, "why")}
    assert list(admin.group_offsets(group, [both[1]])) == [both[1]]
    admin.delete_group_offsets(group, [both[0]])
    assert list(admin.group_offsets(group)) == [both[1]]
    assert (group, "Empty") in [(each.group_id, each.state) for each in admin.list_groups()]
    assert group in [each.group_id for each in admin.list_groups(states=["Empty"])]
    admin.delete_groups([group])
    assert group not in [each.group_id for each in admin.list_groups()]
    assert _refused(admin.delete_groups, [group]) is ErrorCode.GROUP_ID_NOT_FOUND


def test_transactions(admin, servers, made):
    name, tp = f"id-of-{made}", TopicPartition(made, 1)
    with Producer(bootstrap_servers=servers, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        offset = producer.send(made, b"x", partition=1).result(30).offset
        (found,) = admin.describe_transactions([name]).values()
        assert (found.state, found.partitions) == ("Ongoing", (tp,))
        assert (name, "Ongoing") in [(each.transactional_id, each.state) for each in admin.list_transactions()]
        listed = admin.list_transactions(states=["Ongoing"], producer_ids=[found.producer_id])
        assert [each.transactional_id for each in listed] == [name]
        assert listed[0].coordinator in admin.describe_cluster().brokers
        assert admin.list_transactions(states=["Ongoing"], open_longer_ms=3_600_000) == []
        assert admin.hanging_transactions([tp], silent_since_ms=1 << 62) == {}
        (writer,) = [each for each in admin.describe_producers([tp])[tp] if each.producer_id == found.producer_id]
        assert (writer.producer_epoch, writer.open_since) == (found.producer_epoch, offset)
        assert _refused(admin.abort_transaction, tp, offset + 1) is ErrorCode.INVALID_TXN_STATE
        assert admin.abort_transaction(tp, offset).producer_id == found.producer_id
        assert all(each.open_since < 0 for each in admin.describe_producers([tp])[tp])
        producer.abort_transaction()
    assert _refused(admin.describe_transactions, ["nobody"]) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_electing_a_leader_that_leads_already(admin, made):
    tp = TopicPartition(made, 0)
    (error,) = admin.elect_leaders([tp]).values()
    assert error is None or error.code is ErrorCode.ELECTION_NOT_NEEDED


def test_the_cluster(admin, servers):
    info = admin.describe_cluster()
    assert f"{info.brokers[info.controller].host}:{info.brokers[info.controller].port}" == servers
    assert all(isinstance(level, int) for level in admin.features().values())


def test_on_the_callers_loop(servers, topic):
    async def make():
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            await admin.create_topics([NewTopic(topic, 3, 1)])
            return await admin.describe_topics([topic])

    assert len(asyncio.run(make())[topic].partitions) == 3


def test_after_close(servers):
    admin = Admin(bootstrap_servers=servers)
    admin.close()
    with pytest.raises(ClientClosed):
        admin.list_topics()
    admin.close()
