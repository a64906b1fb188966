"""Walks over the log directories of a broker: its partitions are written, cut, moved, deleted and made again, while
disks refuse one step or all; it stops in order, or dies. What each partition is to have is known, and compared after
each step.
"""

import asyncio
import errno
import os
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from replica.test_future import LARGE, Stage, batch, decision
from sim.seeds import seeds

from sparklog.errors import ApiError, ErrorCode, LogError
from sparklog.record.batch import RecordBatch
from sparklog.structs import TopicPartition
from sparklog.testing.files import FaultyFiles

SETTINGS = {"segment.bytes": "2000", "segment.index.bytes": "4000", "retention.ms": "-1"}
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
STEPS = ("append",) * 4 + ("move",) * 3 + ("delete_records", "retain", "checkpoint", "make_again", "stop", "die")
FAULTY = ("move", "make_again", "checkpoint", "retain")
KINDS = [("rename",), ("write",), ("open",), ("mkdir",), ("rename", "open", "write", "mkdir")]
SEEDS = seeds(2, 200, (203, 212, 271))
"""In the last three a log directory counted as failed: what a move could not remove was in the way of the next."""


@dataclass
class Known:
    """What a partition is to have."""

    topic_id: UUID
    start: int = 0
    values: list[bytes] = field(default_factory=list)
    """By offset."""

    @property
    def end(self) -> int:
        return len(self.values)


def batches_in(data: bytes) -> Iterator[RecordBatch]:
    position = 0
    while position < len(data):
        found = RecordBatch(data, position)
        position += found.size_in_bytes
        yield found


