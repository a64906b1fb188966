"""Grants that a job renews as long as it works, at a broker whose clock goes on when the test says so."""

import asyncio
import logging
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from types import SimpleNamespace
from uuid import UUID

import pytest
from compaction.keyed import fill

from sparklog.client.cluster.compaction_grants import Grant
from sparklog.compaction.stats import CleanerStats
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ConnectionFailed
from sparklog.log.directories.manager import LogManager
from sparklog.protocol.messages import BeginCompactionResponse
from sparklog.replica.cleaning import LogCleaner, NotCleaned
from sparklog.replica.cleaning_grants import CleaningGrants
from sparklog.spark.batch.renewal import Renewal
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

TP = TopicPartition("t", 0)
GRANT_MS = 60_000
PATIENCE_S = 60


class Pauses(threading.Event):
    """The event for which the thread of a renewal waits: time passes when ``end_one`` is called."""

    def __init__(self, clock):
        super().__init__()
        self._clock = clock
        self._begun = queue.Queue()
        self._ended = queue.Queue()
        self._seconds = None

    def wait(self, timeout=None):
        self._begun.put(timeout)
        return self._ended.get(timeout=PATIENCE_S)

    def end_one(self):
        """And have what follows it done, up to the next one."""
        seconds = self._begun.get(timeout=PATIENCE_S) if self._seconds is None else self._seconds
        self._clock.advance(seconds)
        self._ended.put(item=False)
        self._seconds = self._begun.get(timeout=PATIENCE_S)

    def set(self):
        self._ended.put(item=True)


class OneBroker:
    """What a renewal asks of a cluster: a broker with grants, on the loop."""

    def __init__(self, grants, loop):
        self._grants = grants
        self._loop = loop
        self.brokers = {0: "broker 0"}
        self.pool = self
        self.is_away = False
        self.asked = []

    @contextmanager
    def within(self, seconds_left):
        assert 0 < seconds_left() <= GRANT_MS / 3000
        yield

    def request(self, broker, api, make):
        request = make(None)
        self.asked.append(list(request.renewed))
        if self.is_away:
            raise ConnectionFailed(f"{broker} is away")

        async def renewed():
            return self._grants.renew(request.renewed, request.duration_ms / 1000)

        lapsed = asyncio.run_coroutine_threadsafe(renewed(), self._loop).result(PATIENCE_S)
        return BeginCompactionResponse(error_code=0, topics=[], lapsed=lapsed)


@pytest.fixture
def stage(tmp_path):
    @asynccontextmanager
    async def make():
        loop, clock = asyncio.get_running_loop(), ManualClock()
        compacted = parse(TopicConfig, {"cleanup.policy": "compact", "segment.bytes": "1000"})
        with ThreadPoolExecutor(1) as disk, closing(LogManager([tmp_path], TopicConfig(), clock, disk)) as logs:
            log = logs.get_or_create(TP, compacted, UUID(int=1))
            fill(log)
            cleaner = LogCleaner(logs, asyncio.Lock(), loop, clock, BrokerConfig())
            grants = CleaningGrants(cleaner, loop, clock)
            cluster = OneBroker(grants, loop)
            token, target = await grants.begin(TP, rolls=True, duration_s=GRANT_MS / 1000)
            with Renewal(cluster, GRANT_MS) as renewal:
                pauses = renewal._over = Pauses(clock)
                grant = Grant(TP, 0, token, target)
                renewal.add(grant)
                yield SimpleNamespace(
                    cluster=cluster, grants=grants, grant=grant, renewal=renewal, pauses=pauses, clock=clock
                )
            await grants.close()
            await cleaner.close()

    return make


async def live(at, seconds):
    """Let so many seconds pass, as the timer of a broker sees them."""
    end = at.clock.monotonic() + seconds
    while at.clock.monotonic() < end:
        await asyncio.to_thread(at.pauses.end_one)
        at.grants.tend()


async def finish(at):
    """End the cleaning as one that had nothing to write anew. Raises NotCleaned where the log was lost."""
    start = at.grant.target.task.first_dirty
    await at.grants.finish(at.grant.token, CleanerStats(first_offset=start, end_offset=start))


def test_a_job_has_its_log_as_long_as_it_works(stage):
    async def run():
        async with stage() as at:
            await live(at, 20 * GRANT_MS / 1000)
            await finish(at)
            assert at.cluster.asked == [[at.grant.token]] * len(at.cluster.asked)

    asyncio.run(run())


def test_a_renewal_that_fails_costs_no_log(stage, caplog):
    async def run():
        async with stage() as at:
            await live(at, GRANT_MS / 1000)
            at.cluster.is_away = True
            await live(at, GRANT_MS / 3000)
            at.cluster.is_away = False
            await live(at, 3 * GRANT_MS / 1000)
            await finish(at)

    asyncio.run(run())
    assert caplog.text.count("the cleanings of broker 0 are not renewed: broker 0 is away") == 1


def test_a_log_that_was_lost_is_told_of(stage, caplog):
    async def run():
        async with stage() as at:
            at.cluster.is_away = True
            await live(at, 2 * GRANT_MS / 1000)
            at.cluster.is_away = False
            await live(at, GRANT_MS / 1000)
            with pytest.raises(NotCleaned, match="has lapsed"):
                await finish(at)

    caplog.set_level(logging.WARNING)
    asyncio.run(run())
    assert "broker 0 has given up 1 cleanings" in caplog.text


def test_what_is_over_is_not_renewed(stage):
    async def run():
        async with stage() as at:
            await live(at, GRANT_MS / 1000)
            at.renewal.drop(at.grant)
            asked = len(at.cluster.asked)
            await live(at, 2 * GRANT_MS / 1000)
            assert len(at.cluster.asked) == asked
            with pytest.raises(NotCleaned, match="has lapsed"):
                await finish(at)

    asyncio.run(run())
