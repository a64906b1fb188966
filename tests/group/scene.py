"""A coordinator on a loop that jumps from timer to timer, over a log in memory (both from ``conftest``)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from group.consumer.samples import FakeTopics

from sparklog.config.broker import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.group.classic.group import CommittedOffset, GroupState, Protocol
from sparklog.group.classic.requests import CommitRequest, JoinAnswer, JoinRequest, MemberIdentity, SyncRequest
from sparklog.group.offsets import partition_for
from sparklog.group.runtime import GroupCoordinator
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

COUNT = 4
GROUP = "readers"
HOME = partition_for(GROUP, COUNT)
TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
Play = Callable[..., None]
ANONYMOUS = MemberIdentity("", None, -1)


class Scene:
    """A coordinator and what a test does with it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: ManualClock,
        store: Any,
        delay_ms: int,
        topics: FakeTopics | None = None,
        **settings: Any,
    ) -> None:
        self.loop, self.clock, self.store = loop, clock, store
        self.settings = {"offset_metadata_max_bytes": 10, **settings}
        config = BrokerConfig(group_initial_rebalance_delay_ms=delay_ms, **self.settings)
        ids = itertools.count(1)
        self.topics = topics or FakeTopics(t=6)
        self.groups = GroupCoordinator(config, store, clock, loop, self.topics, lambda: str(next(ids)))

    async def load(self) -> None:
        for partition in range(COUNT):
            await self.groups.load(partition)

    async def restarted(self, **settings: Any) -> Scene:
        """Another coordinator over the same log."""
        scene = Scene(self.loop, self.clock, self.store, 0, self.topics, **{**self.settings, **settings})
        await scene.load()
        return scene

    async def join(self, member_id: str = "", group_id: str = GROUP, **fields: Any) -> JoinAnswer:
        request = JoinRequest(
            member_id, fields.get("instance_id"), "c", "/h", 10_000, 60_000, "consumer", (Protocol("range", b"sub"),)
        )
        return await self.groups.members.join(group_id, request._replace(**fields))

    async def sync(self, answer: JoinAnswer, instance_id: str | None = None, **assignments: bytes) -> Any:
        given = {each.replace("_", "-"): data for each, data in assignments.items()}
        request = SyncRequest(answer.member_id, instance_id, answer.generation, None, None, given)
        return await self.groups.members.sync(GROUP, request)

    async def commit(self, offset: int, who: MemberIdentity = ANONYMOUS, tp: TopicPartition = TP) -> ErrorCode:
        request = CommitRequest(who, {tp: CommittedOffset(offset, 3, "md", self.clock.now_ms())})
        return (await self.groups.commit_offsets(GROUP, request))[tp]

    def offset(self, tp: TopicPartition = TP) -> int | None:
        error, found = self.groups.fetch_offsets(GROUP, [tp])
        assert error is ErrorCode.NONE
        committed = found[tp]
        return committed.offset if committed else None

    @property
    def state(self) -> GroupState | None:
        _, group = self.groups.describe_group(GROUP)
        return group.state if group else None


async def one_member(scene: Scene) -> MemberIdentity:
    answer = await scene.join()
    await scene.sync(answer, c_1=b"all")
    return MemberIdentity(answer.member_id, None, answer.generation)
