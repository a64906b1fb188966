"""Offloads to files: what is there is what the log has, once, and every commit counts whole or not at all."""

import errno
import itertools
import json
import os
import random
import re
from contextlib import closing, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from spark.batch.offloaded import bytes_in_files, log_bytes

from sparklog.client import Producer
from sparklog.errors import ConfigError, DataSourceError
from sparklog.log.stopped import stopped_partitions
from sparklog.record.records import iter_batches
from sparklog.spark.batch import offload
from sparklog.spark.batch.offload import Offload, OffloadOptions, run
from sparklog.spark.batch.offload_groups import OffloadGroups
from sparklog.spark.batch.unattended import passes
from sparklog.spark.lake.destination import Overtaken
from sparklog.spark.lake.places import file_tasks
from sparklog.spark.lake.places.file_manifest import FileManifests, read_manifest
from sparklog.spark.lake.places.file_place import FilesDestination, FilesTarget
from sparklog.spark.lake.places.file_tasks import FileRanges, WriteParquet, WriteSegments
from sparklog.spark.read.offsets import OffsetRange
from sparklog.storage import local
from sparklog.storage.local import LocalDirectory
from sparklog.storage.place import open_place
from sparklog.storage.segment_file import read_segment
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.files import FaultyFiles

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(900)]
ROOM = ("write", "pwrite", "mkdir", "open")
"""The steps that need some."""
COLUMNS = ["partition", "offset", "key", "value", "timestamp"]


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "files")


@pytest.fixture
def options(cluster, uri):
    def chosen(topic, **more):
        own = {name: more.pop(name) for name in ("format", "compression", "file_bytes") if name in more}
        return OffloadOptions(cluster.bootstrap_servers, (topic,), FilesTarget(more.pop("uri", uri), **own), **more)

    return chosen


@pytest.fixture
def send(cluster):
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:

        def sent(topic, count, partitions=2):
            for number in range(count):
                producer.send(topic, b"value %d" % number, key=b"%d" % number, partition=number % partitions)
            producer.flush()

        yield sent


@pytest.fixture
def in_this_process(monkeypatch):
    """Tasks run here, without Spark's workers: it is the place that is tested."""
    monkeypatch.setattr(offload, "run_in_workers", lambda _, tasks, begin, **__: [begin()(task) for task in tasks])


def in_log(spark, cluster, topic):
    settings = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    frame = spark.read.format("sparklog").options(**settings).option("kafka.isolation.level", "read_committed").load()
    return sorted(map(tuple, frame.select(*COLUMNS).collect()))


def in_files(spark, uri):
    frame = spark.read.parquet(*read_manifest(uri).paths)
    return sorted(map(tuple, frame.select(*COLUMNS).collect()))


def test_parquet_has_what_the_log_has(spark, interpreted, cluster, uri, options, make, send):
    name = make()
    send(name, 100)
    (first,) = run(spark, options(name))
    assert (first.version, first.records) == (0, 100)
    send(name, 30)
    (second,) = run(spark, options(name))
    assert (second.version, second.records, second.behind) == (1, 30, 0)
    assert run(spark, options(name)) == []
    assert in_files(spark, uri) == in_log(spark, cluster, name)
    found = read_manifest(uri)
    assert found.offsets == {TopicPartition(name, number): 65 for number in range(2)}
    for each, path in zip(found.files, found.paths, strict=True):
        metadata = pq.read_metadata(path)
        assert (metadata.num_rows, os.path.getsize(path)) == (each.rows, each.nbytes)
        assert each.rows == each.end - each.start


def test_segments_have_the_logs_bytes(spark, in_this_process, cluster, uri, options, make, send):
    name = make()
    tps = [TopicPartition(name, number) for number in range(2)]
    for _ in range(10):
        send(name, 20)
    chosen = options(name, format="segments", task_bytes=700, commit_bytes=2500, file_bytes=600)
    commits = run(spark, chosen)
    assert len(commits) > 1
    for tp in tps:
        assert bytes_in_files(uri, tp) == log_bytes(cluster, tp)
    place = open_place(uri)
    for each in read_manifest(uri).files:
        assert read_segment(place, each.path, each.start).sha256 == each.sha256
    directory = open_place(uri).list("segments").directories[0]
    assert set(stopped_partitions(Path(uri, "segments", directory))) <= set(tps)


