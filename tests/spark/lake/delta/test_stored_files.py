"""Files that Delta has of a table, as its log and as Spark's writer have them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from sparklog.spark.lake.delta import stored_files
from sparklog.spark.lake.delta.stored_files import StoredFile, StoredRows

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
    ]
)


def read(path, names=SCHEMA.names):
    batches = list(StoredRows(fs.LocalFileSystem(), str(path), SCHEMA).batches(names))
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("int96", [False, True])
def test_rows_as_spark_writes_them(tmp_path, int96):
    """Spark's times are INT96, and its own lists are of structs that may not be null."""
    table = pa.table(
        {
            "headers": pa.array([[{"key": "a", "value": b"b"}], None]),
            "timestamp": pa.array([1_000_001, -5], pa.timestamp("us", None if int96 else "UTC")),
            "key": pa.array([b"x", b"y"]),
            "offset": pa.array([7, 8], pa.int32()),
            "more": [1, 2],
        }
    )
    pq.write_table(table, tmp_path / "f", use_deprecated_int96_timestamps=int96)
    found = read(tmp_path / "f")
    assert found.schema == SCHEMA
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [1_000_001, -5]
    assert found.column("headers").to_pylist() == [[{"key": "a", "value": b"b"}], None]
    assert found.column("offset").to_pylist() == [7, 8]


def test_columns_that_a_file_lacks_are_null(tmp_path):
    pq.write_table(pa.table({"key": pa.array([b"x"])}), tmp_path / "f")
    assert read(tmp_path / "f", ["key", "headers"]).to_pydict() == {"key": [b"x"], "headers": [None]}


def test_batches_are_small_where_rows_are_large(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_files, "_BATCH_BYTES", 3000)
    keys = pa.array([bytes([number]) * 1000 for number in range(10)])
    pq.write_table(pa.table({"key": keys}), tmp_path / "f", row_group_size=5)
    batches = list(StoredRows(fs.LocalFileSystem(), str(tmp_path / "f"), SCHEMA).batches(["key"]))
    assert max(each.num_rows for each in batches) <= 3
    assert pa.Table.from_batches(batches).column("key").to_pylist() == keys.to_pylist()


def test_a_file_by_delta_s_action():
    add = {"path": "topic=a/partition=0/x%2520y.parquet", "size": 5, "partitionValues": {"topic": "a"}}
    assert StoredFile.from_action(add) == StoredFile("topic=a/partition=0/x%20y.parquet", 5, {"topic": "a"})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"deletionVector": {"storageType": "u"}}, "REORG TABLE"),
        ({"path": "file:/other/x.parquet"}, "shallow clone"),
        ({"path": "/other/x.parquet"}, "shallow clone"),
    ],
)
def test_files_that_cannot_be_read_alone(more, why):
    with pytest.raises(ValueError, match=why):
        StoredFile.from_action({"path": "x", "size": 5, "partitionValues": {}, **more})
