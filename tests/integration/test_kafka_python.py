"""kafka-python: groups as they form and break, and what an administrator asks."""

import threading
import time
from contextlib import ExitStack, contextmanager
from itertools import chain

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, MemberToRemove
from kafka.errors import InvalidTopicError, KafkaConnectionError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafka.net.inet import KafkaNetSocket

from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

PARTITIONS = 4


@contextmanager
def producer_of(bootstrap, **settings):
    producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    try:
        yield producer
    finally:
        producer.close(30)


def send(bootstrap, topic, values, partitions=PARTITIONS):
    """One value after another, partition by partition in turn; returns when all are acknowledged."""
    with producer_of(bootstrap) as producer:
        sent = [producer.send(topic, value, partition=n % partitions) for n, value in enumerate(values)]
        for each in sent:
            each.get(30)


class Member:
    """A consumer of a group, polled by a thread of its own, as programs do; ``values`` is what it got so far.

    It commits after each poll, unless ``commits`` is False.
    """

    def __init__(self, bootstrap, topic, group, commits=True, **settings):
        self.values = []
        self._commits = commits
        self._stop = threading.Event()
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
            fetch_max_wait_ms=50,
            **settings,
        )
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self):
        while not self._stop.is_set():
            # Long enough for a rebalance: a poll that times out in the middle of one forgets what it was assigned.
            try:
                polled = self.consumer.poll(timeout_ms=1000)
            except KafkaConnectionError:  # It asked for its coordinator while the broker was away: its user asks again.
                continue
            if polled and self._commits:
                self.consumer.commit()
            self.values += [record.value for records in polled.values() for record in records]

    def fall_silent(self):
        """Poll no more."""
        self._stop.set()
        self._thread.join()

    def leave(self):
        """Tell the group that this member goes. Leaving twice is leaving once."""
        self.fall_silent()
        self.consumer.close(autocommit=False)

    @property
    def partitions(self):
        return sorted(each.partition for each in self.consumer.assignment())


@pytest.fixture
def join():
    """Makes members; those still there at the end leave."""
    with ExitStack() as stack:

        def make(bootstrap, topic, group, **settings):
            member = Member(bootstrap, topic, group, **settings)
            stack.callback(member.leave)
            return member

        yield make


@pytest.fixture
def admin(bootstrap):
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture(autouse=True, scope="module")
def _no_leaked_sockets():
    """kafka-python drops the socket of a refused connection unclosed, and some later test would be told."""
    connect = KafkaNetSocket.sock_connect

    async def connect_or_close(self, net, sock, sockaddr, timeout_at=None):
        try:
            return await connect(self, net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaNetSocket, "sock_connect", connect_or_close)
        yield


def own_evenly(members):
    owned = [each.partitions for each in members]
    fair = all(len(each) == PARTITIONS // len(members) for each in owned)
    return fair and sorted(chain.from_iterable(owned)) == list(range(PARTITIONS))


def test_two_members_share_and_the_survivor_takes_all(bootstrap, make_topic, topic, join):
    make_topic(partitions=PARTITIONS)
    first, second = (join(bootstrap, topic, topic) for _ in range(2))
    eventually(lambda: own_evenly([first, second]), 60, "two partitions each")
    values = [b"%d" % number for number in range(40)]
    send(bootstrap, topic, values)
    eventually(lambda: len(first.values) + len(second.values) >= 40, 60, "every value once")
    assert sorted(first.values + second.values) == sorted(values)
    assert len(first.values) == len(second.values) == 20
    first.leave()
    eventually(lambda: own_evenly([second]), 60, "the survivor owns all")
    send(bootstrap, topic, [b"more"] * 8)
    eventually(lambda: len(second.values) >= 28, 60, "the survivor reads all")
    assert second.values[20:] == [b"more"] * 8


def test_a_member_that_goes_silent_is_expelled(bootstrap, make_topic, topic, join):
    make_topic(partitions=PARTITIONS)
    silent, lively = (join(bootstrap, topic, topic, max_poll_interval_ms=2000) for _ in range(2))
    eventually(lambda: own_evenly([silent, lively]), 60, "two partitions each")
    silent.fall_silent()
    eventually(lambda: own_evenly([lively]), 60, "the one that polls owns all")


def test_commits_survive_a_restart_of_the_group(bootstrap, make_topic, topic, join):
    make_topic(partitions=PARTITIONS)
    send(bootstrap, topic, [b"%d" % number for number in range(40)])
    alone = join(bootstrap, topic, topic, commits=False)
    eventually(lambda: len(alone.values) >= 40, 60, "all forty")
    assert own_evenly([alone])
    alone.fall_silent()
    alone.consumer.commit({TopicPartition(topic, p): OffsetAndMetadata(5 + p, "", -1) for p in range(PARTITIONS)})
    alone.leave()
    again = join(bootstrap, topic, topic)
    eventually(lambda: len(again.values) >= 5 + 4 + 3 + 2, 60, "what was not committed")
    assert sorted(again.values) == sorted(
        b"%d" % (PARTITIONS * offset + p) for p in range(PARTITIONS) for offset in range(5 + p, 10)
    )


def test_commits_survive_a_restart_of_the_broker(chroot, tmp_path, join):
    with BrokerHarness(tmp_path, chroot) as broker:
        send(broker.address, "t", [b"%d" % number for number in range(10)], partitions=1)
        reader = join(broker.address, "t", "g")
        eventually(lambda: len(reader.values) >= 10, 60, "all ten")
        broker.restart()
        send(broker.address, "t", [b"10"], partitions=1)
        eventually(lambda: b"10" in reader.values, 60, "the member goes on")
        assert reader.values == [b"%d" % number for number in range(11)]
        reader.leave()
        broker.restart()
        send(broker.address, "t", [b"11"], partitions=1)
        again = join(broker.address, "t", "g")
        eventually(lambda: again.values, 60, "what was not committed")
        assert again.values == [b"11"]
        again.leave()


def test_topics_are_created_described_and_deleted(admin, topic):
    admin.create_topics({topic: {"num_partitions": 3, "replication_factor": 1}})
    (described,) = admin.describe_topics([topic])
    assert (described["name"], described["error_code"], len(described["partitions"])) == (topic, 0, 3)
    assert {each["leader_id"] for each in described["partitions"]} == {0}
    assert topic in admin.list_topics()
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 3}})
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_a_deleted_topic_comes_back_empty(admin, bootstrap, make_topic):
    topic = make_topic()
    send(bootstrap, topic, [b"old"], partitions=1)
    admin.delete_topics([topic])
    admin.create_topics({topic: {"num_partitions": 1}})
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}
    consumer.close()


