"""What tasks read by themselves: Parquet files, and segments of every format, as committed readers see them."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden.log_dirs import HERE, golden
from log.samples import batch_of, marker_of, open_log, transactional
from record.legacy_bytes import entry, first, first_wrapper, wrapper

from sparklog.errors import CorruptRecord, DataSourceError
from sparklog.log.adoption import ADOPTION
from sparklog.log.checkpoints import LOG_START_OFFSETS, write_offsets
from sparklog.log.origin import AppendOrigin
from sparklog.record.control import ControlType
from sparklog.record.legacy.segment import iter_records
from sparklog.spark.batch.sources import Source
from sparklog.spark.batch.stretches import parquet_stretches, segment_stretches
from sparklog.structs import TopicPartition

LEGACY = HERE / "kafka-legacy"


def values(stretches):
    return [value for each in stretches for rows in each.rows() for value in rows.column("value").to_pylist()]


def test_what_committed_readers_see(tmp_path):
    log = open_log(tmp_path / "t-2", {"segment.bytes": "300"})
    log.append_as_leader(batch_of(1000, 2000), 0)
    for producer, kind in ((7, ControlType.ABORT), (8, ControlType.COMMIT)):
        log.append_as_leader(transactional(producer, 0, 2), 0, verification=lambda *_: None)
        log.append_as_leader(marker_of(producer, kind), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(transactional(9, 0, 2), 0, verification=lambda *_: None)
    log.close()
    (stretch,) = segment_stretches(str(tmp_path))
    assert stretch.partition == 2
    assert len(stretch.paths) > 1
    assert values([stretch]) == [b"v" * 10, b"v" * 10, b"8", b"8"]
    (rows, *_) = stretch.rows()
    assert rows.column("timestamp").to_pylist() == [1000, 2000]
    assert set(rows.column("partition").to_pylist()) == {2}


OLD = {
    "magic 0": entry(0, b"k", b"a") + wrapper(2, entry(1, None, b"b") + entry(2, None, b"c")),
    "magic 1": entry(0, b"k", b"a", magic=1, timestamp=5)
    + wrapper(2, entry(0, None, b"b", magic=1, timestamp=6) + entry(1, None, b"c", magic=1, timestamp=7), magic=1),
    "first format": first(b"a") + first_wrapper(first(b"b") + first(b"c")),
}


@pytest.mark.parametrize("kind", OLD)
def test_old_formats(tmp_path, kind):
    home = tmp_path / "t-1"
    home.mkdir()
    suffix = ".kafka" if kind == "first format" else ".log"
    (home / f"{0:020d}{suffix}").write_bytes(OLD[kind] + OLD[kind][:5])
    assert values(segment_stretches(str(home))) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("name", [path.name for path in sorted(LEGACY.iterdir())])
def test_old_formats_that_kafka_wrote(tmp_path, name):
    """Its columns are compared in ``golden/test_kafka_legacy.py``."""
    home = tmp_path / "t-1"
    home.mkdir()
    data = (LEGACY / name).read_bytes()
    (home / f"{0:020d}{Path(name).suffix}").write_bytes(data)
    expected = [record.value for record in iter_records(data)]
    assert len(expected) >= 7
    assert values(segment_stretches(str(tmp_path))) == expected


@pytest.mark.parametrize(("name", "topic"), [("stopped", "txn"), ("killed", "txn-killed"), ("stopped", "compacted")])
def test_the_directory_of_a_kafka_that_has_ended(tmp_path, name, topic):
    """What its consumers of committed records were given, and what lies behind a transaction that nobody will end."""
    source = golden(tmp_path, name, topic)
    committed, rest = source.said("committed"), source.said("uncommitted")
    behind = [each for each in rest if each[0] > committed[-1][0] and each[2].startswith(("plain", "idempotent"))]
    expected = [key for _, _, key, _ in committed + behind]
    found = [
        key.decode()
        for each in segment_stretches(str(tmp_path))
        for rows in each.rows()
        for key in rows["key"].to_pylist()
    ]
    assert found == expected
    assert len(behind) == (0 if topic == "compacted" else 3)


@pytest.fixture
def ten(tmp_path):
    """The directory of a partition with ten records in two batches."""
    log = open_log(tmp_path / "t-0")
    for first_ms in (1000, 1005):
        log.append_as_leader(batch_of(*range(first_ms, first_ms + 5)), 0)
    log.close()
    return tmp_path / "t-0"


def times(stretches):
    return [time for each in stretches for rows in each.rows() for time in rows.column("timestamp").to_pylist()]


@pytest.mark.parametrize("path", ["", "t-0"])
def test_records_that_were_deleted_are_not_loaded(ten, path, monkeypatch):
    """They are in the segment until all of it lies before the log's start, which the log directory has noted."""
    write_offsets(ten.parent / LOG_START_OFFSETS, {TopicPartition("t", 0): 7})
    monkeypatch.chdir(ten.parent / path)
    assert times(segment_stretches(str(ten.parent / path))) == [1007, 1008, 1009]
    assert times(segment_stretches(".")) == [1007, 1008, 1009]


