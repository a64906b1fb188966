"""What is counted of requests."""

import pytest

from sparklog.net.request_meter import BOUNDS_S, RequestMeter, quantile


def metered(*seconds):
    meter = RequestMeter("Produce", 10)
    for each in seconds:
        meter.answer(each)
    return meter


def test_a_time_is_in_the_bucket_whose_end_it_does_not_pass():
    for seconds in (0, BOUNDS_S[0], BOUNDS_S[5], BOUNDS_S[5] * 1.01, BOUNDS_S[-1], 1e6):
        (number,) = (number for number, count in enumerate(metered(seconds).buckets) if count)
        assert seconds <= (*BOUNDS_S, float("inf"))[number]
        assert number == 0 or BOUNDS_S[number - 1] < seconds


def test_percentiles_are_known_to_a_fifth():
    buckets = metered(*[0.001] * 98, 0.5, 2.0).buckets
    for share, exact in ((0.5, 0.001), (0.98, 0.001), (0.99, 0.5), (0.999, 2.0)):
        assert exact <= quantile(buckets, share) <= exact * 1.2


def test_of_none_the_percentile_is_nothing_and_beyond_the_last_bound_it_is_that():
    assert quantile(metered().buckets, 0.99) == 0
    assert quantile(metered(1e6).buckets, 0.5) == BOUNDS_S[-1]


def test_two_are_added():
    one, other = metered(0.001), metered(0.001, 5)
    one.begin(3, 100)
    other.begin(3, 50)
    other.loop_s = 0.25
    one.add(other)
    assert (one.by_version[3], one.bytes_in, one.loop_s) == (2, 150, 0.25)
    assert one.total_s == pytest.approx(5.002)
    assert sum(one.buckets) == 3
