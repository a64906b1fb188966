"""Erasing from a cluster of three brokers while everybody goes on: what is on each disk, and what clients see."""

import hashlib
import os
import threading
import time

import confluent_kafka
import pytest
from compaction.dump import dump
from compaction.erasures import expected_batches, raw, without_crc
from confluent_kafka import TopicPartition as At

from sparklog.client import Producer
from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECRET = b"forget-me-" + os.urandom(6).hex().encode()
SMALL = {"segment.bytes": "2000"}
BROKERS = 3
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    settings = {"log.cleaner.backoff.ms": "100", "replica.lag.time.max.ms": "3000"}
    with ClusterHarness(tmp_path_factory.mktemp("erasure"), brokers=BROKERS, settings=settings) as running:
        yield running


@pytest.fixture
def admin(trio):
    with Admin(bootstrap_servers=trio.bootstrap_servers) as found:
        yield found


@pytest.fixture(autouse=True)
def all_there(trio):
    yield
    for number in range(BROKERS):
        if not trio.broker(number).alive:
            trio.start_broker(number)


def make(admin, topic, partitions=1, **settings):
    admin.create_topics([NewTopic(topic, partitions, BROKERS, SMALL | settings)])


def write(trio, topic, numbers, *, acks="all", codec="none", **more):
    with Producer(
        bootstrap_servers=trio.bootstrap_servers, acks=acks, compression_type=codec, linger_ms=0, **more
    ) as producer:
        for number in numbers:
            key = SECRET if number % 4 == 0 else b"k%d" % number
            producer.send(topic, b"%d " % number + key + b"." * 60, key=key, partition=0)
            if number % 5 == 0:
                producer.flush()


def directories(trio, topic):
    """Of partition 0 on each broker, by its id."""
    found = {number: trio.broker(number).spec.data_dir / f"{topic}-0" for number in range(BROKERS)}
    assert all(each.is_dir() for each in found.values())
    return found


def in_sync(admin, topic):
    eventually(lambda: len(admin.describe_topics([topic])[topic].partitions[0].isr) == BROKERS)


def settle(trio, admin, topic):
    """Wait until all replicas have all, and know it; their files, as they are then."""
    in_sync(admin, topic)
    with Admin(bootstrap_servers=trio.bootstrap_servers) as other:
        eventually(lambda: len(set(_sizes(other, topic))) == 1)
    return {number: dump(directory) for number, directory in directories(trio, topic).items()}


def _sizes(admin, topic):
    tp = TopicPartition(topic, 0)
    return [each.sizes[tp] for dirs in admin.log_dirs().values() for each in dirs if tp in each.sizes]


def check_erased(trio, topic, before, report, keys=(SECRET,)):
    """All other batches are as they were, on every replica."""
    assert report.is_clean, report
    ends = {replica.broker: each.up_to_offset for replica, each in report.replicas.items()}
    for number, directory in directories(trio, topic).items():
        after = dump(directory)
        expected = expected_batches(before[number], set(keys), ends[number])
        assert without_crc(after.batches, expected) == expected


def test_every_replica_loses_the_records_and_keeps_all_others(trio, admin, topic):
    make(admin, topic)
    for n, codec in enumerate(CODECS):
        write(trio, topic, range(100 * n, 100 * n + 40), codec=codec)
    before = settle(trio, admin, topic)
    report = admin.erase(topic, [SECRET, b"nobody"])
    check_erased(trio, topic, before, report)
    assert {each.erased for each in report.replicas.values()} == {50}
    assert len({each.records_scanned for each in report.replicas.values()}) == 1
    for directory in directories(trio, topic).values():
        assert SECRET not in raw(directory)
        assert b"k1" in raw(directory)
    assert all(SECRET.decode() not in trio.broker(number).output() for number in range(BROKERS))
    for replica, each in report.replicas.items():
        files = directories(trio, topic)[replica.broker]
        for one in each.segments:
            path = files / f"{one.base_offset:020d}.log"
            assert hashlib.sha256(path.read_bytes()).hexdigest() == one.sha256
            assert path.stat().st_size == one.size