def test_deleted_messages_of_the_old_formats_are_not_loaded(tmp_path):
    (tmp_path / "t-1").mkdir()
    (tmp_path / "t-1" / f"{0:020d}.log").write_bytes(OLD["magic 0"])
    write_offsets(tmp_path / LOG_START_OFFSETS, {TopicPartition("t", 1): 2})
    assert values(segment_stretches(str(tmp_path))) == [b"c"]


@pytest.mark.parametrize("kind", ["future", "delete", "stray"])
def test_what_lies_beside_the_partitions_of_a_broker_is_not_loaded(ten, kind):
    """A move that was under way has the same records, and a topic that was deleted has none any more."""
    copy = ten.with_name(f"t-0.{'0f' * 16}-{kind}")
    shutil.copytree(ten, copy)
    assert len(times(segment_stretches(str(ten.parent)))) == 10
    assert len(times(segment_stretches(str(copy)))) == 10, "named by a person, it is a directory as any"


def test_a_directory_that_is_no_brokers_is_loaded_whatever_its_name(ten):
    ten.rename(ten.with_name("to-delete"))
    assert len(times(segment_stretches(str(ten.parent)))) == 10


@pytest.mark.parametrize(
    ("left", "said"), [(f"{0:020d}.log.swap", "swap of segments"), (ADOPTION, "segments were being adopted")]
)
@pytest.mark.parametrize("path", ["", "t-0"])
def test_a_partition_that_only_its_broker_can_put_right_is_refused(ten, left, said, path):
    """Half of a swap, or of an adoption, would be loaded, and the load would say that it is done."""
    (ten / f"{0:020d}.log").rename(ten / left)
    with pytest.raises(DataSourceError, match=f"{ten}: .*{said}.*a start of its broker"):
        segment_stretches(str(ten.parent / path))


def test_a_broken_note_of_where_logs_begin_is_refused(ten):
    (ten.parent / LOG_START_OFFSETS).write_text("0\n2\nt 0 7\n")
    with pytest.raises(DataSourceError, match=LOG_START_OFFSETS):
        segment_stretches(str(ten.parent))


def test_old_messages_behind_new_ones_stay_behind(tmp_path):
    (tmp_path / f"{0:020d}.log").write_bytes(bytes(batch_of(1000)) + entry(1, None, b"later"))
    assert values(segment_stretches(str(tmp_path))) == [b"v" * 10, b"later"]


def test_formats_that_follow_one_another(tmp_path):
    """As in the log of a cluster that was upgraded."""
    batch = bytearray(batch_of(1000))
    batch[:8] = (3).to_bytes(8, "big")
    (tmp_path / f"{0:020d}.log").write_bytes(OLD["magic 0"] + bytes(batch))
    (tmp_path / f"{4:020d}.log").write_bytes(b"")
    stretches = segment_stretches(str(tmp_path))
    assert values(stretches) == [b"a", b"b", b"c", b"v" * 10]
    assert [each.partition for each in stretches] == [None]


