"""Starting again what died, on a clock that the test moves."""

import errno

import pytest

from sparklog.errors import ConfigError
from sparklog.local.supervisor import FIRST_DELAY_S, HEALTHY_AFTER_S, LONGEST_DELAY_S, Supervisor
from sparklog.testing.clock import ManualClock


class FakeService:
    name = "broker 1"
    fate = "was killed by SIGKILL"

    def __init__(self):
        self.alive = True
        self.ready = True
        self.pid = 1
        self.refusals = 0
        self.said = []

    def news(self):
        said, self.said = self.said, []
        return said

    def spawn(self):
        if self.refusals:
            self.refusals -= 1
            raise ConfigError("port 9092 is in use")
        self.alive = True
        self.pid += 1

    def is_ready(self):
        return self.ready


class Watch:
    def __init__(self):
        self.service = FakeService()
        self.clock = ManualClock()
        self.events = []
        self.pids = []
        self.supervisor = Supervisor(
            [self.service], self.events.append, lambda service: self.pids.append(service.pid), self.clock
        )

    def die_and_measure(self):
        """Seconds until it is started again."""
        self.service.alive = False
        waited = 0.0
        self.supervisor.look()
        while not self.service.alive:
            self.clock.advance(0.25)
            waited += 0.25
            self.supervisor.look()
        return waited


@pytest.fixture
def watch():
    return Watch()


def test_the_living_are_left_alone(watch):
    watch.supervisor.look()
    assert (watch.events, watch.pids) == ([], [])


def test_the_dead_are_started_again_and_both_are_told(watch):
    assert watch.die_and_measure() == FIRST_DELAY_S
    watch.supervisor.look()
    assert watch.pids == [2]
    assert watch.events == [
        "broker 1 was killed by SIGKILL; starting it again in 0.5 s",
        "broker 1 is back (process 2)",
    ]


def test_it_is_back_only_when_it_is_ready(watch):
    watch.service.ready = False
    watch.die_and_measure()
    watch.supervisor.look()
    assert len(watch.events) == 1
    watch.service.ready = True
    watch.supervisor.look()
    watch.supervisor.look()
    assert watch.events[1:] == ["broker 1 is back (process 2)"]


def test_the_delay_doubles_up_to_a_limit(watch):
    delays = [watch.die_and_measure() for _ in range(8)]
    assert delays[:4] == [0.5, 1.0, 2.0, 4.0]
    assert delays[-1] == LONGEST_DELAY_S


def test_a_long_life_is_forgiven(watch):
    watch.die_and_measure()
    watch.clock.advance(HEALTHY_AFTER_S + 1)
    watch.supervisor.look()
    assert watch.die_and_measure() == FIRST_DELAY_S


def test_a_refused_start_is_tried_again(watch):
    watch.service.refusals = 2
    watch.die_and_measure()
    assert watch.pids == [2]
    assert sum("could not be started: port 9092 is in use" in event for event in watch.events) == 2


def test_what_a_service_has_to_say_is_passed_on_once(watch):
    watch.service.said = ["a disk is full"]
    watch.supervisor.look()
    watch.supervisor.look()
    assert watch.events == ["broker 1: a disk is full"]


def unwritable(_what):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_died_is_started_again_though_nothing_can_be_reported(watch, caplog):
    supervisor = Supervisor([watch.service], unwritable, lambda service: watch.pids.append(service.pid), watch.clock)
    watch.service.alive = False
    watch.service.said = ["a disk is full"]
    for _ in range(3):
        supervisor.look()
        watch.clock.advance(FIRST_DELAY_S)
    assert watch.pids == [2]
    unreported = ("a disk is full", "was killed by SIGKILL; starting it again in 0.5 s", "is back (process 2)")
    for text, message in zip(unreported, caplog.messages, strict=True):
        assert text in message
        assert "No space left on device" in message


def test_what_runs_is_not_started_twice_where_its_process_id_cannot_be_noted(watch):
    supervisor = Supervisor([watch.service], watch.events.append, unwritable, watch.clock)
    watch.service.alive = False
    for _ in range(4):
        supervisor.look()
        watch.clock.advance(LONGEST_DELAY_S)
    assert watch.service.pid == 2
    assert watch.events[1] == (
        "broker 1 runs as process 2, which could not be noted: [Errno 28] No space left on device"
    )


def test_what_died_is_started_again_though_its_log_cannot_be_read(watch, monkeypatch):
    monkeypatch.setattr(watch.service, "news", lambda: unwritable("its log"))
    assert watch.die_and_measure() == FIRST_DELAY_S


def test_what_died_is_started_again_though_what_it_said_is_not_understood(watch, monkeypatch, caplog):
    """That is told once, not ten times a second."""

    def confused():
        raise ValueError("a line cut in two")

    monkeypatch.setattr(watch.service, "news", confused)
    assert watch.die_and_measure() == FIRST_DELAY_S
    assert caplog.messages == ["could not look after broker 1: ValueError('a line cut in two')"]
