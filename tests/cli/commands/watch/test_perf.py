"""``sparklog perf`` at a real broker: that the counts are those of the topic."""

import json

import pytest

pytestmark = pytest.mark.integration


def measured(here, *arguments):
    done = here("perf", *arguments, "--output", "json")
    assert (done.status, done.err) == (0, "")
    return json.loads(done.out)


@pytest.mark.parametrize(
    "options", [(), ("--compression", "zstd"), ("--acks", "0"), ("--throughput", "100000")], ids=str
)
def test_what_is_produced_is_consumed(here, make, options):
    topic = make(partitions=3)
    figures = measured(here, "produce", topic, "--records", "20001", "--size", "50", *options)
    assert (figures["records"], figures["bytes"]) == (20_001, 20_001 * 50)
    latency = figures["latency_ms"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    read = measured(here, "consume", topic)
    assert (read["records"], read["bytes"]) == (20_001, 20_001 * 50)
    assert 0 < read["first_records_after_s"] <= read["seconds"]


def test_batches_may_be_read_whole_and_some_of_them(here, make):
    topic = make(partitions=1)
    measured(here, "produce", topic, "--records", "20000", "--size", "50", "--config", "batch.size=16384")
    whole = measured(here, "consume", topic, "--no-decode")
    assert whole["records"] == 20_000
    assert whole["bytes"] > 20_000 * 50
    some = measured(here, "consume", topic, "--records", "1", "--config", "max.partition.fetch.bytes=1")
    assert 1 <= some["records"] < 20_000


def test_a_topic_that_is_not_read_to_its_end_is_told_of(here, make):
    topic = make(partitions=2)
    measured(here, "produce", topic, "--records", "1000")
    done = here("perf", "consume", topic, "--timeout", "1e-9")
    assert (done.status, done.out.startswith("0 records")) == (1, True)
    assert "nothing has come for 1e-09 s: partitions are not read to where they ended" in done.err


def test_an_empty_topic_has_nothing_to_read(here, make):
    read = measured(here, "consume", make())
    assert (read["records"], read["bytes"], read["first_records_after_s"]) == (0, 0, None)


def test_from_end_to_end(here, make):
    figures = measured(here, "e2e", make(partitions=2), "--records", "20", "--size", "10")
    assert (figures["records"], figures["bytes"]) == (20, 200)
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["max"]


def test_the_text_says_the_same(here, make):
    topic = make()
    done = here("perf", "produce", topic, "--records", "100")
    assert done.out.startswith("100 records, 0.0 MB in ")
    assert "latency in ms: mean " in done.out
    assert "first records after: " in here("perf", "consume", topic).out


def test_a_topic_that_there_is_not(here, topic):
    done = here("perf", "produce", topic, "--records", "1")
    assert done.status == 1
    assert topic in done.err
