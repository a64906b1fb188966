"""What drives the moves: the loop is left to others between its steps."""

import asyncio
from types import SimpleNamespace

from sparklog.controller.context import ControllerContext
from sparklog.controller.reassigner import Reassigner
from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition

MANY = 2000


def test_moves_of_many_topics_are_looked_at_in_steps():
    """Each topic by itself is little work, and waits for nothing where all is refused."""
    turns = 0

    zk = SimpleNamespace(topics=SimpleNamespace(reassignments=lambda _on_change: {}))

    async def run_zk(call, *args):
        return call(*args)

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run():
        reassigner = Reassigner(1, zk, run_zk, lambda: None, run_zk)
        refused = reassigner.ask({TopicPartition(f"t{number}", 0): [1] for number in range(MANY)})
        beside = asyncio.ensure_future(others())
        await reassigner.observe(ControllerContext(1, 0), lambda: None)
        beside.cancel()
        assert len(refused) == MANY
        assert {each.code for each in refused.values()} == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}

    asyncio.run(run())
    assert turns >= MANY // 50
