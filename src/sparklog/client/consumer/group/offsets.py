"""The offsets of a group as one consumer commits and reads them, be it a member or by itself.

Commits are sent one after another, in the order of the calls: each waits until those before it are stored or given up.
So a commit that is retried never undoes a later one, and what returned last stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from uuid import UUID

from sparklog.client.cluster.retry import Backoff
from sparklog.client.cluster.session import CoordinatorKind, Session
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.group.committed import OffsetAndMetadata, Offsets, to_commit
from sparklog.client.consumer.group.membership import Generation, Membership
from sparklog.client.consumer.group.offset_messages import (
    Asker,
    ceiling,
    commit_errors,
    commit_request,
    fetch_request,
    fetched_offsets,
)
from sparklog.client.consumer.subscription import SubscriptionState
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetCommitResponse, OffsetFetchResponse
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import TopicPartition

_log = logging.getLogger(__name__)
_AUTO_COMMIT_PATIENCE_MS = 5_000
"""How long a commit without a request of the user is retried: partitions wait for it before they are given up."""


class GroupOffsets:
    """Commits and fetches offsets at the group's coordinator."""

    def __init__(
        self, session: Session, config: ConsumerConfig, subscription: SubscriptionState, membership: Membership
    ) -> None:
        self._session = session
        self._config = config
        self._subscription = subscription
        self._membership = membership
        self._group_id = config.group_id
        self._row = asyncio.Lock()  # which is handed on in the order in which it was asked for

    async def commit(self, offsets: Offsets) -> None:
        """Store offsets for the group, retrying what passes. Raises ApiError for what does not."""
        failure = await self.start(offsets)
        if failure is not None:
            raise failure

    def start(self, offsets: Offsets, patience_ms: int | None = None) -> asyncio.Task[SparklogError | None]:
        """Begin to commit; the result is why that failed, None if it did not.

        ``patience_ms`` counts from now, the wait for earlier commits included.
        """
        # A task also for a caller that waits: tasks begin, and so wait in line, in the order in which they were made.
        return asyncio.create_task(self._outcome(offsets, patience_ms), name="sparklog commit")

    async def _outcome(self, offsets: Offsets, patience_ms: int | None) -> SparklogError | None:
        if not offsets:
            return None
        backoff = self._session.backoff(patience_ms)
        try:
            generation = self._commits_as()
            async with self._turn(backoff):
                await self._commit(offsets, generation, round(backoff.seconds_left * 1000))
        except SparklogError as error:
            return error
        return None

    @asynccontextmanager
    async def _turn(self, backoff: Backoff) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(backoff.seconds_left):
                await self._row.acquire()
        except TimeoutError:
            text = f"the offsets for group {self._group_id!r} were not sent in time: commits before them are under way"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        try:
            yield
        finally:
            self._row.release()

    async def _commit(self, offsets: Offsets, generation: Generation, patience_ms: int) -> None:
        ids = self._topic_ids(offsets)
        request = commit_request(
            Asker(self._group_id, generation, self._config.group_instance_id or None), offsets, ids
        )

        def check(answer: OffsetCommitResponse) -> None:
            for tp, code in commit_errors(answer, ids).items():
                if code is ErrorCode.UNKNOWN_TOPIC_ID:
                    self._session.leaders.invalidate(tp.topic)
                if self._subscription.is_group_managed:
                    self._membership.commit_refused(generation, code)
                raise ApiError(code, f"the offset of partition {tp} for group {self._group_id!r}: {code.name}")

        await self._session.coordinator_request(
            CoordinatorKind.GROUP,
            self._group_id,
            ApiKey.OFFSET_COMMIT,
            request,
            check=check,
            patience_ms=patience_ms,
            ceiling=ceiling(ids),
        )

    def _commits_as(self) -> Generation:
        if not self._subscription.is_group_managed:
            return Generation()
        self._membership.check()
        generation = self._membership.generation
        if generation.number < 0:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"the consumer is not a member of group {self._group_id!r} now, so its offsets are not committed;"
                " it joins when it polls",
            )
        return generation

    def reached(self) -> Offsets:
        """Where each assigned partition goes on; without what was reached in a topic that has been deleted, for it says
        nothing of the topic that has the name now.
        """
        positions = self._subscription.positions()
        return to_commit({tp: at for tp, at in positions.items() if self._is_of_topic(tp)})

    def _is_of_topic(self, tp: TopicPartition) -> bool:
        """Whether the position is one in the topic that has the name now, as far as is known."""
        reached, now = self._subscription.state(tp).topic_id, self._session.leaders.last_known(tp.topic)
        return now is None or ZERO_UUID in (reached, now.topic_id) or reached == now.topic_id

    def start_auto_commit(self) -> asyncio.Task[SparklogError | None]:
        """Begin to commit all positions as they are now; a failure is a line in the log."""
        started = self.start(self.reached(), _AUTO_COMMIT_PATIENCE_MS)
        started.add_done_callback(self._warn)
        return started

    def _warn(self, auto_commit: asyncio.Task[SparklogError | None]) -> None:
        if not auto_commit.cancelled() and (failure := auto_commit.result()) is not None:
            _log.warning("auto-commit for group %s failed: %s", self._group_id, failure)

    async def auto_commit(self) -> None:
        """Commit all positions, if auto-commit is on."""
        if self._config.auto_commit_interval is not None:
            await self.start_auto_commit()

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; waits while a transaction may change it."""
        if not partitions:
            return {}
        ids = self._topic_ids(partitions)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}

        def check(answer: OffsetFetchResponse) -> None:
            found.update(fetched_offsets(answer, ids))

        request = fetch_request(self._group_id, partitions, ids)
        await self._session.coordinator_request(
            CoordinatorKind.GROUP, self._group_id, ApiKey.OFFSET_FETCH, request, check=check, ceiling=ceiling(ids)
        )
        return found

    def _topic_ids(self, partitions: Collection[TopicPartition]) -> dict[str, UUID]:
        known = {tp.topic: self._session.leaders.topic(tp.topic) for tp in partitions}
        return {topic: ZERO_UUID if info is None else info.topic_id for topic, info in known.items()}