def test_an_impossible_name_is_refused(admin):
    with pytest.raises(InvalidTopicError):
        admin.create_topics({"no spaces": {"num_partitions": 1}})


def test_a_creation_that_is_only_validated_leaves_nothing(admin, topic):
    answer = admin.create_topics({topic: {"num_partitions": 2}}, validate_only=True)
    assert answer["topics"][0]["error_code"] == 0
    assert topic not in admin.list_topics()


def test_topic_settings_say_where_they_come_from(admin, make_topic):
    topic = make_topic(retention_ms=12345)
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    configs = next(iter(described.values()))[topic]
    retention, segment = configs["retention.ms"], configs["segment.bytes"]
    assert retention["value"] == "12345"
    assert "TOPIC" in str(retention["config_source"]).upper()
    assert segment["value"] == "1073741824"
    assert "DEFAULT" in str(segment["config_source"]).upper()
    assert configs["cleanup.policy"]["value"] == "delete"


def test_broker_settings_say_where_they_come_from(admin):
    described = admin.describe_configs(
        [ConfigResource(ConfigResourceType.BROKER, "0")], include_synonyms=True, config_filter="all"
    )
    configs = next(iter(described.values()))["0"]
    given, default = configs["offsets.topic.num.partitions"], configs["socket.request.max.bytes"]
    assert given["value"] == "4"
    assert "STATIC_BROKER" in str(given["config_source"]).upper()
    assert [each["value"] for each in given["synonyms"]] == ["4", "50"]
    assert default["value"] == "104857600"
    assert "DEFAULT" in str(default["config_source"]).upper()


def test_the_cluster_describes_itself(admin, cluster):
    described = admin.describe_cluster()
    (broker,) = described["brokers"]
    assert f"{broker['host']}:{broker['port']}" == cluster.bootstrap_servers
    assert described["controller_id"] == 0
    assert described["cluster_id"]


def test_groups_are_listed_and_described(admin, bootstrap, make_topic, topic, join):
    make_topic(partitions=PARTITIONS)
    member = join(bootstrap, topic, topic, client_id="the-client")
    eventually(lambda: own_evenly([member]), 60, "all partitions")
    listed = {each["group_id"]: each for each in admin.list_groups()}
    assert (listed[topic]["protocol_type"], listed[topic]["group_state"]) == ("consumer", "Stable")
    described = admin.describe_groups([topic])[topic]
    assert described["group_state"] == "Stable"
    (only,) = described["members"]
    assert only["client_id"] == "the-client"
    member.leave()
    assert admin.describe_groups([topic])[topic]["group_state"] in ("Empty", "Dead")


