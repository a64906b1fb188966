from sparklog.client.cluster.throttling import Throttling


def test_it_adds_up_counts_and_keeps_the_longest() -> None:
    throttling = Throttling()
    for seconds in (0.5, 2.0, 0.5):
        throttling.add(seconds)
    assert throttling.metrics() == {
        "throttle-count": 3,
        "throttle-time-avg": 1000.0,
        "throttle-time-max": 2000.0,
        "throttle-time-total": 3000.0,
    }


def test_it_includes_what_another_has_added_up() -> None:
    one, other = Throttling(), Throttling()
    one.add(1.0)
    other.add(3.0)
    one.include(other)
    assert one.metrics() == {
        "throttle-count": 2,
        "throttle-time-avg": 2000.0,
        "throttle-time-max": 3000.0,
        "throttle-time-total": 4000.0,
    }


def test_a_client_that_was_never_slowed_down_has_zeros() -> None:
    assert set(Throttling().metrics().values()) == {0}
