"""A group of many members on plain connections: how long the group is without an assignment when its members change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from benchmarks.loads.figures import Figures
from sparklog.errors import ErrorCode
from sparklog.net.async_connection import AsyncConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    Message,
    SyncGroupRequest,
)
from sparklog.structs import Endpoint

_TIMEOUT_MS = 60_000
_HEARTBEAT_S = 0.01
_PROTOCOL = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + bytes(10))


class _Member:
    """One member, on a connection of its own."""

    def __init__(self, connection: AsyncConnection, group: str) -> None:
        self._connection = connection
        self._group = group
        self.member_id = ""
        self.generation = -1

    async def join(self) -> None:
        """From the first request to the assignment, starting over as often as another member comes in between."""
        while not await self._join_once():
            pass

    async def _join_once(self) -> bool:
        answer = await self._ask(ApiKey.JOIN_GROUP, self._join_request)
        if ErrorCode(answer.error_code) is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return False
        _check(answer)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        members = [each.member_id for each in answer.members] if answer.leader == self.member_id else []
        answer = await self._ask(ApiKey.SYNC_GROUP, lambda version: self._sync_request(version, members))
        if ErrorCode(answer.error_code) is ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        _check(answer)
        return True

    async def is_to_join_again(self) -> bool:
        """One heartbeat, and a pause."""
        answer = await self._ask(ApiKey.HEARTBEAT, self._heartbeat_request)
        if ErrorCode(answer.error_code) is ErrorCode.REBALANCE_IN_PROGRESS:
            return True
        _check(answer)
        await asyncio.sleep(_HEARTBEAT_S)
        return False

    async def leave(self) -> None:
        _check(await self._ask(ApiKey.LEAVE_GROUP, self._leave_request))

    async def _ask(self, api: ApiKey, build: Callable[[int], Any]) -> Any:
        return await self._connection.request(api, build, timeout=_TIMEOUT_MS / 1000)

    def _join_request(self, version: int) -> Message:
        return JoinGroupRequest(
            version=version,
            group_id=self._group,
            session_timeout_ms=_TIMEOUT_MS // 2,
            rebalance_timeout_ms=_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[_PROTOCOL],
            reason=None,
        )

    def _sync_request(self, version: int, members: list[str]) -> Message:
        given = SyncGroupRequest.SyncGroupRequestAssignment
        return SyncGroupRequest(
            version=version,
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[given(member_id=each, assignment=bytes(100)) for each in members],
        )

    def _heartbeat_request(self, version: int) -> Message:
        return HeartbeatRequest(
            version=version,
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
        )

    def _leave_request(self, version: int) -> Message:
        gone = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=None, reason=None)
        return LeaveGroupRequest(version=version, group_id=self._group, member_id=self.member_id, members=[gone])


def _check(answer: Any) -> None:
    if answer.error_code:
        raise RuntimeError(f"the group answered {ErrorCode(answer.error_code).name}")


def rebalance(bootstrap: str, topic: str, members: int) -> Figures:
    """Seconds until all ``members`` of a new group have an assignment, and until the others have one when one has left.

    Each heartbeats a hundred times a second, so what is measured is the broker.
    """
    return asyncio.run(_rebalance(bootstrap, f"group-{topic}", members))


async def _rebalance(bootstrap: str, group: str, count: int) -> Figures:
    host, _, port = bootstrap.rpartition(":")
    endpoint = Endpoint(host, int(port))
    await _await_coordinator(endpoint, group)
    members = [_Member(await AsyncConnection.open(endpoint), group) for _ in range(count)]
    start = time.perf_counter()
    # The first joins alone and is interrupted by the rest: as when a service of many processes is started.
    await asyncio.gather(*(_settle(member, members) for member in members))
    joined = time.perf_counter()
    await members.pop().leave()
    await asyncio.gather(*(_rejoin(member) for member in members))
    return {"join s": joined - start, "leave s": time.perf_counter() - joined}


async def _settle(member: _Member, members: list[_Member]) -> None:
    """Join, and join again, until all are of one generation."""
    await member.join()
    while len({each.generation for each in members}) > 1:
        if await member.is_to_join_again():
            await member.join()


async def _rejoin(member: _Member) -> None:
    while not await member.is_to_join_again():
        pass
    await member.join()


async def _await_coordinator(endpoint: Endpoint, group: str) -> None:
    connection = await AsyncConnection.open(endpoint)
    request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
    while True:
        answer = await connection.request(ApiKey.FIND_COORDINATOR, lambda _: request)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code == 0:
            connection.close()
            return
        await asyncio.sleep(0.1)
