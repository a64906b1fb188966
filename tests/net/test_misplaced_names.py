"""Names that a coordinator's log holds and that are looked for in other partitions."""

import asyncio

import pytest

from sparklog.net.misplaced_names import MisplacedNames, misplaced_in
from sparklog.record.partitioning import coordinator_partition


def test_names_that_are_looked_for_elsewhere_are_counted_and_the_first_of_them_told():
    names = [f"group-{number}" for number in range(40)]
    home = [name for name in names if coordinator_partition(name, 3) == 1]
    same, more = MisplacedNames(1, 3), MisplacedNames(1, 4)
    for name in home:
        same.add(name)
        more.add(name)
    away = [name for name in home if coordinator_partition(name, 4) != 1]
    assert (same.number, str(same)) == (0, "")
    assert (more.number, str(more)) == (len(away), f"{', '.join(away[:3])}, ...")


class Topic:
    """It is known after ``looks`` how many partitions there are."""

    def __init__(self, partition_count, looks=0):
        self.partition_count = partition_count
        self._looks = looks

    def is_leader(self, partition):
        self._looks -= 1
        return self._looks < 0


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr("sparklog.net.misplaced_names._LOOK_S", 0)


def test_names_are_looked_at_when_it_is_known_how_many_partitions_there_are(at_once):
    names = [name for number in range(2000) if coordinator_partition(name := f"group-{number}", 3) == 1]
    found = asyncio.run(misplaced_in(Topic(4, looks=3), 1, names, lambda: True))
    assert found.number == sum(coordinator_partition(name, 4) != 1 for name in names)
    assert asyncio.run(misplaced_in(Topic(3), 1, names, lambda: True)) is None


def test_nothing_is_told_of_a_partition_that_went_meanwhile(at_once):
    turns = iter([True, True, False, False])
    assert asyncio.run(misplaced_in(Topic(4, looks=99), 1, ["group"], lambda: next(turns))) is None
