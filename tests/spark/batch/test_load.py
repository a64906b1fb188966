"""The job that loads files into a topic, against a real broker."""

import json
import shutil
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden.log_dirs import HERE
from pyspark import StatusTracker, TaskContext

from sparklog.client import Admin, Consumer, NewTopic
from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.errors import ApiError, AuthenticationFailed, DataSourceError, ErrorCode
from sparklog.record.legacy.segment import iter_records
from sparklog.record.partitioning import partition_for
from sparklog.spark.batch import load
from sparklog.spark.batch.load import LoadOptions, run
from sparklog.spark.batch.sources import Source
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]
PARTITIONS, ROWS = 3, 200


@pytest.fixture(autouse=True)
def _few_rows(interpreted):
    """The loads here are of a few rows."""


@pytest.fixture
def admin(cluster, topic):
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as found:
        found.create_topics([NewTopic(topic, PARTITIONS, 1, {"retention.ms": "-1", "segment.bytes": "4096"})])
        yield found


@pytest.fixture
def files(tmp_path):
    """Two Parquet files; the times of the rows fall."""
    home = tmp_path / "source"
    home.mkdir()
    for part in range(2):
        numbers = range(part, ROWS, 2)
        table = pa.table(
            {
                "id": [f"k{number % 50}" for number in numbers],
                "text": [f"{number:05d}" * 10 for number in numbers],
                "at": pa.array([1_000_000 - number for number in numbers], pa.int64()),
            }
        )
        pq.write_table(table, home / f"part-{part}.parquet")
    return home


@pytest.fixture
def options(cluster, admin, topic, files):
    def chosen(path=files, kind="parquet", name=None, via="adopt", **more):
        columns = {"key": "id", "value": "text", "timestamp": "at"} | more
        source = Source(str(path), kind, **columns)
        return LoadOptions(cluster.bootstrap_servers, topic, source, name or topic, via=via)

    return chosen


@pytest.fixture
def records(cluster, topic):
    """By partition, what a reader of committed records finds."""

    def read(isolation="read_committed", topic=topic):
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": isolation}
        found = defaultdict(list)
        with Consumer(settings | {"auto.offset.reset": "earliest"}) as consumer:
            tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            consumer.assign(tps)
            ends = consumer.end_offsets(tps)
            while any(consumer.position(tp) < ends[tp] for tp in tps):
                for each in consumer.poll(0.2):
                    found[each.partition].append(each)
        return found

    return read


def expected():
    return sorted((f"k{number % 50}".encode(), (f"{number:05d}" * 10).encode()) for number in range(ROWS))


def flat(found):
    return sorted((each.key, each.value) for part in found.values() for each in part)


@pytest.mark.parametrize("via", ["adopt", "produce"])
def test_rows_become_records_once(spark, options, records, via):
    loaded = run(spark, options(via=via))
    assert (loaded.records, loaded.was_done) == (ROWS, False)
    assert (loaded.adopted, loaded.produced) == ((PARTITIONS, 0) if via == "adopt" else (0, PARTITIONS))
    found = records()
    assert flat(found) == expected()
    for partition, part in found.items():
        assert {partition_for(each.key, PARTITIONS) for each in part} == {partition}
        times = [each.timestamp for each in part]
        assert times == sorted(times)
        assert [each.offset for each in part] == list(range(len(part)))
    assert run(spark, options(via=via)).was_done
    assert flat(records()) == expected()


@pytest.mark.parametrize("more", [{}, {"keep_order": True}, {"via": "produce"}], ids=str)
def test_rows_that_are_older_than_the_topic_keeps_are_warned_of(spark, options, admin, topic, caplog, more):
    run(spark, options(name=f"{topic}-kept", **more))
    assert "retention.ms" not in caplog.text
    admin.alter_topic_configs(topic, {"retention.ms": str(3_600_000)})
    run(spark, options(name=f"{topic}-new", timestamp=None, **more))
    assert "retention.ms" not in caplog.text
    run(spark, options(name=f"{topic}-old", **more))
    assert "keeps records for 1 hours (retention.ms), by their timestamps" in caplog.text
    assert "are of 1970-01-01: brokers delete these soon" in caplog.text


@pytest.mark.parametrize("columns", [{"keep_order": True}, {"timestamp": None}, {"key": None, "keep_order": True}])
def test_rows_keep_the_order_of_their_files(spark, options, records, columns):
    """Tasks read the files themselves, more than one for a partition."""
    assert run(spark, options(**columns)) == (ROWS, pytest.approx(20000, abs=15000), PARTITIONS, 0, False)
    found = records()
    assert [value for _, value in flat(found)] == sorted(value for _, value in expected()) or "key" not in columns
    for part in found.values():
        numbers = [int(each.value[:5]) for each in part]
        assert numbers == sorted(numbers, key=lambda number: (number % 2, number))
        assert [each.offset for each in part] == list(range(len(part)))
        if "timestamp" not in columns:
            assert [each.timestamp for each in part] == [1_000_000 - number for number in numbers]


