"""Groups: who owns what when, whoever comes, goes or dies, and that no record is lost by it."""

import asyncio
import contextlib
import itertools
import logging
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import kafka
import pytest
from client.reading import read, values
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from integration import wire
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from sparklog.client import Admin
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.group.coordinator import ConsumerCoordinator
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.client.producer.producer import Producer
from sparklog.clock import SystemClock
from sparklog.errors import ApiError, ErrorCode, WokenUp
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaveGroupRequest
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import run_kafka_tool

pytestmark = pytest.mark.integration
EAGER, COOPERATIVE = ("range",), ("cooperative-sticky",)


class Owners:
    """Who owns which partition, by the callbacks; keeps what broke the rules."""

    def __init__(self):
        self.owner = {}
        self.broken = []
        self._lock = threading.Lock()

    def assigned(self, name, partitions):
        with self._lock:
            self.broken += [(tp, self.owner[tp], name) for tp in partitions if tp in self.owner]
            self.owner.update(dict.fromkeys(partitions, name))

    def revoked(self, name, partitions):
        with self._lock:
            for tp in partitions:
                if self.owner.pop(tp, None) != name:
                    self.broken.append((tp, name, "gave up what it did not own"))

    def check(self, name, records):
        with self._lock:
            self.broken += [(record.tp, name, "read it") for record in records if self.owner.get(record.tp) != name]


class Reader(threading.Thread):
    """A member in a thread: polls, notes what it got, until it is told to end."""

    def __init__(self, name, consumer, topic, owners):
        super().__init__(name=name)
        self.consumer = consumer
        self.values = []
        self.failure = None
        self._topic = topic
        self._owners = owners
        self._ending = threading.Event()

    def run(self):
        try:
            self.consumer.subscribe(
                [self._topic],
                on_assigned=lambda tps: self._owners.assigned(self.name, tps),
                on_revoked=lambda tps: self._owners.revoked(self.name, tps),
            )
            while not self._ending.is_set():
                with contextlib.suppress(WokenUp):
                    records = self.consumer.poll(0.2)
                    self._owners.check(self.name, records)
                    self.values += values(records)
            self.consumer.close()
        except Exception as error:
            self.failure = error

    def end(self):
        self._ending.set()
        self.consumer.wakeup()
        self.join(60)
        assert not self.is_alive()
        assert self.failure is None


class Writer(threading.Thread):
    """Writes numbers to the partitions in turn until it is told to end."""

    def __init__(self, servers, partitions):
        super().__init__(name="writer")
        self.written = 0
        self._servers = servers
        self._partitions = partitions
        self._ending = threading.Event()

    def run(self):
        with ClusterMetadata(ClientConfig(bootstrap_servers=self._servers)) as cluster:
            for tp in itertools.cycle(self._partitions):
                builder = RecordBatchBuilder()
                for number in range(self.written, self.written + 5):
                    builder.append(1_700_000_000_000, None, b"%d" % number)
                with BatchProducer(cluster) as producer:
                    producer.send(tp, builder.build())
                self.written += 5
                if self._ending.wait(0.01):
                    return

    def end(self):
        self._ending.set()
        self.join(60)
        assert not self.is_alive()


