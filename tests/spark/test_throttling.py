"""What Spark's tasks tell of the time for which brokers had them wait because of quotas."""

import logging

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from sparklog.client.cluster.throttling import Throttling
from sparklog.quota.entity import Entity
from sparklog.quota.keys import CLIENT_KEYS
from sparklog.spark import throttling
from sparklog.spark.read.columns import LogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.write.attempt import write_at_least_once
from sparklog.spark.write.options import WriteOptions


@pytest.fixture(autouse=True)
def sums(monkeypatch):
    """Those of the process, from nothing."""
    found = Throttling()
    monkeypatch.setattr(throttling, "PROCESS", found)
    return found


def test_a_task_without_a_wait_says_nothing(sums, caplog):
    throttling.report(Throttling(), "c")
    assert (sums.metrics()["throttle-count"], caplog.records) == (0, [])


def test_a_task_that_reads_says_how_long_it_was_to_wait(sums, caplog):
    options = ReadOptions.for_batch({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.client.id": "reports"})
    log = LogReader(options, StructType([StructField("value", BinaryType())]), [])
    log._cluster.pool.throttling.add(1.5)
    log._cluster.pool.throttling.add(0.5)
    log.close()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert (
        "'reports': brokers asked this task 2 times to send nothing, for 2000 ms in all and 1500 ms" in record.message
    )
    assert sums.metrics()["throttle-time-total"] == 2000


@pytest.mark.integration
def test_a_task_that_writes_over_its_quota_says_it(sums, caplog, bootstrap, admin, topic):
    entity = Entity(client_id=f"client of {topic}")
    kafka = {"kafka.bootstrap.servers": bootstrap, "kafka.client.id": entity.client_id}
    options = WriteOptions.for_batch({"topic": topic, "delivery": "at-least-once", **kafka})
    admin.alter_client_quotas({entity: {"producer_byte_rate": 10}})
    try:
        assert write_at_least_once(options, iter([pa.record_batch({"value": [b"v" * 100_000]})])) == 1
    finally:
        admin.alter_client_quotas({entity: dict.fromkeys(CLIENT_KEYS)})
    assert sums.metrics()["throttle-count"] == 1
    assert sums.metrics()["throttle-time-total"] > 1_000_000
    assert entity.client_id in caplog.text
