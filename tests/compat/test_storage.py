"""What our log wrote to the disk, served by a real Kafka; what that made of it, opened by us again.

A log directory with everything that a log can hold is written once, by ``LogManager``. Kafka is started on it as a
clean stop left it, as a crash left it, and without any of the files that can be made again from the ``.log`` files.
"""

import itertools
import re
import shutil
import struct
from collections import defaultdict
from concurrent.futures import Executor, Future
from typing import NamedTuple
from uuid import UUID

import crc32c
import pytest
from compat.dumped import dump
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from integration import wire
from kazoo.client import KazooClient
from log.inspection.damage import problems
from log.samples import write_cleaned

from sparklog.clock import SystemClock
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ErrorCode
from sparklog.log.directories.manager import LogManager
from sparklog.log.origin import AppendOrigin
from sparklog.record import layout
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition as Partition
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker
from sparklog.zk import znodes
from sparklog.zk.znodes import PartitionState, TopicAssignment

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
TOPICS = ("epochs", "transactions", "gaps", "started", "idempotent")
SETTINGS = {"segment.bytes": "4000", "index.interval.bytes": "300", "retention.ms": "-1"}
CLUSTER = "a-cluster-of-the-tests"
NEXT_EPOCH = 20
"""The leader epoch that is due when Kafka takes over: beyond all that were written."""
AN_HOUR_MS = 3_600_000
SUFFIXES = (".index", ".timeindex", ".txnindex")
REMAKABLE = (*SUFFIXES, ".snapshot", "leader-epoch-checkpoint", "recovery-point-offset-checkpoint")


class Kept(NamedTuple):
    """A record that is in the log; one that was not committed is for read_uncommitted only."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    committed: bool = True


class AtOnce(Executor):
    """Does what is submitted before it returns."""

    def submit(self, call, /, *args, **kwargs):
        call(*args)
        return Future()


def records_of(first_timestamp, count):
    """Of all shapes: nulls, empties, headers, times that fall."""
    shapes = [
        (b"key", b"value %d" % first_timestamp, ()),
        (None, b"no key" * 5, ()),
        (b"tombstone", None, ()),
        (b"", b"", (("a", b"1"), ("null", None), ("a", b""))),
        (b"long", b"x" * 200, ()),
    ]
    return [
        (first_timestamp - number, *shape)
        for number, shape in zip(range(count), itertools.cycle(shapes[first_timestamp % 5 :] + shapes), strict=False)
    ]


class Writer:
    """Fills one partition, and keeps what it wrote."""

    def __init__(self, logs, topic, now_ms):
        self.tp = Partition(topic, 0)
        self.log = logs.get_or_create(self.tp, parse(TopicConfig, SETTINGS), topic_id(topic))
        self.kept = []
        self._time = now_ms - AN_HOUR_MS
        self._open = defaultdict(list)
        self._sequences = defaultdict(int)
        self._numbers = itertools.count()

    def write(self, *, epoch=0, count=None, producer=None, transactional=False):
        number = next(self._numbers)
        header = {}
        if producer is not None:
            header = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            header |= {"base_sequence": self._sequences[producer], "is_transactional": transactional}
        builder = RecordBatchBuilder(compression=CompressionType(number % 5), **header)
        self._time += 10
        records = records_of(self._time, count or 1 + number % 4)
        for record in records:
            builder.append(*record)
        if producer is not None:
            self._sequences[producer] += len(records)
        origin = AppendOrigin.COORDINATOR if transactional else AppendOrigin.CLIENT
        first = self.log.append_as_leader(memoryview(bytearray(builder.build())), epoch, origin).first_offset
        kept = [Kept(offset, *record) for offset, record in enumerate(records, first)]
        (self._open[producer.producer_id] if transactional else self.kept).extend(kept)

    def end(self, producer, kind, *, epoch=0):
        self._time += 10
        marker = build_marker(EndTransactionMarker(kind, 3), producer, self._time)
        self.log.append_as_leader(memoryview(bytearray(marker)), epoch, AppendOrigin.COORDINATOR)
        ended = self._open.pop(producer.producer_id)
        self.kept += ended if kind is COMMIT else [each._replace(committed=False) for each in ended]


def topic_id(topic):
    return UUID(int=1000 + TOPICS.index(topic), version=4)


def write_epochs(logs, now_ms):
    """Every compression, and leader epochs of which some wrote nothing."""
    writer = Writer(logs, "epochs", now_ms)
    for number in range(150):
        writer.write(epoch=number // 20 * 2)
    return writer.kept


def write_transactions(logs, now_ms):
    """Four producers' transactions, one inside another, over many segments; one is open for long, and then fenced."""
    writer = Writer(logs, "transactions", now_ms)
    slow, *others = (ProducerIdAndEpoch(100 + number, number) for number in range(4))
    writer.write(producer=slow, transactional=True)
    for number in range(40):
        epoch = number // 10
        for producer in others:
            writer.write(producer=producer, transactional=True, epoch=epoch)
        writer.write(epoch=epoch)
        for place, producer in enumerate(others):
            if (number + place) % 3 == 0:
                writer.end(producer, ABORT if (number + place) % 2 else COMMIT, epoch=epoch)
        if number == 25:
            writer.end(ProducerIdAndEpoch(slow.producer_id, slow.epoch + 1), ABORT, epoch=epoch)
    for producer in others:
        writer.write(producer=producer, transactional=True, epoch=4)
        writer.end(producer, COMMIT, epoch=4)
    return sorted(writer.kept)


