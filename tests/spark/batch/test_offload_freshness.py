"""How an offload that is to be fresh sizes its commits, and when it says that it is late."""

import logging
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.spark.batch.offload import Committed, Offload
from sparklog.testing.clock import ManualClock


class Timed(Offload):
    """Rounds of commits that take so many seconds, of records of such an age at 95 %."""

    def __init__(self, *rounds, ages_s=()):
        self._clock = self.manual = ManualClock()
        place: Any = SimpleNamespace(place="/lake/clicks")
        self._destination = place
        self._rounds = iter(rounds)
        self._ages_s = ages_s
        self.began = []

    def commits(self):
        self.began.append(self._clock.monotonic())
        for seconds in next(self._rounds):
            self.manual.advance(seconds)
            yield Committed(1, 10, 100, 1, seconds, self._ages_s, 7)


@pytest.mark.parametrize(
    ("rounds", "began"),
    [
        pytest.param([[3.0]] * 4, [0.0, 12.0, 24.0, 36.0], id="half of it less the time that a commit takes"),
        pytest.param([[1.0], [5.0], [1.0], [1.0]], [0.0, 14.0, 24.0, 38.0], id="of the last commit"),
        pytest.param([[2.0, 6.0], [2.0]], [0.0, 9.0], id="of the last one of a round"),
        pytest.param([[14.9], [1.0]], [0.0, 14.9], id="no pause after one that takes nearly half"),
        pytest.param([[40.0], [1.0]], [0.0, 40.0], id="nor after one that takes longer than all of it"),
        pytest.param([[], [], [1.0]], [0.0, 15.0, 30.0], id="half of it where nothing is new"),
    ],
)
def test_how_long_records_wait_for_the_next_commit(rounds, began):
    offload = Timed(*rounds)
    list(islice(offload.fresh(30.0), sum(map(len, rounds))))
    assert offload.began == began


def test_a_short_freshness_asks_five_times_a_second_at_most():
    offload = Timed([], [], [0.1], [1.0])
    list(islice(offload.fresh(0.1), 2))
    assert offload.began == pytest.approx([0.0, 0.2, 0.4, 0.6])


def test_a_commit_that_is_late_says_so(caplog):
    offload = Timed([2.0], ages_s=(12.0, 31.4))
    with caplog.at_level(logging.WARNING, "sparklog.spark.batch.offload"):
        next(offload.fresh(30.0))
    (line,) = caplog.messages
    assert line.startswith("records come into /lake/clicks later than 30 s after their timestamps: 95 % within 31.4 s")
    assert "7 offsets wait" in line


@pytest.mark.parametrize("ages_s", [(12.0, 30.0), ()], ids=["in time", "no records"])
def test_one_that_is_not_says_nothing(caplog, ages_s):
    offload = Timed([2.0], ages_s=ages_s)
    with caplog.at_level(logging.WARNING, "sparklog.spark.batch.offload"):
        next(offload.fresh(30.0))
    assert caplog.messages == []
