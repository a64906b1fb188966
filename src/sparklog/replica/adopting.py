"""Adoptions of segments by the leaders on this broker: which may be, in which order, and what is left of others.

Invariants: one adoption a partition at a time. Batches are looked into on a thread of their own; nothing is held up by
it. While the files are put in place the log takes no appends (producers try again), no partition of this broker is
made, taken away, cut, or led under another epoch (``changing`` is held), and readers read on. What was asked for once
is done once: who asks again under the same tag is told what became of it, as long as this broker runs. A restart
forgets it, and then the files are gone: nothing is adopted twice. ``docs/adr/0033-adopted-segments.md``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, TypeVar

from sparklog.clock import Clock
from sparklog.errors import ApiError, ErrorCode, LogDirFailed, LogError
from sparklog.log.adoption import Adoption, AppendAdoption, Offer, RestoreAdoption, is_certain
from sparklog.log.directories.manager import LogManager
from sparklog.log.files import OFFERED_SUFFIX, files_with_suffix, remove_files
from sparklog.log.log import Log
from sparklog.log.origin import Verification
from sparklog.net.tasks import Tasks
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.partition import Partition
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_REMEMBERED = 1000
LEFT_ALONE_S = 3600.0
"""For so long after it was written last a file waits to be adopted; then nobody will ask for it any more."""
NO_START = -1


class Mode(IntEnum):
    """What becomes of the batches' offsets."""

    APPEND = 0
    """The log gives them; they belong to one transaction."""
    RESTORE = 1
    """They are kept, with all else that the batches say."""


class Wish(NamedTuple):
    """What is asked for."""

    tp: TopicPartition
    mode: Mode
    offer: Offer
    leader_epoch: int
    """Under which the partition is led; -1 where it is not said."""
    log_start_offset: int = NO_START
    """Where a restored log is to begin, unless that is where its first segment does."""


class Adopted(NamedTuple):
    """Offsets of what is in the log now, and where that begins."""

    first_offset: int
    last_offset: int
    log_start_offset: int
    leader_epoch: int
    """Under which it was adopted: if another leads meanwhile it may be cut off again."""
    nbytes: int
    """Of the batches."""


class _Refusal(NamedTuple):
    """Why it was not adopted. Not the error, which would keep what was asked for in memory with it."""

    code: ErrorCode
    reason: str


@dataclass
class _Asked:
    """What somebody wants to be done, and may ask for again."""

    adopting: asyncio.Task[Adopted | _Refusal]
    is_counted: bool = False


Ask = Callable[[Adoption], Awaitable[Verification | None]]
"""Given what was looked into, how the log is to find out whether its producer's transaction reaches the partition."""


