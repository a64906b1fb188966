"""Which attempts of tasks a commit takes, and what they tell of themselves."""

import json
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.lake.ages import Timestamps
from sparklog.spark.lake.destination import Refused
from sparklog.spark.lake.places.staging import whole_attempts


def summary(rows, **more):
    return json.dumps({"rows": rows, "bytes": 10 * rows, "timestamps": [], **more})


def chosen(summaries, tasks) -> list[Any]:
    return [*whole_attempts(summaries, tasks)]


def test_of_each_task_one_whole_attempt_counts():
    found = chosen([(1, 7, summary(5)), (0, 9, summary(3)), (0, 4, summary(3))], 2)
    assert [(each.attempt in (4, 9, 7), each.rows, each.nbytes, each.file_count) for each in found] == [
        (True, 3, 30, 0),
        (True, 5, 50, 0),
    ]
    assert found[1].attempt == 7


@pytest.mark.parametrize("order", [1, -1])
def test_an_attempt_that_failed_counts_only_where_no_other_is_whole(order):
    failed = summary(1, code="SPARKLOG_X", text="so it is")
    assert chosen([(0, 1, failed), (0, 2, summary(3))][::order], 1)[0].attempt == 2
    assert chosen([(0, 1, failed)], 1) == [Refused("SPARKLOG_X", "so it is")]


def test_a_task_without_a_whole_attempt_is_an_error():
    with pytest.raises(DataSourceError, match="has 1 tasks of 2"):
        whole_attempts([(1, 1, summary(1))], 2)


def test_timestamps_travel_as_json():
    timestamps = Timestamps()
    timestamps.add(pa.array([1_000_000, 3_000_000], pa.timestamp("us")))
    again = Timestamps.from_json(json.loads(json.dumps(timestamps.to_json())))
    assert again.ages_s(5000, (0.0, 1.0)) == timestamps.ages_s(5000, (0.0, 1.0)) == [2.0, 4.0]