def test_segments_of_a_log(spark, options, records, admin, cluster, topic, tmp_path):
    """Of a log with an aborted transaction: what committed readers see of it, in the same partitions."""
    run(spark, options())
    other = f"{topic}-copy"
    admin.create_topics([NewTopic(other, PARTITIONS, 1)])
    homes = Path(cluster.brokers[0].spec.data_dir)
    source = tmp_path / "segments"
    for number in range(PARTITIONS):
        shutil.copytree(homes / f"{topic}-{number}", source / f"{topic}-{number}")
    shutil.copytree(source, tmp_path / "again")
    loaded = run(spark, LoadOptions(cluster.bootstrap_servers, other, Source(str(source), "segments"), other))
    assert loaded.records == ROWS
    copied = records(topic=other)
    assert {number: [(each.key, each.value, each.timestamp) for each in part] for number, part in copied.items()} == {
        number: [(each.key, each.value, each.timestamp) for each in part] for number, part in records().items()
    }


def test_segments_that_kafka_wrote(spark, records, admin, cluster, topic, tmp_path):
    """Of each format, and of a topic that was upgraded, a partition: a broker of ours adopts what they come to."""
    legacy, files = HERE / "kafka-legacy", ("magic-0-gzip.log", "first.kafka", "upgraded.log")
    for number, name in enumerate(files):
        (tmp_path / f"old-{number}").mkdir()
        shutil.copy(legacy / name, tmp_path / f"old-{number}" / f"{0:020d}{Path(name).suffix}")
    source = Source(str(tmp_path), "segments")
    loaded = run(spark, LoadOptions(cluster.bootstrap_servers, topic, source, topic))
    expected = [[record[1:4] for record in iter_records((legacy / name).read_bytes())] for name in files]
    assert (loaded.adopted, loaded.records) == (PARTITIONS, sum(map(len, expected)))
    found = records()
    assert [
        [(each.timestamp, each.key, each.value) for each in found[number]] for number in range(PARTITIONS)
    ] == expected


