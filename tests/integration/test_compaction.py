"""A broker that compacts while everybody goes on: what clients see, what is on the disk, and which process lives."""

import os
import signal
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from integration import wire

from sparklog.client import Admin, NewTopic
from sparklog.errors import ErrorCode, SparklogError
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually, wait_for_death

pytestmark = [pytest.mark.integration, pytest.mark.slow]

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "2000000",
    "offsets.topic.segment.bytes": "4000",
    "offsets.topic.num.partitions": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
SLOWLY = SETTINGS | {"log.cleaner.io.max.bytes.per.second": "2000"}
KEYS = 7


@pytest.fixture
def broker(tmp_path, chroot):
    with BrokerHarness(tmp_path, chroot, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def slow(tmp_path, chroot):
    """A broker whose cleaner takes half a minute for a log of some segments, so that it can be met at it."""
    with BrokerHarness(tmp_path, chroot, settings=SLOWLY) as running:
        yield running


def make(broker, name, **more):
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, name, configs=COMPACTED | more)[0] is ErrorCode.NONE
    return TopicPartition(name, 0)


def write(broker, tp, numbers, keys=KEYS):
    """A record a batch, value after value of a few keys."""
    with wire.connect(broker.address) as connection:
        for number in numbers:
            batch = wire.batch_of(b"%d" % number + b"." * 150, key=b"k%d" % (number % keys))
            assert wire.produce(connection, tp, batch)[0] is ErrorCode.NONE


def files_of(broker, tmp_path, tp, suffix=".log"):
    return sorted((tmp_path / f"broker-{broker.spec.broker_id}" / str(tp)).glob(f"*{suffix}"))


def size_of(broker, tmp_path, tp):
    total = 0
    for path in files_of(broker, tmp_path, tp):
        with suppress(FileNotFoundError):  # replaced in between
            total += path.stat().st_size
    return total


def workers_of(broker):
    """The processes of the broker's cleaner."""
    found = subprocess.run(
        ["pgrep", "-P", str(broker.pid), "-f", "compaction.worker"], capture_output=True, check=False
    )
    return [int(each) for each in found.stdout.split()]


def read_records(broker, tp):
    """Offset, key and value of all that can be read from the start."""
    with wire.connect(broker.address) as connection:
        found, at = [], 0
        while True:
            fetched = wire.fetch(connection, tp, at)
            assert fetched.error is ErrorCode.NONE
            records = [
                (each.offset, each.key, each.value)
                for chunk in fetched.records
                for batch in iter_batches(chunk)
                for each in iter_records(batch)
                if each.offset >= at
            ]
            if not records:
                return found
            found += records
            at = records[-1][0] + 1


def last_of(numbers, keys=KEYS):
    return {b"k%d" % (number % keys): b"%d" % number + b"." * 150 for number in numbers}


def _transact(producer, topic, number):
    """Ten records in a transaction; every third is aborted."""
    producer.begin_transaction()
    for each in range(number * 10, number * 10 + 10):
        value = b"aborted" if number % 3 == 1 else b"%d" % each
        producer.produce(topic, value.ljust(150, b"."), key=b"k%d" % (each % KEYS), partition=0)
    if number % 3 == 1:
        producer.flush()
        producer.abort_transaction(60)
    else:
        producer.commit_transaction(60)


def _replayed(servers, topic, last):
    """The table that a new reader comes to, up to the value ``last``."""
    settings = {"group.id": topic + "-fresh", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    reader, found = confluent_kafka.Consumer(servers | settings), {}
    reader.assign([At(topic, 0, 0)])
    while last not in found.values():
        for message in reader.consume(100, 0.5):
            assert message.error() is None
            found[message.key()] = message.value()
    reader.close()
    return found


def test_a_log_shrinks_while_it_is_written_and_read(broker, tmp_path, topic):
    tp = make(broker, topic)
    servers = {"bootstrap.servers": broker.address}
    readers = {
        level: confluent_kafka.Consumer(
            servers | {"group.id": f"{topic}-{level}", "auto.offset.reset": "earliest", "isolation.level": level}
        )
        for level in ("read_committed", "read_uncommitted")
    }
    for reader in readers.values():
        reader.subscribe([topic])
    seen = {level: [] for level in readers}

    def poll():
        for level, reader in readers.items():
            for message in reader.consume(100, 0.05):
                assert message.error() is None
                seen[level].append((message.offset(), message.key(), message.value()))

    producer = confluent_kafka.Producer(servers | {"transactional.id": topic, "enable.idempotence": True})
    producer.init_transactions(60)
    for number in range(30):
        _transact(producer, topic, number)
        poll()
    last = b"the last".ljust(150, b".")
    producer.begin_transaction()
    producer.produce(topic, last, key=b"end", partition=0)
    producer.commit_transaction(60)
    eventually(lambda: (poll(), all(found and found[-1][2] == last for found in seen.values()))[1])
    eventually(lambda: size_of(broker, tmp_path, tp) < 20_000, what="300 records of 7 keys become few")
    for found in seen.values():
        assert [each[0] for each in found] == sorted({each[0] for each in found})
    assert not [each for each in seen["read_committed"] if each[2].startswith(b"aborted")]
    assert _replayed(servers, topic, last) == {key: value for _, key, value in seen["read_committed"]}
    for reader in readers.values():
        reader.close()
    before = read_records(broker, tp)
    broker.restart()
    eventually(lambda: read_records(broker, tp)[-1:] == before[-1:])
    producer.begin_transaction()  # its sequence numbers are known still
    producer.produce(topic, b"after the restart", key=b"end", partition=0)
    producer.commit_transaction(60)
    assert not broker.has_reported_errors()


def test_a_topic_is_compacted_by_the_version_in_a_header(broker):
    """It is made, written out of order, compacted and read, again and again."""
    strategy = {"compaction.strategy": "header", "compaction.strategy.header": "version"}
    servers = broker.address
    with Admin(bootstrap_servers=servers) as admin:
        with pytest.raises(SparklogError, match=r"needs compaction\.strategy\.header"):
            admin.create_topics([NewTopic("nameless", 1, 1, {"compaction.strategy": "header"})])
        admin.create_topics([NewTopic("prices", 1, 1, {"cleanup.policy": "compact", **strategy})])
        _write_versions(
            servers, [("a", "new", 9), ("b", "only", None), ("a", "old", 3), ("a", "none", None), ("c", "x", 1)]
        )
        admin.compact(["prices"])
        tp = TopicPartition("prices", 0)
        assert read_records(broker, tp) == [(0, b"a", b"new"), (1, b"b", b"only"), (4, b"c", b"x")]
        _write_versions(servers, [("c", "older", 0), ("b", "stamped", 0), ("a", "newest", 2**40)])
        admin.compact(["prices"])
        assert read_records(broker, tp) == [(4, b"c", b"x"), (6, b"b", b"stamped"), (7, b"a", b"newest")]


def _write_versions(servers, records):
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for key, value, version in records:
        headers = [] if version is None else [("version", struct.pack(">q", version))]
        producer.produce("prices", value, key=key, headers=headers)
    assert producer.flush(60) == 0


def test_the_offsets_topic_stays_small_under_many_commits(broker, tmp_path, topic):
    make(broker, topic)
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.address, "group.id": topic, "enable.auto.commit": False}
    )
    offsets = TopicPartition("__consumer_offsets", 0)
    for number in range(400):
        reader.commit(offsets=[At(topic, 0, number)], asynchronous=False)
    eventually(lambda: size_of(broker, tmp_path, offsets) < 12_000, what="400 commits of one offset become few")
    broker.restart()
    eventually(lambda: reader.committed([At(topic, 0)], timeout=60)[0].offset == 399)
    reader.close()