@pytest.mark.parametrize(("place", "said"), [(-1, "batch at offset 1 has CRC"), (16, "magic")])
def test_a_damaged_segment_is_named(tmp_path, place, said):
    """The second of three."""
    for base in range(3):
        batch = bytearray(batch_of(1000))
        batch[:8] = base.to_bytes(8, "big")
        if base == 1:
            batch[place] ^= 0x55
        (tmp_path / f"{base:020d}.log").write_bytes(batch)
    with pytest.raises(CorruptRecord, match=f"^{1:020d}.log: .*{said}"):
        values(segment_stretches(str(tmp_path)))


@pytest.mark.parametrize("path", ["empty", "nothing"])
def test_no_segments(tmp_path, path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataSourceError, match=r"no segment files|no directory"):
        segment_stretches(str(tmp_path / path))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows with spaces.parquet"
    columns = {"k": ["a", None], "v": [b"1", b"2"], "at": pa.array([-1, 1999], pa.timestamp("us", "UTC")), "n": [1, 2]}
    pq.write_table(pa.table(columns), path, row_group_size=1)
    return path


def test_rows_of_parquet(file):
    source = Source(str(file), "parquet", "k", "v", "at", partition="n", keep_order=True)
    (stretch,) = parquet_stretches([file.as_uri()], source)
    rows = pa.Table.from_batches(stretch.rows()).to_pydict()
    assert rows == {
        "key": ["a", None],
        "value": [b"1", b"2"],
        "headers": [None, None],
        "timestamp": [-1, 1],
        "partition": [1, 2],
    }


def test_a_time_without_a_zone_is_read_by_spark_in_that_of_the_session(tmp_path):
    source = Source(str(tmp_path), "parquet", value="v", timestamp="at", keep_order=True)
    rows = pa.table({"v": ["a"], "at": pa.array([1_000_000], pa.timestamp("us"))})
    pq.write_table(rows, tmp_path / "local.parquet")
    assert parquet_stretches([str(tmp_path / "local.parquet")], source) is None
    pq.write_table(rows, tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    (stretch,) = parquet_stretches([str(tmp_path / "int96.parquet")], source)
    assert [rows.column("timestamp").to_pylist() for rows in stretch.rows()] == [[1000]]


def test_a_time_of_any_year_is_what_spark_reads(tmp_path):
    """Spark writes INT96, unless it is told otherwise, and people write 9999 for never."""
    source = Source(str(tmp_path), "parquet", value="v", timestamp="at", keep_order=True)
    times = [datetime(9999, 12, 31, tzinfo=UTC), datetime(2263, 1, 1, tzinfo=UTC), datetime(1600, 1, 1, tzinfo=UTC)]
    rows = pa.table({"v": ["a", "b", "c"], "at": pa.array(times, pa.timestamp("us", "UTC"))})
    for name, old in (("int96.parquet", True), ("int64.parquet", False)):
        pq.write_table(rows, tmp_path / name, use_deprecated_int96_timestamps=old)
        (stretch,) = parquet_stretches([str(tmp_path / name)], source)
        (found,) = stretch.rows()
        assert found.column("timestamp").to_pylist() == [round(each.timestamp()) * 1000 for each in times]


@pytest.mark.parametrize(
    ("files", "value"),
    [(["s3a://b/x.parquet"], "v"), (["/nowhere/x.parquet"], "v"), (None, "n"), (None, "there is none")],
)
def test_what_spark_is_to_read(file, files, value):
    """Files that are elsewhere, and columns that Spark converts or finds in the names of directories."""
    source = Source(str(file), "parquet", "k", value)
    assert parquet_stretches(files or [str(file)], source) is None
