"""A broker that registers with a real ZooKeeper, over a line that breaks at every step."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from kazoo.client import KazooClient

from sparklog.broker.fence import ControllerFence
from sparklog.broker.lifecycle.predecessor import SessionFiles
from sparklog.broker.lifecycle.registration import Registration
from sparklog.clock import SystemClock
from sparklog.errors import BrokerAddressTaken, BrokerIdTaken, ErrorCode
from sparklog.log.files import SESSION_FILE
from sparklog.structs import Endpoint
from sparklog.testing.clock import ManualClock
from sparklog.testing.zookeeper import CuttingProxy
from sparklog.zk.client import ZkClient
from sparklog.zk.office import Term
from sparklog.zk.znode_client import SessionEvent
from sparklog.zk.znodes import BrokerInfo

pytestmark = pytest.mark.integration

INFO = BrokerInfo(1, Endpoint("127.0.0.1", 9092))


@pytest.fixture
def proxy(zookeeper):
    with CuttingProxy(zookeeper.connect_string) as proxy:
        yield proxy


async def until(condition):
    """Give the loop its turns until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


class Stage:
    """One broker's registration over ``proxy``, and a session that looks on directly."""

    def __init__(self, zookeeper, proxy, chroot, directory, clock):
        self._path = chroot.partition("/")[2]
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(2)
        self._zookeeper = zookeeper
        self.looker = self.session(zookeeper)
        self.looker.ensure_tree()
        self.events = []
        self.files = SessionFiles([directory])
        self.fence = ControllerFence(self._office, lambda _: None)
        self.registrations = 0
        self._closed = False
        self.failure = self._loop.create_future()
        self.at_once = lambda event: None
        """Told of each event of the session before anything can come of it, on the client's own thread."""
        self.zk = self.session(proxy, self._tell)
        self.registration = Registration(INFO, self.zk, self.run_zk, self.fence, self.files, clock, 1.0)
        for event in self.events:
            self.registration.on_session(event)

    def session(self, server, on_session=lambda _: None):
        return ZkClient(f"{server.connect_string}/{self._path}", session_timeout=10.0, on_session=on_session)

    async def run_zk(self, call, *args):
        return await self._loop.run_in_executor(self._thread, lambda: self.zk.guarded(call, *args))

    async def _office(self):
        return Term(1, 1)

    def _tell(self, event):
        self.at_once(event)
        self._loop.call_soon_threadsafe(self._on_session, event)

    def _on_session(self, event):
        if hasattr(self, "registration"):
            self.registration.on_session(event)
        else:
            self.events.append(event)

    def follow(self):
        def registered():
            self.registrations += 1

        self.registration.follow(registered, self.failure.set_result)

    async def is_obeyed(self, epoch):
        """What the fence answers to the controller about this registration."""
        return await self.fence.admit(
            SimpleNamespace(controller_id=1, controller_epoch=1, broker_epoch=epoch, is_k_raft_controller=False)
        )

    async def registered(self):
        """The epoch under which the broker is known, once it is."""
        await until(lambda: self.zk.session_id and self.looker.brokers.owner(1) == self.zk.session_id)
        return self.looker.brokers.live()[1].epoch

    def expire(self):
        """End the session behind the broker's back."""
        thief = KazooClient(hosts=self._zookeeper.connect_string, client_id=self.zk.kazoo.client_id)
        thief.start(timeout=10)
        thief.stop()
        thief.close()

    async def close(self):
        if self._closed:
            return
        self._closed = True
        await self.registration.close()
        await self.fence.close()
        for session in (self.zk, self.looker):
            await self._loop.run_in_executor(self._thread, session.close)
        self._thread.shutdown()
        self.files.close()


@pytest.fixture
def on_stage(zookeeper, proxy, chroot, tmp_path):
    """Runs ``test(stage)`` on a loop of its own."""

    def run(test, clock=None):
        async def main():
            stage = Stage(zookeeper, proxy, chroot, tmp_path, clock or SystemClock())
            try:
                await test(stage)
            finally:
                await stage.close()

        asyncio.run(main())

    return run