@pytest.mark.parametrize("strategies", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_members_come_and_go_while_records_flow(servers, consumer, partitions, strategies):
    tps = partitions(4)
    owners = Owners()

    def join(name):
        reader = Reader(name, consumer(partition_assignment_strategy=strategies), tps[0].topic, owners)
        reader.start()
        eventually(lambda: reader.consumer.assignment or reader.failure, 60)
        return reader

    writer = Writer(servers, tps)
    writer.start()
    readers = [join(name) for name in ("a", "b", "c")]
    eventually(lambda: all(reader.values for reader in readers), 60)
    readers[0].end()
    readers.append(join("d"))
    eventually(lambda: readers[3].values, 60)
    writer.end()
    expected = {b"%d" % number for number in range(writer.written)}
    eventually(lambda: {value for reader in readers for value in reader.values} == expected, 60)
    for reader in readers[1:]:
        reader.end()
    assert owners.broken == []
    assert owners.owner == {}
    seen = Counter(value for reader in readers for value in reader.values)
    assert set(seen.values()) == {1}  # everybody committed before giving up, so nothing came twice either


def test_cooperative_keeps_what_stays(consumer, partitions, put):
    tps = partitions(4)
    told = []
    one = consumer(partition_assignment_strategy=COOPERATIVE, enable_auto_commit=False)
    one.subscribe(
        [tps[0].topic],
        on_assigned=lambda given: told.append(("+", given)),
        on_revoked=lambda taken: told.append(("-", taken)),
    )
    for tp in tps:
        put(tp, b"a")
    assert len(read(one, 4)) == 4
    other = consumer(partition_assignment_strategy=COOPERATIVE)
    other.subscribe([tps[0].topic])
    eventually(lambda: (one.poll(0.05), other.poll(0.05), len(other.assignment) == 2)[-1], 60)
    assert [sign for sign, given in told if given] == ["+", "-"]
    kept = one.assignment
    assert set(told[0][1]) == set(tps)
    assert kept == set(tps) - set(next(taken for sign, taken in told if sign == "-"))
    assert [one.position(tp) for tp in kept] == [1, 1]  # nothing is committed: the positions were kept


def test_a_static_member_comes_back_without_a_rebalance(consumer, partitions, topic):
    tps = partitions(4)
    told = []

    def static(name):
        made = consumer(group_instance_id=f"{topic}-{name}", client_id=name)
        made.subscribe([tps[0].topic], on_revoked=lambda taken: told.append(taken))
        return made

    one, other = static("one"), static("other")
    eventually(lambda: (one.poll(0.05), other.poll(0.05), len(one.assignment) == len(other.assignment) == 2)[-1], 60)
    had, told[:] = one.assignment, []
    generation = other.consumer_group_metadata().generation_id
    one.close()
    assert told == [sorted(had)]
    again = static("one")
    eventually(lambda: (again.poll(0.05), other.poll(0.05), again.assignment)[-1], 60)
    assert again.assignment == had
    assert other.consumer_group_metadata().generation_id == generation
    assert told == [sorted(had)]


def test_a_second_holder_of_an_instance_id_fences_the_first(consumer, partitions, topic):
    (tp,) = partitions()
    first, second = (consumer(group_instance_id=topic) for _ in range(2))
    lost = []
    first.subscribe([tp.topic], on_lost=lost.extend)
    eventually(lambda: first.poll(0.05) or first.assignment, 60)
    second.subscribe([tp.topic])
    eventually(lambda: second.poll(0.05) or second.assignment, 60)

    def fenced():
        try:
            first.poll(0.1)
        except ApiError as error:
            return error

    assert eventually(fenced, 60).code is ErrorCode.FENCED_INSTANCE_ID
    generation = second.consumer_group_metadata().generation_id
    for call in (lambda: first.poll(0.1), lambda: first.poll(0.1), lambda: first.commit({tp: 1})):
        with pytest.raises(ApiError, match="give each its own"):
            call()
    assert lost == [tp]
    second.commit({tp: 0})
    assert second.consumer_group_metadata().generation_id == generation


def test_a_transaction_of_a_member_that_was_removed_does_not_commit_its_offsets(consumer, partitions, servers, topic):
    (tp,) = partitions()
    first, second = consumer(), consumer()
    first.subscribe([tp.topic])
    eventually(lambda: first.poll(0.05) or first.assignment, 60)
    _remove(servers, topic, first.consumer_group_metadata().member_id)
    second.subscribe([tp.topic])
    eventually(lambda: second.poll(0.05) or second.assignment, 60)
    with pytest.raises(ApiError, match=r"another generation|not a member"):
        first.commit({tp: 1})  # from now on it knows
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(ApiError) as refused:
            producer.send_offsets_to_transaction({tp: 1}, first.consumer_group_metadata())
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        producer.abort_transaction()
    assert second.committed(tp) == {tp: None}


def _remove(servers, group, member_id):
    leaving = LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=None, reason="removed")
    with wire.connect(servers) as connection:
        request = LeaveGroupRequest(group_id=group, member_id=member_id, members=[leaving])
        assert connection.request(ApiKey.LEAVE_GROUP, lambda _: request).error_code == 0


