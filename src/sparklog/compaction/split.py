"""One cleaning by many tasks, in two stages, with the steps and the rules of ``cleaner`` in each.

Stage 1. ``IndexStretch`` puts the keys of a stretch of the dirty section into a map, and leaves it in a file. By
version, where the last record of a key need not win, ``IndexPart`` does so with a part of all keys, chosen by hash.
``TraceStretch`` looks at the headers of a stretch of the log for what is said of transactions: out of that comes what
is known of them where the next stretch begins, as if all before it had been rewritten.

Stage 2. ``RewriteStretch`` writes the groups of a stretch anew, judging each record by the map of its key's part, or by
the latest map that has its key.

Tasks write drafts (``log/files.py``) under a tag that no other attempt has. So one that is repeated, or runs twice at a
time, disturbs nothing, and whoever owns the log takes those of one attempt. What comes out is what one pass writes,
byte for byte; replicas of one partition may share the map.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from sparklog.clock import Clock
from sparklog.compaction.host_rate import HostRate, shared_place
from sparklog.compaction.indexing import KeyIndexing
from sparklog.compaction.key_parts import KeyParts, Part
from sparklog.compaction.rewriting import CleanedGroup, GroupRewriting
from sparklog.compaction.room import NO_LIMIT, SpillRoom, dumped_size
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import CleaningTask
from sparklog.compaction.transactions import CleanedTransactions, OpenTransactions, Trace, TraceLog
from sparklog.compaction.walk import FileNumber, SegmentWalk, aborted_transactions, segments_between
from sparklog.log.files import draft_suffix
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.record.batch import RecordBatch
from sparklog.record.compacting import make_offset_map, open_offset_map, skip_plain

AT_THE_START = OpenTransactions(-1, [], [], [])
Group = Sequence[int]
"""The base offsets of the segments that become one."""


@dataclass(frozen=True, slots=True)
class Target:
    """A log that is cleaned, and what tells its files from others."""

    task: CleaningTask
    numbers: dict[int, FileNumber]
    """Of the ``.log`` files of all segments but the active one, by base offset."""

    def to_json(self) -> str:
        return json.dumps({"task": self.task.to_json(), "numbers": self.numbers})

    @classmethod
    def from_json(cls, text: str) -> Target:
        fields = json.loads(text)
        numbers = {int(base): FileNumber(*each) for base, each in fields["numbers"].items()}
        return cls(CleaningTask.from_json(fields["task"]), numbers)

    def walk(self, clock: Clock) -> SegmentWalk:
        rate = HostRate(clock, self.task.buffers.host_bytes_per_second, shared_place())
        return SegmentWalk(self.task, clock, numbers=self.numbers, rate=rate)


class IndexedPart(NamedTuple):
    """A part of the map, in a file; in several, where one map could not hold it."""

    paths: tuple[str, ...]
    stats: CleanerStats


@dataclass(frozen=True, slots=True)
class IndexStretch:
    """Put the keys of the dirty section of ``target``, a stretch of it all, into a map; one that is full into a file,
    and what follows into another.
    """

    target: Target
    seed: bytes
    map_bytes: int
    spill_bytes: int = NO_LIMIT
    """So much may the files take."""

    def run(self, clock: Clock) -> IndexedPart:
        """Raises CorruptRecord, OSError; DiskFull where a file has no room; MemoryError where a map takes no key."""
        task, walk = self.target.task, self.target.walk(clock)
        total = CleanerStats(first_offset=task.first_dirty, end_offset=task.first_dirty)
        aborted = aborted_transactions(task)
        keys = make_offset_map(self.map_bytes, task.buffers.load_factor, self.seed)
        paths: list[str] = []
        room = SpillRoom(Path(task.directory), self.spill_bytes)
        while total.end_offset < task.first_uncleanable:
            start, stats = total.end_offset, CleanerStats()
            keys.clear()
            KeyIndexing(replace(task, first_dirty=start), walk, keys, aborted).run(stats)
            path = Path(task.directory) / f"keys-from-{start}{draft_suffix(uuid4().hex)}"
            room.take(dumped_size(keys))
            keys.dump(path, start)
            paths.append(str(path))
            total.add_index(stats)
        return IndexedPart(tuple(paths), total)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """Put the keys of part ``part`` (i, n) into maps, of all of ``target`` that may be cleaned; by version."""

    target: Target
    seed: bytes
    part: Part
    map_bytes: int
    spill_bytes: int = NO_LIMIT
    """So much may the files take."""

    def run(self, clock: Clock) -> IndexedPart:
        """Raises CorruptRecord, OSError; DiskFull where a file has no room."""
        task = self.target.task
        stats = CleanerStats(first_offset=task.first_dirty)
        walk, aborted = self.target.walk(clock), aborted_transactions(task)
        parts = KeyParts(task, walk, aborted, self.seed, self.map_bytes, stats, self.spill_bytes)
        return IndexedPart(tuple(map(str, parts.spill(self.part))), stats)


class Traced(NamedTuple):
    """What a stretch says of transactions, and those that the whole log knows to be aborted."""

    aborted: list[AbortedTransaction]
    traces: list[Trace]
    stats: CleanerStats
    """What was read."""


@dataclass(frozen=True, slots=True)
class TraceStretch:
    """Look for transactions in the segments of ``bases``."""

    target: Target
    bases: tuple[int, ...]

    def run(self, clock: Clock) -> Traced:
        """Raises CorruptRecord, OSError."""
        aborted = aborted_transactions(self.target.task)
        log, walk = TraceLog(aborted), self.target.walk(clock)

        def visit(batch: RecordBatch) -> bool:
            log.show(batch)
            return True

        wanted = frozenset(self.bases)
        for segment in self.target.task.segments:
            if segment.base_offset in wanted:
                walk.walk(segment, skip_plain, visit)
        return Traced(aborted, log.traces, CleanerStats(bytes_read=walk.take_read()))


class Rewritten(NamedTuple):
    """Groups whose drafts bear ``tag``."""

    tag: str
    groups: list[CleanedGroup]
    stats: CleanerStats


@dataclass(frozen=True, slots=True)
class RewriteStretch:
    """Write the ``groups`` anew, by the map in ``maps``; ``before`` is what is known of transactions at the first."""

    target: Target
    maps: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    aborted: tuple[AbortedTransaction, ...]
    before: OpenTransactions

    def run(self, clock: Clock) -> Rewritten:
        """Raises CorruptRecord, DiskFull, OSError. What was written stays where it fails, as drafts."""
        tag, stats = uuid4().hex, CleanerStats(first_offset=self.target.task.first_dirty)
        keys, walk = open_offset_map(self.maps), self.target.walk(clock)
        transactions = CleanedTransactions.going_on(self.aborted, self.before)
        rewriting = GroupRewriting(self.target.task, walk, keys, transactions, draft_suffix(tag))
        return Rewritten(tag, [rewriting.rewrite(group, stats) for group in self.groups], stats)


def stretches_of(target: Target, groups: Iterable[Group], stretch_bytes: int) -> list[list[Group]]:
    """The groups in stretches, each of ``stretch_bytes`` or one group if that is more."""
    sizes = {each.base_offset: each.size for each in target.task.segments}
    stretches: list[list[Group]] = []
    room = 0
    for group in groups:
        size = sum(sizes[base] for base in group)
        if not stretches or size > room:
            stretches.append([])
            room = stretch_bytes
        stretches[-1].append(group)
        room -= size
    return stretches


def index_tasks(
    target: Target, seed: bytes, map_bytes: int, count: int, spill_bytes: int = NO_LIMIT
) -> list[IndexStretch] | list[IndexPart]:
    """At most ``count`` tasks that put all keys into maps of ``map_bytes``, at least one; their files may take
    ``spill_bytes`` together.
    """
    count = max(count, 1)
    share = spill_bytes // count
    if target.task.versions is not None:
        return [IndexPart(target, seed, (number, count), map_bytes, share) for number in range(count)]
    return [IndexStretch(each, seed, map_bytes, share) for each in _dirty_stretches(target, count)]


def _dirty_stretches(target: Target, count: int) -> list[Target]:
    """The same log with the dirty section divided among ``count``, about evenly, where segments begin."""
    task = target.task
    dirty = [segment for segment, _ in segments_between(task, task.first_dirty, task.first_uncleanable)]
    share = sum(each.size for each in dirty) / max(count, 1)
    starts, room = [task.first_dirty], share
    for before, segment in pairwise(dirty):
        room -= before.size
        if room <= 0:
            starts.append(segment.base_offset)
            room += share
    return [limited(target, start, end) for start, end in pairwise((*starts, task.first_uncleanable))]


def states_between(traced: Sequence[Traced]) -> list[OpenTransactions]:
    """What is known of transactions where each stretch begins, the first among them, and behind the last one."""
    states = [AT_THE_START]
    for stretch in traced:
        transactions = CleanedTransactions.going_on(stretch.aborted, states[-1])
        for trace in stretch.traces:
            transactions.replay(trace)
        states.append(transactions.here())
    return states


def within(aborted: Iterable[AbortedTransaction], target: Target, groups: Sequence[Group]) -> list[AbortedTransaction]:
    """Those that begin before the end of a stretch, which is all that it needs of them."""
    last = groups[-1][-1]
    end = min((each.base_offset for each in target.task.segments if each.base_offset > last), default=last + 1)
    return [each for each in aborted if each.first_offset < end]


def limited(target: Target, first_dirty: int, end: int) -> Target:
    """The same log with another dirty section: from ``first_dirty`` on, up to ``end``, where a segment begins."""
    return replace(target, task=replace(target.task, first_dirty=first_dirty, first_uncleanable=end))
