"""Cleanings that somebody else than this broker's workers does: granted one at a time a log, and only for a while.

A grant is a token, and what is to be done. Its holder writes drafts beside the log's files, and has them put in place
group by group, with the checks that the broker's own workers meet. A grant that is not renewed lapses: then its log is
free again, and what comes under its token is refused. So a holder that dies costs the log a pause, and one that is late
changes nothing. The clean section grows only when every group below its new end is in place.

A task may outlive its job, and leave drafts when the log is free already. They do no harm but take room: where a job
did not end its cleaning, they are removed again and again for a while, at moments when nobody cleans the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sparklog.clock import Clock
from sparklog.compaction.process import CleaningFailed
from sparklog.compaction.rewriting import CleanedGroup
from sparklog.compaction.split import Target
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import CleaningTask, Failure
from sparklog.errors import LogError
from sparklog.log.files import draft_suffix
from sparklog.log.log import Log
from sparklog.net.tasks import Tasks
from sparklog.replica.cleaning import Abandoned, LogCleaner, Mark, NotCleaned
from sparklog.structs import TopicPartition

LONGEST_S = 300.0
"""No grant runs longer without being renewed."""
SWEPT_EACH_S = 60.0
SWEPT_FOR_S = 3600.0
"""For so long a task may go on whose job has lost the grant."""
_REMEMBERED = 1000
_logger = logging.getLogger(__name__)


class CleanedAlready(NotCleaned):
    """Another is at it."""


@dataclass(slots=True)
class _Grant:
    """One cleaning by somebody else."""

    token: int
    tp: TopicPartition
    task: CleaningTask
    mark: Mark
    until: float
    """Monotonic, in seconds."""
    placed: dict[str, asyncio.Task[Exception | None]] = field(default_factory=dict)
    """By the tag and the first offset of a group: why it is not in place, if it is not."""
    replaced: set[int] = field(default_factory=set)
    """Base offsets of the segments that gave way, or are about to."""

    @property
    def is_busy(self) -> bool:
        return any(not each.done() for each in self.placed.values())


@dataclass(slots=True)
class _Abandoned:
    """A log in which tasks without a grant may still leave drafts."""

    log: Log
    until: float
    next: float
    """When it is looked at again. Both monotonic, in seconds."""


class CleaningGrants:
    """Those of one broker; belongs to the loop's thread. A restart forgets them, and their tokens with them."""

    def __init__(self, cleaner: LogCleaner, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._cleaner = cleaner
        self._clock = clock
        self._tasks = Tasks(loop, lambda name, error: _logger.error("%s failed", name, exc_info=error))
        self._grants: dict[int, _Grant] = {}
        self._done: dict[int, None] = {}
        self._abandoned: dict[TopicPartition, _Abandoned] = {}
        self._clearing: dict[TopicPartition, asyncio.Task[None]] = {}
        self._last_token = clock.now_ms()  # so that a token from before a restart is not given again

    async def close(self) -> None:
        """Wait for swaps under way; no grant is of use any more."""
        for token in list(self._grants):
            self._end(self._grants[token], Abandoned("the broker is about to stop"))
        await self._tasks.finish()

    async def begin(self, tp: TopicPartition, *, rolls: bool, duration_s: float) -> tuple[int, Target]:
        """Let the caller clean a log: a token, and what is to be done. ``rolls``: its active segment ends before.

        Raises CleanedAlready, in words; NotCleaned where it cannot be; NothingToClean; LogError.
        """
        self.expire()
        while tp in self._clearing:
            await asyncio.wait([self._clearing[tp]])
        if tp in self._cleaner.under_way:
            said = f"{tp} is being cleaned already: by {self.who_cleans(tp)}; one cleaning a log at a time"
            raise CleanedAlready(said)
        if rolls:
            self._cleaner.forget_failure(tp)
        else:
            self._cleaner.forget_pause(tp)
        candidate = self._cleaner.examine(tp, rolls=rolls)
        self._cleaner.under_way.add(tp)
        try:
            task, mark = await self._cleaner.begin(candidate)
            await self._cleaner.undo(mark.log)
            target = Target(task, await self._cleaner.numbers(task))
            self._cleaner.check(mark)
        except BaseException as error:
            self._cleaner.release(tp)
            if isinstance(error, Abandoned | OSError):
                raise NotCleaned(f"{tp} cannot be cleaned now: {error}") from error
            raise
        self._last_token += 1
        grant = _Grant(self._last_token, tp, task, mark, self._until(duration_s))
        self._grants[grant.token] = grant
        return grant.token, target

    def who_cleans(self, tp: TopicPartition) -> str:
        """Of a log that is being cleaned, in words."""
        found = next((each for each in self._grants.values() if each.tp == tp), None)
        if found is None:
            return "the broker itself"
        left_s = max(found.until - self._clock.monotonic(), 0)
        return f"a job that has it for {left_s:.0f} s more, or as long as it renews that"

    def _until(self, duration_s: float) -> float:
        return self._clock.monotonic() + min(max(duration_s, 0.0), LONGEST_S)

    def topic_of(self, token: int) -> str | None:
        """Whose cleaning a token is for; None of one that has lapsed or is unknown."""
        grant = self._grants.get(token)
        return None if grant is None else grant.tp.topic

    def renew(self, tokens: Iterable[int], duration_s: float) -> list[int]:
        """Let these run for ``duration_s`` from now on; the tokens of those that have lapsed."""
        self.expire()
        lapsed = []
        for token in tokens:
            grant = self._grants.get(token)
            if grant is None:
                lapsed.append(token)
            else:
                grant.until = max(grant.until, self._until(duration_s))
        return lapsed

    def expire(self) -> None:
        """End the grants that have lapsed. A timer of the broker calls ``tend``, which does so."""
        now = self._clock.monotonic()
        for grant in list(self._grants.values()):
            if grant.until <= now and not grant.is_busy:
                self._end(grant, Abandoned("the job that cleaned it was not heard of for too long"))

    def tend(self) -> None:
        """What is to be done about once a second: end what has lapsed, and sweep where late tasks may have written."""
        self.expire()
        now = self._clock.monotonic()
        for tp, each in list(self._abandoned.items()):
            if each.next <= now and tp not in self._cleaner.under_way:
                each.next = now + SWEPT_EACH_S
                if now >= each.until:
                    del self._abandoned[tp]
                self._cleaner.under_way.add(tp)
                self._clear_later(tp, self._sweep(tp, each.log))

    def _clear_later(self, tp: TopicPartition, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._clearing[tp] = self._tasks.spawn(work, f"removing what a job left in {tp}")

        def forget(_: object) -> None:
            if self._clearing.get(tp) is task:
                del self._clearing[tp]

        task.add_done_callback(forget)
        return task

    async def put_in_place(self, token: int, group: CleanedGroup, tag: str) -> None:
        """Take over the drafts of a group, written under ``tag``; once more is the same as once.

        Raises NotCleaned, Abandoned, LogError.
        """
        grant = self._granted(token)
        key = f"{tag}-{group.old[0] if group.old else -1}"
        placing = grant.placed.get(key)
        if placing is None:
            self._check_group(grant, group)
            draft_suffix(tag)
            grant.replaced |= set(group.old)
            placing = grant.placed[key] = self._tasks.spawn(self._place(grant, group, tag), f"a group of {grant.tp}")
        await self._placed(placing)

    async def _place(self, grant: _Grant, group: CleanedGroup, tag: str) -> Exception | None:
        """It goes on to its end, whoever waits for it."""
        try:
            await self._cleaner.put_in_place(group, grant.mark, tag)
        except (Abandoned, LogError) as error:
            return error
        return None

    @staticmethod
    async def _placed(placing: asyncio.Task[Exception | None]) -> None:
        """Raises why it is not in place."""
        refused = await asyncio.shield(placing)
        if refused is not None:
            raise refused

    def _check_group(self, grant: _Grant, group: CleanedGroup) -> None:
        """Raises NotCleaned unless these are segments that the cleaning is of, one after another, each for once."""
        task = grant.task
        bases = [each.base_offset for each in task.segments[:-1] if each.base_offset < task.first_uncleanable]
        first = bases.index(group.old[0]) if group.old and group.old[0] in bases else 0
        last = task.segments[bases.index(group.old[-1]) + 1] if group.old and group.old[-1] in bases else None
        is_sound = (
            last is not None
            and list(group.old) == bases[first : first + len(group.old)]
            and list(group.new) == sorted(set(group.new))
            and group.new[:1] == group.old[:1]
            and group.new[-1] < last.base_offset
        )
        if not is_sound or grant.replaced & set(group.old):
            raise NotCleaned(f"segments {list(group.old)} of {grant.tp} are not to be replaced by {list(group.new)}")

    async def finish(self, token: int, stats: CleanerStats) -> None:
        """The log is clean up to ``stats.end_offset``; once more is the same as once. Raises NotCleaned, Abandoned."""
        if token in self._done:
            return
        grant = self._granted(token)
        task, end = grant.task, stats.end_offset
        left = [each.base_offset for each in task.segments[:-1] if each.base_offset < end]
        if (
            grant.is_busy
            or not task.first_dirty <= end <= task.first_uncleanable
            or not grant.replaced.issuperset(left)
        ):
            raise NotCleaned(f"{grant.tp} is not clean up to {end}: there are segments below that are not replaced")
        for placing in grant.placed.values():
            await self._placed(placing)
        self._cleaner.check(grant.mark)
        self._cleaner.finish(grant.tp, replace(stats, first_offset=task.first_dirty))
        self._done[token] = None
        for old in list(self._done)[:-_REMEMBERED]:
            del self._done[old]
        await asyncio.shield(self._end(grant, None))

    async def give_up(self, token: int, failure: CleaningFailed) -> None:
        """Clean the log no further; what is in place stays. An unknown token is passed over."""
        grant = self._grants.get(token)
        if grant is not None:
            await asyncio.shield(self._end(grant, failure))

    def _granted(self, token: int) -> _Grant:
        self.expire()
        grant = self._grants.get(token)
        if grant is None:
            raise NotCleaned("the grant has lapsed, or was given up: what comes under its token is not taken")
        return grant

    def _end(self, grant: _Grant, error: Exception | None) -> asyncio.Task[None]:
        """The log is free when nothing is left of what was written for it."""
        del self._grants[grant.token]
        grant.mark.is_given_up = True  # a group may wait to be put in place
        if error is not None:
            now = self._clock.monotonic()
            self._abandoned[grant.tp] = _Abandoned(grant.mark.log, now + SWEPT_FOR_S, now + SWEPT_EACH_S)
        return self._clear_later(grant.tp, self._clear(grant, error))

    async def _clear(self, grant: _Grant, error: Exception | None) -> None:
        await asyncio.gather(*grant.placed.values(), return_exceptions=True)
        try:
            if error is not None:
                self._cleaner.failed(grant.mark, _as_of_a_job(error))
        finally:
            await self._sweep(grant.tp, grant.mark.log)

    async def _sweep(self, tp: TopicPartition, log: Log) -> None:
        """Then the log is free."""
        try:
            await self._cleaner.undo(log)
        except (LogError, OSError) as left:
            _logger.warning("what a job left in %s stays for now: %s", log.directory, left)
        finally:
            self._cleaner.release(tp)


def _as_of_a_job(error: Exception) -> Exception:
    """That a disk refused somebody else, who may be at fault, does not make the log one that cannot be cleaned."""
    is_its_own = isinstance(error, CleaningFailed) and error.kind is Failure.DISK
    return Abandoned(str(error)) if is_its_own else error
