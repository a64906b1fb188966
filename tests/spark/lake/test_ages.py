"""Ages are told from a summary; it must be near the truth."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.spark.lake.ages import Timestamps


def column(seconds):
    return pa.array([int(each * 1_000_000) for each in seconds], pa.timestamp("us", "UTC"))


def test_of_nothing_there_are_no_ages():
    found = Timestamps()
    found.add(column([]))
    assert found.ages_s(5000, (0.5,)) == []


def test_all_of_one_age():
    found = Timestamps()
    found.add(column([1.0] * 7))
    assert found.ages_s(5000, (0.5, 0.95)) == [4.0, 4.0]


@given(st.lists(st.lists(st.floats(0, 1000), min_size=1, max_size=50), min_size=1, max_size=5))
def test_shares_are_about_right(groups):
    found = Timestamps()
    for group in groups:
        each = Timestamps()
        each.add(column(group))
        found.merge(each)
    ages = 2000 - np.concatenate(groups)
    for share, age in zip((0.5, 0.95), found.ages_s(2_000_000, (0.5, 0.95)), strict=True):
        low, high = np.quantile(ages, [max(share - 0.2, 0), min(share + 0.2, 1)], method="nearest")
        assert min(ages) - 1e-3 <= age <= max(ages) + 1e-3
        assert len(ages) < 20 or low - 50 <= age <= high + 50
