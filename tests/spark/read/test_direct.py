"""Reading segment files directly: the same rows as by Fetch, and by Fetch wherever there is a doubt."""

import logging
import os
import shutil
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.types import StructType

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.leases import RangeAsked, end_lease, lease_ranges
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.fetch import leased_files
from sparklog.client.consumer.fetch.segment_files import NOT_VISIBLE
from sparklog.errors import ApiError, ConnectionFailed, DataSourceError, ErrorCode
from sparklog.log.checkpoints import write_meta_properties
from sparklog.spark.read import direct, fetch_paths
from sparklog.spark.read.batch_reader import SparklogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration
_ALL = source_schema(include_headers=True)


@pytest.fixture(scope="session")
def servers(cluster):
    """The tests that a real Kafka has a part in say so themselves."""
    return cluster.bootstrap_servers


@pytest.fixture(autouse=True)
def taken(monkeypatch):
    """What the readers of this test did: sums, and nothing said in the log yet."""
    sums = fetch_paths.ReadPathCounters()
    monkeypatch.setattr(fetch_paths, "PROCESS", sums)
    monkeypatch.setattr(fetch_paths, "_logged_reasons", set())
    return sums


@pytest.fixture
def rows(servers):
    """``rows(topic, directRead=...)``: what the reader yields of it, read in this process."""

    def load(topic, schema=_ALL, bootstrap=servers, **options):
        settings = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
        reader = SparklogReader(ReadOptions.for_batch(settings), schema)
        batches = [batch for each in reader.partitions() for batch in reader.read(each)]
        return pa.Table.from_batches(batches).combine_chunks() if batches else None

    return load


@pytest.fixture
def transactions(servers, topic):
    """``with transactions() as producer``: in a transaction, which ``commit`` and ``abort`` of the producer end."""

    @contextmanager
    def begun(name="t"):
        producer = Producer(
            {"bootstrap.servers": servers, "transactional.id": f"{topic}-{name}", "linger.ms": 0, "log_level": 0}
        )
        producer.init_transactions(30)
        yield producer
        producer.flush(30)

    return begun


@pytest.fixture
def altered(monkeypatch, tmp_path):
    """``altered(change)``: the first leased file is a copy that ``change(bytearray)`` has changed, vouched for."""

    def lease(change):
        def leased(*args, **kwargs):
            leases: list[Any] = lease_ranges(*args, **kwargs)
            found, *others = leases
            copy = _log_dir_like(found.files[0], tmp_path)
            data = bytearray(Path(found.files[0].path).read_bytes())
            copy.write_bytes(change(data) or data)
            status = copy.stat()
            first = found.files[0]._replace(path=str(copy), device=status.st_dev, inode=status.st_ino)
            return [found._replace(files=[first, *found.files[1:]]), *others]

        monkeypatch.setattr(direct, "lease_ranges", leased)

    return lease


def _log_dir_like(file, tmp_path):
    """Where a segment file is in another log directory of the same cluster; there is none yet."""
    told = Path(file.path)
    (tmp_path / told.parent.name).mkdir(exist_ok=True)
    (tmp_path / "meta.properties").unlink(missing_ok=True)
    shutil.copy(told.parents[1] / "meta.properties", tmp_path)
    return tmp_path / told.parent.name / told.name


def _compare(rows, topic, **options):
    """The rows of a topic, which both paths agree upon."""
    fetched = rows(topic, directRead="never", **options)
    read = rows(topic, directRead="always", **options)
    assert read == fetched
    return read


def _many(count=500, size=100, **rest):
    return [{"key": b"%d" % n, "value": bytes(size), **rest} for n in range(count)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_same_rows_in_every_compression(rows, make_topic, servers, codec, taken):
    topic = make_topic(partitions=2)
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "log_level": 0})
    for number in range(2000):
        headers = [("h", b"%d" % number), ("none", None)] if number % 3 == 0 else None
        producer.produce(topic, b"value %d" % number, b"%d" % (number % 7), number % 2, headers=headers)
    assert producer.flush(30) == 0
    assert len(_compare(rows, topic)) == 2000
    assert taken.direct_bytes == taken.fetched_bytes > 0


