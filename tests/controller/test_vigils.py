"""Which registered brokers are taken for gone, and for how long; what is seen of each is the test's to say."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest

from sparklog.controller import vigils as vigils_module
from sparklog.controller.vigils import Vigils
from sparklog.net.vigil import Sight
from sparklog.structs import Endpoint
from sparklog.zk.znodes import BrokerInfo

US, TWO, THREE = (BrokerInfo(number, Endpoint("h", number), epoch=10 + number) for number in (1, 2, 3))
ALL = {1: US, 2: TWO, 3: THREE}


class FakeVigil:
    """Stands in for the connection to a broker."""

    def __init__(self, endpoint, on_sight):
        self.endpoint, self.see, self.is_closed = endpoint, on_sight, False

    async def close(self):
        self.is_closed = True


class Others:
    """Answers when the test says."""

    def __init__(self):
        self.asked = []
        self.answers = asyncio.Queue()

    async def confirm(self, broker, live):
        self.asked.append((broker, {each.id for each in live}))
        return await self.answers.get()


class Stage:
    def __init__(self, monkeypatch, others):
        self.opened = []
        monkeypatch.setattr(vigils_module, "Vigil", self._open)
        monkeypatch.setattr(vigils_module, "_FIRST_TRIAL_S", 0.0)
        self.others = others
        self.changes = asyncio.Queue()
        self.vigils = Vigils(US.id, others, lambda: self.changes.put_nowait(None))

    def _open(self, endpoint, on_sight):
        self.opened.append(FakeVigil(endpoint, on_sight))
        return self.opened[-1]

    def of(self, broker):
        return [each for each in self.opened if each.endpoint == broker.endpoint][-1]

    def living(self, registered=None):
        return set(self.vigils.living(registered or ALL))

    async def lose(self, broker):
        self.of(broker).see(Sight.UNKNOWN)
        self.of(broker).see(Sight.REFUSED)
        self.others.answers.put_nowait(True)
        await self.changes.get()

    async def lose_two_of_three(self):
        """All are there, then broker 2 is lost."""
        assert self.living() == {1, 2, 3}
        await self.lose(TWO)
        assert self.living() == {1, 3}


@pytest.fixture
def on_stage(monkeypatch):
    @asynccontextmanager
    async def staged(watches):
        async with asyncio.timeout(60):
            stage = Stage(monkeypatch, Others() if watches else None)
            try:
                yield stage
            finally:
                await stage.vigils.close()
                assert all(each.is_closed for each in stage.opened)

    def run(test, watches=True):
        async def main():
            async with staged(watches) as stage:
                await test(stage)

        asyncio.run(main())

    return run


def test_every_broker_but_ourselves_is_watched_once(on_stage):
    async def test(stage):
        assert stage.living() == stage.living() == {1, 2, 3}
        assert [each.endpoint for each in stage.opened] == [TWO.endpoint, THREE.endpoint]

    on_stage(test)


def test_a_broker_that_refuses_is_gone_when_another_confirms_it(on_stage):
    async def test(stage):
        stage.living()
        await stage.lose(TWO)
        assert stage.living() == {1, 3}
        assert stage.others.asked == [(TWO, {2, 3})]

    on_stage(test)


def test_a_death_is_a_warning_and_a_stop_that_was_announced_is_none(on_stage, caplog):
    caplog.set_level(logging.INFO)

    async def test(stage):
        stage.living()
        for unknown in (US.id, 99):
            stage.vigils.expect_stop(unknown)
        stage.vigils.expect_stop(TWO.id)
        await stage.lose(TWO)
        await stage.lose(THREE)

    on_stage(test)
    said = [(each.levelname, each.getMessage()[:20]) for each in caplog.records if "broker" in each.getMessage()]
    assert said == [("INFO", "broker 2 has stopped"), ("WARNING", "broker 3 is gone: it")]


@pytest.mark.parametrize("sight", [Sight.UNKNOWN, Sight.REACHED])
def test_one_that_is_silent_or_reached_is_not_asked_about(on_stage, sight):
    async def test(stage):
        stage.living()
        stage.of(TWO).see(sight)
        await asyncio.sleep(0)
        assert stage.others.asked == []
        assert stage.living() == {1, 2, 3}

    on_stage(test)


def test_what_is_not_confirmed_is_asked_again_when_it_refuses_again(on_stage):
    async def test(stage):
        stage.living()
        stage.of(TWO).see(Sight.REFUSED)
        stage.of(TWO).see(Sight.REFUSED)
        stage.others.answers.put_nowait(False)
        while not stage.others.answers.empty() or len(stage.others.asked) < 1:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(stage.others.asked) == 1
        await stage.lose_two_of_three()

    on_stage(test)


def test_one_that_is_reached_while_others_are_asked_lives(on_stage):
    async def test(stage):
        stage.living()
        stage.of(TWO).see(Sight.REFUSED)
        stage.of(TWO).see(Sight.REACHED)
        stage.others.answers.put_nowait(True)
        while not stage.others.answers.empty() or not stage.others.asked:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stage.living() == {1, 2, 3}

    on_stage(test)


def test_a_new_registration_is_another_life(on_stage):
    async def test(stage):
        stage.living()
        first = stage.of(TWO)
        stage.of(TWO).see(Sight.REFUSED)
        await asyncio.sleep(0)
        again = ALL | {2: TWO._replace(epoch=99)}
        assert stage.living(again) == {1, 2, 3}
        stage.others.answers.put_nowait(True)  # about the life before
        await asyncio.sleep(0)
        assert stage.living(again) == {1, 2, 3}
        assert first.is_closed
        assert stage.of(TWO) is not first

    on_stage(test)


def test_a_gone_broker_is_taken_back_when_it_is_reached(on_stage):
    async def test(stage):
        stage.living()
        await stage.lose(TWO)
        stage.of(TWO).see(Sight.REACHED)
        await stage.changes.get()
        await stage.lose_two_of_three()

    on_stage(test)


def test_one_that_is_reached_for_a_moment_stays_gone(on_stage):
    async def test(stage):
        stage.living()
        await stage.lose(TWO)
        stage.of(TWO).see(Sight.REACHED)
        stage.of(TWO).see(Sight.UNKNOWN)
        for _ in range(5):
            await asyncio.sleep(0.001)
        assert stage.changes.empty()
        assert stage.living() == {1, 3}

    on_stage(test)


def test_the_controller_whose_place_is_taken_is_gone_from_the_start(on_stage):
    async def test(stage):
        stage.vigils.begin(THREE)
        assert stage.living() == {1, 2}
        assert stage.living(ALL | {3: THREE._replace(epoch=99)}) == {1, 2, 3}

    on_stage(test)


def test_what_was_seen_ends_with_the_term(on_stage):
    async def test(stage):
        stage.living()
        await stage.lose(TWO)
        await stage.vigils.close()
        assert stage.living() == {1, 2, 3}

    on_stage(test)


def test_without_witnesses_nobody_is_watched(on_stage):
    async def test(stage):
        assert stage.living() == {1, 2, 3}
        assert stage.opened == []

    on_stage(test, watches=False)