def test_a_record_may_have_any_time(cluster, uri, options, make):
    """Some programs give nanoseconds for milliseconds."""
    tp = TopicPartition(make(1), 0)
    times = [1_790_000_000_000_000_000, 2**63 - 1, 5]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for each in times:
            producer.send(tp.topic, b"v", partition=0, timestamp=each)
            producer.flush()
    ranges = FileRanges(options(tp.topic).reading(), (OffsetRange(tp, 0, len(times)),), uri, 1 << 20)
    assert WriteParquet(ranges, "snappy").run().rows == len(times)
    assert WriteSegments(ranges, frozenset([tp])).run().rows == len(times)


def test_transactions_are_as_they_ended(spark, in_this_process, interpreted, cluster, tmp_path, options, make):
    """Parquet has what was committed; segments have all, with the markers, and nothing that is undecided."""
    name, raw = make(1), str(tmp_path / "raw")
    tp = TopicPartition(name, 0)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            producer.send(name, b"%d" % commit, key=b"k")
            producer.flush()
            (producer.commit_transaction if commit else producer.abort_transaction)()
        decided = log_bytes(cluster, tp)
        producer.begin_transaction()
        producer.send(name, b"open", key=b"k")
        producer.flush()
        run(spark, options(name))
        run(spark, options(name, uri=raw, format="segments"))
        assert [row[3] for row in in_files(spark, str(tmp_path / "files"))] == [b"1"]
        assert bytes_in_files(raw, tp) == decided
        assert [each.is_control for each in iter_batches(decided)] == [False, True, False, True]
        producer.abort_transaction()


def test_of_two_jobs_one_wins(spark, in_this_process, uri, options, make, send, monkeypatch):
    name = make()
    send(name, 10)
    put, rival = FilesDestination.put, []

    def overtaken(destination, *arguments):
        if not rival:
            rival.append(None)
            rival.extend(run(spark, options(name)))
        put(destination, *arguments)

    monkeypatch.setattr(FilesDestination, "put", overtaken)
    with pytest.raises(Overtaken, match="SPARKLOG_OVERTAKEN"):
        run(spark, options(name))
    assert sum(each.rows for each in read_manifest(uri).files) == 10
    assert len(list(open_place(uri).list(f"data/{name}/0").files)) == 1  # the loser has removed its own


def test_what_does_not_suit_is_refused(spark, in_this_process, uri, tmp_path, options, make, send):
    name, other = make(), make(suffix="-other")
    send(name, 4)
    send(other, 4)
    run(spark, options(name))
    for wrong, said in (
        (options(other), f"it has topic {name}, not {other}"),
        (options(name, format="segments"), "its files are parquet, not segments"),
    ):
        with pytest.raises(DataSourceError, match=said):
            run(spark, wrong)
    run(spark, options(other, add_topics=True))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    with pytest.raises(DataSourceError, match="it has other files, such as mine"):
        run(spark, options(name, uri=str(tmp_path / "full")))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataSourceError, match="SPARKLOG_TABLE_NOT_WRITTEN"):
        run(spark, options(name, uri=str(tmp_path / "file")))
    manifest = tmp_path / "files" / "_manifests" / f"{0:020d}.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"sha256": "0"}))
    (tmp_path / "files" / "_manifests" / f"{1:020d}.json").unlink()
    with pytest.raises(DataSourceError, match="its checksum is another one"):
        run(spark, options(name))


def test_brokers_are_told_of_a_commit_once_its_name_is_on_the_disk(
    spark, in_this_process, uri, options, make, send, monkeypatch
):
    """Of one whose job could not make sure of that too: the next one sees it, and brokers delete what they are told."""
    name = make()
    send(name, 6)
    synced, told = [], []
    monkeypatch.setattr(OffloadGroups, "commit", lambda *given: told.append((given[1], list(synced))))
    with monkeypatch.context() as failing:
        failing.setattr(LocalDirectory, "make_durable", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "lost")))
        for _ in range(2):
            with pytest.raises(DataSourceError, match="SPARKLOG_TABLE_NOT_WRITTEN") as error:
                run(spark, options(name))
            assert passes(error.value)
    ends = {TopicPartition(name, number): 3 for number in range(2)}
    assert [at for at, _ in told] == [dict.fromkeys(ends, 0)]
    monkeypatch.setattr(local, "sync_directory", synced.append)
    run(spark, options(name))
    assert told[1:] == [(ends, [Path(uri) / "_manifests"])]


