from sparklog.quota.sensors import FORGOTTEN_AFTER_MS, MOST, Sensors


def test_a_sensor_is_made_once():
    sensors = Sensors(list)
    assert sensors.of("a", 0) is sensors.of("a", 1)
    assert sensors.of("a", 1) is not sensors.of("b", 1)
    assert len(sensors) == 2


def test_what_is_unused_for_an_hour_is_forgotten():
    sensors = Sensors(list)
    first = sensors.of("a", 0)
    assert sensors.of("a", FORGOTTEN_AFTER_MS - 1) is first
    assert sensors.of("a", 2 * FORGOTTEN_AFTER_MS - 1) is not first


def test_what_others_have_left_goes_with_each_use():
    sensors = Sensors(list)
    for number in range(100):
        sensors.of(number, 0)
    for _ in range(100):
        sensors.of("b", FORGOTTEN_AFTER_MS)
    assert len(sensors) == 1


def test_it_can_be_made_anew():
    sensors = Sensors(list)
    sensors.of("a", 0)
    sensors.clear()
    assert len(sensors) == 0


def test_of_too_many_the_one_that_was_unused_longest_gives_way():
    sensors = Sensors(list)
    kept, left = sensors.of("kept", 0), sensors.of("left", 0)
    for number in range(MOST - 1):
        sensors.of("kept", 0)
        sensors.of(number, 0)
    assert len(sensors) == MOST
    assert sensors.of("kept", 0) is kept
    assert sensors.of("left", 0) is not left