def request_number(number):
    """Matches the request of that number from now on, about the broker's znode."""
    seen = iter(range(1, 1000))
    return lambda frame: b"/brokers/ids/1" in frame and next(seen) == number


def test_a_session_may_be_lost_and_nothing_else_with_it(on_stage):
    """The process lives, and with it all that it wrote."""

    async def test(stage):
        await stage.registration.register()
        stage.follow()
        first = await stage.registered()
        assert stage.looker.brokers.live()[1].life == first
        stage.expire()
        await until(lambda: stage.registrations)
        again = stage.looker.brokers.live()[1]
        assert again.epoch > first
        assert (again.life, stage.registration.unbroken_since) == (first, first)

    on_stage(test)


STEPS = [(number, answered) for number in (1, 2, 3) for answered in (False, True)]


@pytest.mark.parametrize(("number", "answered"), STEPS)
def test_a_line_that_breaks_at_any_step_delays_the_first_registration(on_stage, proxy, number, answered):
    async def test(stage):
        proxy.cut(request_number(number), answered=answered)
        await stage.registration.register()
        assert proxy.cuts == 1
        assert await stage.is_obeyed(await stage.registered()) is ErrorCode.NONE

    on_stage(test)


@pytest.mark.parametrize(("number", "answered"), STEPS)
def test_a_line_that_breaks_at_any_step_delays_the_next_registration(on_stage, proxy, number, answered):
    async def test(stage):
        await stage.registration.register()
        first = await stage.registered()
        stage.follow()
        for _ in range(2):  # and breaks again at the same step of the next attempt
            proxy.cut(request_number(number), answered=answered)
        stage.expire()
        second = await stage.registered()
        await until(lambda: stage.registrations)
        assert proxy.cuts == 2
        assert second > first
        assert await stage.is_obeyed(first) is ErrorCode.STALE_BROKER_EPOCH
        assert await stage.is_obeyed(second) is ErrorCode.NONE
        assert not stage.failure.done()

    on_stage(test)


def test_a_session_that_is_lost_while_registering_is_replaced_again(on_stage, proxy):
    async def test(stage):
        await stage.registration.register()
        stage.follow()

        def lose(frame):
            if b"/brokers/ids/1" not in frame:
                return False
            stage.expire()
            return True

        proxy.cut(lose, answered=False)
        stage.expire()
        await until(lambda: stage.registrations)
        assert await stage.is_obeyed(await stage.registered()) is ErrorCode.NONE
        assert proxy.cuts == 1

    on_stage(test)


def test_nothing_is_registered_before_there_is_a_session_for_it(on_stage, proxy, tmp_path, caplog):
    """What is asked while there is none is done under the next one, of which no file would tell."""

    async def test(stage):
        await stage.registration.register()
        noted = (tmp_path / SESSION_FILE).read_bytes()
        stage.at_once = lambda event: proxy.set_down(event == SessionEvent.EXPIRED)
        stage.expire()
        await until(lambda: not stage.zk.session_id)
        task = asyncio.ensure_future(stage.registration.register())
        await until(lambda: "could not be registered" in caplog.text)
        assert (tmp_path / SESSION_FILE).read_bytes() == noted
        stage.at_once = lambda event: None
        proxy.set_down(False)
        await task
        assert str(stage.zk.session_id) in (tmp_path / SESSION_FILE).read_text()
        stage.follow()
        stage.registration.on_session(SessionEvent.CONNECTED)
        assert await stage.is_obeyed(await stage.registered()) is ErrorCode.NONE
        assert not stage.registrations  # it knows the session it has

    on_stage(test)


def test_requests_of_controllers_are_held_until_the_broker_is_registered(on_stage):
    async def test(stage):
        asked = asyncio.ensure_future(stage.is_obeyed(5))
        await stage.run_zk(stage.zk.brokers.owner, 1)
        assert not asked.done()
        await stage.registration.register()
        assert await asked is ErrorCode.STALE_BROKER_EPOCH

    on_stage(test)


