"""Which tasks write at a time, by the room that there is."""

from collections import deque
from types import SimpleNamespace

import pytest

from sparklog.compaction.task import Failure
from sparklog.log.segment import SegmentFacts
from sparklog.spark.batch.tasks import TaskFailed
from sparklog.spark.batch.waves import LookForRoom, Room, ask_for_room, log_dir_of, next_wave, size_of
from sparklog.testing.clock import ManualClock

A, B = "/disk/a", "/disk/b"


def task(size, log_dir=A, others=1000):
    """It writes one segment of two anew."""
    segments = [SegmentFacts(base, each, 0, 0, 0) for base, each in ((0, others), (10, size), (20, 0))]
    target = SimpleNamespace(task=SimpleNamespace(directory=f"{log_dir}/t-0", segments=tuple(segments)))
    return SimpleNamespace(target=target, groups=((10,),))


def waves(tasks, most, rooms):
    waiting, found = deque(tasks), []
    while waiting:
        found.append([size_of(each) for each in next_wave(waiting, most, lambda each: each, rooms)])
    return found


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (1000, [[60, 30, 50], [10]]),
        (140, [[60, 30, 50], [10]]),
        (139, [[60, 30], [50, 10]]),
        (89, [[60], [30, 50], [10]]),
        (20, [[60], [30], [50], [10]]),
    ],
)
def test_a_wave_has_what_finds_room_and_one_task_at_least(left, expected):
    tasks = [task(size) for size in (60, 30, 50, 10)]
    assert waves(tasks, 3, {A: Room(1, left)}) == expected


def test_disks_are_counted_each_by_itself_and_log_directories_of_one_together():
    tasks = [task(60), task(60, B)]
    assert waves(tasks, 9, {A: Room(1, 100), B: Room(2, 100)}) == [[60, 60]]
    assert waves(tasks, 9, {A: Room(1, 100), B: Room(1, 100)}) == [[60], [60]]


def test_where_nobody_can_tell_all_are_begun():
    assert waves([task(60), task(60)], 9, {}) == [[60, 60]]


class Disks:
    """Runs what looks for room; nobody can tell of B."""

    def __init__(self):
        self.asked = []

    def run(self, tasks):
        self.asked += [log_dir_of(each.target) for each in tasks]
        gone = TaskFailed(Failure.GONE, "it went")
        return [gone if each == B else Room(1, 100) for each in self.asked[-len(tasks) :]]


def test_one_log_of_each_log_directory_is_asked():
    disks = Disks()
    assert ask_for_room(disks, [task(1), task(1), task(1, B)], {}) == {A: Room(1, 100)}
    assert disks.asked == [A, B]


@pytest.mark.parametrize(("left", "asked"), [(1000, []), (599, [A])])
def test_where_there_was_plenty_nobody_is_asked_again(left, asked):
    disks = Disks()
    ask_for_room(disks, [task(20), task(40)], {A: Room(1, left)})
    assert disks.asked == asked


def test_the_room_of_a_log_directory_is_that_of_its_disk(tmp_path):
    (tmp_path / "t-0").mkdir()
    room = LookForRoom(task(1, tmp_path).target).run(ManualClock())
    assert (room.device, room.left > 0) == (tmp_path.stat().st_dev, True)
