"""Compaction by version, against a dictionary: drawn records, maps of any size, passes that are broken off."""

import struct
from contextlib import closing
from typing import NamedTuple

import pytest
from compaction import ours
from compaction.keyed import NOBODY, START_MS, Producer, mark
from compaction.ours import opened
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.compaction.cleaner import LogCleaning
from sparklog.compaction.task import CleaningTask
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.record import _impl
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches, iter_records
from sparklog.testing.clock import ManualClock

NOW_MS = 1_700_000_100_000
DAY_MS = 86_400_000
STRATEGIES = {
    "offset": {},
    "timestamp": {"compaction.strategy": "timestamp"},
    "header": {"compaction.strategy": "header", "compaction.strategy.header": "v\u00e9"},
}
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "600", "index.interval.bytes": "0"}
CODECS = [_impl.load("python"), *([_impl.load("native")] if _impl.codec.name == "native" else [])]
KEYS = [b"a", b"b", b"c", b"d", b"e", b""]


def long(number):
    return struct.pack(">q", number)


numbers = st.sampled_from([long(each) for each in (-(2**63), -1, 0, 1, 2, 2, 3, 256, 2**63 - 1)])
headers = st.lists(
    st.tuples(
        st.sampled_from(["v\u00e9", "v\u00e9", "v\u00e9", "V\u00e9", "v", ""]),
        st.one_of(numbers, numbers, numbers, st.sampled_from([None, b"", b"1234567", b"123456789"])),
    ),
    max_size=3,
)
rows = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.one_of(st.none(), st.binary(max_size=40)),
        st.sampled_from([START_MS + each for each in (-DAY_MS, 0, 0, 1, 2, 3)]),
        headers,
    ),
    min_size=1,
    max_size=6,
)
codecs = st.sampled_from([CompressionType.NONE, CompressionType.NONE, CompressionType.GZIP, CompressionType.LZ4])
later = st.sampled_from([0, 1, DAY_MS, 40 * DAY_MS])
steps = st.one_of(
    st.tuples(st.just("write"), rows, codecs),
    st.tuples(st.just("transaction"), st.integers(0, 2), rows, codecs),
    st.tuples(st.just("end"), st.integers(0, 2), st.sampled_from([ControlType.COMMIT, ControlType.ABORT])),
    st.just(("roll",)),
    st.tuples(st.just("clean"), st.integers(1, 12), st.integers(1, 400), later, st.none() | st.integers(0, 3)),
)


