"""A broker takes over what a coordinator's partition holds: again and again until that has succeeded."""

import asyncio
from dataclasses import fields

import pytest

from sparklog.broker import context
from sparklog.broker.context import BrokerContext
from sparklog.errors import LogError
from sparklog.structs import TopicPartition

HOME = TopicPartition("__consumer_offsets", 3)


class Coordinator:
    """Fails to load so many times; ``loaded`` is set when it has succeeded."""

    def __init__(self, failures):
        self.failures = failures
        self.attempts = 0
        self.loaded = asyncio.Event()
        self.waits_for = None

    async def load(self, partition):
        assert partition == HOME.partition
        self.attempts += 1
        if self.failures:
            self.failures -= 1
            raise LogError("the disk does not answer")
        if self.waits_for is not None:
            await self.waits_for.wait()
        self.loaded.set()

    def unload(self, partition):
        pass


def context_of(groups):
    parts = {each.name: None for each in fields(BrokerContext) if not each.name.startswith("_")}
    return BrokerContext(**{**parts, "loop": asyncio.get_running_loop(), "groups": groups})


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(context, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(context, "_LONGEST_PAUSE_S", 0.0)


def test_a_load_that_fails_is_tried_again_until_it_succeeds(caplog):
    async def run():
        groups = Coordinator(failures=3)
        context_of(groups).coordinate(HOME)
        await asyncio.wait_for(groups.loaded.wait(), 60)
        assert groups.attempts == 4

    asyncio.run(run())
    assert "__consumer_offsets-3 cannot be loaded" in caplog.text
    assert "the disk does not answer" in caplog.text


def test_nothing_is_tried_again_once_the_leadership_has_gone():
    async def run():
        groups = Coordinator(failures=0)
        groups.waits_for = asyncio.Event()
        broker = context_of(groups)
        broker.coordinate(HOME)
        while not groups.attempts:
            await asyncio.sleep(0)
        broker.stop_coordinating(HOME)
        groups.waits_for.set()
        await broker._tasks.finish()
        assert not groups.loaded.is_set()

    asyncio.run(run())
