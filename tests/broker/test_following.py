"""Which notifications are new, whatever numbers strangers have put among them, and what is made of them."""

import asyncio
import logging

import pytest
from broker.fake_notifications import FakeNotifications
from broker.security.acl_lists import at_once

from sparklog.broker.following import Following, NamedChanges, Notifications

HUGE = (1 << 31) - 1


@pytest.mark.parametrize(
    ("known", "numbers", "fresh"),
    [
        ([], [], []),
        ([], [0, 1], [0, 1]),
        ([4, 5], [4, 5, 6], [6]),
        ([4, 5], [5], []),
        ([4, 5], [], []),
        ([4, 5], [6, 7], [6, 7]),
        ([4, 5], [5, 7], None),
        ([4, 5], [4], None),
        ([4, 5], [0], None),
        ([4], [4, HUGE], None),
        ([4, HUGE], [4, HUGE], []),
        ([4, HUGE], [4, 5, HUGE], None),
        ([4, HUGE], [4], None),
        ([4], [-7, 4], None),
    ],
)
def test_what_is_new_is_told_or_that_something_may_be_missed(known, numbers, fresh):
    assert Notifications(known).fresh(numbers) == fresh


def test_what_was_taken_over_is_not_new_again():
    notifications = Notifications([3])
    for number in notifications.fresh([3, 4, 5]):
        notifications.take(number)
        assert number not in notifications.fresh([3, 4, 5])
    assert notifications.fresh([4, 5, 6]) == [6]


class Reader:
    """What is taken over by names, and how often everything was read, of two folders."""

    def __init__(self):
        self.folders = FakeNotifications(), FakeNotifications()
        self.names, self.readings = [], 0
        following = Following(self.catch_up, "things", logging.getLogger("t"))
        self.changes = NamedChanges(self.folders, self.take_over, at_once, following)

    async def take_over(self, name):
        self.names.append(name)

    async def read_all(self):
        self.readings += 1

    async def catch_up(self):
        """What was taken over, and how often everything was read, in this call."""
        names, readings = len(self.names), self.readings
        await self.changes.catch_up(self.read_all)
        return self.names[names:], self.readings - readings


def reading(test):
    async def main():
        reader = Reader()
        await reader.changes.read_all(reader.read_all)
        await test(reader)

    asyncio.run(main())


def test_names_are_taken_over_once_in_the_order_of_their_numbers():
    async def test(reader):
        first, second = reader.folders
        for folder, name in ((first, "a"), (second, "x"), (first, "b")):
            folder.tell(name)
        assert await reader.catch_up() == (["a", "b", "x"], 0)
        assert await reader.catch_up() == ([], 0)
        assert (first.kept_ms, second.kept_ms) == (900_000, 900_000)

    reading(test)


@pytest.mark.parametrize("what", ["number", "name", "session"])
def test_everything_is_read_again_where_names_are_not_enough(what):
    async def test(reader):
        first, second = reader.folders
        first.tell("a")
        if what == "number":
            second.next_number += 1
        if what == "session":
            first.session_id += 1
        second.tell("malformed" if what == "name" else "x")
        assert await reader.catch_up() == ([] if what == "session" else ["a"], 1)
        second.tell("y")
        assert await reader.catch_up() == (["y"], 0)

    reading(test)


def test_what_could_not_be_read_is_read_again():
    async def test(reader):
        reader.folders[0].next_number += 1
        reader.folders[0].tell("a")

        async def fail():
            raise OSError

        with pytest.raises(OSError):
            await reader.changes.catch_up(fail)
        assert await reader.catch_up() == ([], 1)

    reading(test)