def test_a_damaged_segment_loads_nothing_and_is_named(spark, options, records, admin, cluster, topic, tmp_path):
    """The segment before it is written by then, and so are other partitions."""
    for number in range(2):
        run(spark, options(name=f"{topic}-{number}"))
    other = f"{topic}-copy"
    admin.create_topics([NewTopic(other, PARTITIONS, 1)])
    homes = Path(cluster.brokers[0].spec.data_dir)
    source = tmp_path / "segments"
    for number in range(PARTITIONS):
        shutil.copytree(homes / f"{topic}-{number}", source / f"{topic}-{number}")
    _, damaged, *_ = sorted(each for each in (source / f"{topic}-1").glob("*.log") if each.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 0x55
    damaged.write_bytes(data)
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_NOT_LOADED.*{topic}-1.*{damaged.name}.* CRC "):
        run(spark, LoadOptions(cluster.bootstrap_servers, other, Source(str(source), "segments"), other))
    assert not records("read_uncommitted", other)
    assert [*homes.glob(f"{other}-*/*.tmp")] == []


def test_a_name_stands_for_one_load(spark, options, files, records):
    run(spark, options())
    (files / "part-1.parquet").unlink()
    with pytest.raises(DataSourceError, match="SPARKLOG_OTHER_LOAD") as refused:
        run(spark, options())
    assert "a name of its own" in str(refused.value)
    assert flat(records()) == expected()


def test_other_formats(spark, options, records, tmp_path):
    """The other columns are the value, as JSON."""
    (tmp_path / "rows.csv").write_text("id,n,text\na,1,x\nb,2,y\n")
    (tmp_path / "rows.json").write_text('{"id": "c", "n": 3, "text": "z"}\n')
    for kind in ("csv", "json"):
        source = options(tmp_path / f"rows.{kind}", kind, f"{kind}-{options().name}", value=None, timestamp=None)
        assert run(spark, source).adopted
    values = {key: json.loads(value) for key, value in flat(records())}
    assert values == {
        b"a": {"n": 1, "text": "x"},
        b"b": {"n": 2, "text": "y"},
        b"c": {"n": 3, "text": "z"},
    }


def test_delta(spark, options, records, files, tmp_path, delta_jars):
    table = tmp_path / "table"
    spark.read.parquet(str(files)).write.format("delta").save(str(table))
    run(spark, options(table, "delta"))
    assert flat(records()) == expected()


def test_rows_without_a_key_are_spread(spark, options, records):
    run(spark, options(key=None))
    found = records()
    assert set(found) == set(range(PARTITIONS))
    assert {each.key for part in found.values() for each in part} == {None}


@pytest.mark.parametrize("via", ["adopt", "produce"])
def test_a_partition_that_there_is_not(spark, options, records, files, via):
    table = pa.table({"text": ["x"], "p": pa.array([7], pa.int32())})
    (files / "bad").mkdir()
    pq.write_table(table, files / "bad" / "rows.parquet")
    with pytest.raises(Exception, match=r"names (partition )?7"):
        run(spark, options(files / "bad", key=None, timestamp=None, partition="p", via=via))
    assert not records("read_uncommitted")


def test_rows_that_pass_spark_keep_the_order_of_their_files_too(spark, options, records, tmp_path):
    source, first = tmp_path / "ordered", 0
    source.mkdir()
    for name, count in enumerate((10, 300, 20, 200)):
        numbers = range(first, first + count)
        texts, at = [f"{number:04d}" * 20 for number in numbers], pa.array([-number for number in numbers], pa.int64())
        rows = pa.table({"text": texts, "at": at, "p": pa.array([0] * count, pa.int32())})
        pq.write_table(rows, source / f"part-{name}.parquet", row_group_size=50)
        first += count
    spark.conf.set("spark.sql.files.maxPartitionBytes", "3000")
    try:
        run(spark, options(source, key=None, partition="p", keep_order=True, via="produce"))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert [each.value[:4] for each in records()[0]] == [b"%04d" % number for number in range(first)]


@pytest.mark.parametrize("attempt", [1, None])
def test_rows_of_a_stage_that_was_tried_again_do_not_count(spark, options, records, monkeypatch, attempt):
    """In its second attempt a task cannot tell that it is not the first, and its rows may come in another order."""
    found = None if attempt is None else SimpleNamespace(currentAttemptId=attempt)
    monkeypatch.setattr(StatusTracker, "getStageInfo", lambda *_: found)
    with pytest.raises(DataSourceError, match=r"SPARKLOG_NOT_LOADED.*tried a stage again"):
        run(spark, options(via="produce"))
    assert not records()


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_task_that_produces_is_not_tried_again(monkeypatch, attempt):
    """Whether it died or Spark speculates: what the attempt before has sent is in the transaction already."""
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(attemptNumber=lambda: attempt, stageId=lambda: 0))
    job = SimpleNamespace(topic="clicks")
    with pytest.raises(OSError, match="run it again, without speculation"):
        load._produced(job, 0, iter(()))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (AuthenticationFailed("broker a:1 refused us"), "a task could not write its rows: broker a:1 refused us"),
        (ApiError(ErrorCode.INVALID_PRODUCER_EPOCH), "the transaction of load 'x' is not open any more: another run"),
    ],
)
def test_a_task_tells_why_it_cannot_go_on_and_is_not_tried_again(monkeypatch, error, words):
    """Another attempt would tell of a task that died, and of speculation."""

    def refuse(*_):
        raise error

    monkeypatch.setattr(load, "_part_of", refuse)
    job = SimpleNamespace(transaction=PreparedTransaction("sparklog-load.x", 1, 0))
    (told,) = load._build(job, iter(()))
    (failure,) = told.column("failure").to_pylist()
    assert failure.startswith(words)


def test_a_column_that_there_is_not(spark, options):
    with pytest.raises(DataSourceError, match="no column 'nothing'"):
        run(spark, options(key="nothing"))


@pytest.mark.parametrize("step", ["_build", "_adopt", "_commit"])
def test_a_run_that_dies_adds_nothing_and_the_next_one_all(spark, options, records, monkeypatch, step):
    """It dies as a process does, taking nothing back."""

    class Death(BaseException):
        pass

    def die(*_):
        raise Death

    with monkeypatch.context() as patched:
        patched.setattr(load._Load, step, die)
        patched.setattr(load._Load, "_take_back", lambda *_: None)
        patched.setattr(load, "_as_told", lambda error, _: error)
        with pytest.raises(Death):
            run(spark, options())
    assert not records()
    assert run(spark, options()).records == ROWS
    assert flat(records()) == expected()


def test_a_run_that_fails_takes_back(spark, options, records, admin, topic, monkeypatch):
    def refuse(*_):
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "as if a disk had failed")

    with monkeypatch.context() as patched:
        patched.setattr(load._Load, "_commit", refuse)
        with pytest.raises(ApiError, match="as if a disk"):
            run(spark, options())
    assert not records()
    assert not admin.open_transactions([f"sparklog-load.{topic}"])


