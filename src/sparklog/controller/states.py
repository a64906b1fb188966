"""Partition states, read from ZooKeeper and written to it; with them who is eligible, and whose lives count.

Invariants: what stands beside a state is written with it, in one transaction, and believed only beside the version that
it names. A broker's life is noted only when every state takes account of it: the next controller starts from there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sparklog.controller.context import ControllerContext
from sparklog.structs import TopicPartition
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import PartitionState

RunZk = Callable[..., Awaitable[Any]]
"""Runs a blocking ZooKeeper call off the loop and awaits what it gives."""
_States = dict[TopicPartition, PartitionState]


class PartitionStates:
    """Every failure of ZooKeeper raises CoordinationError."""

    def __init__(self, zk: ZkClient, run_zk: RunZk) -> None:
        self._zk = zk
        self._run_zk = run_zk

    async def read(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> _States:
        """The states of the partitions with these replicas. Nobody is eligible where the ISR is whole."""
        states: _States = await self._run_zk(self._zk.states.read, list(replicas))
        lacking = {tp: state for tp, state in states.items() if len(state.isr) < len(replicas[tp])}
        return states | (await self._run_zk(self._zk.states.beside, lacking) if lacking else {})

    async def write(self, context: ControllerContext, wanted: _States) -> tuple[_States, _States]:
        """Those of the states that were written, and for the others what ZooKeeper has instead."""
        written: _States = await self._run_zk(self._zk.states.write, wanted, context.epoch_version)
        lost = {tp: context.replicas(tp) for tp in wanted if tp not in written and tp.topic in context.assignments}
        return written, await self.read(lost) if lost else {}

    async def account(self, context: ControllerContext) -> None:
        """Note the lives of the brokers, as far as the states take account of them."""
        lives = context.account()
        if lives != context.lives:
            await self._run_zk(self._zk.brokers.write_lives, lives, context.epoch_version)
            context.lives = lives
