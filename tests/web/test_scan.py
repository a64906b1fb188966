"""A search stops where it must, and says where it goes on."""

import pytest

from sparklog.client import Producer
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.web import scan
from sparklog.web.extents import extents
from sparklog.web.scan import Scan, matching, reader

pytestmark = pytest.mark.integration


class Impatient(ManualClock):
    """Each look at it takes 25 s."""

    def monotonic(self):
        self.advance(25)
        return super().monotonic()


@pytest.fixture
def search(served, bootstrap, make):
    """``search(text, limit, clock)``: through ten records of a transactional producer, behind which are markers."""
    name = make(1)
    tp = TopicPartition(name, 0)
    with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        for number in range(10):
            producer.begin_transaction()
            producer.send(name, f"value {number}")
            producer.commit_transaction()

    async def run(text, limit, clock, start):
        visitor = await served.server._visitors.anybody()
        there = await extents(visitor, [tp])
        found = Scan({tp: start}, there.end, matching(text, "value"), limit, clock)
        async with reader(visitor) as consumer:
            await found.run(consumer)
        return found, found.next[tp], there.end[tp]

    return lambda text="", limit=100, clock=None, start=0: served.run(run(text, limit, clock or ManualClock(), start))


def test_markers_at_the_end_are_passed_over(search):
    found, at, end = search()
    assert (len(found.found), found.looked_at, found.stopped, at) == (10, 10, "end", end)


def test_enough_records(search):
    found, at, end = search(limit=3)
    assert ([each.value for each in found.found], found.stopped) == ([b"value 0", b"value 1", b"value 2"], "records")
    assert found.found[-1].offset < at < end
    again, at, _ = search(start=at)
    assert (again.found[0].value, at) == (b"value 3", end)


def test_too_many_bytes(search, monkeypatch):
    monkeypatch.setattr(scan, "_LARGEST", 14)
    found, _, _ = search("no such value")
    assert (found.looked_at, found.stopped) == (2, "bytes")


def test_too_much_time(search):
    found, at, end = search("no such value", clock=Impatient())
    assert (found.looked_at, found.stopped) == (0, "time")
    assert at < end


def test_nothing_to_look_at(search):
    found, _, end = search(start=10**9)
    assert (found.looked_at, found.stopped) == (0, "end")
    assert end < 10**9


def test_a_place_that_is_none():
    with pytest.raises(ValueError, match="anywhere"):
        matching("x", "header")


def test_headers_count_as_bytes(served, bootstrap, make, monkeypatch):
    monkeypatch.setattr(scan, "_LARGEST_FOUND", 1000)
    tp = TopicPartition(make(1), 0)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(2):
            producer.send(tp.topic, b"x", headers=[("h", b"")] * 20)

    async def run():
        visitor = await served.server._visitors.anybody()
        found = Scan({tp: 0}, {tp: 2}, matching("", "value"), 100, ManualClock())
        async with reader(visitor) as consumer:
            await found.run(consumer)
        return found

    found = served.run(run())
    assert (found.looked_at, found.stopped, found.next) == (1, "bytes", {tp: 1})