class SegmentAdopter:
    """Those of one broker; belongs to the loop's thread."""

    def __init__(
        self, replicas: ReplicaManager, logs: LogManager, loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> None:
        self._replicas = replicas
        self._logs = logs
        self._clock = clock
        self._tasks = Tasks(loop, lambda name, error: _logger.debug("%s: %s", name, error))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="adopt")
        self._asked: dict[tuple[TopicPartition, str], _Asked] = {}
        self._turns: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._swept: Iterator[Log] = iter(())

    async def close(self) -> None:
        """Wait for those under way."""
        await self._tasks.finish()
        self._thread.shutdown(wait=False)

    async def adopt(self, wish: Wish, ask: Ask) -> Adopted:
        """The offsets that the segments have now. Raises ApiError; then nothing of them is in the log, nor beside it,
        unless it was REQUEST_TIMED_OUT, or a full disk did not take where a restored log begins.
        """
        key = wish.tp, wish.offer.tag
        known = self._asked.get(key)
        if known is None:
            adopting = self._tasks.spawn(self._outcome(wish, ask), f"adopting segments of {wish.tp}")
            known = self._asked[key] = _Asked(adopting)
            self._forget_old()
        outcome = await asyncio.shield(known.adopting)
        if isinstance(outcome, _Refusal):
            raise ApiError(*outcome)
        return outcome

    def bytes_to_count(self, wish: Wish) -> int:
        """The size of what was adopted; 0 where it was asked for before, or was forgotten."""
        known = self._asked.get((wish.tp, wish.offer.tag))
        if known is None or known.is_counted:
            return 0
        known.is_counted = True
        outcome = known.adopting.result()
        return 0 if isinstance(outcome, _Refusal) else outcome.nbytes

    def _forget_old(self) -> None:
        for key, asked in list(self._asked.items())[:-_REMEMBERED]:
            if asked.adopting.done():
                del self._asked[key]

    async def _outcome(self, wish: Wish, ask: Ask) -> Adopted | _Refusal:
        try:
            return await self._adopt(wish, ask)
        except ApiError as error:
            _logger.debug("%s is not adopted: %s", wish.tp, error)
            return _Refusal(error.code, error.reason)

    async def _adopt(self, wish: Wish, ask: Ask) -> Adopted:
        async with self._turns[wish.tp]:
            partition = self._led(wish)
            log, truncations = partition.log, partition.log.truncations
            adoption = self._adoption(wish, log)
            try:
                await self._off_the_loop(adoption.check)
                first = log.log_end_offset if wish.mode is Mode.APPEND else wish.offer.bases[0]
                await self._off_the_loop(adoption.prepare, first, partition.leader_epoch)
                verification = await ask(adoption)
                async with self._replicas.changing:
                    partition = self._led(wish)
                    if partition.log is not log or log.truncations != truncations:
                        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{wish.tp} is not the log that it was")
                    await self._put_in_place(wish, partition, adoption, verification)
                    epoch = partition.leader_epoch
            except OSError as error:
                missing = isinstance(error, FileNotFoundError)
                code = ErrorCode.INVALID_REQUEST if missing else ErrorCode.KAFKA_STORAGE_ERROR
                raise ApiError(code, f"what is offered cannot be read: {error}") from error
            except LogError as error:
                raise self._replicas.refused(partition, error) from error
            finally:
                await self._off_the_loop(adoption.discard)
        _logger.info("%s: adopted %d records, up to offset %d", wish.tp, adoption.record_count, adoption.end_offset)
        last = adoption.end_offset - 1
        return Adopted(adoption.base_offset, last, partition.log_start_offset, epoch, adoption.nbytes)

    async def _off_the_loop(self, work: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.wrap_future(self._thread.submit(work, *arguments))

    def _led(self, wish: Wish) -> Partition:
        """Raises ApiError unless it is led here, and a producer could write to it."""
        partition = self._replicas.partition(wish.tp)
        partition.check_leader(wish.leader_epoch)
        partition.check_enough_in_sync()
        if wish.tp in self._logs.being_cut or self._logs.future_of(wish.tp) is not None:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{wish.tp} is being moved to another log directory: wait for that"
            )
        return partition

    def _adoption(self, wish: Wish, log: Log) -> Adoption:
        try:
            given = log.directory, wish.offer, log.config, self._clock.now_ms()
            if wish.mode is Mode.APPEND:
                return AppendAdoption(*given)
            _check_place(log, wish.offer)
            return RestoreAdoption(*given, log.producers_to_restore())
        except LogError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error

    async def _put_in_place(
        self, wish: Wish, partition: Partition, adoption: Adoption, verification: Verification | None
    ) -> None:
        log = partition.log
        if wish.mode is Mode.RESTORE:
            _check_place(log, wish.offer)
        log.hold(adoption, verification)
        try:
            if wish.mode is Mode.RESTORE and log.log_end_offset != wish.offer.bases[0]:
                await self._begin_anew(partition, wish.offer.bases[0])
            await asyncio.wrap_future(self._logs.run_on_disk(_place, log, adoption, partition.leader_epoch))
            log.take_adopted(adoption)
        finally:
            log.release()
        self._logs.written(log.directory)
        self._replicas.adopted(partition)
        if wish.mode is Mode.RESTORE:
            await self._make_certain(log)
        if wish.log_start_offset != NO_START:
            await self._begin_at(log, min(max(wish.log_start_offset, adoption.base_offset), log.log_end_offset))

    async def _make_certain(self, log: Log) -> None:
        """What is restored to a compacted topic may have holes between its segments. A start after a crash is not to
        take them for lost ends, whatever the policy is by then. A disk that refuses it may have it with a checkpoint.
        """
        try:
            certain = self._logs.run_on_disk(self._logs.make_certain, log, log.end.segment_base)
            await asyncio.wrap_future(certain)
        except LogDirFailed as error:
            self._logs.report(error, log.directory)

    async def _begin_anew(self, partition: Partition, offset: int) -> None:
        """The log, which is held and has no records, ends at ``offset``; nobody else looks at it meanwhile."""
        self._logs.being_cut.add(partition.tp)
        try:
            await asyncio.wrap_future(self._logs.start_restart(partition.tp, offset))
        finally:
            partition.truncated()
            self._logs.being_cut.discard(partition.tp)

    async def _begin_at(self, log: Log, offset: int) -> None:
        """The log begins at ``offset``, after a crash too. Raises LogDirFailed if its own log directory refuses."""
        self._logs.advance_start(log.tp, offset)
        for log_dir, write, refused in self._replicas.start_checkpoints():
            try:
                await asyncio.wrap_future(self._logs.run_on_disk(write))
            except LogDirFailed as error:
                refused(error)
                if log_dir == log.directory.parent:
                    raise

    # What nobody asks for

    def tend(self) -> None:
        """What is to be done about once a second: look at another log for files that wait too long."""
        log = next(self._swept, None)
        if log is None:
            self._swept = iter(list(self._logs.logs.values()))
        elif not self._turns[log.tp].locked():
            self._logs.run_on_disk(remove_forgotten, log.directory, time.time() - LEFT_ALONE_S)


def remove_forgotten(directory: Path, before: float) -> None:
    """Remove the offers of which no file was written to since ``before``, in seconds since 1970: the first of many
    segments waits long for the last.
    """
    with suppress(OSError):
        offers: defaultdict[str, list[Path]] = defaultdict(list)
        for path in () if is_certain(directory) else files_with_suffix(directory, OFFERED_SUFFIX):
            offers[path.name.removesuffix(OFFERED_SUFFIX).rpartition(".")[2]].append(path)
        for paths in offers.values():
            if max(path.lstat().st_mtime for path in paths) < before:
                remove_files(paths)


def _check_place(log: Log, offer: Offer) -> None:
    """Raises ApiError unless what keeps its offsets belongs at the end of the log."""
    is_empty = log.log_start_offset == log.log_end_offset
    if offer.bases and not is_empty and offer.bases[0] != log.log_end_offset:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{log.tp} has offsets {log.log_start_offset} to {log.log_end_offset - 1}: what begins at {offer.bases[0]} "
            "is not restored there; restore into a partition without records, or go on where it ends",
        )
    if offer.bases and offer.bases[0] < log.log_end_offset:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{log.tp} had records up to offset {log.log_end_offset - 1}, which followers may still have: what begins "
            f"at {offer.bases[0]} is not restored there; restore into a new topic",
        )


def _place(log: Log, adoption: Adoption, leader_epoch: int) -> None:
    """On the disk thread, while the log is held. Raises LogDirFailed."""
    place = log.log_end_offset, leader_epoch
    if adoption.prepared_for != place:
        adoption.prepare(*place)
    log.flush()
    adoption.commit()