def write_gaps(logs, now_ms):
    """As compaction leaves a log: batches are missing, and records inside batches; segments became one, or empty."""
    writer = Writer(logs, "gaps", now_ms)
    while writer.log.segment_count < 7:
        writer.write(count=4)
    log, kept = writer.log, {each.offset: each for each in writer.kept}
    bases = list(log._segments.bases)
    for new, old in ((bases[:1], bases[:2]), (bases[2:3], bases[2:3]), (bases[3:4], bases[3:5])):
        end = bases[bases.index(old[-1]) + 1]
        batches = [each for each in iter_batches(whole(log)) if old[0] <= each.base_offset < end]
        survivors = [thinned(batch) for batch in batches[1::3]] if new != bases[2:3] else []
        for offset in range(old[0], end):
            if not any(offset in (each.offset for each in iter_records(batch)) for batch in survivors):
                del kept[offset]
        write_cleaned(log.directory, new[0], [bytes(batch.buffer) for batch in survivors], log.config)
        for path in log.replace_segments(new, old):
            path.unlink()
    return list(kept.values())


def thinned(batch):
    """The batch without its second and its last record; its first and last offsets stay, as compaction leaves them."""
    builder = RecordBatchBuilder(base_offset=batch.base_offset, partition_leader_epoch=batch.partition_leader_epoch)
    for number, record in enumerate(iter_records(batch)):
        if number in (0, 2):
            builder.append(record.timestamp, record.key, record.value, record.headers)
        else:
            builder.record_count += 1  # an offset that nobody has
    data = bytearray(builder.build())
    struct.pack_into(">i", data, layout.RECORD_COUNT, 2)
    layout.UINT32.pack_into(data, layout.CRC, crc32c.crc32c(bytes(data[layout.ATTRIBUTES :])))
    (made,) = iter_batches(data)
    return made