def commit(bootstrap, group, *partitions):
    """An offset in each of these, of a group without members."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign(list(partitions))
    consumer.commit({each: OffsetAndMetadata(3, "", -1) for each in partitions})
    consumer.close()


def test_a_group_is_deleted_once_its_members_have_left(admin, bootstrap, make_topic, topic, join):
    make_topic(partitions=PARTITIONS)
    member = join(bootstrap, topic, topic)
    eventually(lambda: own_evenly([member]), 60, "all partitions")
    assert admin.delete_groups([topic]) == {topic: "NonEmptyGroupError"}
    member.leave()
    commit(bootstrap, topic, TopicPartition(topic, 0))
    assert admin.delete_groups([topic]) == {topic: "OK"}
    assert topic not in {each["group_id"] for each in admin.list_groups()}
    assert admin.delete_groups([topic]) == {topic: "GroupIdNotFoundError"}


def test_offsets_are_deleted_if_nobody_reads_them(admin, bootstrap, make_topic, topic, join):
    make_topic(partitions=PARTITIONS)
    tps = [TopicPartition(topic, number) for number in (0, 1)]
    commit(bootstrap, topic, *tps)
    admin.delete_group_offsets(topic, [tps[0]])
    assert [*admin.list_group_offsets({topic: None})[topic]] == [tps[1]]
    member = join(bootstrap, topic, topic)
    eventually(lambda: own_evenly([member]), 60, "all partitions")
    assert "GroupSubscribedToTopicError" in str(admin.delete_group_offsets(topic, [tps[1]]))
    assert [*admin.list_group_offsets({topic: None})[topic]] == [tps[1]]


def test_offsets_go_with_their_topic(admin, bootstrap, make_topic, topic):
    make_topic()
    commit(bootstrap, topic, TopicPartition(topic, 0))
    assert len(admin.list_group_offsets({topic: None})[topic]) == 1
    admin.delete_topics([topic])
    eventually(lambda: not admin.list_group_offsets({topic: None})[topic], 60, "the topic's offsets are gone")
    assert topic not in {each["group_id"] for each in admin.list_groups()}, "and with them the group"


def test_groups_are_listed_by_state(admin, bootstrap, make_topic, topic, join):
    make_topic(partitions=PARTITIONS)
    member = join(bootstrap, topic, topic)
    eventually(lambda: own_evenly([member]), 60, "all partitions")

    def listed(*states):
        return topic in {each["group_id"] for each in admin.list_groups(states_filter=states)}

    assert (listed("Stable"), listed("Empty", "Dead")) == (True, False)
    member.leave()
    assert (listed("Stable"), listed("Empty", "Dead")) == (False, True)


def test_a_static_member_is_removed_by_its_instance_id(admin, bootstrap, make_topic, topic, join):
    make_topic(partitions=PARTITIONS)
    member = join(bootstrap, topic, topic, group_instance_id="i")
    eventually(lambda: own_evenly([member]), 60, "all partitions")
    assert [each["group_instance_id"] for each in admin.describe_groups([topic])[topic]["members"]] == ["i"]
    member.fall_silent()
    admin.remove_group_members(topic, [MemberToRemove(group_instance_id="i")])
    described = admin.describe_groups([topic])[topic]
    assert (described["group_state"], described["members"]) == ("Empty", [])


def test_a_group_that_left_nothing_behind_is_forgotten_in_time(chroot, tmp_path, join):
    with BrokerHarness(tmp_path, chroot, settings={"offsets.retention.check.interval.ms": 100}) as broker:
        send(broker.address, "t", [b"0"], partitions=1)
        member = join(broker.address, "t", "g", commits=False)
        eventually(lambda: member.values, 60, "the value")
        admin = KafkaAdminClient(bootstrap_servers=broker.address)
        assert [each["group_id"] for each in admin.list_groups()] == ["g"]
        member.leave()
        eventually(lambda: not admin.list_groups(), 60, "the empty group is gone")
        admin.close()


def test_an_unknown_group_is_dead(admin, topic):
    assert admin.describe_groups([topic])[topic]["group_state"] == "Dead"


def test_offsets_are_listed_by_time(bootstrap, make_topic):
    topic = make_topic()
    tp = TopicPartition(topic, 0)
    start = int(time.time() * 1000)  # retention takes what is older than a week
    with producer_of(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"x", partition=0, timestamp_ms=start + 100 * number).get(30)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    for asked, found in ((0, 0), (150, 2), (900, 9)):
        assert consumer.offsets_for_times({tp: start + asked})[tp].offset == found
    assert consumer.offsets_for_times({tp: start + 901})[tp] is None
    assert (consumer.beginning_offsets([tp]), consumer.end_offsets([tp])) == ({tp: 0}, {tp: 10})
    consumer.close()
