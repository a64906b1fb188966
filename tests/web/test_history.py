"""What is kept of looks at groups and partitions."""

from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.web.history import Growth, History

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_look_adds_a_sample_but_not_sooner_than_five_seconds_after_the_last():
    clock = ManualClock()
    history = History(clock)
    history.add("g", 5, 0)
    clock.advance(4)
    assert [lag for _, lag, _ in history.add("g", 6, 0)] == [5]
    clock.advance(1)
    assert [lag for _, lag, _ in history.add("g", 7, 0)] == [5, 7]


def test_samples_and_names_are_bounded():
    clock = ManualClock()
    history = History(clock)
    for number in range(800):
        clock.advance(5)
        found = history.add("g", number)
    assert (len(found), found[-1][1]) == (720, 799)
    for number in range(100):
        history.add(f"g-{number}", 1)
    assert len(history._samples) == len(history._sampled) == 50


def test_a_look_at_what_is_not_known_is_no_sample():
    history = History(ManualClock())
    assert history.look("g") == []
    assert [lag for _, lag in history.add("g", 5)] == [5]
    for number in range(100):
        history.look(f"g-{number}")
    assert (len(history._samples), history._sampled) == (50, {})


class Looks:
    """Looks at the partitions of one topic, five seconds apart."""

    def __init__(self):
        self.clock = ManualClock()
        self.growth = Growth(self.clock)

    def written(self, ends, partitions=(ZERO, ONE)):
        self.clock.advance(5)
        return [number for _, number in self.growth.add("t", partitions, ends, self.clock.monotonic())]


def test_what_is_written_is_counted_from_the_first_look_on():
    looks = Looks()
    assert looks.written({ZERO: 100, ONE: 50}) == [0]
    assert looks.written({ZERO: 103, ONE: 51}) == [0, 4]
    assert looks.written({ZERO: 103, ONE: 51}) == [0, 4, 4]


def test_what_is_written_between_two_samples_is_in_the_later_one():
    clock = ManualClock()
    growth = Growth(clock)
    growth.add("t", [ZERO], {ZERO: 1}, clock.monotonic())
    clock.advance(1)
    growth.add("t", [ZERO], {ZERO: 2}, clock.monotonic())
    clock.advance(4)
    assert [number for _, number in growth.add("t", [ZERO], {ZERO: 4}, clock.monotonic())] == [0, 3]


def test_a_partition_that_could_not_be_asked_is_counted_when_it_can():
    looks = Looks()
    looks.written({ZERO: 10, ONE: 10})
    assert looks.written({ZERO: 11}) == [0, 1]
    assert looks.written({ZERO: 11, ONE: 15}) == [0, 1, 6]


def test_a_new_partition_and_a_topic_made_anew_take_and_give_nothing():
    looks = Looks()
    looks.written({ZERO: 10}, [ZERO])
    assert looks.written({ZERO: 10, ONE: 7}) == [0, 0]
    assert looks.written({ZERO: 2, ONE: 8}) == [0, 0, 1]
    assert looks.written({ZERO: 5, ONE: 8}) == [0, 0, 1, 4]


def test_a_partition_that_went_and_came_again_is_a_new_one():
    looks = Looks()
    looks.written({ZERO: 10, ONE: 10})
    looks.written({ZERO: 10}, [ZERO])
    assert looks.written({ZERO: 10, ONE: 30}) == [0, 0, 0]


def test_of_two_looks_at_once_whose_answers_cross_nothing_is_counted_twice():
    looks = Looks()
    looks.written({ZERO: 100})
    begun_s = looks.clock.monotonic()
    assert looks.written({ZERO: 120}) == [0, 20]
    late = looks.growth.add("t", [ZERO], {ZERO: 110}, begun_s)
    assert [number for _, number in late] == [0, 20]
    assert looks.written({ZERO: 130}) == [0, 20, 30]


def test_names_that_nobody_looks_at_any_more_are_forgotten():
    growth = Growth(ManualClock())
    for number in range(100):
        growth.add(f"t-{number}", [ZERO], {ZERO: 1}, growth._clock.monotonic())
    assert len(growth._ends) == len(growth._written) == len(growth._ended) == 50
