"""A log against a list: whatever is done to it, in whatever order, it holds what the model says, byte for byte."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log.model import Batch, Model
from log.samples import abandon, batch_of, marker_of, open_log, read_bytes, transactional, whole, write_cleaned

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode, LogError
from sparklog.log.checkpoints import LEADER_EPOCHS
from sparklog.log.indexes.transaction_index import TransactionIndex
from sparklog.log.origin import AppendOrigin
from sparklog.record.batch import RecordBatch, patch_header
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches, iter_records
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import finish

NOW = 1_700_000_000_000
LEADER, CLIENT = AppendOrigin.COORDINATOR, AppendOrigin.CLIENT
TIMES = st.lists(st.integers(NOW - 60, NOW), min_size=1, max_size=4)
CODECS = st.sampled_from([CompressionType.NONE, CompressionType.NONE, *CompressionType])
KINDS = st.sampled_from(list(ControlType))
SETTINGS = st.fixed_dictionaries(
    {
        "cleanup.policy": st.just("compact,delete"),  # so that a hole at the end of a segment is no loss
        "segment.bytes": st.sampled_from(["500", "900", "2000"]),
        "segment.ms": st.sampled_from(["20", "1000"]),
        "segment.index.bytes": st.sampled_from(["24", "400"]),
        "index.interval.bytes": st.sampled_from(["0", "100", "500"]),
        "retention.ms": st.sampled_from(["-1", "-1", "10", "3000"]),
        "retention.bytes": st.sampled_from(["-1", "-1", "0", "600"]),
        "compression.type": st.sampled_from(["producer", "producer", "uncompressed", "zstd"]),
        "message.timestamp.type": st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
        "flush.messages": st.sampled_from(["1", "1000000"]),
    }
)
FAR = 1 << 33  # further than an index entry can say
SHARED_MEMORY = Path("/dev/shm")
"""A disk that syncs at once: what a disk would hold after a power cut is no matter here."""
CAN_BE_MADE_AGAIN = (".index", ".timeindex", ".snapshot", ".txnindex", LEADER_EPOCHS)


class LogMachine(RuleBasedStateMachine):
    """What is done to the log is done to ``self.model``; the invariants compare."""

    def __init__(self):
        super().__init__()
        directory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
        self.home = Path(tempfile.mkdtemp(dir=directory)) / "t-0"
        self.clock = ManualClock(NOW)
        self.model = Model()
        self.leader_epoch = 0
        self.producers = 0
        self.checkpointed_start = 0

    @initialize(settings=SETTINGS)
    def begin(self, settings):
        self.settings = settings
        self.log = open_log(self.home, settings, clock=self.clock)

    def teardown(self):
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.home.parent)

    # Appending

    def batch(self, times, size=10, codec=CompressionType.NONE, **fields):
        """(model's batch, bytes) at the end of the log."""
        builder = RecordBatchBuilder(
            compression=codec,
            producer_id=fields.get("producer", -1),
            producer_epoch=fields.get("producer_epoch", -1),
            base_sequence=fields.get("sequence", -1),
            is_transactional=fields.get("transactional", False),
        )
        for number, at in enumerate(times):
            builder.append(at, b"key%d" % number, b"v" * size)
        end = self.model.end
        batch = Batch(end, end + len(times) - 1, b"", times, self.leader_epoch, **fields)
        return batch, bytearray(builder.build())

    def marker(self, producer, kind):
        epoch, _ = self.model.of_producer(producer)
        fields = {"producer": producer, "producer_epoch": epoch, "transactional": True, "ends": kind}
        batch = Batch(self.model.end, self.model.end, b"", [2000], self.leader_epoch, **fields)
        return batch, bytearray(marker_of(producer, kind, epoch=epoch))

    def write(self, made, origin):
        """Append as the leader; what the topic changes of a batch is what the clock and the codec change."""
        batch, data = made
        sent = list(iter_records(RecordBatch(bytes(data))))
        appended = self.log.append_as_leader(memoryview(data), batch.epoch, origin)
        if self.log.awaits_flush:
            self.log.flush()
        assert (appended.first_offset, appended.last_offset) == (batch.first, batch.last)
        if self.settings["message.timestamp.type"] == "LogAppendTime":
            batch.times = [self.clock.now_ms()] * len(batch.times)
            assert appended.log_append_time == self.clock.now_ms()
        active = self.log._segments.active.log
        stored = RecordBatch(bytes(active.read(active.size - self._size_of_last(active), 1 << 20)))
        assert stored.base_offset == batch.first
        stored.validate()
        kept = [(record.key, record.value) for record in iter_records(stored)]
        assert kept == [(record.key, record.value) for record in sent]
        assert [record.timestamp for record in iter_records(stored)] == batch.times
        if "zstd" not in self.settings.values() and "uncompressed" not in self.settings.values():
            assert bytes(stored.payload) == bytes(RecordBatch(data).payload)
        batch.data = bytes(stored.buffer)
        self.model.add(batch)

    def _size_of_last(self, records):
        return list(records.batches())[-1].size

    def new_producer(self):
        self.producers += 1
        return self.producers

    @rule(times=TIMES, size=st.sampled_from([0, 10, 90]), codec=CODECS)
    def append(self, times, size, codec):
        self.write(self.batch(times, size, codec), CLIENT)

    @property
    def idempotent(self):
        return sorted({batch.producer for batch in self.model.history if batch.producer >= 0})

    def known(self, data, *, transactional):
        """A producer of which something is known, or a new one."""
        open_now = {each.producer for each in self.model.open_transactions}
        candidates = [
            producer
            for producer in self.idempotent
            if self.model.of_producer(producer)[0] >= 0 and (transactional or producer not in open_now)
        ]
        producer = data.draw(st.sampled_from([*candidates[-4:], 0])) or self.new_producer()
        epoch, batches = self.model.of_producer(producer)
        sequence = batches[-1].last_sequence + 1 if batches else 0
        return {"producer": producer, "producer_epoch": epoch if epoch >= 0 else 1, "sequence": sequence}

    @rule(data=st.data(), times=TIMES, new_epoch=st.booleans())
    def append_idempotent(self, data, times, new_epoch):
        fields = self.known(data, transactional=False)
        if new_epoch:
            fields |= {"producer_epoch": fields["producer_epoch"] + 1, "sequence": 0}
        self.write(self.batch(times, **fields), CLIENT)

    @rule(data=st.data(), times=TIMES, codec=CODECS)
    def append_to_transaction(self, data, times, codec):
        fields = self.known(data, transactional=True)
        self.write(self.batch(times, 10, codec, transactional=True, **fields), LEADER)

    @rule(data=st.data(), kind=KINDS)
    @precondition(lambda self: self.model.open_transactions)
    def end_transaction(self, data, kind):
        each = data.draw(st.sampled_from(self.model.open_transactions))
        self.write(self.marker(each.producer, kind), LEADER)

    @rule(steps=st.lists(st.tuples(st.integers(1, 3), st.booleans(), KINDS), min_size=4, max_size=12))
    def interleave_transactions(self, steps):
        """Three producers of their own, each writing to its transaction or ending it."""
        own = [self.new_producer() for _ in range(3)]
        for number, ends, kind in steps:
            producer = own[number - 1]
            is_open = producer in {each.producer for each in self.model.open_transactions}
            _, batches = self.model.of_producer(producer)
            if ends and is_open:
                self.write(self.marker(producer, kind), LEADER)
            else:
                sequence = batches[-1].last_sequence + 1 if batches else 0
                fields = {"producer": producer, "producer_epoch": 0, "sequence": sequence, "transactional": True}
                self.write(self.batch([NOW - number], 60, **fields), LEADER)

    @rule(data=st.data())
    @precondition(lambda self: any(self.model.remembered(producer) for producer in self.idempotent))
    def send_again(self, data):
        remembered = [batch for producer in self.idempotent for batch in self.model.remembered(producer)]
        batch = data.draw(st.sampled_from(remembered))
        fields = {name: getattr(batch, name) for name in ("producer", "producer_epoch", "sequence")}
        _, again = self.batch(batch.times, **fields)
        appended = self.log.append_as_leader(memoryview(again), self.leader_epoch)
        assert (appended.first_offset, appended.last_offset) == (batch.first, batch.last)

    @rule(data=st.data(), how=st.sampled_from(["gap", "old epoch", "new epoch, not 0", "outside"]))
    def append_what_is_refused(self, data, how):
        fields = self.known(data, transactional=True)
        open_now = {each.producer for each in self.model.open_transactions}
        if not self.model.of_producer(fields["producer"])[1]:
            return
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if how == "gap":
            fields["sequence"] += 1
        elif how == "old epoch":
            fields["producer_epoch"] -= 1
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif how == "new epoch, not 0":
            fields |= {"producer_epoch": fields["producer_epoch"] + 1, "sequence": 1}
        elif fields["producer"] in open_now:
            code = ErrorCode.INVALID_TXN_STATE
        else:
            return
        if fields["producer_epoch"] < 0:
            return
        with pytest.raises(ApiError) as caught:
            self.log.append_as_leader(memoryview(self.batch([NOW], **fields)[1]), self.leader_epoch)
        assert caught.value.code is code

    @rule(data=st.data(), count=st.integers(1, 4), is_cut=st.booleans())
    def append_as_follower(self, data, count, is_cut):
        """Several batches as another leader gave them, with holes between them; the last may be cut short."""
        out, before = bytearray(), self.model.end
        holds_nothing = self.log.size == 0
        for number in range(count):
            self.model.end += data.draw(st.sampled_from([0, 0, 0, 1, 20, FAR if number == 0 else 1]))
            self.leader_epoch += data.draw(st.sampled_from([0, 0, 0, 2]))
            batch, one = self._of_leader(data)
            patch_header(one, 0, batch.first, batch.epoch)
            out += one[: len(one) - 1] if is_cut and number == count - 1 else one
            if not (is_cut and number == count - 1):
                batch.data = bytes(one)
                self.model.add(batch)
        self.model.end = self.model.history[-1].last + 1 if count > is_cut else self.log.log_end_offset
        if holds_nothing and count > is_cut and self.model.end - before > FAR >> 2:
            self.model.start = self.model.history[-(count - is_cut)].first  # the empty segment is gone
        assert self.log.append_as_follower(memoryview(out)) == self.model.end

    def _of_leader(self, data):
        kind = data.draw(st.sampled_from(["plain", "idempotent", "transactional", *ControlType]))
        open_now = self.model.open_transactions
        if isinstance(kind, ControlType) and open_now:
            return self.marker(data.draw(st.sampled_from(open_now)).producer, kind)
        times, codec = data.draw(TIMES), data.draw(CODECS)
        if kind == "idempotent":
            return self.batch(times, **self.known(data, transactional=False))
        if kind == "transactional":
            return self.batch(times, transactional=True, **self.known(data, transactional=True))
        return self.batch(times, 50, codec)

    @rule(by=st.integers(1, 3), is_leader=st.booleans())
    def new_leader(self, by, is_leader):
        self.leader_epoch += by
        if is_leader:
            self.log.begin_epoch(self.leader_epoch)
            self.model.assign_epoch(self.leader_epoch, self.model.end)

    @rule(data=st.data())
    def replicate(self, data):
        """The high watermark rises, to where a batch ends."""
        ends = [batch.last + 1 for batch in self.model.kept if batch.last >= self.model.high_watermark]
        if ends:
            self.model.high_watermark = data.draw(st.sampled_from(ends))
            self.log.on_high_watermark(self.model.high_watermark)

    @rule()
    @precondition(lambda self: self.log._segments.active.size)
    def roll(self):
        self.log.roll()

    @rule()
    def flush(self):
        self.log.flush()
        assert self.log.recovery_point == self.model.end

    @rule(settings=SETTINGS)
    def change_config(self, settings):
        self.settings = settings
        self.log.config = parse(TopicConfig, settings)

    @rule(ms=st.sampled_from([1, 10, 2000]))
    def time_passes(self, ms):
        self.clock.advance(ms / 1000)
        self.log.expire_producers()

    # Stopping and starting

    @rule()
    def checkpoint(self):
        self.checkpointed_start = self.model.start

    @rule(data=st.data())
    def stop_and_start(self, data):
        self.log.close()
        self.checkpointed_start = self.model.start
        lost = self._damage(data, [".index", ".timeindex", ".snapshot", LEADER_EPOCHS])
        self._open(lost, clean=True, recovery_point=self.model.end)

    @rule(data=st.data())
    def crash_and_start(self, data):
        point = data.draw(st.integers(0, self.log.recovery_point))
        abandon(self.log)
        lost = self._damage(data, CAN_BE_MADE_AGAIN)
        self._open(lost, clean=False, recovery_point=0 if ".txnindex" in lost else point)
        assert self.log.recovered_bytes_dropped == 0

    def _damage(self, data, suffixes):
        """Delete some files; the suffixes of those."""
        found = sorted(path.name for path in self.home.iterdir() if path.name.endswith(tuple(suffixes)))
        names = data.draw(st.lists(st.sampled_from(found), max_size=3, unique=True)) if found else []
        for name in names:
            (self.home / name).unlink()
        return {suffix for suffix in suffixes for name in names if name.endswith(suffix)}

    def _open(self, lost, **how):
        self.log = open_log(self.home, self.settings, clock=self.clock, log_start_offset=self.checkpointed_start, **how)
        model = self.model
        model.start = min(max(self.checkpointed_start, self.log._segments.first.base_offset), model.end)
        began_later = bool(model.epochs) and model.epochs[0][1] > model.start and model.end > model.start
        if LEADER_EPOCHS in lost:
            model.epochs_lost()
        elif began_later and not how["clean"]:
            model.epochs_begin_late()
        model.epochs = [each for each in model.epochs if each[1] < model.end]
        self._restarted()

    def _restarted(self):
        """What is known of producers before the start of the log may be forgotten, or cut off; nothing else."""
        model = self.model
        model.restarted_at = model.high_watermark = model.end
        self.log.on_high_watermark(model.end)
        model.forgotten = {}
        remembered = {entry.producer_id: entry for entry in self.log._producers.entries}
        for producer in self.idempotent:
            self._compare(producer, remembered.get(producer))
        before, model.blurred = model.blurred, {}
        for each in model.open_transactions:
            begin = each.producer, each.batches[0].first
            known = remembered[each.producer].transaction_first_offset
            if self._is_past(each.batches[0]):
                assert known in (begin[1], before.get(begin), each.visible(model.start), each.visible(0))
                model.blurred[begin] = known

    def _compare(self, producer, entry):
        """Adopt what the log has forgotten of a producer where it may: batches that are gone, or before the start."""
        model = self.model
        if entry is None:
            last = [batch for batch in model.history if batch.producer == producer][-1]
            assert self._is_past(last), f"producer {producer} is forgotten"
            model.forgotten[producer] = model.end
        elif entry.batches:
            newest = entry.batches[-1].last_offset
            gone = [each for each in model.of_producer(producer)[1] if not each.kept and each.last > newest]
            model.history = [batch for batch in model.history if batch not in gone]
            assert model.of_producer(producer)[1][-1].last == newest
        elif batches := model.of_producer(producer)[1]:
            assert self._is_past(batches[-1]), f"the sequences of producer {producer} are forgotten"
            model.forgotten[producer] = batches[-1].last + 1

    def _is_past(self, batch):
        return batch.last < self.model.start or not batch.kept

    @rule(clean=st.booleans())
    def start_twice(self, clean):
        """Opening what was just opened changes no file."""
        self.log.close()
        self.checkpointed_start = self.model.start
        self._open((), clean=clean, recovery_point=self.model.end if clean else 0)
        self.log.close()
        before = {path.name: path.read_bytes() for path in self.home.iterdir()}
        self._open((), clean=clean, recovery_point=self.model.end if clean else 0)
        self.log.close()
        assert {path.name: path.read_bytes() for path in self.home.iterdir()} == before
        self._open((), clean=True, recovery_point=self.model.end)

    # Truncation, retention, rewriting

    def _truncated(self, offset, first_base, base):
        if offset >= self.model.end:
            self.model.epochs = [each for each in self.model.epochs if each[1] < offset]
            return
        if offset < first_base:
            self.model.begin_anew(offset)
        else:
            self.model.truncate(offset, base)
            self._restarted()
        self.checkpointed_start = self.model.start

    def _bases(self, offset):
        """Where the log begins, and where the segment does that holds ``offset``."""
        bases = self.log._segments.bases
        return bases[0], max([base for base in bases if base <= offset], default=0)

    @rule(data=st.data())
    def truncate(self, data):
        first, end = max(self.log._segments.first.base_offset - 1, 0), self.model.end
        offset = data.draw(st.one_of(st.integers(max(end - 12, first), end + 1), st.integers(first, end)))
        bases = self._bases(offset)
        self.log.truncate_to(offset)
        self._truncated(offset, *bases)

    @rule(data=st.data())
    def truncate_to_epoch_end(self, data):
        epoch = data.draw(st.integers(self.model.latest_epoch - 1, self.model.latest_epoch + 1))
        found = self.model.end_of_epoch(epoch)
        if found is None:
            with pytest.raises(LogError, match="knows no leader epoch"):
                self.log.truncate_to_epoch_end(epoch)
            return
        bases = self._bases(found[0])
        end = self.log.truncate_to_epoch_end(epoch)
        self._truncated(found[0], *bases)
        assert end == self.model.end

    @rule(by=st.integers(-20, 20), chance=st.integers(0, 7))
    def restart_at(self, by, chance):
        if chance:  # so much is lost that it must be rare
            return
        offset = max(self.model.end + by, 0)
        self.log.restart_at(offset)
        self.model.begin_anew(offset)
        self.checkpointed_start = offset

    @rule(data=st.data())
    def advance_start(self, data):
        offset = data.draw(st.integers(self.model.start, self.model.end))
        self.log.advance_start(offset)
        self.model.advance(offset)

    @rule()
    def delete_old_segments(self):
        first, expected = self.log._segments.first.base_offset, self._first_to_stay()
        for path in self.log.delete_old_segments(self.model.high_watermark):
            path.unlink()
        assert self.log._segments.first.base_offset == expected
        if expected > first:
            self.model.give_up_before(expected)

    def _first_to_stay(self):
        """The base of the first segment that no policy gives up."""
        bases, model, now = self.log._segments.bases, self.model, self.clock.now_ms()
        ends = [*bases[1:], model.end]
        inside = [
            [batch for batch in model.kept if base <= batch.first < end] for base, end in zip(bases, ends, strict=True)
        ]
        sizes = [sum(len(batch.data) for batch in batches) for batches in inside]
        latest = [max((batch.latest for batch in batches), default=now) for batches in inside]
        age, most = int(self.settings["retention.ms"]), int(self.settings["retention.bytes"])
        rules = [
            lambda n: ends[n] <= model.start,
            lambda n: age >= 0 and now - latest[n] > age,
            lambda n: most >= 0 and sum(sizes[n + 1 :]) >= most,
        ]
        count = max(_leading(len(bases), lambda n, wanted=wanted: wanted(n)) for wanted in rules)
        count = _leading(count, lambda n: ends[n] <= model.high_watermark)
        if count < len(bases):
            return bases[count]
        return model.end if sizes[-1] else bases[-1]

    @rule(data=st.data())
    @precondition(lambda self: self.log.segment_count > 1)
    def rewrite(self, data):
        """Some sealed segments become one, without some batches of theirs that are decided and not the last."""
        bases = self.log._segments.bases
        begin = data.draw(st.integers(0, len(bases) - 2))
        old = bases[begin : data.draw(st.integers(begin + 1, len(bases) - 1))]
        end = bases[begin + len(old)]
        if end - old[0] > FAR >> 2:
            return
        inside = [batch for batch in self.model.kept if old[0] <= batch.first < end]
        candidates = [batch for batch in inside if self._may_be_dropped(batch)]
        dropped = data.draw(st.lists(st.sampled_from(candidates), unique=True)) if candidates else []
        aborted = [
            entry
            for segment in self.log._segments
            if segment.base_offset in old
            for entry in segment.txn_index.entries()
        ]
        write_cleaned(self.home, old[0], [batch.data for batch in inside if batch not in dropped], self.log.config)
        if aborted:
            _write_aborted(self.home / f"{old[0]:020d}.txnindex.cleaned", aborted)
        for path in self.log.replace_segments(old[:1], old):
            path.unlink()
        for batch in dropped:
            batch.kept = False

    def _may_be_dropped(self, batch):
        stable = self.model.first_unstable
        if batch.ends is not None or (stable is not None and batch.last >= stable):
            return False
        if any(each.batches[0] is batch for each in self.model.transactions):
            return False
        return batch.producer < 0 or batch not in self.model.of_producer(batch.producer)[1][-1:]

    # Reading

    @rule(data=st.data(), min_one_batch=st.booleans(), max_bytes=st.sampled_from([0, 1, 70, 300, 100_000]))
    def read(self, data, min_one_batch, max_bytes):
        """Never beyond the bound, at least the first batch if asked, and whom of it to leave out."""
        model = self.model
        offset = data.draw(st.integers(model.start, model.end))
        bound = data.draw(st.sampled_from([*(batch.last + 1 for batch in model.visible), model.end]))
        place = self.log.position_of(bound)
        piece = self.log.read(offset, max_bytes, place, min_one_batch=min_one_batch)
        found = read_bytes(piece)
        visible = [batch for batch in model.visible if batch.last >= offset and batch.last < bound]
        if offset >= bound or not visible:
            assert found == b""
            return
        assert b"".join(batch.data for batch in visible).startswith(found)
        first = len(visible[0].data)
        if max_bytes < first:
            assert len(found) == (first if min_one_batch else 0)
        else:
            assert first <= len(found) <= max_bytes
        whole_ones = [batch.last + 1 for batch in iter_batches_of(found)]
        if whole_ones:
            said = {(each.producer_id, each.last_offset) for each in self.log.aborted_in(piece, offset, bound)[1]}
            assert model.aborted(offset, whole_ones[-1])[0] <= said <= model.aborted(offset, bound)[1]

    @rule(max_bytes=st.sampled_from([1, 200, 5000]))
    def consume(self, max_bytes):
        """A consumer that goes from batch to batch is given all of them, and none twice."""
        offset, got = self.model.start, []
        while (piece := self.log.read(offset, max_bytes, self.log.end, min_one_batch=True)) is not None:
            for batch in iter_batches(read_bytes(piece)):
                got.append(bytes(batch.buffer))
                offset = batch.next_offset
        assert got == [batch.data for batch in self.model.visible]

    @rule(timestamp=st.one_of(st.integers(NOW - 61, NOW + 1), st.just(NOW + 100), st.just(0)))
    def find_a_time(self, timestamp):
        expected = next((pair for pair in self.model.records if pair[0] >= timestamp), None)
        assert finish(self.log.offset_for_timestamp(timestamp)) == expected

    @rule()
    def find_the_latest_time(self):
        """Not told if the latest batch of all reaches below the start: the log then looks no further."""
        latest = max((batch.latest for batch in self.model.kept), default=0)
        if any(batch.latest == latest and batch.first < self.model.start for batch in self.model.kept):
            return
        records = [(at, -offset) for at, offset in self.model.records]
        expected = (max(records)[0], -max(records)[1]) if records else None
        assert finish(self.log.latest_timestamp()) == expected

    @rule(data=st.data())
    def find_the_aborted(self, data):
        start = data.draw(st.integers(self.model.start, self.model.end))
        end = data.draw(st.integers(start, self.model.end))
        must, may = self.model.aborted(start, end)
        found = self.log.aborted_transactions(start, end)
        said = [(each.producer_id, each.last_offset) for each in found]
        assert len(said) == len(set(said))
        assert must <= set(said) <= may

    # Always

    @invariant()
    def it_begins_and_ends_where_it_should(self):
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.model.start, self.model.end)
        assert 0 <= self.log.recovery_point <= self.model.end

    @invariant()
    def it_holds_what_it_was_given(self):
        assert whole(self.log) == b"".join(batch.data for batch in self.model.kept)

    @invariant()
    def it_knows_what_is_stable(self):
        assert self.log.first_unstable_offset == self.model.first_unstable

    @invariant()
    def it_knows_its_epochs(self):
        for epoch in range(-1, self.model.latest_epoch + 2):
            assert self.log.end_offset_for_epoch(epoch) == self.model.end_of_epoch(epoch)
        for batch in self.model.visible[:: max(len(self.model.visible) // 5, 1)]:
            assert self.log.epochs.epoch_at(batch.last) == self.model.epoch_at(batch.last)

    @invariant()
    def its_indexes_hold_together(self):
        for segment in self.log._segments:
            batches = list(segment.log.batches())
            _check_offsets(segment.offset_index, batches)
            _check_times(segment.time_index, batches)


def _leading(count, condition):
    return next((n for n in range(count) if not condition(n)), count)


def _write_aborted(path, entries):
    index = TransactionIndex(path, 0)
    for entry in entries:
        index.append(entry)
    index.close()


def iter_batches_of(found):
    """The whole batches in ``found``, as the model has them."""
    return [Batch(each.base_offset, each.last_offset, b"", [], 0) for each in iter_batches(found)]


def _check_offsets(index, batches):
    """Entries rise; each points to a batch, and all before that batch lie before its offset."""
    entries = [index._entry(number) for number in range(index.entries)]
    assert entries == sorted(set(entries))
    lasts = {batch.position: batch.last_offset for batch in batches}
    for relative, position in entries:
        assert position in lasts
        assert all(last < index.base_offset + relative for at, last in lasts.items() if at < position)


def _check_times(index, batches):
    """Entries rise; no batch before an entry's offset is later than it."""
    entries = [index._of(index._entry(number)) for number in range(index.entries)]
    assert [entry.timestamp for entry in entries] == sorted({entry.timestamp for entry in entries})
    for timestamp, offset in entries:
        assert all(batch.max_timestamp <= timestamp for batch in batches if batch.last_offset < offset)


TestLogAgainstAList = LogMachine.TestCase
TestLogAgainstAList.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=40)
pytest.mark.timeout(1800)(TestLogAgainstAList)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_epoch_checkpoint_is_made_again(home, clean):
    """A follower without it would cut its log to the start."""
    log = open_log(home)
    for epoch in (2, 2, 5):
        log.append_as_leader(batch_of(1000), epoch)
    log.close()
    (home / LEADER_EPOCHS).unlink()
    log = open_log(home, clean=clean)
    assert [log.epochs.epoch_at(offset) for offset in range(3)] == [2, 2, 5]
    log.close()
    assert (home / LEADER_EPOCHS).read_text() == "0\n2\n2 0\n5 2\n"


def test_producers_and_open_transactions_outlive_their_snapshots(home):
    log = open_log(home)
    log.append_as_leader(transactional(1, 0), 0, LEADER)
    log.close()
    for path in home.glob("*.snapshot"):
        path.unlink()
    log = open_log(home)
    assert log.first_unstable_offset == 0
    with pytest.raises(ApiError, match="where 1 is due"):
        log.append_as_leader(memoryview(bytearray(_idempotent(sequence=5))), 0)
    log.close()


def _idempotent(sequence):
    builder = RecordBatchBuilder(producer_id=1, producer_epoch=0, base_sequence=sequence)
    builder.append(1000, b"k", b"v")
    return builder.build()


def test_a_marker_can_be_the_latest_record(home):
    log = open_log(home)
    log.append_as_leader(transactional(1, 0), 0, LEADER)
    log.append_as_leader(marker_of(1, ControlType.COMMIT), 0, LEADER)
    assert finish(log.latest_timestamp()) == finish(log.offset_for_timestamp(1001)) == (2000, 1)
    log.close()