def test_a_leader_that_takes_long_over_the_assignment_stays_a_member(consumer, partitions, monkeypatch):
    (tp,) = partitions()
    beaten = asyncio.Event()
    lead, beat = ConsumerCoordinator._lead, ConsumerCoordinator._send_heartbeat

    async def lead_late(self, answer):
        await beaten.wait()
        return await lead(self, answer)

    async def beat_and_tell(self):
        await beat(self)
        beaten.set()

    monkeypatch.setattr(ConsumerCoordinator, "_lead", lead_late)
    monkeypatch.setattr(ConsumerCoordinator, "_send_heartbeat", beat_and_tell)
    reader = consumer()
    reader.subscribe([tp.topic])
    eventually(lambda: reader.poll(0.05) or reader.assignment, 60)


class LeapingClock(SystemClock):
    """The machine's own clock, ``ahead`` by some seconds."""

    ahead = 0.0

    def monotonic(self):
        return super().monotonic() + self.ahead


def test_a_consumer_that_does_not_poll_leaves_and_is_told(consumer, partitions, put, caplog):
    (tp,) = partitions()
    put(tp, b"a", b"b")
    lost, clock = [], LeapingClock()
    slow = consumer(max_poll_interval_ms=300_000, enable_auto_commit=False, clock=clock)
    slow.subscribe([tp.topic], on_lost=lost.extend)
    assert values(read(slow, 2)) == [b"a", b"b"]
    with caplog.at_level(logging.WARNING):
        clock.ahead = 301
        eventually(lambda: "max.poll.interval.ms" in caplog.text)
    with pytest.raises(ApiError, match="not a member"):
        slow.commit()
    assert (lost, slow.assignment) == ([], {tp})  # told inside poll, not before
    assert values(read(slow, 2)) == [b"a", b"b"]  # nothing was committed
    assert lost == [tp]


def test_a_callback_may_commit_and_its_exception_comes_out_of_poll(consumer, partitions, put):
    (tp,) = partitions()
    put(tp, b"a")
    one, threads = consumer(enable_auto_commit=False), []

    def on_revoked(taken):
        threads.append(threading.get_ident())
        one.commit()

    def on_assigned(given):
        raise ValueError("from the callback")

    one.subscribe([tp.topic], on_assigned=on_assigned, on_revoked=on_revoked)
    with pytest.raises(ValueError, match="from the callback"):
        read(one, 1)
    assert values(read(one, 1)) == [b"a"]
    one.close()
    assert threads == [threading.get_ident()]
    other = consumer()
    assert other.committed(tp)[tp].offset == 1


@pytest.mark.parametrize("raised", [ValueError, TimeoutError])
def test_a_commit_callback_that_raises_in_close_does_not_keep_the_group_from_being_left(
    consumer, partitions, put, servers, topic, raised
):
    (tp,) = partitions()
    put(tp, b"a", b"b")
    one, told = consumer(auto_commit_interval_ms=600_000), []

    def fail(offsets, error):
        raise raised("from the callback")

    one.subscribe([topic])
    read(one, 2)
    one.commit_async(fail, {tp: 1})
    one.commit_async(lambda offsets, error: told.append(error), {tp: 1})
    with pytest.raises(raised, match="from the callback"):
        one.close()
    assert told == [None]
    with Admin(bootstrap_servers=servers) as admin:
        assert admin.describe_groups([topic])[topic].members == ()
    assert consumer().committed(tp)[tp].offset == 2