def write_started(logs, now_ms):
    """The beginning was given up: whole segments, and a part of the first that is left."""
    writer = Writer(logs, "started", now_ms)
    for number in range(100):
        writer.write(epoch=number // 30)
    start = writer.log._segments.bases[3] + 5
    logs.advance_start(writer.tp, start)
    for _, write in logs.checkpoints():
        write()
    logs.delete_old_segments(writer.tp, writer.log.log_end_offset)
    assert writer.log._segments.first.base_offset < start
    return [each for each in writer.kept if each.offset >= start]


PRODUCERS = [ProducerIdAndEpoch(7000 + number, number) for number in range(3)]


def write_idempotent(logs, now_ms):
    """Three idempotent producers, the last batch of each of two records."""
    writer = Writer(logs, "idempotent", now_ms)
    for _ in range(40):
        for producer in PRODUCERS:
            writer.write(producer=producer)
    for producer in PRODUCERS:
        writer.write(producer=producer, count=2)
    return writer.kept, {producer: writer._sequences[producer] for producer in PRODUCERS}


def whole(log):
    return b"".join(map(bytes, log.read_all(1 << 20)))


class Stored(NamedTuple):
    """A log directory that we wrote, in two states, and what is in it."""

    zookeeper: str
    clean: object
    crashed: object
    kept: dict[str, list[Kept]]
    sequences: dict[ProducerIdAndEpoch, int]


@pytest.fixture(scope="module")
def stored(zookeeper, tmp_path_factory):
    home = tmp_path_factory.mktemp("stored")
    logs = open_logs(home / "clean")
    now_ms = SystemClock().now_ms()
    kept = {"epochs": write_epochs(logs, now_ms), "transactions": write_transactions(logs, now_ms)}
    logs.checkpoint()  # a crash finds some recovery points in the middle of the log, and others at its start
    kept |= {"gaps": write_gaps(logs, now_ms), "started": write_started(logs, now_ms)}
    kept["idempotent"], sequences = write_idempotent(logs, now_ms)
    shutil.copytree(home / "clean", home / "crashed")
    logs.close()
    return Stored(zookeeper.connect_string, home / "clean", home / "crashed", kept, sequences)


def open_logs(directory):
    logs = LogManager([directory], parse(TopicConfig, SETTINGS), SystemClock(), AtOnce())
    logs.own(CLUSTER, 0)
    logs.load(dict.fromkeys(TOPICS, parse(TopicConfig, SETTINGS)))
    return logs


@pytest.mark.parametrize("suffix", [".log", *SUFFIXES, ".snapshot"])
def test_dump_log_segments_finds_nothing_wrong(stored, suffix):
    files = sorted(stored.clean.glob(f"*-0/*{suffix}"))
    assert len(files) > 5
    options = {".log": ["--deep-iteration", "--print-data-log"], ".txnindex": [], ".snapshot": []}
    printed, complaints = dump(files, *options.get(suffix, ["--index-sanity-check"]))
    assert [line for line in complaints if not of_a_gap(line)] == []
    assert printed.count("Dumping ") == len(files)
    assert "isvalid: false" not in printed
    if suffix in (".index", ".timeindex"):
        assert printed.count("passed sanity check.") > len(files) / 2
        assert dump([path for path in files if path.stat().st_size], "--verify-index-only")[1] == []


def of_a_gap(complaint):
    """What it says of every log that was compacted, Kafka's own not excepted."""
    return "/gaps-0/" in complaint or re.fullmatch(r"\s*\d+ is followed by \d+", complaint) is not None


def scenario(stored, state, into):
    """A copy of the directory as ``state`` says, for Kafka to be started on."""
    source = stored.clean if state == "clean" else stored.crashed
    directory = into / "logs"
    shutil.copytree(source, directory)
    (directory / ".lock").unlink()
    if state == "bare":
        for path in directory.rglob("*"):
            if path.name.endswith(REMAKABLE):
                path.unlink()
    return directory


@pytest.fixture
def kafka_on(stored, tmp_path, request):
    """Starts Kafka on a directory, with znodes that know its topics."""
    chroot = f"{stored.zookeeper}/{request.node.callspec.params['state']}-storage"
    describe_topics(chroot)
    running = []

    def start(directory):
        quiet = {"log.retention.check.interval.ms": AN_HOUR_MS, "log.cleaner.enable": "false"}
        kafka = KafkaBroker(tmp_path / "kafka", chroot, extra_props={"log.dirs": directory, **quiet})
        running.append(kafka)
        kafka.start()
        await_leaders(kafka.bootstrap_servers)
        return kafka

    yield start
    for kafka in running:
        kafka.kill()


def describe_topics(chroot):
    """The znodes that the brokers before Kafka left: the topics, and a leader epoch beyond all that were written."""
    hosts, _, root = chroot.partition("/")
    content = {znodes.CLUSTER_ID: znodes.encode_cluster_id(CLUSTER)}
    for topic in TOPICS:
        state = PartitionState(0, NEXT_EPOCH, (0,), 0)
        content[znodes.topic_path(topic)] = znodes.encode_topic(TopicAssignment(topic, {0: (0,)}, topic_id(topic)))
        content[znodes.topic_config_path(topic)] = znodes.encode_config(SETTINGS)
        content[znodes.partition_state_path(Partition(topic, 0))] = znodes.encode_partition_state(state)
    zk = KazooClient(hosts=hosts)
    zk.start()
    for path, data in content.items():
        zk.create(f"/{root}{path}", data, makepath=True)
    zk.stop()
    zk.close()


def await_leaders(bootstrap):
    def ready():
        found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=10)
        leaders = [each.leader for topic in found.topics.values() for each in topic.partitions.values()]
        return found.controller_id == 0 and set(leaders) == {0} and set(TOPICS) <= set(found.topics)

    eventually(ready, 60, "Kafka to lead every partition")


@pytest.mark.parametrize("state", ["clean", "crashed", "bare"])
def test_kafka_serves_what_we_wrote_and_we_what_kafka_adds(stored, kafka_on, state, tmp_path):
    directory = scenario(stored, state, tmp_path)
    kafka = kafka_on(directory)
    for topic, kept in stored.kept.items():
        assert consumed(kafka, topic, "read_uncommitted") == [each._replace(committed=True) for each in kept]
        assert consumed(kafka, topic, "read_committed") == [each for each in kept if each.committed]
    kept = {topic: list(kept) for topic, kept in stored.kept.items()}
    kept["idempotent"] += continue_sequences(kafka, stored)
    kept["epochs"] += produce(kafka, "epochs")
    kept["transactions"] += produce_transactions(kafka)
    if state == "crashed":
        kafka.kill()
    else:
        kafka.stop()
    assert_remade_alike(stored, directory)
    untouched = {topic: len(records) for topic, records in stored.kept.items()}
    assert_ours_opens(directory, kept, untouched, is_clean=state != "crashed")


