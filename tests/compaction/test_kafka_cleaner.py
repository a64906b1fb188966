"""What Kafka 3.9.1's cleaner does with logs made by hand: each rule that ours has to keep, shown by Kafka itself."""

import struct
from itertools import pairwise

import pytest
from compaction.dump import dump, indexes
from compaction.logs import START_MS, LogWriter
from log.samples import marker_of, open_log

from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.origin import AppendOrigin
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType
from sparklog.record.layout import CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT
from sparklog.testing.clock import ManualClock

pytestmark = pytest.mark.peer

NOW = START_MS + 3_600_000
RETENTION = 60_000
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


class Partition:
    """A log that is written by hand, then cleaned by Kafka as often as wanted."""

    def __init__(self, home, cleaner):
        self.directory = home / "t-0"
        self.settings = {"delete.retention.ms": str(RETENTION), "index.interval.bytes": "0"}
        self.first_dirty = None
        self.log_start = 0
        self._cleaner = cleaner
        self._log = None

    @property
    def log(self):
        """Open; records without a key are taken."""
        if self._log is None:
            how = {"clock": ManualClock(START_MS), "log_start_offset": self.log_start, "high_watermark": 2**62}
            self._log = open_log(self.directory, self.settings | {"cleanup.policy": "delete"}, **how)
        return self._log

    def put(self, *records, at=START_MS, codec=CompressionType.NONE, **producer):
        """One batch of (key, value); returns its first offset. ``producer`` are fields of its header."""
        builder = RecordBatchBuilder(compression=codec, **producer)
        for number, (key, value) in enumerate(records):
            builder.append(at + number, key, value)
        return self._append(builder.build())

    def put_in_transaction(self, producer_id, sequence, *records, epoch=0):
        producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        return self.put(*records, **producer, is_transactional=True)

    def mark(self, producer_id, kind, epoch=0):
        return self._append(marker_of(producer_id, kind, epoch=epoch))

    def _append(self, records):
        offset = self.log.append_as_leader(memoryview(bytearray(records)), 0, AppendOrigin.COORDINATOR).first_offset
        self.log.on_high_watermark(self.log.log_end_offset)
        return offset

    def roll(self):
        self.log.roll()

    def close(self):
        if self._log is not None:
            self.log_start = self._log.log_start_offset
            self._log.close()
            self._log = None

    def clean(self, now=NOW, **how):
        """Clean all but the active segment from where the last cleaning ended; what the directory holds then."""
        self.close()
        how = {"first_dirty": self.first_dirty, "log_start_offset": self.log_start, **how}
        self.cleaned = self._cleaner.clean(self.directory, config=self.settings, now_ms=now, **how)
        self.first_dirty = self.cleaned.end_offset
        return dump(self.directory)


@pytest.fixture
def partition(tmp_path, kafka_cleaner):
    made = Partition(tmp_path, kafka_cleaner)
    yield made
    made.close()


def pairs(facts):
    """Of all records that are no markers."""
    data = [batch for batch in facts.batches if not batch.attributes & 0x20]
    return [(each.offset, each.key, each.value) for batch in data for each in batch.records]


def offsets(facts):
    return [record.offset for record in facts.records]


# Keys


def test_the_latest_value_of_a_key_stays_at_its_offset(partition):
    partition.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    partition.put((b"b", b"2"))
    partition.put((b"", b"empty"), (None, b"no key"))
    partition.roll()
    partition.put((b"a", b"active"))
    facts = partition.clean()
    assert pairs(facts) == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"", b"empty"), (6, b"a", b"active")]
    assert [(each.base_offset, each.last_offset, each.record_count) for each in facts.batches] == [
        (0, 2, 1),
        (3, 3, 1),
        (4, 5, 1),
        (6, 6, 1),
    ]
    assert partition.cleaned.end_offset == 6
    assert partition.cleaned.stats.invalid_messages_read == 1
    assert partition.cleaned.stats.messages_written == 3


def test_a_batch_of_which_all_stays_is_not_touched(partition):
    partition.put((b"a", b"1"), (b"b", b"1"), codec=CompressionType.ZSTD)
    partition.roll()
    partition.close()
    before = (partition.directory / f"{0:020d}.log").read_bytes()
    partition.clean()
    assert (partition.directory / f"{0:020d}.log").read_bytes() == before


