"""Flushes, as a log has them counted."""

from concurrent.futures import ThreadPoolExecutor

from sparklog.log.flushes import Flushes


def test_flushes_of_several_threads_are_all_counted():
    flushes = Flushes()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(flushes.note, [0.5] * 1000))
    assert (flushes.count, flushes.seconds) == (1000, 500.0)