def test_a_callback_that_raises_does_not_keep_a_consumer_subscribed(consumer, partitions):
    (tp,) = partitions()
    one = consumer()

    def on_revoked(taken):
        raise ValueError("from the callback")

    one.subscribe([tp.topic], on_revoked=on_revoked)
    eventually(lambda: one.poll(0.05) or one.assignment, 60)
    with pytest.raises(ValueError, match="from the callback"):
        one.unsubscribe()
    assert (one.assignment, one.subscription) == (frozenset(), frozenset())
    one.assign([tp])
    assert one.assignment == {tp}


def test_a_topic_that_grows_is_shared_out_anew(consumer, partitions, put, metadata):
    (tp,) = partitions()
    one = consumer(metadata_max_age_ms=200)
    one.subscribe([tp.topic])
    eventually(lambda: one.poll(0.05) or one.assignment, 60)
    admin = AdminClient({"bootstrap.servers": metadata.config.bootstrap_servers})
    (done,) = admin.create_partitions([NewPartitions(tp.topic, 3)]).values()
    done.result(30)
    eventually(lambda: one.poll(0.05) or len(one.assignment) == 3, 60)


@pytest.mark.parametrize(
    "strategy",
    [*(pytest.param(each, marks=pytest.mark.slow) for each in ("range", "roundrobin")), "cooperative-sticky"],
)
def test_a_group_with_members_of_three_clients(servers, consumer, partitions, put, topic, strategy):
    tps = partitions(6)
    ours = consumer(partition_assignment_strategy=strategy)
    ours.subscribe([topic])
    rdkafka = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 500,
        }
    )
    rdkafka.subscribe([topic])
    python = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=topic,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[_KAFKA_PYTHON[strategy]],
        heartbeat_interval_ms=500,
    )
    found = Counter()

    def poll_all():
        found.update(values(ours.poll(0.02)))
        message = rdkafka.poll(0.02)
        found.update([message.value()] if message and not message.error() else [])
        found.update(record.value for records in python.poll(20).values() for record in records)
        return [len(ours.assignment), len(rdkafka.assignment()), len(python.assignment())]

    try:
        eventually(lambda: poll_all() == [2, 2, 2], 90)
        for tp in tps:
            put(tp, *(b"%d-%d" % (tp.partition, n) for n in range(3)))
        eventually(lambda: poll_all() and len(found) == 18, 60)
        rdkafka.close()
        python.close()
        eventually(lambda: found.update(values(ours.poll(0.05))) or ours.assignment == set(tps), 60)
        assert set(found.values()) == {1}
    finally:
        with contextlib.suppress(RuntimeError):
            rdkafka.close()
        python.close()


_KAFKA_PYTHON = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


_DIES = """
import os, sys
from sparklog.client import Consumer
with Consumer({"bootstrap.servers": sys.argv[1]}, group_id=sys.argv[2], session_timeout_ms=6000) as consumer:
    consumer.subscribe([sys.argv[2]])
    while not consumer.assignment:
        consumer.poll(0.1)
    os._exit(0)
"""


@pytest.mark.slow
def test_what_a_dead_member_had_goes_to_the_living(servers, consumer, partitions, topic):
    tps = partitions(3)
    subprocess.run([sys.executable, "-c", _DIES, servers, topic], check=True, timeout=120)
    living = consumer()
    living.subscribe([topic])
    assert eventually(lambda: living.poll(0.1) or living.assignment, 90) == set(tps)


