"""What holds of any log that is cleaned any number of times: drawn writes, maps of any size, passes in between."""

from contextlib import closing

from compaction import ours
from compaction.keyed import Producer, append, leftovers, mark
from compaction.ours import opened
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.compaction.task import CleaningTask
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches, iter_records

NOW_MS = 1_700_000_100_000
DAY_MS = 86_400_000
KEYS = [b"a", b"b", b"c", b"d", b""]
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "600", "index.interval.bytes": "0"}

pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=40))), min_size=1, max_size=6)
codecs = st.sampled_from([CompressionType.NONE, CompressionType.NONE, CompressionType.GZIP, CompressionType.LZ4])
steps = st.one_of(
    st.tuples(st.just("write"), pairs, codecs),
    st.tuples(st.just("idempotent"), st.integers(0, 1), pairs, codecs),
    st.tuples(st.just("transaction"), st.integers(0, 2), pairs, codecs),
    st.tuples(st.just("end"), st.integers(0, 2), st.sampled_from([ControlType.COMMIT, ControlType.ABORT])),
    st.just(("roll",)),
    st.tuples(st.just("clean"), st.integers(1, 12), st.integers(1, 400), st.sampled_from([0, 1, DAY_MS, 40 * DAY_MS])),
)


class World:
    """A log, and what every reader of it must find."""

    def __init__(self, directory):
        directory.mkdir()
        self.log = opened(directory, parse(TopicConfig, SETTINGS), NOW_MS)
        self.now_ms = NOW_MS
        self.first_dirty = None
        self.sequences = {}
        self.open = {}  # transactional producer -> its records
        self.written = []  # every record: offset, key, value, of an aborted or open transaction or not
        self.aborted = set()
        self.undecided = set()

    def write(self, content, codec, producer=None):
        first = (
            append(self.log, *content, producer=producer, codec=codec)
            if producer
            else append(self.log, *content, codec=codec)
        )
        records = [(first + number, key, value) for number, (key, value) in enumerate(content)]
        self.written += records
        return records

    def idempotent(self, number, content, codec):
        self.write(content, codec, self._next(10 + number, len(content), is_transactional=False))

    def transaction(self, number, content, codec):
        records = self.write(content, codec, self._next(20 + number, len(content), is_transactional=True))
        self.open.setdefault(number, []).extend(records)
        self.undecided.update(each[0] for each in records)

    def _next(self, producer_id, count, *, is_transactional):
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        return Producer(producer_id, 0, sequence, is_transactional)

    def end(self, number, kind):
        records = self.open.pop(number, None)
        if records is not None:
            mark(self.log, Producer(20 + number, 0, 0), kind)
            self.undecided.difference_update(each[0] for each in records)
            if kind is ControlType.ABORT:
                self.aborted.update(each[0] for each in records)

    def roll(self):
        self.log.roll()

    def clean(self, map_keys, read_bytes, later_ms):
        """One pass; it goes forward, and it does not take away what it must not."""
        self.now_ms += later_ms
        sections = ours.sections_of(self.log, self.first_dirty, self.now_ms)
        if not sections.cleanable_bytes:
            return
        task = ours.task_of(
            self.log, sections, self.now_ms, buffer_bytes=24 * map_keys, load_factor=1.0, read_bytes=read_bytes
        )
        assert CleaningTask.from_json(task.to_json()) == task
        stats = ours.cleaned(self.log, task)
        assert sections.first_dirty < stats.end_offset <= max(sections.first_uncleanable, stats.end_offset)
        assert stats.end_offset <= self.log.last_stable_offset
        assert leftovers(self.log.directory) == []
        self.first_dirty = stats.end_offset
        self.check()

    # What holds

    def batches(self):
        return list(iter_batches(b"".join(map(bytes, self.log.read_all(1 << 20))), partial_tail=False))

    def check(self):
        batches = self.batches()
        found = [
            (each.offset, each.key, each.value)
            for batch in batches
            if not batch.is_control
            for each in iter_records(batch)
        ]
        assert [each[0] for each in found] == sorted({each[0] for each in found}), "the order and the offsets stay"
        assert set(found) <= set(self.written), "no record is changed"
        committed = self._read_committed(found)
        assert not {each[0] for each in committed} & self.aborted, "aborted records are never seen"
        self._check_last_values(found)
        true = [each for each in self.written if each[0] not in self.aborted | self.undecided]
        assert _table(committed) == _table([each for each in true if each[0] < self.log.last_stable_offset])
        self._check_sequences(batches)

    def _read_committed(self, found):
        """As a consumer reads: from the aborted transactions that the log tells of."""
        bound = self.log.last_stable_offset
        aborted = self.log.aborted_transactions(0, bound)
        owners = {
            record.offset: batch.producer_id
            for batch in self.batches()
            if batch.is_transactional and not batch.is_control
            for record in iter_records(batch)
        }
        return [
            each
            for each in found
            if each[0] < bound
            and not any(
                owners.get(each[0]) == one.producer_id and one.first_offset <= each[0] <= one.last_offset
                for one in aborted
            )
        ]

    def _check_last_values(self, found):
        """The last committed record of each key is there, unless it is a tombstone."""
        last = {each[1]: each for each in self.written if each[0] not in self.aborted | self.undecided}
        assert [each for each in last.values() if each[2] is not None and each not in found] == []
        assert [each for each in self.written if each[0] in self.undecided and each not in found] == []

    def _check_sequences(self, batches):
        """The last batch of each producer is there, for its sequence numbers."""
        last = {batch.producer_id: batch for batch in batches if batch.producer_id >= 0 and not batch.is_control}
        for producer_id, sequence in self.sequences.items():
            batch = last[producer_id]
            assert batch.base_sequence + batch.last_offset_delta + 1 == sequence


def _table(records):
    found = {}
    for _, key, value in records:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


@settings(max_examples=settings().max_examples // 2)
@given(history=st.lists(steps, min_size=5, max_size=40))
def test_any_log_that_is_cleaned_any_number_of_times(tmp_path_factory, history):
    world = World(tmp_path_factory.mktemp("world") / "t-0")
    with closing(world.log):
        for name, *arguments in history:
            getattr(world, name)(*arguments)
        world.roll()
        world.write([(b"z", b"")], CompressionType.NONE)
        before = None
        while world.first_dirty != before or before is None:
            before = world.first_dirty
            world.clean(5, 1 << 16, 0)
            if before is None and world.first_dirty is None:
                break
        world.clean(5, 1 << 16, 40 * DAY_MS)
        world.check()


@settings(max_examples=settings().max_examples // 4)
@given(history=st.lists(steps, min_size=5, max_size=30))
def test_a_log_that_was_cleaned_opens_as_it_was(tmp_path_factory, history):
    """After a clean stop and after a crash: with the same records, and producers that go on where they were."""
    directory = tmp_path_factory.mktemp("world") / "t-0"
    world = World(directory)
    for name, *arguments in history:
        getattr(world, name)(*arguments)
    end, whole = world.log.log_end_offset, [bytes(each.buffer) for each in world.batches()]
    world.log.close()
    for path in directory.glob("*.snapshot"):
        path.unlink()  # so that all that is known of producers is what is in the log
    world.log = opened(directory, parse(TopicConfig, SETTINGS), NOW_MS)
    with closing(world.log):
        assert world.log.log_end_offset == end
        assert [bytes(each.buffer) for each in world.batches()] == whole
        for number in range(2):
            world.idempotent(number, [(b"a", b"on")], CompressionType.NONE)
        world.check()