def _met_at_work(slow, topic):
    """A log that is being cleaned, what it replays to, and the worker's process."""
    tp = make(slow, topic)
    write(slow, tp, range(200))
    (pid,) = eventually(lambda: workers_of(slow))
    return tp, pid


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_worker_dies_with_its_broker_and_nothing_is_lost(slow, tmp_path, topic, how):
    tp, pid = _met_at_work(slow, topic)
    getattr(slow, how)()
    wait_for_death(pid)
    slow.start()
    table = last_of(range(200))
    eventually(lambda: {key: value for _, key, value in read_records(slow, tp)} == table)
    (again,) = eventually(lambda: workers_of(slow))
    assert again != pid
    assert not files_of(slow, tmp_path, tp, ".swap")


def test_a_worker_that_is_killed_is_followed_by_another(slow, topic):
    tp, pid = _met_at_work(slow, topic)
    os.kill(pid, signal.SIGKILL)
    wait_for_death(pid)
    eventually(lambda: [each for each in workers_of(slow) if each != pid])
    assert {key: value for _, key, value in read_records(slow, tp)} == last_of(range(200))


def test_a_topic_that_is_deleted_and_made_again_meanwhile_is_another(slow, topic):
    tp, _ = _met_at_work(slow, topic)
    with wire.connect(slow.address) as connection:
        assert wire.delete_topic(connection, topic) is ErrorCode.NONE
        eventually(lambda: topic not in wire.topic_names(connection))
    make(slow, topic)
    write(slow, tp, range(1000, 1010))
    assert {key: value for _, key, value in read_records(slow, tp)} == last_of(range(1000, 1010))
    assert "Traceback" not in slow.output()
    other = make(slow, topic + "-other")
    write(slow, other, range(100))
    eventually(lambda: f"Cleaning log {other}" in slow.output(), what="the cleaner lives on")


def test_a_policy_that_changes_meanwhile_ends_the_cleaning(slow, tmp_path, topic):
    tp, pid = _met_at_work(slow, topic)
    before = read_records(slow, tp)
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": slow.address})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)
    eventually(lambda: f"the cleaning of {tp} was given up" in slow.output(), timeout=120)
    wait_for_death(pid)
    eventually(lambda: not files_of(slow, tmp_path, tp, ".cleaned"))
    found = read_records(slow, tp)
    assert found[-1] == before[-1]
    assert {key: value for _, key, value in found} == last_of(range(200))


def test_a_broker_that_is_killed_again_and_again_in_mid_cleaning_loses_nothing(broker, tmp_path, topic):
    tp = make(broker, topic)
    for number in range(4):
        write(broker, tp, range(number * 100, number * 100 + 100))
        broker.kill()
        eventually(lambda: not any(_is_worker_here(path, tmp_path) for path in Path("/proc").glob("[0-9]*/cmdline")))
        broker.start()
        table = last_of(range(number * 100 + 100))
        eventually(lambda table=table: {key: value for _, key, value in read_records(broker, tp)} == table)
    offsets = [each[0] for each in read_records(broker, tp)]
    assert offsets == sorted(set(offsets))


def _is_worker_here(path, tmp_path):
    """Whether it is a worker that is at work under this test's directory."""
    try:
        return b"compaction.worker" in path.read_bytes() and any(
            str(tmp_path) in os.readlink(each) for each in (path.parent / "fd").iterdir()
        )
    except OSError:
        return False
