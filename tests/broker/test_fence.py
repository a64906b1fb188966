"""Which controller is obeyed."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.broker.fence import ControllerFence
from sparklog.errors import CoordinationError, ErrorCode
from sparklog.zk.office import Term


class Stage:
    """A fence, and the ZooKeeper that it asks."""

    def __init__(self, holder=1, epoch=3):
        self.office = Term(holder, epoch)
        self.looks = 0
        self.warnings = []
        self.answer = asyncio.Event()
        self.answer.set()
        self.failures = []
        self.fence = ControllerFence(self.ask, self.warnings.append)
        self.fence.registered(100)

    async def ask(self):
        self.looks += 1
        found = self.office
        if self.failures:
            raise self.failures.pop()
        await self.answer.wait()
        return found

    async def admit(self, controller_epoch, broker_epoch=100, controller_id=1):
        return await self.fence.admit(request(controller_epoch, broker_epoch, controller_id))


def request(controller_epoch, broker_epoch=100, controller_id=1):
    office = {"controller_id": controller_id, "controller_epoch": controller_epoch}
    return SimpleNamespace(**office, broker_epoch=broker_epoch, is_k_raft_controller=False)


async def spin():
    for _ in range(10):
        await asyncio.sleep(0)


def test_the_controller_in_office_is_obeyed_and_looked_up_once_an_epoch():
    async def test():
        stage = Stage(epoch=3)
        assert [await stage.admit(3) for _ in range(3)] == [ErrorCode.NONE] * 3
        assert stage.looks == 1
        stage.office = Term(2, 5)
        assert await stage.admit(3) is ErrorCode.NONE, "nobody has told of another yet"
        assert await stage.admit(5, controller_id=2) is ErrorCode.NONE
        assert await stage.admit(3) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert await stage.admit(5) is ErrorCode.STALE_CONTROLLER_EPOCH, "an epoch has one controller"
        assert [await stage.admit(5, controller_id=2) for _ in range(3)] == [ErrorCode.NONE] * 3
        assert stage.looks == 4, "each that is not the one known is looked up"

    asyncio.run(test())


def test_a_zookeeper_that_was_set_back_has_the_last_word():
    async def test():
        stage = Stage(holder=1, epoch=9)
        assert await stage.admit(9) is ErrorCode.NONE
        stage.office = Term(2, 4)
        assert await stage.admit(4, controller_id=2) is ErrorCode.NONE
        assert await stage.admit(9) is ErrorCode.STALE_CONTROLLER_EPOCH
        stage.office = Term(3, 4)
        assert await stage.admit(4, controller_id=3) is ErrorCode.NONE

    asyncio.run(test())


def test_what_is_meant_for_another_registration_costs_no_look():
    async def test():
        stage = Stage(epoch=3)
        assert await stage.admit(3, broker_epoch=99) is ErrorCode.STALE_BROKER_EPOCH
        assert stage.looks == 0

    asyncio.run(test())


def test_the_controller_of_a_migration_to_kraft_is_not_obeyed():
    async def test():
        stage = Stage(epoch=3)
        asked = request(3)
        asked.is_k_raft_controller = True
        assert await stage.fence.admit(asked) is ErrorCode.STALE_CONTROLLER_EPOCH

    asyncio.run(test())


def test_an_epoch_that_zookeeper_does_not_know_fences_nobody():
    async def test():
        stage = Stage(epoch=3)
        assert await stage.admit(2**31 - 1) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert await stage.admit(3) is ErrorCode.NONE
        assert await stage.admit(3, controller_id=9) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert ["ZooKeeper knows of controller 1, epoch 3," in each for each in stage.warnings] == [True, True]
        assert "a controller 1, epoch 2147483647," in stage.warnings[0]
        assert "a controller 9, epoch 3," in stage.warnings[1]

    asyncio.run(test())


@pytest.mark.parametrize("epoch", [-1, 99, 101, 2**62])
def test_only_what_is_meant_for_this_registration_is_obeyed(epoch):
    async def test():
        stage = Stage()
        assert await stage.admit(3, epoch) is ErrorCode.STALE_BROKER_EPOCH
        assert await stage.admit(3) is ErrorCode.NONE

    asyncio.run(test())


def test_requests_are_held_while_the_broker_is_not_registered():
    async def test():
        stage = Stage()
        stage.fence.unregistered()
        held = [asyncio.ensure_future(stage.admit(3, epoch)) for epoch in (100, 200)]
        await spin()
        assert not any(each.done() for each in held)
        stage.fence.registered(200)
        assert await asyncio.gather(*held) == [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]

    asyncio.run(test())


def test_a_broker_that_stops_answers_what_it_held():
    async def test():
        stage = Stage()
        stage.answer.clear()
        looking = asyncio.ensure_future(stage.admit(3))
        await spin()
        stage.fence.unregistered()
        held = asyncio.ensure_future(stage.admit(3))
        await spin()
        await stage.fence.close()
        assert await asyncio.gather(looking, held) == [ErrorCode.STALE_BROKER_EPOCH] * 2

    asyncio.run(test())


def test_forged_epochs_share_a_look_and_one_is_under_way_at_a_time():
    async def test():
        stage = Stage()
        stage.answer.clear()
        forged = [asyncio.ensure_future(stage.admit(1000 + number)) for number in range(50)]
        await spin()
        assert stage.looks == 1
        stage.office = Term(2, 4)
        genuine = asyncio.ensure_future(stage.admit(4, controller_id=2))
        await spin()
        stage.answer.set()
        assert await genuine is ErrorCode.NONE, "the look that it waited for began after it came"
        assert set(await asyncio.gather(*forged)) == {ErrorCode.STALE_CONTROLLER_EPOCH}
        assert stage.looks == 2

    asyncio.run(test())


def test_a_silent_zookeeper_holds_a_request_and_refuses_nothing():
    async def test():
        stage = Stage()
        stage.failures = [CoordinationError("away")]
        assert await stage.admit(3) is ErrorCode.NONE
        assert stage.looks == 2

    asyncio.run(test())


def test_one_who_waits_may_go_and_the_others_are_answered():
    async def test():
        stage = Stage()
        stage.answer.clear()
        first, second = (asyncio.ensure_future(stage.admit(3)) for _ in range(2))
        await spin()
        first.cancel()
        await spin()
        stage.answer.set()
        assert await second is ErrorCode.NONE

    asyncio.run(test())


def test_a_check_after_another_controller_was_admitted_refuses_the_first():
    async def test():
        stage = Stage()
        assert await stage.admit(3) is ErrorCode.NONE
        stage.office = Term(2, 4)
        assert await stage.admit(4, controller_id=2) is ErrorCode.NONE
        assert stage.fence.check(request(3)) is ErrorCode.STALE_CONTROLLER_EPOCH

    asyncio.run(test())
