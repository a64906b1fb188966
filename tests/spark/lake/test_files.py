"""The files of a table: what is in them, what is told of them, and what is left when writing fails."""

import json
import os
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from sparklog.spark.lake import files as module
from sparklog.spark.lake.files import TableFiles, TableWriter, remove_files

_DAY_US = 86_400_000_000
COLUMNS = ("key", "value", "partition", "offset", "timestamp", "day")


def batch(start, count, day_of=lambda offset: 0, value=b"v" * 100):
    offsets = range(start, start + count)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([None if each % 4 == 0 else b"%d" % each for each in offsets], pa.binary()),
            pa.array([value] * count, pa.binary()),
            pa.array([0] * count, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([day_of(each) * _DAY_US + each * 1000 for each in offsets], pa.timestamp("us", "UTC")),
        ],
        names=["key", "value", "partition", "offset", "timestamp"],
    )


def table(tmp_path, **more):
    return TableFiles(str(tmp_path), COLUMNS, ("day",), **more)


def read(tmp_path, written):
    return pq.ParquetFile(tmp_path / written.path).read()


def on_disk(tmp_path):
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))


def test_a_file_and_what_is_told_of_it(tmp_path):
    writer = TableWriter(table(tmp_path))
    writer.write(batch(10, 5))
    writer.write(batch(15, 5))
    (written,) = writer.finish()
    assert written.path.startswith("day=1970-01-01/part-")
    assert written.partition_values == {"day": "1970-01-01"}
    assert written.nbytes == (tmp_path / written.path).stat().st_size
    rows = read(tmp_path, written)
    assert rows.column_names == ["key", "value", "partition", "offset", "timestamp"]
    assert rows.column("offset").to_pylist() == list(range(10, 20))
    assert json.loads(written.stats) == {
        "numRecords": 10,
        "minValues": {"partition": 0, "offset": 10, "timestamp": "1970-01-01T00:00:00.010Z"},
        "maxValues": {"partition": 0, "offset": 19, "timestamp": "1970-01-01T00:00:00.019Z"},
        "nullCount": {"key": 2, "value": 0, "partition": 0, "offset": 0, "timestamp": 0},
    }
    assert written.to_action()["path"] == written.path


def test_a_file_and_the_directories_down_to_it_are_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    writer = TableWriter(table(tmp_path))
    writer.write(batch(0, 1))
    (written,) = writer.finish()
    path = tmp_path / written.path
    assert synced == [str(each) for each in (path, path.parent, tmp_path)]


def test_a_path_is_escaped_as_hadoop_does_it(tmp_path):
    values = ["a b%/ü=:'~", None]
    files = TableFiles(str(tmp_path), ("offset", "größe"), ("größe",))
    writer = TableWriter(files)
    for value in values:
        writer.write_to((value,), pa.RecordBatch.from_pydict({"offset": [1], "größe": [value]}))
    paths = [written.to_action()["path"].rpartition("/")[0] for written in writer.finish()]
    name = "gr%25C3%25B6%25C3%259Fe"
    assert paths == [f"{name}=a%20b%2525%252F%25C3%25BC%253D%253A%2527~", f"{name}=__HIVE_DEFAULT_PARTITION__"]


def test_a_time_that_no_date_has_is_not_told(tmp_path):
    writer = TableWriter(table(tmp_path))
    writer.write(batch(0, 3, day_of=lambda offset: 10**7))
    (written,) = writer.finish()
    assert written.partition_values == {"day": None}
    assert written.path.startswith("day=__HIVE_DEFAULT_PARTITION__/")
    stats = json.loads(written.stats)
    assert "timestamp" not in stats["minValues"]
    assert "timestamp" not in stats["maxValues"]


def test_a_file_ends_at_the_size_that_is_aimed_at(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROW_GROUP_BYTES", 10_000)
    writer = TableWriter(table(tmp_path, target_bytes=10_000, compression="none"))
    for number in range(20):
        writer.write(batch(number * 50, 50))
    written = writer.finish()
    assert len(written) > 4
    assert [offset for each in written for offset in read(tmp_path, each).column("offset").to_pylist()] == list(
        range(1000)
    )


def test_many_days_at_a_time_need_few_open_files_and_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_OPEN_FILES", 3)
    monkeypatch.setattr(module, "_PENDING_BYTES", 3_000)
    writer = TableWriter(table(tmp_path))
    for number in range(10):
        writer.write(batch(number * 40, 40, day_of=lambda offset: offset % 20))
        assert writer._nbytes <= 3_000
        assert len(writer._open) <= 3
    written = writer.finish()
    assert sorted(on_disk(tmp_path)) == sorted(each.path for each in written)
    offsets = {day: [] for day in {each.partition_values["day"] for each in written}}
    for each in written:
        offsets[each.partition_values["day"]] += read(tmp_path, each).column("offset").to_pylist()
    assert len(offsets) == 20
    assert sorted(chain.from_iterable(offsets.values())) == list(range(400))
    assert all(each == sorted(each) for each in offsets.values())


@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b?c", "a[b]", "\u00e4", "a:b=c", "100%"])
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_names_that_a_uri_would_read_otherwise(tmp_path, scheme, name):
    home = tmp_path / name
    writer = TableWriter(TableFiles(f"{scheme}{home}", COLUMNS, ("day",)))
    writer.write(batch(0, 3))
    (written,) = writer.finish()
    assert read(home, written).num_rows == 3
    remove_files(f"{scheme}{home}", [written])
    assert on_disk(home) == []


@pytest.mark.parametrize("compression", ["snappy", "zstd", "lz4", "gzip", "none"])
def test_compressions(tmp_path, compression):
    writer = TableWriter(table(tmp_path, compression=compression))
    writer.write(batch(0, 100))
    (written,) = writer.finish()
    assert f".{compression}." in written.path
    assert read(tmp_path, written).num_rows == 100


def test_what_was_written_goes_when_writing_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROW_GROUP_BYTES", 10_000)
    writer = TableWriter(table(tmp_path, target_bytes=10_000))
    for number in range(9):
        writer.write(batch(number * 50, 50))
    assert on_disk(tmp_path)
    writer.discard()
    assert on_disk(tmp_path) == []


def test_a_full_disk(tmp_path, monkeypatch):
    """The file system refuses the first bytes of a file."""

    class Full:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def open_output_stream(self, path, **_):
            raise OSError(28, "No space left on device", path)

    real = fs.FileSystem.from_uri
    writer = TableWriter(table(tmp_path))
    writer._fs = Full(real(str(tmp_path))[0])
    writer.write(batch(0, 5))
    with pytest.raises(OSError, match="No space left"):
        writer.finish()
    writer.discard()
    assert on_disk(tmp_path) == []
