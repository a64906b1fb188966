from heapq import heappop, heappush
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st
from integration.pace import Look, pace

from sparklog.quota.rate import LONGEST_MS, Rate, TokenBucket, Windows, refill_ms, throttle_ms

TEN_SECONDS = Windows(11, 1000)


class RingOfSamples:
    """Kafka's rate as its sources describe it: a ring of samples that are all looked at each time."""

    def __init__(self, windows):
        self.windows = windows
        self.ring = []  # [start, last, value]
        self.place = 0

    def record(self, value, now):
        if not self.ring:
            self.ring.append([now, now, 0.0])
        if now - self.ring[self.place][0] >= self.windows.size_ms:
            self.place = (self.place + 1) % (self.windows.samples + 1)
            if self.place == len(self.ring):
                self.ring.append([now, now, 0.0])
            self.ring[self.place] = [now, now, 0.0]
        self.ring[self.place][1] = now
        self.ring[self.place][2] += value

    def _purge(self, now):
        for number, (_, last, _) in enumerate(self.ring):
            if now - last >= self.windows.samples * self.windows.size_ms:
                self.ring[number] = [now, now, 0.0]

    def span_ms(self, now):
        self._purge(now)
        elapsed = now - min(start for start, _, _ in self.ring)
        full, least = elapsed // self.windows.size_ms, self.windows.samples - 1
        return max(elapsed + max(least - full, 0) * self.windows.size_ms, 1)

    def measure(self, now):
        self._purge(now)
        return sum(value for _, _, value in self.ring) * 1000 / self.span_ms(now)


pauses = st.one_of(st.integers(0, 50), st.integers(0, 1500), st.integers(0, 20_000))


@given(
    windows=st.builds(Windows, st.integers(1, 30), st.sampled_from([1, 100, 1000])),
    uses=st.lists(st.tuples(pauses, st.integers(0, 1 << 30), st.booleans()), max_size=60),
)
def test_it_is_what_kafkas_ring_of_samples_comes_to(windows, uses):
    rate, ring, now = Rate(windows), RingOfSamples(windows), 5
    for pause, value, is_taken_back in uses:
        now += pause
        for each in (rate, ring):
            each.record(value, now)
        assert isclose(rate.measure(now), ring.measure(now), rel_tol=1e-9, abs_tol=1e-6)
        assert rate.span_ms(now) == ring.span_ms(now)
        if is_taken_back:
            for each in (rate, ring):
                each.record(-value, now)


def test_the_first_second_counts_as_all_full_windows():
    rate = Rate(TEN_SECONDS)
    rate.record(1000, 0)
    assert rate.span_ms(0) == 10_000
    assert rate.measure(0) == 100
    assert rate.measure(500) == pytest.approx(1000 / 10.5)


def test_a_silence_makes_no_rate_high():
    rate = Rate(TEN_SECONDS)
    rate.record(1000, 0)
    assert rate.measure(11_000) == 0
    rate.record(1000, 11_001)
    assert rate.measure(11_001) == pytest.approx(100, rel=1e-3)


def test_it_holds_no_more_samples_than_it_must():
    rate = Rate(TEN_SECONDS)
    for now in range(0, 100_000, 100):
        rate.record(1, now)
    assert len(rate._samples) == 12
    assert rate.measure(99_900) == pytest.approx(10, rel=0.1)


def test_who_waits_as_long_as_told_is_within_the_bound():
    rate, bound = Rate(TEN_SECONDS), 1000
    rate.record(25_000, 0)
    wait = throttle_ms(rate.measure(0), bound, rate.span_ms(0), TEN_SECONDS)
    assert wait == 15_000
    assert rate.measure(wait) <= bound


def test_twenty_clients_that_wait_as_long_as_told_get_the_bound_in_the_long_run():
    """However much they may use at once each time that a burst is forgotten; each asks once before it is told."""
    rate, bound, size, used, found = Rate(TEN_SECONDS), 1000, 15, 0, []
    ready = [(0, client) for client in range(20)]
    now_ms = 0
    while now_ms < 60_000:
        at_ms, client = heappop(ready)
        now_ms = max(now_ms, at_ms) + 3
        found.append(Look(now_ms / 1000, used))
        used += size
        rate.record(size, now_ms)
        observed = rate.measure(now_ms)
        wait_ms = throttle_ms(observed, bound, rate.span_ms(now_ms), TEN_SECONDS) if observed > bound else 0
        heappush(ready, (now_ms + wait_ms, client))
    assert pace(found, bound, 13) == pytest.approx(bound, rel=20 * size / (bound * 11))


def test_a_wait_is_rounded_to_the_next_millisecond():
    assert throttle_ms(100.06, 100, 1000, TEN_SECONDS) == 1
    assert throttle_ms(100.04, 100, 1000, TEN_SECONDS) == 0


def test_no_wait_is_longer_than_an_answer_can_tell():
    assert throttle_ms(1e18, 1, 10_000, TEN_SECONDS) == LONGEST_MS
    assert refill_ms(-1e18, 1, TEN_SECONDS) == LONGEST_MS
    assert throttle_ms(1, 5e-324, 10_000, TEN_SECONDS) == LONGEST_MS
    assert refill_ms(-1, 5e-324, TEN_SECONDS) == LONGEST_MS


def test_where_nothing_is_allowed_the_wait_is_until_all_is_forgotten():
    assert throttle_ms(5, 0, 10_000, TEN_SECONDS) == 11_000
    assert refill_ms(-5, 0, TEN_SECONDS) == 11_000


def test_a_bucket_is_full_at_first_and_holds_no_more():
    bucket = TokenBucket(TEN_SECONDS)
    assert bucket.tokens(5, 0) == 55
    assert bucket.tokens(5, 1_000_000) == 55


def test_a_bucket_may_be_overdrawn_and_is_refilled():
    bucket = TokenBucket(Windows(100, 1000))
    assert bucket.take(560, 5, 0) == -60
    assert refill_ms(-60, 5, Windows(100, 1000)) == 12_000
    assert bucket.tokens(5, 12_000) == 0
    assert bucket.tokens(5, 13_000) == 5


def test_a_smaller_bound_makes_a_smaller_bucket_at_once():
    bucket = TokenBucket(TEN_SECONDS)
    bucket.tokens(100, 0)
    assert bucket.tokens(1, 1) == 11
