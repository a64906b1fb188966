from sparklog.testing.clock import ManualClock
from sparklog.web.lag import LagHistory


def test_a_look_adds_a_sample_but_not_sooner_than_five_seconds_after_the_last():
    clock = ManualClock()
    history = LagHistory(clock)
    history.add("g", 5, 0)
    clock.advance(4)
    assert [each.lag for each in history.add("g", 6, 0)] == [5]
    clock.advance(1)
    assert [each.lag for each in history.add("g", 7, 0)] == [5, 7]


def test_samples_and_groups_are_bounded():
    clock = ManualClock()
    history = LagHistory(clock)
    for number in range(800):
        clock.advance(5)
        found = history.add("g", number, 0)
    assert (len(found), found[-1].lag) == (720, 799)
    for number in range(100):
        history.add(f"g-{number}", 1, 0)
    assert len(history._samples) == len(history._sampled) == 50