def test_times_of_a_batch_that_is_rebuilt(partition):
    partition.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    partition.put((b"a", b"2"), (b"c", b"2"), at=START_MS - 5)
    partition.roll()
    first = partition.clean().batches[0]
    assert (first.base_timestamp, first.max_timestamp) == (START_MS + 1, START_MS + 1)


def test_times_of_a_batch_with_append_time(partition):
    partition.settings["message.timestamp.type"] = "LogAppendTime"
    partition.put((b"a", b"1"), (b"b", b"1"), at=7)
    partition.put((b"a", b"2"), at=8)
    partition.roll()
    rebuilt, whole = partition.clean().batches
    assert (rebuilt.base_timestamp, rebuilt.max_timestamp) == (START_MS, START_MS)
    assert (whole.base_timestamp, whole.max_timestamp) == (8, START_MS)
    assert {each.timestamp for each in (*rebuilt.records, *whole.records)} == {START_MS}


# Tombstones


def test_a_tombstone_goes_when_its_horizon_is_reached(partition):
    partition.put((b"a", b"1"), (b"b", b"1"))
    partition.put((b"a", None), (b"c", b"1"))
    partition.roll()
    partition.put((b"d", b"1"))
    partition.roll()
    facts = partition.clean()
    assert [each.delete_horizon for each in facts.batches] == [None, NOW + RETENTION, None]
    assert facts.batches[1].max_timestamp == START_MS + 1
    assert pairs(facts) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1"), (4, b"d", b"1")]

    partition.put((b"e", b"1"))
    partition.roll()
    facts = partition.clean(NOW + RETENTION - 1)
    assert [each.delete_horizon for each in facts.batches] == [None, NOW + RETENTION, None, None]
    assert (2, b"a", None) in pairs(facts)

    partition.put((b"f", b"1"))
    partition.roll()
    facts = partition.clean(NOW + RETENTION)
    assert (2, b"a", None) not in pairs(facts)
    assert facts.batches[1].delete_horizon == NOW + RETENTION, "it stays with the rest of the batch"
    assert [record.timestamp for record in facts.batches[1].records] == [START_MS + 1]


# A full buffer


