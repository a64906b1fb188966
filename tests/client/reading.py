"""Polling until enough has come."""

from sparklog.clock import SystemClock


def read(consumer, count, timeout=60.0):
    """That many records, or what came within the timeout."""
    clock = SystemClock()
    found, deadline = [], clock.monotonic() + timeout
    while len(found) < count and clock.monotonic() < deadline:
        found += consumer.poll(0.5)
    return found


def values(records):
    return [record.value for record in records]
