"""Segment files in the old formats that Kafka wrote (``kafka-legacy/``, captured by ``legacy.py``), as we read them."""

from pathlib import Path
from typing import Any

import pytest
from golden.legacy import BATCH, COMPRESSIONS, FIRST_FORMAT, RECORDS, UPGRADED, append_time_topic
from golden.samples import golden_records
from kafka.record import MemoryRecords

from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import COLUMNS
from sparklog.record.compression import CompressionType
from sparklog.record.legacy.columns import read_columns
from sparklog.record.legacy.lz4_header import with_right_checksum
from sparklog.record.legacy.message import Format
from sparklog.record.legacy.segment import detect_format, iter_any, iter_entries, iter_records, unwrap

FILES = Path(__file__).parent / "kafka-legacy"
EXPECTED = [record._replace(headers=()) for record in golden_records()]
FORMATS = {0: Format.MAGIC_0, 1: Format.MAGIC_1}


def segment(name):
    return (FILES / f"{name}.log").read_bytes()


def entries_of(data):
    return list(iter_any(data, partial_tail=False))


def records_of(data):
    return list(iter_records(data, partial_tail=False))


def without_timestamps(records):
    return [record._replace(timestamp=-1) for record in records]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("magic", [0, 1])
def test_every_record_is_read(magic, compression):
    data = segment(f"magic-{magic}-{compression}")
    assert detect_format(data) is FORMATS[magic]
    expected = EXPECTED[:RECORDS]
    assert records_of(data) == (expected if magic else without_timestamps(expected))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("magic", [0, 1])
def test_every_entry_is_as_said(magic, compression):
    entries = entries_of(segment(f"magic-{magic}-{compression}"))
    kind = CompressionType[compression.upper()]
    assert {entry.compression for entry in entries} == {kind}
    assert {entry.format for entry in entries} == {FORMATS[magic]}
    assert all(entry.crc_ok for entry in entries)
    lasts = range(RECORDS) if kind is CompressionType.NONE else [BATCH - 1, 2 * BATCH - 1, RECORDS - 1]
    assert [entry.offset for entry in entries] == list(lasts)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_log_append_time(compression):
    data = segment(append_time_topic(compression))
    assert without_timestamps(records_of(data)) == without_timestamps(EXPECTED[:RECORDS])
    for entry in entries_of(data):
        assert entry.timestamp > EXPECTED[-1].timestamp
        assert {(each.timestamp, each.timestamp_type) for each in unwrap(entry)} == {(entry.timestamp, 1)}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("magic", [0, 1])
def test_the_columns(magic, compression):
    found = read_columns(segment(f"magic-{magic}-{compression}"), COLUMNS)
    expected = EXPECTED[:RECORDS]
    assert found["key"].to_pylist() == [record.key for record in expected]
    assert found["value"].to_pylist() == [record.value for record in expected]
    assert found["offset"].to_pylist() == list(range(RECORDS))
    assert found["timestamp"].to_pylist() == [record.timestamp if magic else -1 for record in expected]
    assert found["timestampType"].to_pylist() == [0 if magic else -1] * RECORDS
    assert found["headers"].null_count == RECORDS


def test_only_magic_0_has_the_wrong_lz4_checksum():
    for magic in (0, 1):
        for entry in entries_of(segment(f"magic-{magic}-lz4")):
            assert (with_right_checksum(entry.value) == entry.value) == (magic == 1)


def test_a_topic_that_was_upgraded_twice():
    data = segment(UPGRADED)
    entries = entries_of(data)
    assert [entry.magic for entry in entries] == [0, 1, 2]
    assert isinstance(entries[-1], RecordBatch)
    assert records_of(data) == without_timestamps(EXPECTED[:BATCH]) + EXPECTED[BATCH : 3 * BATCH]
    assert read_columns(data, ["offset"])["offset"].to_pylist() == list(range(3 * BATCH))


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_python_reads_the_same(magic, compression):
    data = segment(f"magic-{magic}-{compression}")
    batches = MemoryRecords(data)
    found = []
    while batch := batches.next_batch():
        found += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    ours = [(offset, timestamp if magic else None, key, value) for offset, timestamp, key, value, _ in records_of(data)]
    assert ours == found


def test_the_first_format():
    data = (FILES / "first.kafka").read_bytes()
    assert detect_format(data) is Format.FIRST
    entries: list[Any] = list(iter_entries(data, base_offset=4096, partial_tail=False))
    codes = [code for code, *payloads in FIRST_FORMAT for _ in payloads[: 1 if code else None]]
    assert [entry.compression for entry in entries] == codes
    assert [entry.offset - 4096 for entry in entries] == [entry.position for entry in entries]
    assert [record.value for record in records_of(data)] == [each for _, *payloads in FIRST_FORMAT for each in payloads]
