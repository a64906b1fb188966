"""What it costs to grant a lease beside many that run."""

from sparklog.broker import leases as module
from sparklog.broker.leases import LONGEST_S, Leases
from sparklog.log.lease import Lease
from sparklog.security.principal import ANONYMOUS, Principal
from sparklog.testing.clock import ManualClock

ALICE = Principal("User", "alice")


def test_a_lease_costs_no_look_at_those_that_run(monkeypatch):
    looks = 0

    class Watched(Lease):
        @property
        def until(self):
            nonlocal looks
            looks += 1
            return self._until

        @until.setter
        def until(self, value):
            self._until = value

    monkeypatch.setattr(module, "Lease", Watched)
    clock = ManualClock()
    leases = Leases(clock)
    for _ in range(1000):
        leases.grant(LONGEST_S, ANONYMOUS)
    assert looks <= 2 * 1000


def test_leases_that_have_ended_are_forgotten():
    clock = ManualClock()
    leases = Leases(clock)
    short, _ = leases.grant(1, ANONYMOUS)
    long, lease = leases.grant(20, ANONYMOUS)
    clock.advance(5)
    last, _ = leases.grant(20, ANONYMOUS)
    assert leases._running.keys() == {long, last}
    leases.end([short, long, 77], ANONYMOUS)
    assert lease.until < clock.monotonic()
    clock.advance(30)
    newest, _ = leases.grant(20, ANONYMOUS)
    assert leases._running.keys() == {newest}
    assert len(leases._ends) == 1


def test_a_lease_is_ended_by_its_holder_alone():
    clock = ManualClock()
    leases = Leases(clock)
    number, lease = leases.grant(20, ALICE)
    leases.end([number], ANONYMOUS)
    assert lease.until > clock.monotonic()
    leases.end([number], ALICE)
    assert lease.until <= clock.monotonic()


def test_leases_are_counted_when_they_have_ended_too():
    clock = ManualClock()
    leases = Leases(clock)
    for _ in range(3):
        leases.grant(1, ALICE)
        clock.advance(60)
    assert (leases.granted, leases.count) == (3, 0)