def test_many_segments_and_ranges_cut_out_of_them(rows, make_topic, produce, monkeypatch):
    monkeypatch.setattr(direct, "_FILES_AT_ONCE", 2)
    topic = make_topic(segment_bytes=14_000, retention_ms=-1)
    for _ in range(10):
        produce(topic, *_many(50, 200))
    assert _compare(rows, topic)["offset"].to_pylist() == list(range(500))
    assert _compare(rows, topic, minPartitions="7")["offset"].to_pylist() == list(range(500))
    cut = {"startingOffsets": f'{{"{topic}": {{"0": 33}}}}', "endingOffsets": f'{{"{topic}": {{"0": 401}}}}'}
    assert _compare(rows, topic, **cut)["offset"].to_pylist() == list(range(33, 401))


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(rows, make_topic, produce, transactions, isolation):
    topic = make_topic()
    produce(topic, *_many(3))
    with transactions("a") as one, transactions("b") as other, transactions("open") as undecided:
        for round_ in range(3):
            one.begin_transaction()
            other.begin_transaction()
            for number in range(4):
                one.produce(topic, b"one %d" % number)
                one.flush()
                other.produce(topic, b"other %d" % number)
                other.flush()
            (one.abort_transaction if round_ != 1 else one.commit_transaction)(30)
            (other.commit_transaction if round_ != 1 else other.abort_transaction)(30)
        undecided.begin_transaction()
        undecided.produce(topic, b"undecided")
        undecided.flush()
        produce(topic, *_many(2))
        seen = _compare(rows, topic, **{"kafka.isolation.level": isolation})["value"].to_pylist()
        undecided.abort_transaction(30)
    values = [value.split()[0] for value in seen if not value.startswith(b"\0")]
    if isolation == "read_committed":
        assert sorted(values) == [b"one"] * 4 + [b"other"] * 8
        assert len(seen) == 15
    else:
        assert sorted(values) == [b"one"] * 12 + [b"other"] * 12 + [b"undecided"]
        assert len(seen) == 30


def test_gaps_like_those_of_compaction(rows, make_topic, produce, altered, monkeypatch):
    """The leased file lacks batches in the middle, as one that was compacted before the lease."""
    topic = make_topic()
    for _ in range(3):
        produce(topic, *_many(10))
    size = []

    def without_the_second(data):
        (first, second) = _sizes(data)[:2]
        size.append(second)
        return data[:first] + data[first + second :]

    altered(without_the_second)
    monkeypatch.setattr(direct, "lease_ranges", partial(_shortened, vars(direct)["lease_ranges"], size))
    assert rows(topic, directRead="always")["offset"].to_pylist() == [*range(10), *range(20, 30)]


def _shortened(lease_ranges, size, *args, **kwargs):
    (lease,) = lease_ranges(*args, **kwargs)
    first = lease.files[0]
    return [lease._replace(files=[first._replace(end=first.end - size[0])])]


def _sizes(data):
    sizes, position = [], 0
    while position < len(data):
        sizes.append(int.from_bytes(data[position + 8 : position + 12], "big") + 12)
        position += sizes[-1]
    return sizes


def test_auto_reads_what_it_sees_and_counts_it(rows, make_topic, produce, taken, caplog):
    caplog.set_level(logging.INFO)
    topic = make_topic()
    produce(topic, *_many())
    assert len(rows(topic)) == 500
    assert taken.direct_bytes > 50_000
    assert (taken.fetched_bytes, taken.ranges, taken.fallbacks) == (0, 1, {})
    assert f"read 1 ranges: {taken.direct_bytes} bytes from segment files, 0 bytes by Fetch" in caplog.text