class Row(NamedTuple):
    """A record that is in the log."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class World:
    """A log that is compacted by a strategy, and what must be in it."""

    def __init__(self, directory, strategy):
        directory.mkdir()
        self.strategy = strategy
        self.log = opened(directory, parse(TopicConfig, SETTINGS | STRATEGIES[strategy]), NOW_MS)
        self.now_ms = NOW_MS
        self.first_dirty = None
        self.rows: dict[int, Row] = {}
        self.batch_of: dict[int, int] = {}
        self.horizons: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.aborted: set[int] = set()

    # What happens

    def write(self, content, codec, producer=NOBODY):
        builder = RecordBatchBuilder(
            compression=codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            is_transactional=producer.is_transactional,
        )
        for key, value, timestamp, found in content:
            builder.append(timestamp, key, value, found)
        first = self.log.append_as_leader(
            memoryview(bytearray(builder.build())), 0, verification=lambda *_: None
        ).first_offset
        self.log.on_high_watermark(self.log.log_end_offset)
        for offset, (key, value, timestamp, found) in enumerate(content, first):
            self.rows[offset] = Row(offset, timestamp, key, value, tuple(found))
            self.batch_of[offset] = first
        return range(first, first + len(content))

    def transaction(self, number, content, codec):
        sequence = self.sequences.get(number, 0)
        self.sequences[number] = sequence + len(content)
        offsets = self.write(content, codec, Producer(20 + number, 0, sequence, is_transactional=True))
        self.open.setdefault(number, []).extend(offsets)

    def end(self, number, kind):
        offsets = self.open.pop(number, None)
        if offsets is not None:
            mark(self.log, Producer(20 + number, 0, 0), kind)
            if kind is ControlType.ABORT:
                self.aborted.update(offsets)

    def roll(self):
        self.log.roll()

    def clean(self, map_keys, read_bytes, later_ms, groups):
        """A pass, or so many groups of one."""
        self.now_ms += later_ms
        sections = ours.sections_of(self.log, self.first_dirty, self.now_ms)
        if not sections.cleanable_bytes:
            return
        task = ours.task_of(
            self.log,
            sections,
            self.now_ms,
            buffer_bytes=(24 if self.strategy == "offset" else 32) * (map_keys if self.strategy != "offset" else 99),
            load_factor=1.0,
            read_bytes=read_bytes,
        )
        end = self._pass(CleaningTask.from_json(task.to_json()), groups)
        table = self.table(sections.first_uncleanable)
        self._judge(sections.first_uncleanable, end)
        assert self.table(sections.first_uncleanable) == table, "nothing comes back, though a pass be broken off"
        self.check()

    def _pass(self, task, groups):
        """Up to where segments were replaced."""
        cleaning = LogCleaning(task, ManualClock(), ours.SEED)
        for done, group in enumerate(cleaning.run()):
            assert [path.name for path in self.log.directory.iterdir() if path.suffix == ".tmp"] == []
            if done == groups:
                for base in group.new:
                    for path in self.log.directory.glob(f"{base:020d}.*.cleaned"):
                        path.unlink()
                return group.old[0]
            for path in self.log.replace_segments(group.new, group.old):
                path.unlink()
        assert cleaning.stats.end_offset == task.first_uncleanable
        self.first_dirty = cleaning.stats.end_offset
        return self.first_dirty

    # What must be

    def version(self, row):
        if self.strategy == "offset":
            return 0
        if self.strategy == "timestamp":
            return max(row.timestamp, -1)
        value = [content for name, content in row.headers if name == "v\u00e9"][-1:]
        return max(struct.unpack(">q", value[0])[0], -1) if value and value[0] and len(value[0]) == 8 else -1

    def judged(self, end):
        return [row for offset, row in self.rows.items() if offset < end and offset not in self.aborted]

    def winners(self, end):
        found: dict[bytes, Row] = {}
        for row in self.judged(end):
            best = found.get(row.key)
            if best is None or (self.version(row), row.offset) > (self.version(best), best.offset):
                found[row.key] = row
        return found

    def table(self, end):
        return {key: row.value for key, row in self.winners(end).items() if row.value is not None}

    def _judge(self, bound, end):
        winners = self.winners(bound)
        last = {row.key: row.offset for row in self.judged(bound)}
        horizons = dict(self.horizons)
        for offset, row in list(self.rows.items()):
            if offset >= end:
                continue
            batch = self.batch_of[offset]
            is_over = self.now_ms >= self.horizons.get(batch, self.now_ms + 1) and last.get(row.key) == offset
            if offset in self.aborted or winners[row.key] is not row or (row.value is None and is_over):
                del self.rows[offset]
            elif row.value is None:
                horizons.setdefault(batch, self.now_ms + DAY_MS)
        left = {self.batch_of[offset] for offset in self.rows}
        self.horizons = {batch: when for batch, when in horizons.items() if batch in left}

    def check(self):
        whole = b"".join(map(bytes, self.log.read_all(1 << 20)))
        found = [
            Row(each.offset, each.timestamp, each.key, each.value, each.headers)
            for batch in iter_batches(whole, partial_tail=False)
            if not batch.is_control
            for each in iter_records(batch)
        ]
        assert found == sorted(self.rows.values())


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=settings().max_examples // 5)
@given(history=st.lists(steps, min_size=8, max_size=40))
def test_any_log_holds_what_a_dictionary_says(tmp_path_factory, codec, strategy, history):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_impl, "codec", codec)
        world = World(tmp_path_factory.mktemp("world") / "t-0", strategy)
        with closing(world.log):
            for name, *arguments in history:
                getattr(world, name)(*arguments)
            for later_ms in (0, DAY_MS, DAY_MS):
                world.write([(b"z", None, START_MS, [])], CompressionType.NONE)
                world.roll()
                world.clean(3, 1 << 16, later_ms, None)
