"""Directories that Kafka 3.9.1 wrote (``kafka-3.9/``, captured by ``kafka.py``), opened and read by our log."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from golden.kafka import INDEX_INTERVAL, RECORDS
from golden.samples import COMPRESSIONS, golden_records

from sparklog.clock import SystemClock
from sparklog.config.topic import TopicConfig
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition, uuid_from_text
from sparklog.testing.steps import finish

DIRECTORIES = Path(__file__).parent / "kafka-3.9"
EXPECTED = golden_records()[:RECORDS]
CONFIG = replace(TopicConfig(), segment_bytes=600, index_interval_bytes=INDEX_INTERVAL)
EARLIEST_POSSIBLE = -(1 << 62)


@pytest.fixture(params=COMPRESSIONS)
def directory(request, tmp_path):
    """A copy of the partition directory of one compression."""
    return Path(shutil.copytree(DIRECTORIES / f"{request.param}-0", tmp_path / f"{request.param}-0"))


def open_log(directory, *, clean=True):
    tp = TopicPartition(directory.name.removesuffix("-0"), 0)
    return Log(directory, tp, CONFIG, SystemClock(), lambda task: task(), Knowledge(clean=clean))


def batches_of(log):
    return [batch for view in log.read_all(1 << 20) for batch in iter_batches(view, partial_tail=False)]


def records_of(log):
    return [record for batch in batches_of(log) for record in iter_records(batch)]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after-a-crash"])
def test_every_record_is_read(directory, clean):
    log = open_log(directory, clean=clean)
    assert log.recovered_bytes_dropped == 0
    assert log.segment_count > 1
    assert log.log_end_offset == RECORDS
    assert records_of(log) == EXPECTED
    log.close()


def test_every_batch_is_valid_and_compressed_as_said(directory):
    log = open_log(directory)
    batches = batches_of(log)
    for batch in batches:
        batch.validate()
    assert {batch.compression for batch in batches} == {CompressionType[log.tp.topic.upper()]}
    assert {batch.partition_leader_epoch for batch in batches} == {0}
    log.close()


def test_every_offset_is_found(directory):
    log = open_log(directory)
    for offset in range(RECORDS):
        found = log.read(offset, 1, log.end, min_one_batch=True)
        segment = found.file.read(found.position, found.size)
        batch = next(iter_batches(segment))
        assert batch.base_offset <= offset <= batch.last_offset
    log.close()


def test_every_timestamp_is_found(directory):
    log = open_log(directory)
    times = [record.timestamp for record in EXPECTED]
    for timestamp in sorted(set(times)):
        found = finish(log.offset_for_timestamp(timestamp))
        first = next(offset for offset, each in enumerate(times) if each >= timestamp)
        assert found == (times[first], first)
    assert finish(log.offset_for_timestamp(max(times) + 1)) is None
    assert finish(log.offset_for_timestamp(EARLIEST_POSSIBLE)) == (times[0], 0)
    log.close()


def test_its_indexes_are_those_that_we_would_build(directory):
    kafkas = {path.name: path.read_bytes() for path in directory.glob("*index")}
    assert any(kafkas.values())
    for path in directory.glob("*index"):
        path.unlink()
    open_log(directory, clean=False).close()
    assert {path.name: path.read_bytes() for path in directory.glob("*index")} == kafkas


def test_its_topic_id_and_epochs_are_known(directory):
    log = open_log(directory)
    written = (directory / "partition.metadata").read_text().split()
    assert log.topic_id == uuid_from_text(written[-1])
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert log.epochs.latest.epoch == 0
    log.close()


def test_it_goes_on_where_kafka_ended(directory):
    log = open_log(directory)
    builder = RecordBatchBuilder()
    builder.append(EXPECTED[-1].timestamp, b"key", json.dumps({"ours": True}).encode())
    appended = log.append_as_leader(memoryview(bytearray(builder.build())), 1)
    assert appended.first_offset == RECORDS
    log.close()
    log = open_log(directory)
    assert [record.value for record in records_of(log)] == [each.value for each in EXPECTED] + [b'{"ours": true}']
    log.close()
