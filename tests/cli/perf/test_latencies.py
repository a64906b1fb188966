"""Percentiles, against those of a sorted list."""

import random
from math import ceil

import pytest

from sparklog.cli.perf.latencies import PERCENTS, Latencies


def test_none_has_zeros():
    assert set(Latencies().summary().values()) == {0.0}


def test_weights_count():
    found = Latencies()
    found.add(1.0, 98)
    found.add(5.0)
    found.add(70.0)
    assert (found.records, found.max, found.mean) == (100, 70.0, (98 + 5 + 70) / 100)
    assert [found.percentile(each) for each in (50, 98, 99, 99.9, 100)] == [1, 1, 5, 70, 70]


@pytest.mark.parametrize("seed", range(3))
def test_percentiles_are_those_of_the_sorted_list_to_three_digits(seed):
    rng = random.Random(seed)
    values = [rng.lognormvariate(1, 2) for _ in range(5000)]
    found = Latencies()
    for value in values:
        found.add(value)
    values.sort()
    for percent in PERCENTS:
        exact = values[ceil(len(values) * percent / 100) - 1]
        assert found.percentile(percent) == pytest.approx(exact, rel=0.005)
    assert found.mean == pytest.approx(sum(values) / len(values))


def test_it_takes_little_memory():
    found = Latencies()
    for number in range(1, 100_001):
        found.add(number / 10)
    assert len(found._counts) < 4500