def _cut(data):
    return data[: len(data) // 2]


def _flip(data):
    data[len(data) * 2 // 3] ^= 0xFF


def _other_topic(data):
    data[20:24] = b"\1\2\3\4"


def _other_format(data):
    data[sum(_sizes(data)[:2]) + 16] = 1


@pytest.mark.parametrize("change", [_cut, _flip, _other_topic, _other_format])
def test_a_file_that_is_not_as_it_should_be_is_read_no_further(
    rows, make_topic, produce, altered, taken, caplog, change
):
    topic = make_topic()
    for _ in range(5):
        produce(topic, *_many(20))
    altered(change)
    for _ in range(2):
        read = rows(topic)
        assert read["offset"].to_pylist() == list(range(100))
    assert taken.fetched_bytes > 0
    assert taken.fallbacks == {leased_files.DAMAGED: 2}
    assert caplog.text.count("reading by Fetch where segment files were to be read") == 1
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DIRECT_READ_IMPOSSIBLE.*not as the broker said"):
        rows(topic, directRead="always")


def _gone(file, _tmp_path):
    return file._replace(path=file.path + ".moved")


def _copied(file, tmp_path):
    """The same bytes in a file of another inode, as on another host."""
    return file._replace(path=str(shutil.copy(file.path, _log_dir_like(file, tmp_path))))


def _vouched(file, path):
    """The same file as a false leader tells of it: it is what stands at the path."""
    status = path.stat()
    return file._replace(path=str(path), device=status.st_dev, inode=status.st_ino)


def _elsewhere(file, tmp_path):
    """A file that is sound, in a directory that is no broker's."""
    path = tmp_path / "elsewhere" / Path(file.path).parent.name / Path(file.path).name
    path.parent.mkdir(parents=True, exist_ok=True)
    return _vouched(file, Path(shutil.copy(file.path, path)))


def _of_another_cluster(file, tmp_path):
    path = _log_dir_like(file, tmp_path)
    write_meta_properties(tmp_path, "another", 0)
    return _vouched(file, Path(shutil.copy(file.path, path)))


def _of_a_directory_whose_owner_is_a_pipe(file, tmp_path):
    path = _log_dir_like(file, tmp_path)
    (tmp_path / "meta.properties").unlink()
    os.mkfifo(tmp_path / "meta.properties")
    return _vouched(file, Path(shutil.copy(file.path, path)))


def _of_another_partition(file, tmp_path):
    path = _log_dir_like(file, tmp_path).parents[1] / "other-0" / Path(file.path).name
    path.parent.mkdir(exist_ok=True)
    return _vouched(file, Path(shutil.copy(file.path, path)))


def _no_segment(file, tmp_path):
    path = _log_dir_like(file, tmp_path).with_name("leader-epoch-checkpoint")
    return _vouched(file, Path(shutil.copy(file.path, path)))


def _pipe(file, tmp_path):
    path = _log_dir_like(file, tmp_path)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return _vouched(file, path)


def _link(file, tmp_path):
    path = _log_dir_like(file, tmp_path)
    path.unlink(missing_ok=True)
    path.symlink_to(file.path)
    return _vouched(file, path)


def _up_and_down(file, _tmp_path):
    told = Path(file.path)
    return file._replace(path=f"{told.parent}/../{told.parent.name}/../../{told.name}")


def _in_a_loop(file, tmp_path):
    """Links that lead to one another."""
    told = Path(file.path)
    (tmp_path / "loop").unlink(missing_ok=True)
    (tmp_path / "loop").symlink_to("loop")
    return file._replace(path=str(tmp_path / "loop" / told.parent.name / told.name))


def _no_path(file, _tmp_path):
    return file._replace(path=f"/with\0nul{file.path}")


_FALSE = [
    _elsewhere,
    _of_another_cluster,
    _of_a_directory_whose_owner_is_a_pipe,
    _of_another_partition,
    _no_segment,
    _pipe,
    _link,
    _up_and_down,
    _in_a_loop,
    _no_path,
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("change", [_gone, _copied, *_FALSE])
def test_files_that_are_not_the_brokers_are_not_read(rows, make_topic, produce, monkeypatch, tmp_path, taken, change):
    topic = make_topic(partitions=2)
    produce(topic, *_many(100, partition=0), *_many(100, partition=1))

    asked = []

    def leased(*args, **kwargs):
        found: list[Any] = lease_ranges(*args, **kwargs)
        asked.append(found)
        return [each._replace(files=[change(file, tmp_path) for file in each.files]) for each in found]

    monkeypatch.setattr(direct, "lease_ranges", leased)
    assert len(rows(topic)) == 200
    assert taken.fallbacks == {NOT_VISIBLE: 2}
    assert (taken.direct_bytes, len(asked)) == (0, 1)  # the second partition is the same broker's
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DIRECT_READ_IMPOSSIBLE.*not visible here"):
        rows(topic, directRead="always")


def test_a_mounted_directory_is_read_through_the_mapping(rows, make_topic, produce, metadata, tmp_path, taken):
    topic = make_topic()
    produce(topic, *_many())
    leases: list[Any] = lease_ranges(metadata, [RangeAsked(TopicPartition(topic, 0), 0, 1)], duration_ms=0)
    (told,) = leases
    home = Path(told.files[0].path).parents[1]
    mapping = f"/nowhere=/else, {home}={tmp_path}"
    with pytest.raises(DataSourceError, match=f"{tmp_path}/{topic}-0/.*No such file"):
        rows(topic, directRead="always", directReadMapping=mapping)
    shutil.copytree(home / f"{topic}-0", tmp_path / f"{topic}-0")
    assert len(rows(topic, directRead="always", directReadMapping=mapping)) == 500
    assert taken.direct_bytes > 0
    shutil.copy(
        next(home.glob("__*-0/partition.metadata"), home / f"{topic}-0/00000000000000000000.log"),
        tmp_path / f"{topic}-0" / "partition.metadata",
    )
    with pytest.raises(DataSourceError, match="SPARKLOG_DIRECT_READ_IMPOSSIBLE"):
        rows(topic, directRead="always", directReadMapping=mapping)
    assert len(rows(topic, directReadMapping=mapping)) == 500
    assert taken.fallbacks == {NOT_VISIBLE: 1}


@pytest.mark.parametrize("change", [_link, _pipe])
def test_nothing_is_read_that_leads_out_of_a_mounted_directory(
    rows, make_topic, produce, metadata, tmp_path, taken, change
):
    """The files are where the mapping says, and what stands there is none of the directory."""
    topic = make_topic()
    produce(topic, *_many())
    leases: list[Any] = lease_ranges(metadata, [RangeAsked(TopicPartition(topic, 0), 0, 1)], duration_ms=0)
    (told,) = leases
    home = Path(told.files[0].path).parent
    change(told.files[0], tmp_path)
    shutil.copy(home / "partition.metadata", tmp_path / home.name)
    assert len(rows(topic, directReadMapping=f"{home.parent}={tmp_path}")) == 500
    shutil.rmtree(tmp_path / home.name)
    (tmp_path / home.name).symlink_to(home)
    assert len(rows(topic, directReadMapping=f"{home.parent}={tmp_path}")) == 500
    assert taken.fallbacks == {NOT_VISIBLE: 2}
    assert taken.direct_bytes == 0


@pytest.fixture
def asked(monkeypatch):
    """What is asked of brokers, request by request: for which partitions a lease, or None for the end of one."""
    requests = []

    def lease(cluster, wanted, **kwargs):
        requests.append([each.tp.partition for each in wanted])
        return lease_ranges(cluster, wanted, **kwargs)

    def end(cluster, lease):
        requests.append(None)
        end_lease(cluster, lease)

    monkeypatch.setattr(direct, "lease_ranges", lease)
    monkeypatch.setattr(direct, "end_lease", end)
    return requests


def _open_files():
    """How many segment files this process has open."""
    return sum(each.resolve().name == f"{0:020}.log" for each in Path("/proc/self/fd").iterdir())


def test_the_small_ranges_of_a_task_share_a_lease(rows, make_topic, produce, asked, taken):
    one, other = make_topic(partitions=4, suffix="-1"), make_topic(partitions=3, suffix="-2")
    for topic, count in ((one, 4), (other, 3)):
        produce(topic, *(each for number in range(count) for each in _many(20, partition=number)))
    both = f"{one},{other}"
    assert len(_compare(rows, both)) == 140
    assert asked == [[0, 1, 2, 3, 0, 1, 2], None]
    assert taken.ranges == 14
    assert _open_files() == 0


def test_a_lease_is_for_no_more_files_than_may_be_open(rows, make_topic, produce, asked, monkeypatch):
    monkeypatch.setattr(direct, "_FILES_AT_ONCE", 2)
    topic = make_topic(partitions=5, segment_bytes=14_000, retention_ms=-1)
    for _ in range(2):
        produce(topic, *(each for number in range(5) for each in _many(60, 200, partition=number)))
    assert len(_compare(rows, topic)) == 600
    leases = [each for each in asked if each]
    assert max(map(len, leases)) == 2
    assert {number for each in leases for number in each} == {0, 1, 2, 3, 4}


def test_one_of_several_ranges_that_cannot_be_leased_is_fetched(rows, make_topic, produce, asked, monkeypatch, taken):
    topic = make_topic(partitions=3)
    produce(topic, *(each for number in range(3) for each in _many(20, partition=number)))

    lease = vars(direct)["lease_ranges"]

    def refuse(cluster, wanted, **kwargs):
        refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "its disk fails")
        granted = lease(cluster, wanted, **kwargs)
        return [refusal if asked.tp.partition == 1 else each for asked, each in zip(wanted, granted, strict=True)]

    monkeypatch.setattr(direct, "lease_ranges", refuse)
    assert len(rows(topic)) == 60
    assert asked == [[0, 1, 2], None, [1]]
    assert taken.fallbacks == {leased_files.NO_LEASE: 1}


def test_a_reader_that_is_left_in_the_middle_closes_its_files(make_topic, produce, servers):
    topic = make_topic(partitions=3)
    produce(topic, *(each for number in range(3) for each in _many(20, partition=number)))
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "directRead": "always"}
    reader = SparklogReader(ReadOptions.for_batch(options), _ALL)
    (task,) = reader.partitions()
    batches: Any = reader.read(task)
    with closing(batches):
        assert next(batches).num_rows == 20
        assert _open_files() == 2
    assert _open_files() == 0


def test_a_leader_that_moves_is_looked_for_again(rows, make_topic, produce, monkeypatch, taken):
    """``always`` asks again; ``auto`` leaves that to Fetch."""
    topic = make_topic()
    produce(topic, *_many(10))
    failures = [ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"), ConnectionFailed("gone"), ConnectionFailed("gone")]

    def moved(*args, **kwargs):
        if failures:
            raise failures.pop()
        return lease_ranges(*args, **kwargs)

    monkeypatch.setattr(direct, "lease_ranges", moved)
    assert len(rows(topic, directRead="auto")) == 10
    assert taken.fallbacks == {leased_files.NO_LEASE: 1}
    assert len(rows(topic, directRead="always", **{"kafka.retry.backoff.ms": "1"})) == 10
    assert failures == []
    assert taken.direct_bytes == taken.fetched_bytes > 0


@pytest.mark.parametrize("mode", ["auto", "always"])
def test_offsets_that_are_gone_fail_the_query_either_way(rows, make_topic, produce, metadata, mode):
    topic = make_topic()
    produce(topic, *_many(20))
    start = {
        "startingOffsets": f'{{"{topic}": {{"0": 5}}}}',
        "kafka.bootstrap.servers": metadata.config.bootstrap_servers,
    }
    reader = SparklogReader(ReadOptions.for_batch({"subscribe": topic, "directRead": mode, **start}), _ALL)
    (task,) = reader.partitions()
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": metadata.config.bootstrap_servers})
    (done,) = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 12)]).values()
    assert done.result(30).low_watermark == 12
    with pytest.raises(DataSourceError, match="SPARKLOG_DATA_LOSS"):
        list(reader.read(task))
    lenient = ReadOptions.for_batch({"subscribe": topic, "directRead": mode, "failOnDataLoss": "false", **start})
    (batch,) = SparklogReader(lenient, _ALL).read(task)
    assert batch["offset"].to_pylist() == list(range(12, 20))