class Walk:
    """Of a broker under ``root``; each life has a directory of its own, which begins with what the last one left."""

    def __init__(self, root, seed, disk):
        self._root, self._disk, self._random = root, disk, random.Random(seed)
        self._lives = self._epoch = 0
        self._ids = iter(range(1, 1_000_000))
        self._known = {}
        self._begin()
        for tp in PARTITIONS:
            self._make(tp)

    def _begin(self):
        self._stage = Stage(self._root / str(self._lives), self._disk, asyncio.get_running_loop(), **SETTINGS)

    def _make(self, tp):
        self._known[tp] = Known(UUID(int=next(self._ids)))
        self._lead(tp, is_new=True)

    def _lead(self, tp, *, is_new):
        self._epoch += 1
        known, stage = self._known[tp], self._stage
        state = decision(epoch=self._epoch)
        assert stage.replicas.apply(tp, state, stage.config, known.topic_id, is_new=is_new) is ErrorCode.NONE

    async def take(self, steps):
        for _ in range(steps):
            kind, tp = self._random.choice(STEPS), self._random.choice(PARTITIONS)
            fault = self._fault(kind, tp)
            if kind == "make_again":
                await self._make_again(tp, fault)
            else:
                with fault:
                    await getattr(self, f"_{kind}")(tp)
            assert not self._stage.logs.dirs.failed
            for each in PARTITIONS:
                self._check(each)

    async def close(self):
        await self._stage.replicas.futures.close()
        await self._idle()
        self._stage.logs.close()

    def _fault(self, kind, tp):
        """No room, or no more files, from a step on or at one."""
        if kind not in FAULTY or self._random.random() < 0.4:
            return nullcontext()
        home, steps = self._random.choice("abc"), self._random.choice(KINDS)
        if kind == "move" and self._random.random() < 0.5:
            home, steps = self._stage.home(tp), ("rename",)
        error = self._random.choice([errno.ENOSPC, errno.ENOSPC, errno.EMFILE])
        at, lasting = self._random.randrange(8), self._random.random() < 0.8
        return FaultyFiles(self._stage.homes[home], fail_at=at, error=error, lasting=lasting, steps=steps)

    def _append_one(self, tp):
        value = batch(os.urandom(self._random.randrange(1, 60)))
        self._stage.append(value, tp=tp)
        self._known[tp].values.append(bytes(RecordBatch(value).payload))

    async def _append(self, tp):
        for _ in range(self._random.randrange(1, 25)):
            self._append_one(tp)

    async def _delete_records(self, tp):
        known = self._known[tp]
        known.start = self._random.choice([known.end, self._random.randint(known.start, known.end)])
        self._stage.replicas.delete_records(tp, known.start)

    async def _retain(self, tp):
        with suppress(LogError):
            while self._stage.logs.delete_old_segments(tp, self._known[tp].end):
                pass

    async def _checkpoint(self, _):
        with suppress(LogError):
            self._stage.logs.checkpoint()

    async def _move(self, tp):
        if self._random.random() < 0.5:
            await self._stage.hold()
        with suppress(ApiError):
            await self._stage.alter(self._random.choice("abc"), tp)
        for _ in range(self._random.randrange(400)):  # turns of the loop: so far the copying may come
            await asyncio.sleep(0)
        if self._random.random() < 0.3:
            self._append_one(tp)
        self._stage.go_on()

    async def _make_again(self, tp, fault):
        """The controller asks again where the disk refuses the deletion, and makes the topic when that is done."""
        replicas = self._stage.replicas
        async with replicas.changing:
            with fault:
                code = replicas.stop(tp, delete=True)
            if code is not ErrorCode.NONE:
                assert replicas.stop(tp, delete=True) is ErrorCode.NONE
            self._make(tp)

    async def _stop(self, _):
        await self._end_moves()
        await self.close()
        self._live_again()
        for tp in PARTITIONS:
            assert self._stage.replicas.partition(tp).log_start_offset == self._known[tp].start

    async def _die(self, _):
        """Without a word; nothing that was written is lost."""
        await self._end_moves()
        copied = self._root / str(self._lives + 1)
        await asyncio.get_running_loop().run_in_executor(self._disk, self._copy, copied)
        await self.close()
        self._live_again()
        for tp in PARTITIONS:  # what was deleted since the last checkpoint may be back
            self._known[tp].start = self._stage.replicas.partition(tp).log_start_offset

    async def _end_moves(self):
        if self._random.random() < 0.5:
            for tp in PARTITIONS:
                await self._stage.moved(tp)

    async def _idle(self):
        await asyncio.get_running_loop().run_in_executor(self._disk, lambda: None)

    def _copy(self, to):
        while True:
            try:
                shutil.copytree(self._root / str(self._lives), to)
                return
            except (shutil.Error, FileNotFoundError):  # a copy's thread changed something meanwhile
                shutil.rmtree(to)

    def _live_again(self):
        before, now = (self._root / str(life) for life in (self._lives, self._lives + 1))
        self._lives += 1
        if not now.exists():
            shutil.copytree(before, now)
        shutil.rmtree(before)
        self._begin()
        for tp in PARTITIONS:
            self._lead(tp, is_new=False)

    def _check(self, tp):
        known, log = self._known[tp], self._stage.logs.logs[tp]
        assert (log.topic_id, log.log_end_offset) == (known.topic_id, known.end)
        assert log.log_start_offset <= known.start
        found, offset = {}, log.log_start_offset
        while offset < known.end:
            piece = log.read(offset, LARGE, log.end, min_one_batch=True)
            for each in batches_in(os.pread(piece.file.fileno(), piece.size, piece.position)):
                found[each.base_offset] = bytes(each.payload)
                offset = each.next_offset
        wanted = dict(enumerate(known.values))
        assert {at: found.get(at) for at in wanted if at >= known.start} == {
            at: value for at, value in wanted.items() if at >= known.start
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_written_is_there_wherever_it_lies(tmp_path, seed):
    async def take():
        with ThreadPoolExecutor(1) as disk:
            taken = Walk(tmp_path, seed, disk)
            try:
                await taken.take(random.Random(seed).randrange(10, 35))
            finally:
                await taken.close()

    asyncio.run(take())