def test_transactions_and_sequence_numbers_go_on(trio, admin, topic):
    make(admin, topic)
    settings = {"bootstrap.servers": trio.bootstrap_servers, "transactional.id": topic}
    transactional = confluent_kafka.Producer(settings)
    idempotent = confluent_kafka.Producer(
        {"bootstrap.servers": trio.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0}
    )
    transactional.init_transactions(60)
    for number in range(8):
        transactional.begin_transaction()
        for key in (SECRET, b"k%d" % number):
            transactional.produce(topic, b"of %d" % number, key=key, partition=0)
        transactional.flush(60)
        idempotent.produce(topic, b"single", key=SECRET, partition=0)
        assert idempotent.flush(60) == 0
        if number % 2:
            transactional.abort_transaction(60)
        else:
            transactional.commit_transaction(60)
    transactional.begin_transaction()
    transactional.produce(topic, b"open", key=SECRET, partition=0)
    transactional.flush(60)
    waiting = admin.erase(topic, [SECRET], patience=0.5)
    assert not waiting.is_complete
    assert all("has had a transaction open since offset" in each.obstacle for each in waiting.replicas.values())
    transactional.commit_transaction(60)
    before = settle(trio, admin, topic)
    check_erased(trio, topic, before, admin.erase(topic, [SECRET]))

    transactional.begin_transaction()
    transactional.produce(topic, b"after", key=b"after", partition=0)
    transactional.commit_transaction(60)
    idempotent.produce(topic, b"after", key=b"after", partition=0)
    assert idempotent.flush(60) == 0
    trio.stop_broker(0)
    trio.start_broker(0)
    in_sync(admin, topic)
    transactional.begin_transaction()
    transactional.produce(topic, b"later", key=b"later", partition=0)
    transactional.commit_transaction(60)
    idempotent.produce(topic, b"later", key=b"later", partition=0)
    assert idempotent.flush(60) == 0
    assert [key for key, _ in read(trio, topic, 8)] == [
        b"k0",
        b"k2",
        b"k4",
        b"k6",
        b"after",
        b"after",
        b"later",
        b"later",
    ]