def test_a_schema_without_a_column_of_the_log(rows, make_topic, produce):
    topic = make_topic()
    produce(topic, *_many(30))
    schema = StructType([field for field in _ALL if field.name in ("topic", "partition")])
    assert rows(topic, schema, directRead="always").to_pylist() == [{"topic": topic, "partition": 0}] * 30


@pytest.mark.peer
def test_kafka_grants_no_leases(kafka, rows, topic, taken):
    with ClusterMetadata(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
        AdminClient(cluster).create_topics([NewTopic(topic, 2, 1)])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for number in range(20):
        producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(30) == 0
    assert len(rows(topic, bootstrap=kafka.bootstrap_servers)) == 20
    assert taken.fallbacks == {direct.NOT_SERVED: 2}
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DIRECT_READ_IMPOSSIBLE.*grants no leases"):
        rows(topic, bootstrap=kafka.bootstrap_servers, directRead="always")


@pytest.mark.spark
def test_a_query_of_the_session(read, make_topic, produce):
    topic = make_topic(partitions=2)
    produce(topic, *_many(300))
    always = read(subscribe=topic, directRead="always").select("key").collect()
    assert sorted(always) == sorted(read(subscribe=topic, directRead="never").select("key").collect())
    assert len(always) == 300


@pytest.mark.spark
def test_a_stream_of_the_session(spark, servers, make_topic, produce, tmp_path):
    topic = make_topic()
    produce(topic, *_many(50))
    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", servers)
    frame = stream.options(subscribe=topic, startingOffsets="earliest", directRead="always").load()
    writer = frame.select("offset").writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 50
