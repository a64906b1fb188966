"""Moving partitions between this broker's log directories: a copy is made, and takes the partition's place.

Invariants: the partition is served from its log all the time, and from its copy not before that has every batch of it;
then, in one turn of the loop, from the copy alone. What the partition's log drops, its copy drops before it copies on.
Directories are made, renamed and removed on the disk thread while ``changing`` is held, so no LeaderAndIsr, StopReplica
or deletion finds one half done. Records are copied on threads of their own, one step of a partition at a time; between
two steps it is looked whether the move is still wanted. ``log/directories/futures.py`` has the steps on the disk.
Source: Kafka 3.9, ``ReplicaManager.alterReplicaLogDirs``, ``ReplicaAlterLogDirsThread``; KIP-113.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sparklog.clock import Clock
from sparklog.errors import ApiError, CorruptRecord, DiskFull, ErrorCode, LogDirFailed, LogError
from sparklog.log.directories.directory import LogDir
from sparklog.log.directories.futures import FutureLogs, common_end
from sparklog.log.directories.manager import LogManager
from sparklog.log.files import future_path
from sparklog.log.log import Log
from sparklog.net.tasks import Tasks, to_its_end
from sparklog.replica.copy_rate import CopyRate
from sparklog.structs import FileSlice, TopicPartition

if TYPE_CHECKING:
    from sparklog.replica.manager import ReplicaManager

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")
UNLIMITED: Final = (1 << 63) - 1
"""Bytes a second: Kafka's default."""
_CHUNK = 1 << 20
"""Bytes that are copied in one step."""
_AT_ONCE = 1 << 16
"""Bytes that may be left when the copy stands in: they are copied on the loop, in less than a millisecond."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0
"""After a failure; each that follows doubles it."""


class _Behind(Exception):
    """The copy cannot go on where it ends: another is begun."""


class _Over(Exception):
    """The move is not wanted any more, or its partition is not here."""


class _Move:
    """A copy under way."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.is_over = False
        self.again_in: LogDir | None = None
        """Where a copy that could not go on is to be begun anew."""
        self.cut_to: int | None = None
        """The partition's log was cut there since the last step."""