def read(trio, topic, count):
    """Key and value of so many committed records from the start."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": trio.bootstrap_servers,
            "group.id": topic + "-reader",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([At(topic, 0, 0)])
    found = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.5):
            assert message.error() is None
            found.append((message.key(), message.value()))
    consumer.close()
    return found


def test_a_compacted_topic_loses_its_tombstones_of_the_keys_too(trio, admin, topic):
    make(admin, topic, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"})
    write(trio, topic, range(40))
    with Producer(bootstrap_servers=trio.bootstrap_servers, acks="all") as producer:
        producer.send(topic, None, key=SECRET, partition=0)
        producer.send(topic, None, key=b"k1", partition=0)
    settle(trio, admin, topic)
    admin.compact([topic])
    before = {number: dump(directory) for number, directory in directories(trio, topic).items()}
    check_erased(trio, topic, before, admin.erase(topic, [SECRET]))
    admin.compact([topic])
    assert (b"k1", None) in read(trio, topic, 30)


def test_producers_and_consumers_go_on_meanwhile(trio, admin, topic):
    make(admin, topic)
    write(trio, topic, range(100))
    stop, sent, seen = threading.Event(), [], []
    produced = threading.Event()

    def produce():
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": trio.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0}
        )
        number = 0
        while not stop.is_set():
            producer.produce(topic, b"%d" % number, key=b"live", partition=0)
            assert producer.flush(60) == 0
            sent.append(b"%d" % number)
            number += 1
            if number == 20:
                produced.set()

    def consume():
        consumer = confluent_kafka.Consumer({"bootstrap.servers": trio.bootstrap_servers, "group.id": topic})
        consumer.assign([At(topic, 0, 0)])
        while not (stop.is_set() and len(seen) >= len(sent)):
            for message in consumer.consume(100, 0.2):
                assert message.error() is None
                if message.key() == b"live":
                    seen.append(message.value())
        consumer.close()

    threads = [threading.Thread(target=each) for each in (produce, consume)]
    for each in threads:
        each.start()
    try:
        assert produced.wait(60)
        report = admin.erase(topic, [SECRET], patience=60)
        assert report.is_clean, report
        assert {each.erased for each in report.replicas.values()} == {25}
    finally:
        stop.set()
        for each in threads:
            each.join(60)
    assert seen == sent


def test_a_consumer_gets_over_many_segments_of_which_nothing_is_left(trio, admin, topic):
    make(admin, topic)
    with Producer(bootstrap_servers=trio.bootstrap_servers, acks="all", linger_ms=0) as producer:
        for _ in range(300):
            producer.send(topic, b"." * 60, key=SECRET, partition=0)
            producer.flush()
        producer.send(topic, b"left", key=b"left", partition=0)
        producer.flush()
        for _ in range(300):
            producer.send(topic, b"." * 60, key=SECRET, partition=0)
            producer.flush()
    report = admin.erase(topic, [SECRET], patience=60)
    assert report.is_clean, report
    assert min(len(each.segments) for each in report.replicas.values()) > 30
    settings = {"bootstrap.servers": trio.bootstrap_servers, "group.id": topic, "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(settings | {"auto.offset.reset": "error"})
    consumer.assign([At(topic, 0, 0)])
    seen = []
    while not seen or seen[-1].error() is None:
        seen += consumer.consume(1, 60)
    consumer.close()
    left, end = seen
    assert (left.error(), left.offset(), left.key()) == (None, 300, b"left")
    assert (end.error().code(), end.offset()) == (confluent_kafka.KafkaError._PARTITION_EOF, 601)


def test_a_follower_that_is_down_is_named_and_the_same_call_finishes_later(trio, admin, topic):
    make(admin, topic)
    write(trio, topic, range(40))
    before = settle(trio, admin, topic)
    leader = admin.describe_topics([topic])[topic].partitions[0].leader
    away = (leader + 1) % BROKERS
    trio.stop_broker(away)
    report = admin.erase(topic, [SECRET], patience=1.0)
    assert not report.is_complete
    obstacles = {replica.broker: each.obstacle for replica, each in report.replicas.items() if each.obstacle}
    assert list(obstacles) == [away]
    assert f"broker {away} cannot be asked" in obstacles[away]
    assert {each.left for each in report.replicas.values() if each.obstacle is None} == {0}
    trio.start_broker(away)
    finished = admin.erase(topic, [SECRET], patience=60)
    assert {replica.broker: each.erased for replica, each in finished.replicas.items()} == {
        number: 10 if number == away else 0 for number in range(BROKERS)
    }
    check_erased(trio, topic, before, finished)


def test_a_broker_that_is_killed_in_the_middle_is_told_the_keys_again(trio, admin, topic):
    make(admin, topic)
    write(trio, topic, range(400))
    before = settle(trio, admin, topic)
    leader = admin.describe_topics([topic])[topic].partitions[0].leader
    victim = (leader + 1) % BROKERS
    killed = threading.Event()

    def listen(progress):
        if progress.replica.broker == victim and progress.what.startswith("erasing") and not killed.is_set():
            killed.set()
            trio.kill_broker(victim)
            threading.Thread(target=trio.start_broker, args=(victim,)).start()

    report = admin.erase(topic, [SECRET], patience=120, listener=listen)
    assert killed.is_set()
    check_erased(trio, topic, before, report)
    assert SECRET not in raw(directories(trio, topic)[victim])


def test_a_check_finds_a_file_that_was_put_back(trio, admin, topic):
    make(admin, topic)
    write(trio, topic, range(60))
    settle(trio, admin, topic)
    victim = admin.describe_topics([topic])[topic].partitions[0].leader
    directory = directories(trio, topic)[victim]
    first = sorted(directory.glob("*.log"))[0]
    kept = first.read_bytes()
    report = admin.erase(topic, [SECRET])
    ends = {0: next(iter(report.replicas.values())).up_to_offset}
    assert admin.erase(topic, [SECRET], scan_only=True, up_to=ends, topic_id=report.topic_id).is_clean
    trio.stop_broker(victim)
    first.write_bytes(kept)
    for index in (first.with_suffix(".index"), first.with_suffix(".timeindex")):
        index.unlink()
    trio.start_broker(victim)
    in_sync(admin, topic)
    again = admin.erase(topic, [SECRET], scan_only=True, up_to=ends, topic_id=report.topic_id, patience=60)
    left = {replica.broker: each.left for replica, each in again.replicas.items()}
    assert left.pop(victim) > 0
    assert set(left.values()) == {0}
    assert admin.erase(topic, [SECRET], patience=60).is_clean


def test_what_there_is_not_and_what_is_another_by_now_is_refused(trio, admin, topic):
    with pytest.raises(ApiError) as missing:
        admin.erase(topic, [SECRET])
    assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    make(admin, topic)
    known = admin.describe_topics([topic])[topic].topic_id
    admin.delete_topics([topic])
    eventually(lambda: topic not in {each.name for each in admin.list_topics()})
    make(admin, topic)
    with pytest.raises(ApiError) as other:
        admin.erase(topic, [SECRET], topic_id=known)
    assert other.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    with pytest.raises(ApiError) as internal:
        admin.erase("__consumer_offsets", [SECRET])
    assert internal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
