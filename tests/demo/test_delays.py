"""The streaming job: what the table holds after a run, and after another that adds to windows it had."""

import json
import statistics
from collections import defaultdict

import pytest

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.demo.delays import DelayOptions, run
from sparklog.demo.flights import load_flights
from sparklog.record.columnar import encode_columns
from sparklog.structs import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

FLIGHTS = 1_500
DAY_MS = 86_400_000


@pytest.fixture
def send(bootstrap, topic):
    """Send some flights to a topic of one partition, in one go."""
    with ClusterMetadata(ClientConfig.from_properties({"bootstrap.servers": bootstrap})) as cluster:
        AdminClient(cluster).create_topics([NewTopic(topic, 1, 1, {"retention.ms": "-1"})])  # the flights are of 2013

        def send_slice(flights, part):
            key, value, timestamp = (column[part] for column in flights)
            with BatchProducer(cluster) as producer:
                for batch in encode_columns(key, value, None, timestamp, now_ms=0):
                    producer.send(TopicPartition(topic, 0), batch.data)

        yield send_slice


def _expected(flights):
    """(start of the day in ms, carrier, origin) to (flights, departed, mean delay), record by record."""
    parsed = [json.loads(value) for value in flights.value.to_pylist()]
    groups = defaultdict(list)
    for flight, moment in zip(parsed, flights.timestamp.to_pylist(), strict=True):
        groups[moment - moment % DAY_MS, flight["carrier"], flight["origin"]].append(flight["dep_delay"])
    return {
        group: (len(delays), len(left), statistics.fmean(left) if left else None)
        for group, delays in groups.items()
        for left in [[delay for delay in delays if delay is not None]]
    }


def _table(spark, path):
    rows = spark.read.format("delta").load(path).collect()
    found = {
        (round(row.window_start.timestamp() * 1000), row.carrier, row.origin): (
            row.flights,
            row.departed,
            row.mean_delay,
        )
        for row in rows
    }
    assert len(found) == len(rows), "a window is there twice"
    return found


def _same(found, expected):
    assert found.keys() == expected.keys()
    for group, (flights, departed, mean) in expected.items():
        assert found[group] == (flights, departed, None if mean is None else pytest.approx(mean)), group


@pytest.mark.slow  # a first run is in the guided tour, and that a query goes on is in tests of the source
def test_a_second_run_goes_on_and_adds_to_windows_that_are_there(spark, delta_jars, bootstrap, topic, send, tmp_path):
    flights = load_flights(FLIGHTS)
    options = DelayOptions(
        bootstrap, topic, str(tmp_path / "table"), str(tmp_path / "checkpoint"), window="1 day", flights_per_batch=None
    )
    first = slice(0, 700)
    send(flights, first)
    report = run(spark, options)
    assert (report.flights, report.batches) == (700, 1)
    _same(_table(spark, options.table), _expected(type(flights)(*(column[first] for column in flights))))

    send(flights, slice(700, FLIGHTS))
    report = run(spark, options)
    assert report.flights == FLIGHTS - 700
    expected = _expected(flights)
    _same(_table(spark, options.table), expected)
    assert report.windows == len(expected)

    assert run(spark, options).flights == 0
    _same(_table(spark, options.table), expected)
