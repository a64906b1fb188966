"""Kafka's DumpLogSegments reads what our broker has written, and finds nothing wrong."""

import struct

import pytest
from compat.dumped import Dumped, DumpedRecord, by_file, dump
from compat.producers import COMPRESSIONS, PRODUCERS, Sent
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.log.producer_snapshot import read_entries
from sparklog.testing.cluster import ClusterHarness

pytestmark = [pytest.mark.peer, pytest.mark.slow]

SMALL_SEGMENTS = {"segment.bytes": "3000", "index.interval.bytes": "300"}
LARGE_VALUES = {"max.message.bytes": "2000000", "segment.bytes": "3000000"}
LARGE = b"0123456789" * 100_000
# What kafka-python compresses without packages that we do not install.
LACKING = {("kafka-python", "snappy"), ("kafka-python", "lz4")}
CASES = [(name, kind) for name in PRODUCERS for kind in COMPRESSIONS if (name, kind) not in LACKING]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Every topic that some producer has written, with what it sent; and the broker's log directory, after its stop."""
    sent = {}
    with ClusterHarness(tmp_path_factory.mktemp("written")) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        topics = [NewTopic(f"{name}-{kind}", 1, 1, config=SMALL_SEGMENTS) for name, kind in CASES]
        topics += [NewTopic(f"large-{kind}", 1, 1, config=LARGE_VALUES) for kind in COMPRESSIONS]
        for created in admin.create_topics(topics).values():
            created.result(30)
        for name, kind in CASES:
            sent[f"{name}-{kind}"] = PRODUCERS[name](cluster.bootstrap_servers, f"{name}-{kind}", kind)
        for kind in COMPRESSIONS:
            sent[f"large-{kind}"] = large_values(cluster.bootstrap_servers, f"large-{kind}", kind)
        log_dir = cluster.directory.broker(0)
    return sent, log_dir


def large_values(bootstrap, topic, compression):
    sent = [Sent(b"key-%d" % number, LARGE) for number in range(5)]
    settings = {"compression.type": compression, "message.max.bytes": 2_000_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for each in sent:
        producer.produce(topic, each.value, each.key, 0)
    assert producer.flush(30) == 0
    return sent


@pytest.fixture(scope="module")
def dumps(written):
    """Topic to what DumpLogSegments says of each of its segments, in order."""
    sent, log_dir = written
    printed, complaints = dump(sorted(log_dir.glob("*-0/*.log")), "--deep-iteration", "--print-data-log")
    assert complaints == []
    found = by_file(printed)
    segments = {topic: sorted((log_dir / f"{topic}-0").glob("*.log")) for topic in sent}
    return {topic: [found[str(path)] for path in paths] for topic, paths in segments.items()}


def expected(sent: list[Sent], found: list[DumpedRecord]) -> list[DumpedRecord]:
    return [
        DumpedRecord(
            offset, each.timestamp or had.timestamp, each.key, each.value, tuple(name for name, _ in each.headers)
        )
        for offset, (each, had) in enumerate(zip(sent, found, strict=True))
    ]


def all_records(segments: list[Dumped]) -> list[DumpedRecord]:
    return [record for segment in segments for record in segment.records]


@pytest.mark.parametrize(("producer", "compression"), CASES)
def test_it_prints_the_records_that_were_sent(written, dumps, producer, compression):
    segments = dumps[f"{producer}-{compression}"]
    records = all_records(segments)
    assert records == expected(written[0][f"{producer}-{compression}"], records)
    assert len(segments) > 1
    kinds = {batch["compresscodec"] for segment in segments for batch in segment.batches}
    # Producers leave a batch alone that compression would only enlarge.
    assert compression in kinds
    assert kinds <= {compression, "none"}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_it_prints_values_of_a_megabyte(written, dumps, compression):
    records = all_records(dumps[f"large-{compression}"])
    assert records == expected(written[0][f"large-{compression}"], records)


def test_it_finds_every_batch_valid(dumps):
    batches = [batch for segments in dumps.values() for segment in segments for batch in segment.batches]
    assert len(batches) > len(CASES)
    assert {batch["isvalid"] for batch in batches} == {"true"}
    assert {batch["magic"] for batch in batches} == {"2"}
    assert {batch["partitionLeaderEpoch"] for batch in batches} == {"0"}
    complaints = [line for segments in dumps.values() for segment in segments for line in segment.other]
    assert complaints == []


def test_it_reads_the_idempotent_producers_sequences(dumps):
    batches = [batch for segment in dumps["confluent-idempotent-none"] for batch in segment.batches]
    assert {batch["producerEpoch"] for batch in batches} == {"0"}
    assert len({batch["producerId"] for batch in batches}) == 1
    assert int(batches[0]["producerId"]) >= 0
    following = 0
    for batch in batches:
        assert int(batch["baseSequence"]) == following
        following = int(batch["lastSequence"]) + 1


def test_a_flipped_bit_is_noticed(written, tmp_path):
    damaged = tmp_path / "00000000000000000000.log"
    data = bytearray((written[1] / "confluent-none-0" / damaged.name).read_bytes())
    data[80] ^= 1
    damaged.write_bytes(data)
    (found,) = by_file(dump([damaged])[0]).values()
    assert found.batches[0]["isvalid"] == "false"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_indexes_pass_its_sanity_check(written, suffix):
    indexes = sorted(written[1].glob(f"*-0/*{suffix}"))
    printed, complaints = dump(indexes, "--index-sanity-check")
    assert complaints == []
    # A segment of one batch has no entry in its offset index, here as in Kafka.
    empty = [path for path in indexes if path.stat().st_size == 0]
    said = [f"{path} {'is empty' if path in empty else 'passed sanity check'}." for path in indexes]
    assert [line for line in printed.splitlines() if not line.startswith("Dumping ")] == said
    assert len(empty) < len(indexes) / 2


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_indexes_agree_with_the_log(written, suffix):
    indexes = [path for path in sorted(written[1].glob(f"*-0/*{suffix}")) if path.stat().st_size]
    printed, complaints = dump(indexes, "--verify-index-only")
    assert complaints == []
    assert printed.splitlines() == [f"Dumping {path}" for path in indexes]


def test_a_wrong_index_entry_is_noticed(written, tmp_path):
    for path in (written[1] / "confluent-none-0").glob("00000000000000000000.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    index = tmp_path / "00000000000000000000.index"
    relative, position = struct.unpack_from(">ii", index.read_bytes())
    index.write_bytes(struct.pack(">ii", relative + 1, position))
    _, complaints = dump([index], "--verify-index-only")
    assert complaints[0] == f"Mismatches in :{index}"


def test_it_reads_the_producer_snapshots(written):
    snapshots = sorted((written[1] / "confluent-idempotent-none-0").glob("*.snapshot"))
    assert snapshots
    printed, complaints = dump(snapshots)
    assert complaints == []
    entries = sum(len(read_entries(path)) for path in snapshots)
    assert printed.count("producerId: ") == printed.count("lastSequence: ") == entries > len(snapshots)