def test_a_full_buffer_ends_in_the_middle_of_a_batch(partition):
    partition.put((b"a", b"1"))
    partition.put((b"a", b"2"), (b"b", b"1"), (b"c", b"1"), (b"a", b"3"), (b"d", None), (None, b"no key"))
    partition.put_in_transaction(1, 0, (b"e", b"1"))
    partition.mark(1, ABORT)
    partition.roll()
    facts = partition.clean(buffer_bytes=24 * 3, load_factor=1.0)
    assert partition.cleaned.end_offset == 4, "the key is known, and it is full all the same"
    assert partition.cleaned.stats.buffer_utilization == 1.0
    kept = [(1, b"a", b"2"), (2, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (5, b"d", None), (6, None, b"no key")]
    assert pairs(facts) == kept, "what was not looked at stays, but what was aborted"
    assert facts.batches[0].delete_horizon == NOW + RETENTION

    facts = partition.clean(NOW + 1, buffer_bytes=24 * 3, load_factor=1.0)
    assert partition.cleaned.end_offset == 9
    assert pairs(facts) == [*kept[1:5]]
    assert facts.batches[0].delete_horizon == NOW + RETENTION


def test_the_first_key_that_does_not_fit_is_the_next_first_dirty(partition):
    partition.put((b"a", b"1"), (b"b", b"1"))
    partition.put((None, b"no key"), (b"c", b"1"))
    partition.roll()
    partition.clean(buffer_bytes=24 * 2, load_factor=1.0)
    assert partition.cleaned.end_offset == 2, "records without a key before it are looked at again"


# Transactions


def test_the_marker_of_an_abort_outlives_its_records_by_a_round_and_the_retention(partition):
    partition.put((b"a", b"1"))
    partition.put_in_transaction(1, 0, (b"a", b"2"), (b"b", b"2"))
    partition.mark(1, ABORT)
    partition.put_in_transaction(1, 2, (b"c", b"1"))
    partition.mark(1, COMMIT)
    partition.roll()
    facts = partition.clean()
    assert offsets(facts) == [0, 3, 4, 5]
    assert facts.batches[1].delete_horizon is None
    assert facts.aborted == [AbortedTransaction(1, 1, 3, 4)]

    partition.put((b"x", b"1"))
    partition.roll()
    facts = partition.clean()
    assert offsets(facts) == [0, 3, 4, 5, 6]
    assert facts.batches[1].delete_horizon == NOW + RETENTION
    assert facts.aborted == []
    assert not list(partition.directory.glob("*.txnindex"))

    partition.put((b"y", b"1"))
    partition.roll()
    assert offsets(partition.clean(NOW + RETENTION - 1)) == [0, 3, 4, 5, 6, 7]
    partition.put((b"z", b"1"))
    partition.roll()
    assert offsets(partition.clean(NOW + RETENTION)) == [0, 4, 5, 6, 7, 8]


def test_the_marker_of_a_commit_stays_while_there_are_records(partition):
    partition.put_in_transaction(1, 0, (b"a", b"1"), (b"b", b"1"))
    partition.mark(1, COMMIT)
    partition.put((b"a", b"2"))
    partition.roll()
    partition.put_in_transaction(1, 2, (b"z", b"1"))  # so that another batch is the last of the producer
    partition.mark(1, COMMIT)
    partition.roll()
    assert [each.delete_horizon for each in partition.clean().batches] == [None] * 5
    partition.put((b"b", b"2"))
    partition.roll()
    facts = partition.clean()
    assert offsets(facts) == [2, 3, 4, 5, 6]
    assert facts.batches[0].delete_horizon is None, "its records went in this very round"
    partition.put((b"c", b"2"))
    partition.roll()
    assert partition.clean().batches[0].delete_horizon == NOW + RETENTION


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_a_marker_of_nothing_has_a_horizon_at_once(partition, kind):
    partition.put_in_transaction(1, 0, (b"a", b"1"))
    partition.mark(1, COMMIT)
    partition.mark(2, kind)
    partition.roll()
    facts = partition.clean()
    assert [each.delete_horizon for each in facts.batches] == [None, None, NOW + RETENTION]
    assert (facts.batches[2].base_timestamp, facts.batches[2].max_timestamp) == (NOW + RETENTION, 2000)


def test_an_abort_below_the_start_of_the_log_is_not_known(partition):
    partition.put_in_transaction(1, 0, (b"a", b"1"))
    partition.mark(1, ABORT)
    partition.put((b"b", b"1"))
    partition.roll()
    partition.put((b"c", b"1"))
    partition.log.advance_start(2)
    facts = partition.clean()
    assert offsets(facts) == [0, 1, 2, 3]
    assert facts.batches[1].delete_horizon == NOW + RETENTION
    assert facts.aborted == []


def test_a_first_dirty_offset_within_a_segment_brings_aborts_that_are_over(partition):
    """Kafka then takes what their producer committed later for aborted, and does not know its keys."""

    def fill(made):
        made.put((b"k", b"old"))
        made.put_in_transaction(1, 0, (b"x", b"1"))
        made.mark(1, ABORT)
        made.put((b"z", b"1"))
        made.put_in_transaction(1, 1, (b"k", b"new"))
        made.mark(1, COMMIT)
        made.roll()

    fill(partition)
    assert pairs(partition.clean(first_dirty=3)) == [(0, b"k", b"old"), (3, b"z", b"1"), (4, b"k", b"new")]
    assert pairs(partition.clean(first_dirty=0)) == [(3, b"z", b"1"), (4, b"k", b"new")]


# The last batch of a producer


def test_the_last_batch_of_a_producer_stays_empty_until_it_is_forgotten(partition):
    producer = {"producer_id": 1, "producer_epoch": 4}
    partition.put((b"a", b"1"), **producer, base_sequence=0)
    partition.put((b"a", b"2"), (b"b", b"1"), **producer, base_sequence=1, codec=CompressionType.GZIP)
    partition.put((b"a", b"3"), (b"b", None))
    partition.roll()
    facts = partition.clean()
    assert [each.base_offset for each in facts.batches] == [1, 3]
    empty = facts.batches[0]
    assert (empty.last_offset, empty.record_count, empty.attributes, empty.base_timestamp) == (2, 0, 0, -1)
    assert (empty.max_timestamp, empty.producer_id, empty.producer_epoch) == (START_MS + 1, 1, 4)
    assert (empty.base_sequence, empty.leader_epoch) == (1, 0)
    first = partition.directory / f"{0:020d}.log"
    assert struct.unpack_from(">i", first.read_bytes(), 8)[0] + 12 == HEADER_SIZE

    partition.put((b"c", b"1"))
    partition.roll()
    day = 86_400_000
    assert partition.clean(START_MS + day - 1, first_dirty=0).batches[0] == empty
    assert [each.base_offset for each in partition.clean(START_MS + day, first_dirty=0).batches] == [3, 5]


def test_an_aborted_last_batch_stays_empty_and_its_marker_whole(partition):
    partition.put_in_transaction(1, 0, (b"a", b"1"))
    partition.mark(1, ABORT)
    partition.roll()
    for round_ in range(3):
        facts = partition.clean(NOW + round_ * RETENTION, first_dirty=0)
        assert [(each.record_count, each.attributes) for each in facts.batches] == [(0, 0x10), (1, 0x30)]
        assert facts.aborted == [AbortedTransaction(1, 0, 1, 2)], "an empty batch counts as one with records"


def test_markers_of_a_producer_without_batches_stay_empty(partition):
    """A marker with a raised epoch, which makes the log forget the batches."""
    partition.put_in_transaction(1, 0, (b"a", b"1"))
    partition.mark(1, ABORT, epoch=1)
    partition.mark(1, ABORT, epoch=1)
    partition.mark(2, COMMIT, epoch=0)
    partition.put_in_transaction(2, 0, (b"b", b"1"))
    partition.mark(2, COMMIT)
    partition.roll()
    how = {"first_dirty": 0, "producer_expiration_ms": 2**31 - 1}
    times = (NOW, NOW, NOW + RETENTION, NOW + RETENTION)
    first, second, third, fourth = (partition.clean(now, **how) for now in times)
    assert [each.base_offset for each in first.batches] == [1, 2, 3, 4, 5]
    assert [each.delete_horizon for each in first.batches[:3]] == [None, NOW + RETENTION, NOW + RETENTION]
    assert first.aborted == [AbortedTransaction(1, 0, 1, 2)]
    assert [each.delete_horizon for each in second.batches[:2]] == [NOW + RETENTION] * 2
    assert [(each.base_offset, each.record_count, each.delete_horizon) for each in third.batches[:2]] == [
        (1, 0, None),
        (2, 0, None),
    ]
    assert [each.base_offset for each in third.batches] == [1, 2, 4, 5], "the other has a batch; its marker goes"
    assert fourth == third


def test_nothing_of_the_last_batch_of_a_round_need_stay(partition):
    partition.put((b"a", b"1"))
    partition.put((None, b"no key"))
    partition.roll()
    partition.put((b"a", b"2"))
    partition.put((b"b", b"1"))
    partition.put((None, b"no key"))
    partition.roll()
    partition.settings["segment.bytes"] = "100"
    facts = partition.clean()
    assert [(each.base_offset, len(each.batches)) for each in facts.segments] == [(0, 0), (2, 2), (5, 0)]
    assert partition.cleaned.end_offset == 5


# Segments


def test_segments_are_joined_by_the_sizes_they_had(partition):
    for number in range(7):
        partition.put((b"a", b"%d" % number), (b"k%d" % number, b"v"))
        partition.roll()
    partition.close()
    before = dump(partition.directory)
    size = (partition.directory / f"{0:020d}.log").stat().st_size
    partition.settings["segment.bytes"] = str(size * 3)
    facts = partition.clean()
    assert facts.bases == [0, 6, 12, 14]
    assert [each.modified_ms for each in facts.segments] == [before.segments[n].modified_ms for n in (2, 5, 6, 7)]
    assert facts.snapshots == (6, 12, 14), "of the segments that are gone none is left"
    sizes = [path.stat().st_size for path in sorted(partition.directory.glob("*.log"))]
    partition.settings["segment.bytes"] = str(sum(sizes) - 1)
    assert partition.clean(first_dirty=0).bases == [0, 12, 14]
    partition.settings["segment.bytes"] = str(sum(sizes))
    assert partition.clean(first_dirty=0).bases == [0, 14]


def test_index_entries_are_made_batch_by_batch(partition):
    for number in range(4):
        partition.put((b"k%d" % number, b"v"), at=START_MS + number % 3)
    partition.roll()
    partition.clean()
    found = indexes(partition.directory)
    size = (partition.directory / f"{0:020d}.log").stat().st_size // 4
    entries = list(struct.iter_unpack(">ii", found[f"{0:020d}.index"]))
    assert entries == [(1, size), (2, 2 * size), (3, 3 * size)], "none for the first batch"
    times = list(struct.iter_unpack(">qi", found[f"{0:020d}.timeindex"]))
    assert times == [(START_MS + 1, 1), (START_MS + 2, 2)]


# What is cleaned


def fill_three_segments(partition):
    """At 0, 2 and 4; the active one is empty, at 6."""
    for number in range(3):
        partition.put((b"a", b"1"), at=START_MS + number * 1000)
        partition.put((b"b", b"1"), at=START_MS + number * 1000)
        partition.roll()


def test_what_is_not_replicated_is_not_cleaned(partition):
    fill_three_segments(partition)
    partition.clean(high_watermark=3)
    assert (partition.cleaned.first_uncleanable, partition.cleaned.end_offset) == (2, 2)


def test_a_segment_with_an_open_transaction_is_not_cleaned(partition):
    fill_three_segments(partition)
    partition.put((b"a", b"2"))
    partition.put_in_transaction(1, 0, (b"a", b"1"))
    partition.roll()
    partition.clean()
    assert (partition.cleaned.first_uncleanable, partition.cleaned.end_offset) == (6, 6)


@pytest.mark.parametrize(("now", "end"), [(2000, 4), (1999, 2)])
def test_what_is_too_young_is_not_cleaned(partition, now, end):
    """The second segment is as old as the lag demands, or a millisecond younger."""
    fill_three_segments(partition)
    partition.settings["min.compaction.lag.ms"] = "1000"
    partition.clean(START_MS + now)
    assert partition.cleaned.end_offset == end


@pytest.mark.parametrize(("given", "start", "used"), [(0, 2, 2), (6, 0, 6), (7, 0, 0), (None, 2, 2)])
def test_a_first_dirty_offset_out_of_range_is_the_start_of_the_log(partition, given, start, used):
    fill_three_segments(partition)
    partition.log.advance_start(start)
    partition.clean(first_dirty=given)
    assert partition.cleaned.first_dirty == used
    assert partition.cleaned.was_reset == (given in (0, 7))


def test_the_numbers_by_which_a_log_is_chosen(partition):
    fill_three_segments(partition)
    partition.close()
    size = (partition.directory / f"{0:020d}.log").stat().st_size
    partition.settings["max.compaction.lag.ms"] = "500"
    partition.clean(START_MS + 1600, first_dirty=2)
    assert (partition.cleaned.clean_bytes, partition.cleaned.cleanable_bytes) == (size, 2 * size)
    assert partition.cleaned.delay_ms == 100, "by the first batch of the segment at 2"
    partition.clean(first_dirty=6)
    assert (partition.cleaned.cleanable_bytes, partition.cleaned.end_offset) == (0, 6)


def test_offsets_rise_and_files_are_as_their_names_say(partition):
    fill_three_segments(partition)
    facts = partition.clean()
    assert all(one.last_offset < other.base_offset for one, other in pairwise(facts.batches))
    left = sorted(path.suffix for path in partition.directory.iterdir())
    assert not {".cleaned", ".swap", ".deleted"} & set(left)


# Generated logs


def latest(facts):
    """The last value of each key that was not aborted, null ones left out."""
    found = {}
    for batch in facts.batches:
        mine = [each for each in facts.aborted if each.producer_id == batch.producer_id]
        is_aborted = any(each.first_offset <= batch.base_offset < each.last_offset for each in mine)
        if not batch.attributes & CONTROL_BIT and not (is_aborted and batch.attributes & TRANSACTIONAL_BIT):
            found |= {each.key: each.value for each in batch.records if each.key is not None}
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("seed", range(5))
def test_the_latest_values_outlive_every_round(tmp_path, kafka_cleaner, seed):
    writer, directory, first_dirty, cleaned_records = LogWriter(seed), tmp_path / "t-0", None, 0
    for buffer_bytes in (1 << 20, 24 * 40):
        written = writer.write(directory)
        writer.pass_time(3_600_000)
        before = dump(directory)
        how = {"first_dirty": first_dirty, "log_start_offset": written.log_start_offset, "buffer_bytes": buffer_bytes}
        cleaned = kafka_cleaner.clean(directory, config=written.settings, now_ms=writer.now_ms, **how)
        after = dump(directory)
        assert latest(after) == latest(before)
        first_dirty = cleaned.end_offset
        cleaned_records += len(before.records) - len(after.records)
    assert cleaned_records