@pytest.mark.parametrize("kind", ["parquet", "segments"])
def test_a_task_that_fails_in_its_second_range_leaves_no_file_of_its_first(
    spark, in_this_process, cluster, uri, options, make, send, monkeypatch, kind
):
    name = make(2)
    send(name, 10)
    read = {each: getattr(file_tasks, each) for each in ("read_ranges", "fetch_everything")}

    def of_one_partition(which):
        def act(*given):
            tp = given[1] if which == "fetch_everything" else given[2][0].tp
            if tp.partition == 1:
                raise OSError("the disk is away")
            return read[which](*given)

        return act

    for each in read:
        monkeypatch.setattr(file_tasks, each, of_one_partition(each))
    with pytest.raises(DataSourceError, match=r"SPARKLOG_TABLE_NOT_WRITTEN.*the disk is away"):
        run(spark, options(name, format=kind))
    assert [path for path in Path(uri).rglob("*") if path.suffix in (".parquet", ".log", ".part")] == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"format": "csv"}, DataSourceError),
        ({"compression": "brotli"}, DataSourceError),
        ({"uri": "s3://bucket/a"}, ConfigError),
    ],
)
def test_values_that_there_are_not_are_refused(spark, options, wrong, error):
    with pytest.raises(error):
        Offload(spark, options("clicks", **wrong))


@pytest.mark.parametrize("kind", [pytest.param("parquet", marks=pytest.mark.slow), "segments"])
def test_a_place_without_room(spark, in_this_process, interpreted, cluster, uri, options, make, send, kind):
    """Whatever there is no room for, the place is as it was; and whole when there is room."""
    name = make()
    send(name, 10)
    chosen = options(name, format=kind)
    run(spark, chosen)
    before, failures = read_manifest(uri), []
    send(name, 10)
    for step in itertools.count():
        with FaultyFiles(Path(uri), fail_at=step, error=errno.ENOSPC, lasting=True, half=True, steps=ROOM):
            try:
                run(spark, chosen)
                break
            except DataSourceError as error:
                failures.append(str(error))
        assert read_manifest(uri) == before
        assert [*Path(uri).glob("[!_]*/**/*.part")] == []
    assert step > 3
    assert all(re.match(r"\[SPARKLOG_TABLE_NOT_WRITTEN\] .*No space left on device", each) for each in failures)
    if kind == "parquet":
        assert in_files(spark, uri) == in_log(spark, cluster, name)
    else:
        for tp in (TopicPartition(name, number) for number in range(2)):
            assert bytes_in_files(uri, tp) == log_bytes(cluster, tp)


@pytest.mark.parametrize("kind", ["parquet", "segments"])
def test_a_damaged_batch_of_the_log_is_not_taken(spark, in_this_process, tmp_path, uri, kind):
    """Neither it, nor what is behind it, nor what comes before it in the commit."""
    with ClusterHarness(tmp_path / "cluster") as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(3):
                producer.send("clicks", b"value %d" % number, partition=0).result()
        (log,) = (cluster.directory.broker(0) / "clicks-0").glob("*.log")
        damaged = log.read_bytes().index(b"value 1")
        with log.open("r+b") as file:  # in place, for the broker has it open
            file.seek(damaged)
            file.write(b"w")
        with pytest.raises(DataSourceError, match="CRC"):
            run(spark, OffloadOptions(cluster.bootstrap_servers, ("clicks",), FilesTarget(uri, kind)))
    assert read_manifest(uri).files == ()
    assert [path for path in Path(uri).rglob("*") if path.suffix in (".parquet", ".log", ".part")] == []


class Died(Exception):
    """The job is dead: nothing more is done in its name."""


STEPS = ("nothing written", "some written", "all written", "committed")
_PUT = FileManifests.put


class Job:
    """One job at a time of several; ``dies_at`` is where it ends, None for one that does not."""

    def __init__(self, spark, options, dies_at=None, meanwhile=lambda: None):
        self._dies_at = dies_at
        self._meanwhile = meanwhile
        self._offload = Offload(spark, options)

    def run(self):
        """Offload once, as far as that goes."""

        def committed(manifests, number, manifest):
            self._die_at("all written")
            is_put = _PUT(manifests, number, manifest)
            self._die_at("committed")
            return is_put

        with pytest.MonkeyPatch.context() as patch, closing(self._offload), suppress(Died):
            patch.setattr(offload, "run_in_workers", self._run_tasks)
            patch.setattr(FileManifests, "put", committed)
            list(self._offload.commits())

    def _run_tasks(self, _, tasks, begin, **__):
        self._die_at("nothing written")
        outcomes = []
        for task in tasks:
            outcomes.append(begin()(task))
            begin()(task)  # an attempt that Spark made twice
            self._die_at("some written")
        self._meanwhile()
        return outcomes

    def _die_at(self, step):
        if step == self._dies_at:
            raise Died