@pytest.mark.parametrize("via", ["adopt", "produce"])
def test_a_topic_that_was_made_again_while_it_was_loaded_into(spark, options, records, admin, topic, monkeypatch, via):
    """What was adopted, or sent, is gone with the first one."""
    adopt = load._Load._adopt

    def made_again(*arguments):
        adopt(*arguments)
        admin.delete_topics([topic])
        eventually(lambda: topic not in {each.name for each in admin.list_topics()})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1, {"retention.ms": "-1"})])

    with monkeypatch.context() as patched:
        patched.setattr(load._Load, "_adopt", made_again)
        with pytest.raises(DataSourceError, match="SPARKLOG_TOPIC_RECREATED"):
            run(spark, options(via=via))
    assert not records()
    assert run(spark, options(via=via)).records == ROWS
    assert flat(records()) == expected()


def test_another_run_takes_over(spark, options, records, monkeypatch):
    """The former one fails, whatever it had adopted."""
    commit = load._Load._commit

    def overtaken(self, transaction, print_):
        monkeypatch.setattr(load._Load, "_commit", commit)
        assert run(spark, options()).records == ROWS
        commit(self, transaction, print_)

    monkeypatch.setattr(load._Load, "_commit", overtaken)
    with pytest.raises(DataSourceError, match="another run of it has begun"):
        run(spark, options())
    assert flat(records()) == expected()


def test_a_group_that_is_deleted_while_its_load_runs_holds_the_mark_in_the_end(
    spark, options, records, admin, topic, monkeypatch
):
    build = load._Load._build

    def delete_group(self, *arguments):
        admin.delete_groups([f"sparklog-load.{topic}"])
        return build(self, *arguments)

    monkeypatch.setattr(load._Load, "_build", delete_group)
    assert run(spark, options()).records == ROWS
    assert run(spark, options()).was_done
    assert flat(records()) == expected()


def test_a_name_stands_for_columns_in_their_places(spark, options):
    run(spark, options(timestamp=None))
    with pytest.raises(DataSourceError, match="SPARKLOG_OTHER_LOAD"):
        run(spark, options(key="text", value="id", timestamp=None))
    with pytest.raises(DataSourceError, match="SPARKLOG_OTHER_LOAD"):
        run(spark, options(key=None, headers="id", timestamp=None))


def test_names_of_columns_with_dots(spark, tmp_path, options, records):
    source = tmp_path / "rows.json"
    source.write_text('{"a": {"b": "inner"}, "a.b": "outer", "c`d": 1}\n')
    run(spark, options(source, "json", key="a.b", value=None, timestamp=None))
    (found,) = [each for part in records().values() for each in part]
    assert (found.key, json.loads(found.value)) == (b"outer", {"a": {"b": "inner"}, "c`d": 1})


@pytest.mark.parametrize("keep", [True, False])
def test_a_row_that_names_no_partition(spark, tmp_path, options, keep):
    path = tmp_path / "rows.parquet"
    columns = {"id": ["a", "b"], "text": ["x", "y"], "p": pa.array([0, None], pa.int32()), "at": [1, 2]}
    pq.write_table(pa.table(columns), path)
    more = {"keep_order": True} if keep else {}
    with pytest.raises(DataSourceError, match="row names"):
        run(spark, options(path, partition="p", **more))


def test_a_key_of_a_csv_file_is_its_text(spark, tmp_path, options, records):
    source = tmp_path / "rows.csv"
    source.write_text("id,text\n007,0123\n")
    run(spark, options(source, "csv", timestamp=None))
    (found,) = [each for part in records().values() for each in part]
    assert (found.key, found.value) == (b"007", b"0123")


@pytest.mark.parametrize(
    ("kind", "content", "failed", "said"),
    [
        ("parquet", b"PAR1 no footer", "cannot be read as parquet", "FAILED_READ_FILE.*bad.parquet"),
        ("json", b'{"id": "a", "text": "x"}\n{"id": \n', "cannot be read as json", "MALFORMED_RECORD_IN_PARSING"),
        ("csv", b"id,text\na,x\nb,y,z\n", "cannot be read as csv", "MALFORMED_CSV_RECORD"),
        ("parquet", None, "is not there", "PATH_NOT_FOUND.*bad.parquet"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(spark, tmp_path, options, records, kind, content, failed, said):
    path = tmp_path / f"bad.{kind}"
    if content is not None:
        path.write_bytes(content)
    told = rf"SPARKLOG_NOT_LOADED\] {path} {failed}, and nothing of it is loaded: .*{said}[^\n]*\Z"
    with pytest.raises(DataSourceError, match=told):
        run(spark, options(path, kind, timestamp=None))
    assert not records()
    if kind == "json":
        lenient = options(path, kind, timestamp=None, options={"mode": "DROPMALFORMED"})
        assert run(spark, lenient).records == 1
