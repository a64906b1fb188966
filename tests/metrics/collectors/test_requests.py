"""Requests by API, as they are told."""

from metrics.pages import collected

from sparklog.metrics.collectors.requests import WINDOW_S, RequestCollector
from sparklog.net.request_meter import RequestMeter
from sparklog.testing.clock import ManualClock

TIME = "kafka_network_requestmetrics_totaltimems"


def meters(*names):
    return {name: RequestMeter(name, 10) for name in names}


def collector(found, clock=None):
    return RequestCollector(lambda: iter(found.values()), clock or ManualClock())


def serve(meter, seconds, version=9):
    meter.begin(version, 100)
    meter.loop_s += 0.001
    meter.answer(seconds)


def test_requests_by_version():
    found = meters("Produce", "Metadata")
    for version in (7, 9, 9):
        serve(found["Produce"], 0.01, version)
    page = collected(collector(found))
    name = "kafka_network_requestmetrics_requests_total"
    assert page.value(name, request="Produce", version="9") == 2
    assert page.value(name, request="Produce", version="7") == 1
    assert len(page.of(name)) == 2  # nobody has asked for Metadata
    assert page.value("sparklog_request_bytes_total", request="Produce") == 300
    assert page.value("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 3


def test_the_histogram_counts_what_does_not_pass_its_bounds():
    found = meters("Produce")
    for seconds in (0.000_01, 0.01, 300.0):
        serve(found["Produce"], seconds)
    page = collected(collector(found))
    name = "sparklog_request_duration_seconds"
    buckets = {float(dict(labels)["le"]): count for labels, count in page.of(f"{name}_bucket").items()}
    assert buckets[float("inf")] == page.value(f"{name}_count", request="Produce") == 3
    assert [count for _, count in sorted(buckets.items())] == sorted(buckets.values())
    for bound, count in buckets.items():
        assert count == sum(seconds <= bound for seconds in (0.000_01, 0.01, 300.0))
    assert page.value(f"{name}_sum", request="Produce") == 300.010_01


def test_fetches_are_told_by_who_asks_and_together():
    found = meters("FetchConsumer", "FetchFollower")
    serve(found["FetchConsumer"], 0.001)
    serve(found["FetchFollower"], 0.5)
    serve(found["FetchFollower"], 0.5)
    page = collected(collector(found))
    counts = page.of("kafka_network_requestmetrics_totaltimems_count")
    assert {dict(labels)["request"]: count for labels, count in counts.items()} == {
        "Fetch": 3,
        "FetchConsumer": 1,
        "FetchFollower": 2,
    }


def test_percentiles_are_of_the_last_minutes():
    clock, found = ManualClock(), meters("Produce")
    told = collector(found, clock)
    serve(found["Produce"], 10.0)
    assert 10_000 <= collected(told).value(TIME, request="Produce", quantile="0.99") <= 12_000
    clock.advance(WINDOW_S)
    serve(found["Produce"], 0.001)
    assert 1 <= collected(told).value(TIME, request="Produce", quantile="0.99") <= 1.2
    clock.advance(3 * WINDOW_S)  # nobody has read meanwhile
    serve(found["Produce"], 0.1)
    assert 100 <= collected(told).value(TIME, request="Produce", quantile="0.99") <= 120


def test_reading_often_makes_few_copies():
    clock, found = ManualClock(), meters("Produce")
    told = collector(found, clock)
    for _ in range(1000):
        serve(found["Produce"], 0.001)
        collected(told)
        clock.advance(1)
    assert len(told._recent._copies) <= 12


def test_errors_are_told_by_api_and_code_those_of_all_fetches_too():
    found = meters("Produce", "FetchConsumer")
    serve(found["Produce"], 0.001)
    serve(found["FetchConsumer"], 0.001)
    for code in (3, 3, 10):
        found["Produce"].fail(code)
    found["FetchConsumer"].fail(71)
    told = collected(collector(found)).of("kafka_network_requestmetrics_errors_total")
    assert {(dict(labels)["request"], dict(labels)["error"]): count for labels, count in told.items()} == {
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        ("Produce", "MESSAGE_TOO_LARGE"): 1,
        ("Fetch", "INVALID_FETCH_SESSION_EPOCH"): 1,
        ("FetchConsumer", "INVALID_FETCH_SESSION_EPOCH"): 1,
    }


def test_what_requests_waited_for_their_turn_is_told_by_api():
    found = meters("Produce")
    serve(found["Produce"], 0.5)
    found["Produce"].queued_s += 0.25
    assert collected(collector(found)).value("sparklog_request_queue_seconds_total", request="Produce") == 0.25