def test_registering_ends_when_the_broker_stops(on_stage, proxy):
    async def test(stage):
        await stage.registration.register()
        stage.follow()
        proxy.set_down(True)
        async with asyncio.timeout(60):
            await stage.close()

    on_stage(test)


def test_a_zookeeper_that_stays_away_is_said(on_stage, proxy, caplog):
    clock = ManualClock()

    async def test(stage):
        await stage.registration.register()
        stage.registration.say_if_silent()
        assert stage.registration.is_connected
        assert not caplog.records
        proxy.set_down(True)
        await until(lambda: not stage.registration.is_connected)
        stage.registration.say_if_silent()
        assert "no ZooKeeper" not in caplog.text, "it has only just been lost"
        clock.advance(40)
        stage.registration.say_if_silent()
        (told,) = [each.message for each in caplog.records if each.name == "sparklog.broker.lifecycle.registration"]
        assert "no ZooKeeper has taken this broker's connection for 40 s" in told
        proxy.set_down(False)
        await until(lambda: stage.registration.is_connected)

    on_stage(test, clock)


def test_a_broker_that_was_killed_is_followed_at_once(on_stage, zookeeper, chroot, tmp_path):
    async def test(stage):
        dead = stage.session(zookeeper)
        dead.brokers.register(INFO, 1)
        dead.office.take(1, 1)
        before = SessionFiles([tmp_path / "before"])
        before.write(dead.session)
        before.close()
        stage.registration._files = SessionFiles([tmp_path / "before"])
        await stage.registration.register()
        assert stage.looker.office.holder() is None
        assert await stage.is_obeyed(await stage.registered()) is ErrorCode.NONE
        stage.registration._files.close()
        dead.close()

    (tmp_path / "before").mkdir()
    on_stage(test)


def test_a_living_broker_of_the_same_id_and_address_is_left_alone(on_stage, zookeeper, caplog):
    clock = ManualClock()

    async def test(stage):
        living = stage.session(zookeeper)
        epoch = living.brokers.register(INFO, 1)
        task = asyncio.ensure_future(stage.registration.register())
        await until(lambda: "waiting" in caplog.text)
        assert not task.done()
        clock.advance(3600)
        with pytest.raises(BrokerIdTaken, match="already registered in ZooKeeper by another session"):
            await task
        assert stage.looker.brokers.live() == {1: INFO._replace(epoch=epoch)}
        living.close()

    on_stage(test, clock)


def test_a_session_that_ends_meanwhile_frees_the_id(on_stage, zookeeper, caplog):
    async def test(stage):
        other = stage.session(zookeeper)
        other.brokers.register(INFO, 1)
        task = asyncio.ensure_future(stage.registration.register())
        await until(lambda: "waiting" in caplog.text)
        other.close()
        await task
        assert await stage.is_obeyed(await stage.registered()) is ErrorCode.NONE

    on_stage(test, ManualClock())


def test_two_brokers_do_not_have_one_address(on_stage, zookeeper, caplog):
    clock = ManualClock()

    async def test(stage):
        living = stage.session(zookeeper)
        living.brokers.register(INFO._replace(id=2), 1)
        task = asyncio.ensure_future(stage.registration.register())
        await until(lambda: "waiting" in caplog.text)
        clock.advance(3600)
        with pytest.raises(BrokerAddressTaken, match=r"^127\.0\.0\.1:9092 is the address of broker 2 already"):
            await task
        assert stage.looker.brokers.live().keys() == {2}
        living.close()
        await stage.registration.register()
        other = stage.session(zookeeper)
        other.brokers.register(INFO._replace(id=3), 1)
        stage.follow()
        stage.expire()
        await until(lambda: stage.registrations == 1)
        assert await stage.registered(), "who was there first goes on"
        other.close()

    on_stage(test, clock)