@pytest.mark.parametrize("kind", ["parquet", "segments"])
@pytest.mark.parametrize(
    ("seed", "rounds"), [(0, 3), *(pytest.param(each, 8, marks=pytest.mark.slow) for each in range(50))]
)
def test_every_record_is_there_once_whatever_dies(spark, interpreted, cluster, uri, options, make, kind, seed, rounds):
    name = make(2)
    _offload_and_die(spark, cluster, options, name, uri, kind, seed, rounds)
    if kind == "parquet":
        assert in_files(spark, uri) == in_log(spark, cluster, name)
    else:
        for tp in (TopicPartition(name, number) for number in range(2)):
            assert bytes_in_files(uri, tp) == log_bytes(cluster, tp)


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["parquet", "segments"])
@pytest.mark.parametrize("seed", range(3))
def test_every_record_is_there_once_in_hdfs_whatever_dies(spark, interpreted, hdfs, cluster, options, make, kind, seed):
    name = make(2)
    uri = f"{hdfs.uri}/deaths/{name}"
    _offload_and_die(spark, cluster, options, name, uri, kind, seed, rounds=8)
    assert_hdfs_has_the_log(spark, hdfs, cluster, uri, name, kind)


def _offload_and_die(spark, cluster, options, name, uri, kind, seed, rounds):
    """``rounds`` of records with a job each that may die; the last one does not."""
    chance = random.Random(seed)
    sizes = {"task_bytes": 600, "commit_bytes": 1500, "file_bytes": chance.choice([300, 10**6])}
    chosen = options(name, uri=uri, format=kind, **sizes)

    def rival():
        if chance.random() < 0.3:
            Job(spark, chosen).run()

    with (
        Producer(bootstrap_servers=cluster.bootstrap_servers) as plain,
        Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name) as producer,
    ):
        producer.init_transactions()
        for _ in range(rounds):
            _write(plain, name, chance)
            producer.begin_transaction()
            _write(producer, name, chance)
            with suppress(Overtaken):
                Job(spark, chosen, chance.choice([None, *STEPS]), rival).run()
            (producer.commit_transaction if chance.random() < 0.6 else producer.abort_transaction)()
    Job(spark, chosen).run()


def _write(producer, topic, chance):
    for number in range(chance.randrange(20)):
        producer.send(topic, chance.randbytes(60), key=b"%d" % number, partition=chance.randrange(2))
        if not chance.randrange(4):
            producer.flush()
    producer.flush()


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["parquet", "segments"])
def test_files_may_lie_in_hdfs(spark, hdfs, cluster, options, make, send, kind):
    """Tried on a real one, by real tasks of Spark. A JVM of HDFS takes too long to start for every run of the tests."""
    name, uri = make(), f"{hdfs.uri}/{kind}/a b"
    send(name, 100)
    run(spark, options(name, uri=uri, format=kind))
    send(name, 50)
    run(spark, options(name, uri=uri, format=kind))
    assert read_manifest(uri).offsets == {TopicPartition(name, number): 75 for number in range(2)}
    assert_hdfs_has_the_log(spark, hdfs, cluster, uri, name, kind)


def assert_hdfs_has_the_log(spark, hdfs, cluster, uri, name, kind):
    found = read_manifest(uri)
    if kind == "parquet":  # Spark reads by Hadoop's own protocol: its webhdfs:// lacks a class in Hadoop 3.5
        paths = [path.replace(hdfs.uri, hdfs.rpc_uri) for path in found.paths]
        frame = spark.read.parquet(*paths).select(*COLUMNS)
        assert sorted(map(tuple, frame.collect())) == in_log(spark, cluster, name)
        return
    place = open_place(uri)
    for tp in found.offsets:
        files = sorted((each.start, each.path) for each in found.files if each.tp == tp)
        assert b"".join(place.read(path) for _, path in files) == log_bytes(cluster, tp)


def test_a_place_is_one_under_all_its_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("clicks", "./clicks/", f"{tmp_path}/clicks/", f"file://{tmp_path}/clicks")
    assert {FilesTarget(name).identity for name in names} == {f"place {tmp_path}/clicks"}
    assert FilesTarget("webhdfs://host:9870/a/").identity == "place webhdfs://host:9870/a"


def test_places_of_one_path_are_told_apart_by_their_first_commits(tmp_path):
    """Two machines may have the same path."""
    target = FilesTarget(str(tmp_path / "clicks"))
    destination = target.open(None)
    assert destination.identity is None
    destination.begin().finish([], {})
    first = destination.identity
    destination.begin().finish([], {})
    assert destination.identity == first
    (tmp_path / "clicks").rename(tmp_path / "elsewhere")
    destination.begin().finish([], {})
    assert destination.identity != first
    assert destination.identity.startswith(f"place {tmp_path}/clicks, id ")