def consumed(kafka, topic, isolation):
    """Every record that a consumer of librdkafka gets."""
    settings = {"group.id": "none", "enable.partition.eof": True, "auto.offset.reset": "error", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": isolation, **settings})
    start, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)
    consumer.assign([TopicPartition(topic, 0, start)])
    found = []
    while True:
        message = consumer.poll(20)
        assert message is not None, f"nothing after {len(found)} records of {topic}"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return found
        headers = tuple(message.headers() or ())
        found.append(Kept(message.offset(), message.timestamp()[1], message.key(), message.value(), headers))


def end_of(kafka, topic, isolation="read_uncommitted"):
    """How far a consumer may see."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": isolation, "group.id": "none"}
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)
    consumer.close()
    return end


def continue_sequences(kafka, stored):
    """Our producers go on where they were: what they repeat is known, what they leave out is noticed."""
    tp, added = Partition("idempotent", 0), []
    with wire.connect(kafka.bootstrap_servers) as connection:
        for producer, due in stored.sequences.items():

            def send(*values, sequence, producer=producer):
                header = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
                return wire.produce(connection, tp, wire.batch_of(*values, base_sequence=sequence, **header))[:2]

            last = stored.kept["idempotent"][2 * (PRODUCERS.index(producer) - len(PRODUCERS))]
            assert send(b"again", b"again", sequence=due - 2) == (ErrorCode.NONE, last.offset)
            assert send(b"too far", sequence=due + 1)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            code, offset = send(b"next", sequence=due)
            assert code is ErrorCode.NONE
            added.append(Kept(offset, wire.FIRST_TIMESTAMP, b"k", b"next"))
    return added


def produce(kafka, topic):
    """Enough for Kafka to roll a few segments."""
    delivered = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "log_level": 0})
    for number in range(60):
        producer.produce(topic, b"of Kafka" * 20, b"%d" % number, 0, callback=lambda _, sent: delivered.append(sent))
        assert producer.flush(30) == 0
    return [Kept(each.offset(), each.timestamp()[1], each.key(), each.value()) for each in delivered]


def produce_transactions(kafka):
    """One that Kafka commits, one that it aborts."""
    delivered = []
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "of-kafka", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(60)
    for committed in (True, False, True):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(
                "transactions",
                b"of Kafka",
                b"%d" % number,
                0,
                callback=lambda _, sent, committed=committed: delivered.append((sent, committed)),
            )
        assert producer.flush(30) == 0
        (producer.commit_transaction if committed else producer.abort_transaction)(60)
    # It is done when its markers are written, which comes after the answer.
    eventually(lambda: end_of(kafka, "transactions", "read_committed") == end_of(kafka, "transactions"), 30)
    return [
        Kept(each.offset(), each.timestamp()[1], each.key(), each.value(), (), committed)
        for each, committed in delivered
    ]


def assert_remade_alike(stored, directory):
    """Each index of a full segment is the same as ours, whether Kafka made it again or left it."""
    compared = defaultdict(int)
    for topic, suffix in itertools.product(TOPICS, SUFFIXES):
        for ours in sorted((stored.clean / f"{topic}-0").glob(f"*{suffix}"))[:-1]:
            theirs = directory / f"{topic}-0" / ours.name
            if theirs.exists():
                assert theirs.read_bytes() == ours.read_bytes(), theirs
                compared[suffix] += 1
    assert min(compared[suffix] for suffix in SUFFIXES) > 5


def assert_ours_opens(directory, kept, untouched, *, is_clean):
    """We read all that was there and all that Kafka added, and find nothing amiss."""
    if is_clean:
        assert problems(directory) == []
    logs = open_logs(directory)
    assert logs.unusable == {}
    if is_clean:
        assert sum(log.scanned_bytes for log in logs.logs.values()) == 0
    for topic, expected in kept.items():
        log = logs.logs[Partition(topic, 0)]
        log.on_high_watermark(log.log_end_offset)
        assert log.first_unstable_offset is None
        assert log.epochs.latest.epoch == NEXT_EPOCH or len(expected) == untouched[topic]
        assert read_by_us(log) == expected
    logs.close()
    assert problems(directory) == []


def read_by_us(log):
    """Every record from the start of the log on, and whether a read_committed reader may see it."""
    aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    found = []
    for batch in iter_batches(whole(log)):
        if batch.is_control:
            continue
        hidden = any(
            each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset < each.last_offset
            for each in aborted
        )
        found += [
            Kept(each.offset, each.timestamp, each.key, each.value, tuple(each.headers), not hidden)
            for each in iter_records(batch)
            if each.offset >= log.log_start_offset
        ]
    return found