class FutureReplicas:
    """Belongs to the loop's thread."""

    def __init__(
        self,
        replicas: ReplicaManager,
        logs: LogManager,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        threads: int = 1,
    ) -> None:
        """``threads`` copy side by side, one partition each at a time."""
        self.rate = CopyRate(clock, UNLIMITED)
        self._replicas = replicas
        self._logs = logs
        self._loop = loop
        self._copies = FutureLogs(logs)
        self._moves: dict[TopicPartition, _Move] = {}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="alter-log-dirs")
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}  # also of moves that are over, to their end
        self._tasks = Tasks(loop, lambda name, error: _logger.error("%s failed", name, exc_info=error))

    # What is asked for

    async def alter(self, tp: TopicPartition, path: str) -> None:
        """Have the partition lie in the log directory of this absolute path: moved there, or made there later.

        To ask for where it lies cancels a move. Raises ApiError: INVALID_TOPIC_EXCEPTION, LOG_DIR_NOT_FOUND,
        KAFKA_STORAGE_ERROR; UNKNOWN_TOPIC_OR_PARTITION if it is not here, and remembers the wish then.
        """
        error = await to_its_end(self._altered(tp, path))
        if error is not None:
            raise error

    async def _altered(self, tp: TopicPartition, path: str) -> ApiError | None:
        """Why it could not be: also where nobody waits for that any more."""
        try:
            await self._alter(tp, path)
        except ApiError as error:
            return error
        return None

    async def _alter(self, tp: TopicPartition, path: str) -> None:
        async with self._replicas.changing:
            future_path(Path(path), tp)  # raises if its name would be too long
            home = self._logs.dirs.find(path)
            if tp in self._logs.unusable:
                self._replicas.partition(tp)  # raises
            if self._logs.future_home_of(tp) not in (None, home.path):
                await self._cancel(tp)
            self._logs.prefer(tp, home)
            partition = self._replicas.partition(tp)
            if partition.log_dir == home.path or tp in self._moves:
                return
            if self._logs.future_of(tp) is None:
                self._logs.dirs.check_all()
                await self._begin(tp, home)
            self._start(tp)

    async def _cancel(self, tp: TopicPartition) -> None:
        self.leave(tp)
        self._logs.drop_future(tp)
        copy = self._logs.dormant.get(tp)
        if copy is not None:
            await self._remove_copy(tp, copy)

    async def _remove_copy(self, tp: TopicPartition, copy: Path) -> None:
        """Raises ApiError where the disk refuses: then it is still known, and is removed when that is tried again."""
        await self._guarded(copy, self._on_disk(self._copies.remove, tp, copy))
        self._logs.dormant.pop(tp, None)

    async def _begin(self, tp: TopicPartition, home: LogDir) -> None:
        await self._finish_last_move(tp)
        work = self._on_disk(self._copies.begin, tp, home)
        self._add(tp, await self._guarded(home.path / str(tp), work))

    async def _finish_last_move(self, tp: TopicPartition) -> None:
        """What the disk did not let go at an earlier move has the name that the copy may be to have, and a start knows
        what to make of two directories of which one is marked, not of three or of two marks. Raises ApiError.
        """
        old, new = self._logs.leaving.get(tp), self._logs.logs.get(tp)
        if new is None:
            return
        if old is not None:
            await self._guarded(new.directory, self._secure(old, new))
            await self._guarded(old.directory, self._remove(old, new))
        if not self._logs.dirs.failed:  # or it may be in one of those
            await self._guarded(new.directory, self._on_disk(self._copies.unmark, new))

    def _add(self, tp: TopicPartition, future: Log) -> None:
        """Raises ApiError if its log directory has failed while it was opened."""
        try:
            self._logs.dirs.of(future.directory)
        except LogDirFailed as error:
            future.abandon()
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._logs.add_future(tp, future)

    async def _guarded(self, directory: Path, work: Coroutine[Any, Any, _T]) -> _T:
        """Raises ApiError where the disk refuses, and reports that of the ``directory``."""
        try:
            return await work
        except LogError as error:
            if isinstance(error, LogDirFailed):
                self._logs.report(error, directory)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def resume(self, tp: TopicPartition) -> None:
        """The partition is here: go on with the copy of it that was under way, if there is one."""
        if tp not in self._moves and self._logs.future_of(tp) is not None:
            self._start(tp)

    def leave(self, tp: TopicPartition) -> None:
        """Copy the partition no longer. What there is stays until somebody removes it, or the copying goes on."""
        move = self._moves.pop(tp, None)
        if move is not None:
            move.is_over = True

    def cut(self, tp: TopicPartition, offset: int) -> None:
        """The partition's log was cut at ``offset``."""
        move = self._moves.get(tp)
        if move is not None:
            move.cut_to = offset if move.cut_to is None else min(move.cut_to, offset)

    async def close(self) -> None:
        """Copy nothing any more; the copies stay, and the next start goes on with them."""
        for tp in list(self._moves):
            self.leave(tp)
        await self._tasks.cancel()
        async with self._replicas.changing:  # what is under way on the disk is done to its end
            pass
        await self._loop.run_in_executor(None, self._pool.shutdown)

    # One move

    def _start(self, tp: TopicPartition) -> None:
        move = self._moves[tp] = _Move(tp)
        before = self._running.get(tp)
        task = self._running[tp] = self._tasks.spawn(self._run(move, before), f"moving {tp}")
        task.add_done_callback(lambda done: self._ended(tp, done))

    def _ended(self, tp: TopicPartition, task: asyncio.Task[None]) -> None:
        if self._running.get(tp) is task:
            del self._running[tp]

    async def _run(self, move: _Move, before: asyncio.Task[None] | None) -> None:
        if before is not None:  # a step of it may be under way, on another thread
            await asyncio.wait((before,))
        try:
            await self._until_over(move)
        finally:
            if self._moves.get(move.tp) is move:
                del self._moves[move.tp]

    async def _until_over(self, move: _Move) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._attempt(move)
                return
            except _Over:
                return
            except _Behind:
                move.again_in = self._copied_to(move)
                continue
            except (LogError, CorruptRecord, ApiError) as error:
                if move.is_over:
                    return
                self._suffer(move, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _suffer(self, move: _Move, error: Exception) -> None:
        """Tell whose disk it is. A move whose copy is on a failed disk is over when that is known."""
        future = self._logs.futures.get(move.tp)
        if isinstance(error, LogDirFailed) and future is not None:
            self._logs.report(error, future.directory)
        if not isinstance(error, DiskFull):
            _logger.error("cannot copy %s to another log directory, trying again: %s", move.tp, error)

    async def _attempt(self, move: _Move) -> None:
        """Raises _Over, _Behind, LogError, CorruptRecord or ApiError."""
        if move.again_in is not None:
            await self._hold(self._begin_again, move)
        elif move.tp not in self._logs.futures:
            await self._hold(self._open, move)
        elif self._logs.futures[move.tp].is_over:
            await self._hold(self._open_again, move)
        self._look_for_divergence(move)
        while True:
            await self._catch_up(move, is_throttled=True)
            await self._in_pool(self._pair(move)[1].flush)
            if await self._hold(self._finish, move):
                return

    async def _hold(self, work: Callable[[_Move], Coroutine[Any, Any, _T]], move: _Move) -> _T:
        """Do it to its end while nobody else makes or takes away partitions."""

        async def held() -> _T:
            async with self._replicas.changing:
                if move.is_over:
                    raise _Over
                return await work(move)

        return await to_its_end(held())

    async def _open(self, move: _Move) -> None:
        tp, path = move.tp, self._logs.dormant.get(move.tp)
        if path is None:
            raise _Over
        future = await self._on_disk(self._copies.go_on, tp, path)
        if future is None:
            self._logs.dormant.pop(tp, None)
            raise _Over
        if await self._on_disk(self._copies.is_outdated, tp, future):
            future.abandon()
            raise _Behind
        self._add(tp, future)

    async def _open_again(self, move: _Move) -> None:
        """The copy was closed, and the disk refused it its name."""
        _, future = self._pair(move)
        self._add(move.tp, await self._on_disk(self._copies.open_again, future))

    def _copied_to(self, move: _Move) -> LogDir | None:
        path = self._logs.future_of(move.tp)
        try:
            return None if path is None else self._logs.dirs.of(path)
        except LogDirFailed:
            return None

    async def _begin_again(self, move: _Move) -> None:
        tp, home = move.tp, move.again_in
        if home is None or home not in self._logs.dirs.in_service:
            raise _Over
        path = self._logs.future_of(tp)
        if path is not None:
            self._logs.drop_future(tp)
            await self._remove_copy(tp, path)
        await self._begin(tp, home)
        move.again_in = None

    def _pair(self, move: _Move) -> tuple[Log, Log]:
        """The partition's log and its copy. Raises _Over."""
        current, future = self._logs.logs.get(move.tp), self._logs.futures.get(move.tp)
        if move.is_over or current is None or future is None:
            raise _Over
        return current, future

    def _look_for_divergence(self, move: _Move) -> None:
        """A crash may have taken from the partition's log what its copy has."""
        current, future = self._pair(move)
        end = common_end(current.epochs.entries, current.log_end_offset, future.epochs.entries, future.log_end_offset)
        if end < future.log_end_offset:
            self.cut(move.tp, end)

    async def _catch_up(self, move: _Move, *, is_throttled: bool) -> None:
        """Copy until so little is left that it may be copied at once. Raises _Over or _Behind."""
        while True:
            await self._cut(move)
            piece = self._next(move)
            if piece is None or piece.size < _AT_ONCE:
                return
            await self._step(move, piece)
            if is_throttled:
                await self.rate.pay(piece.size, lambda: move.is_over)

    def _next(self, move: _Move) -> FileSlice | None:
        current, future = self._pair(move)
        if future.log_end_offset < current.base_offset:
            raise _Behind
        try:
            return current.read_for_copy(future.log_end_offset, _CHUNK)
        except OSError as error:
            raise self._read_refused(current, error) from error

    async def _step(self, move: _Move, piece: FileSlice) -> None:
        current, future = self._pair(move)
        self._check_read(current, await self._in_pool(self._copies.copy, future, piece))
        if self._pair(move)[1] is future:
            future.on_high_watermark(min(current.high_watermark, future.log_end_offset))
            future.advance_start(current.log_start_offset)

    def _check_read(self, current: Log, error: OSError | None) -> None:
        """Raises ApiError if the partition's own disk refused."""
        if error is not None:
            raise self._read_refused(current, error)

    def _read_refused(self, current: Log, error: OSError) -> ApiError:
        return self._replicas.refused(self._replicas.partition(current.tp), error)

    async def _cut(self, move: _Move) -> None:
        """Have the copy drop what the partition's log has dropped."""
        while move.cut_to is not None:
            _, future = self._pair(move)
            offset, move.cut_to = move.cut_to, None
            if offset < future.base_offset:
                raise _Behind
            await self._on_disk(self._logs.cut, future, offset)

    async def _finish(self, move: _Move) -> bool:
        """Let the copy stand in; false if there is more to be done before."""
        tp = move.tp
        if move.cut_to is not None:
            return False
        _, future = self._pair(move)
        named = await self._on_disk(self._copies.give_name, tp, future)
        if named is not future:
            self._add(tp, named)
        await self._catch_up(move, is_throttled=False)
        current, new = self._pair(move)
        while (piece := self._next(move)) is not None:
            self._check_read(current, self._copies.copy(new, piece))
        old = self._copies.swap(tp)
        self.leave(tp)
        self._replicas.moved(tp, new)
        _logger.info("%s lies in %s from now on, and no longer in %s", tp, new.directory.parent, old.directory.parent)
        await self._retire(old, new)
        return True

    async def _retire(self, old: Log, new: Log) -> None:
        """What is left of the old log goes, unless a disk refuses that: then the next start sees to it."""
        for directory, work in ((new.directory, self._secure), (old.directory, self._remove)):
            try:
                await work(old, new)
            except LogDirFailed as error:
                _logger.error(
                    "%s is left of a move to another log directory, until the next start: %s", old.directory, error
                )
                self._logs.report(error, directory)
                return

    async def _secure(self, _: Log, new: Log) -> None:
        await self._on_disk(self._copies.secure, new)

    async def _remove(self, old: Log, new: Log) -> None:
        self._logs.remove_later(await self._on_disk(self._copies.retire, old, new))

    async def _on_disk(self, work: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.wrap_future(self._logs.run_on_disk(work, *arguments), loop=self._loop)

    async def _in_pool(self, work: Callable[..., _T], *arguments: object) -> _T:
        return await self._loop.run_in_executor(self._pool, work, *arguments)