@pytest.mark.peer
@pytest.mark.parametrize("strategy", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_a_group_with_a_member_in_java(servers, consumer, partitions, put, topic, strategy):
    tps = partitions(4)
    ours = consumer(partition_assignment_strategy=f"org.apache.kafka.clients.consumer.{strategy}")
    ours.subscribe([topic])
    arguments = ["--bootstrap-server", servers, "--topic", topic, "--group", topic, "--max-messages", "2"]
    properties = [f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{strategy}"]
    words = [word for each in properties for word in ("--consumer-property", each)]
    java = ThreadPoolExecutor(1).submit(
        run_kafka_tool, "org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, *words
    )
    eventually(lambda: ours.poll(0.1) or java.done() or len(ours.assignment) == 2, 90)
    for tp in tps:
        put(tp, b"%d" % tp.partition)
    found = values(read(ours, 2))
    eventually(lambda: ours.poll(0.1) or java.done(), 90)
    assert sorted(found + [line.encode() for line in java.result().split()]) == [b"0", b"1", b"2", b"3"]
    assert eventually(lambda: ours.poll(0.1) or len(ours.assignment) == 4, 60)


def test_who_subscribes_to_a_topic_that_does_not_exist_is_told_and_reads_it_when_it_does(
    consumer, partitions, put, topic, caplog
):
    ours = consumer(allow_auto_create_topics=False)
    ours.subscribe([topic])
    missing = f"UNKNOWN_TOPIC_OR_PARTITION: topic '{topic}' does not exist"
    eventually(lambda: ours.poll(0.1) or missing in caplog.text, 60)
    (tp,) = partitions()
    put(tp, b"came later")
    assert values(read(ours, 1)) == [b"came later"]
    assert caplog.text.count(missing) == 1


@pytest.mark.parametrize("way", ["subscribe", "assign"])
def test_a_topic_is_not_created_for_a_reader_in_silence(consumer, topic, way, caplog):
    ours = consumer()
    if way == "subscribe":
        ours.subscribe([topic])
    else:
        ours.assign([TopicPartition(topic, 0)])
    eventually(lambda: ours.poll(0.1) or ours.positions(), 60)
    (told,) = [message for message in caplog.messages if "UNKNOWN_TOPIC_OR_PARTITION" in message]
    assert f"topic '{topic}' does not exist; brokers are asked to create it" in told


def test_a_topic_that_a_pattern_matched_stays_deleted(consumer, partitions, put, servers, topic, caplog):
    (tp,) = partitions()
    ours = consumer(metadata_max_age_ms=200)
    ours.subscribe(pattern=topic)
    put(tp, b"there")
    assert values(read(ours, 1)) == [b"there"]
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_topics([topic])
        eventually(lambda: ours.poll(0.1) or not ours.assignment, 60)
        assert topic not in [each.name for each in admin.list_topics()]
    assert "asked to create" not in caplog.text


def test_a_killed_broker_comes_back_and_nothing_is_lost(tmp_path, topic):
    with ClusterHarness(tmp_path) as harness:
        admin = AdminClient({"bootstrap.servers": harness.bootstrap_servers})
        (made,) = admin.create_topics([NewTopic(topic, 2, 1)]).values()
        made.result(30)
        tps = [TopicPartition(topic, number) for number in (0, 1)]
        settings = {"group_id": topic, "auto_offset_reset": "earliest", "auto_commit_interval_ms": 100}
        owners = Owners()
        reader = Reader("a", Consumer({"bootstrap.servers": harness.bootstrap_servers}, **settings), topic, owners)
        reader.start()
        for _ in range(2):
            writer = Writer(harness.bootstrap_servers, tps)
            reader.values.clear()
            writer.start()
            eventually(lambda: len(reader.values) > 50, 60)
            writer.end()
            harness.kill_broker(0)
            harness.start_broker(0)
            expected = {b"%d" % number for number in range(writer.written)}
            eventually(lambda: set(reader.values) >= expected, 90)  # noqa: B023
        reader.end()
        assert owners.broken == []


def test_a_member_whose_records_take_long_to_deserialize_sends_heartbeats(servers, partitions, put):
    (tp,) = partitions()
    put(tp, b"1")
    beats = []

    def read(data):
        before = len(beats)
        eventually(lambda: len(beats) >= before + 2)
        return data

    settings = {"group_id": tp.topic, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}
    with Consumer({"bootstrap.servers": servers}, value_deserializer=read, **settings) as member:
        membership = member._consumer._coordinator._membership
        answered = membership.heartbeat_answered
        membership.heartbeat_answered = lambda *told: beats.append(told) or answered(*told)
        member.subscribe([tp.topic])
        assert values(itertools.islice(member, 1)) == [b"1"]
        member.commit()
