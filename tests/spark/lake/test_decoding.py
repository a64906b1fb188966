"""Each record is a row or a dead letter, and none is both."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from sparklog.errors import DataSourceError
from sparklog.spark.lake.decoding import Decoding, Settled
from sparklog.spark.values.formats import ValueFormat
from sparklog.structs import TopicPartition

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "n", "type": "long", "nullable": False, "metadata": {}},
            {"name": "t", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": ["null", "string"]}],
}
JSON = ValueFormat("json", SCHEMA).decoder()
TP = TopicPartition("a", 1)


def records(values, keys=None, start=0):
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys or [b"k"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": ["a"] * count,
            "partition": pa.array([1] * count, pa.int32()),
            "offset": pa.array(range(start, start + count), pa.int64()),
        }
    )


def split(decoding, batch):
    decoded, dead = decoding.rows(batch)
    rows = {row["offset"]: (row["n"], row["t"]) for row in decoded.to_pylist()}
    return rows, {row["offset"]: row["reason"] for row in (dead.to_pylist() if dead else [])}


def test_fields_are_columns_and_a_tombstone_has_none_of_them():
    decoded, dead = Decoding(JSON).rows(records([b'{"n":1,"t":"x"}', None, b'{"n":2}']))
    assert decoded.select(["n", "t", "offset"]).to_pylist() == [
        {"n": 1, "t": "x", "offset": 0},
        {"n": None, "t": None, "offset": 1},
        {"n": 2, "t": None, "offset": 2},
    ]
    assert dead is None
    (row,) = Decoding(JSON, into="v").rows(records([b'{"n":1}'])).decoded.to_pylist()
    assert row["v"] == {"n": 1, "t": None}


def test_a_dead_letter_is_the_raw_record_and_why():
    decoded, dead = Decoding(JSON, has_dead_letters=True).rows(records([b'{"n":1}', b"", b'{"n":"1"}'], start=5))
    assert decoded.column("offset").to_pylist() == [5]
    assert dead.select(["key", "value", "topic", "partition", "offset", "reason"]).to_pylist() == [
        {"key": b"k", "value": b"", "topic": "a", "partition": 1, "offset": 6, "reason": dead["reason"][0].as_py()},
        {
            "key": b"k",
            "value": b'{"n":"1"}',
            "topic": "a",
            "partition": 1,
            "offset": 7,
            "reason": "it is not of the schema: n is not bigint",
        },
    ]


def test_without_dead_letters_the_first_one_is_named():
    with pytest.raises(DataSourceError, match=r"UNPARSED_VALUE\] topic a, partition 1, offset 4: it has no n\. Name"):
        Decoding(JSON).rows(records([b'{"n":1}', b"{}", b""], start=3))


def test_keys_may_be_text():
    decoding = Decoding(JSON, is_text_key=True, has_dead_letters=True)
    decoded, dead = decoding.rows(records([b'{"n":1}'] * 3, [b"\xc3\xa9", None, b"\xff"]))
    assert decoded.column("key").to_pylist() == ["é", None]
    assert dead.column("key").to_pylist() == [b"\xff"]
    assert dead.column("reason").to_pylist() == ["the key is not UTF-8, from byte 0 on"]


_records = st.lists(st.one_of(st.none(), st.sampled_from([b'{"n":1}', b'{"n":2,"t":"x"}', b"", b"{}", b"\xff"])))


@given(values=_records, start=st.integers(0, 5), upto=st.integers(0, 12))
def test_what_was_settled_stays(values, start, upto):
    """As if a job had died between the two commits, and another goes on with a part or more of its records."""
    rows, dead = split(Decoding(JSON, has_dead_letters=True), records(values, start=start))
    assert sorted([*rows, *dead]) == list(range(start, start + len(values)))
    before = np.array([each for each in dead if each < upto], np.int64)
    settled = Decoding(JSON, has_dead_letters=True, settled={TP: Settled(upto, before)})
    again, more = split(settled, records(values, start=start))
    assert (again, sorted([*before.tolist(), *more])) == (rows, sorted(dead))


def test_another_schema_does_not_change_what_was_settled():
    settled = Decoding(JSON, has_dead_letters=True, settled={TP: Settled(2, np.array([0], np.int64))})
    assert split(settled, records([b'{"n":1}', b'{"n":2}'])) == ({1: (2, None)}, {})  # the first is a dead letter
    with pytest.raises(DataSourceError, match=r"offset 1: it has no n\. A former run"):
        settled.rows(records([b"", b"{}"]))


@given(st.lists(st.one_of(st.none(), st.binary(max_size=4), st.tuples(st.integers(-9, 9), st.none() | st.text()))))
def test_avro_is_what_fastavro_reads(rows):
    fastavro = pytest.importorskip("fastavro")
    from io import BytesIO

    values, expected = [], {}
    for number, row in enumerate(rows):
        if isinstance(row, tuple):
            stream = BytesIO()
            fastavro.schemaless_writer(stream, AVRO, dict(zip(("n", "t"), row, strict=True)))
            values.append(stream.getvalue())
            expected[number] = row
        else:
            values.append(row)
    decoding = Decoding(ValueFormat("avro", json.dumps(AVRO)).decoder(), has_dead_letters=True)
    found, dead = split(decoding, records(values))
    assert sorted([*found, *dead]) == list(range(len(rows)))
    assert {number: found[number] for number in expected} == expected
    assert all(found[number] == (None, None) for number, row in enumerate(rows) if row is None)
