"""How a batch is looked into for a record by its time."""

import subprocess
import sys
import threading

import pytest
from log.samples import TP, batch_of, open_log

from sparklog.errors import CorruptRecord
from sparklog.log import search
from sparklog.log.file_records import BatchPosition
from sparklog.log.search import LongWork, first_record_from, first_record_in, greatest_time_in
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.record.rebuilding import empty_header
from sparklog.testing.steps import finish

LARGE = 1 << 20


def long_steps(steps):
    """The long work that the steps come to, each done on another thread, and their result."""
    found = []
    while True:
        try:
            work = next(steps)
        except StopIteration as end:
            return found, end.value
        thread = threading.Thread(target=work.run)
        thread.start()
        thread.join()
        found.append(work)


@pytest.fixture
def stored(tmp_path):
    """Writes a batch to a segment; gives its file and its place there."""

    def store(batch):
        log = open_log(tmp_path / TP.topic, {"max.message.bytes": "10000000"})
        log.append_as_leader(batch, 0)
        records = log._segments.active.log
        return records, next(records.batches())

    return store


def zeros(codec, size=LARGE):
    """A batch that is small where it is compressed: of three records, of which the second is the latest."""
    builder = RecordBatchBuilder(compression=codec)
    for time, value in ((1000, b"v"), (3000, bytes(size)), (2000, None)):
        builder.append(time, None, value)
    return memoryview(bytearray(builder.build()))


@pytest.mark.parametrize(
    ("timestamp", "start", "found"),
    [
        (0, 0, (10, 0)),
        (11, 0, (30, 1)),
        (30, 0, (30, 1)),
        (31, 0, (40, 3)),
        (20, 2, (20, 2)),
        (41, 0, None),
        (0, 4, None),
        (-(2**63), 0, (10, 0)),
        (2**63 - 1, 0, None),
    ],
)
def test_the_first_record_that_is_late_enough_is_found(timestamp, start, found):
    assert first_record_from(RecordBatch(batch_of(10, 30, 20, 40)), timestamp, start) == found


def test_a_marker_is_found():
    marker = build_marker(EndTransactionMarker(ControlType.ABORT, 3), ProducerIdAndEpoch(7, 0), 1234)
    assert first_record_from(RecordBatch(marker), 0, 0) == (1234, 0)
    emptied = empty_header(RecordBatch(marker))
    assert first_record_from(RecordBatch(emptied), 0, 0) is None, "a compaction has left nothing of it"


@pytest.mark.parametrize("codec", list(CompressionType))
def test_a_small_batch_is_looked_into_at_once(stored, codec):
    size = 10 if codec is CompressionType.GZIP else 2000
    records, place = stored(batch_of(1, 3, 2, size=size, codec=codec))
    assert long_steps(first_record_in(records, place, 2, 0)) == ([], (3, 1))
    assert long_steps(greatest_time_in(records, place, 2)) == ([], 2)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_a_batch_that_is_large_once_decompressed_is_long_work(stored, codec):
    records, place = stored(zeros(codec))
    for steps, found in (
        (first_record_in(records, place, 1500, 0), (3000, 1)),
        (first_record_in(records, place, 1500, 2), (2000, 2)),
        (first_record_in(records, place, 3001, 0), None),
        (greatest_time_in(records, place, 1), 3000),
        (greatest_time_in(records, place, 2), 2000),
        (greatest_time_in(records, place, 3), -1),
    ):
        works, result = long_steps(steps)
        assert (len(works), result) == (1, found)


def test_long_work_that_nobody_has_run_is_done_by_the_search(stored):
    records, place = stored(zeros(CompressionType.ZSTD))
    assert finish(first_record_in(records, place, 1500, 0)) == (3000, 1)


def test_a_large_batch_is_not_even_read_before_its_long_work(stored, monkeypatch):
    records, place = stored(zeros(CompressionType.NONE))
    read = []
    monkeypatch.setattr(search, "_read", lambda *args: read.append(args) or RecordBatch(zeros(CompressionType.NONE)))
    steps = first_record_in(records, place, 1500, 0)
    work = next(steps)
    assert not read
    work.run()
    assert finish(steps) == (3000, 1)
    assert read == [(records, place)]


def test_what_long_work_raises_the_search_raises(stored):
    records, place = stored(zeros(CompressionType.NONE))
    gone = BatchPosition(records.size, *place[1:])
    steps = first_record_in(records, gone, 1500, 0)
    next(steps).run()
    with pytest.raises(CorruptRecord):
        next(steps)


def test_long_work_is_done_once():
    done = []
    work = LongWork(lambda: done.append(1) or len(done))
    work.run()
    assert (work.result(), work.result(), done) == (1, 1, [1])


def test_a_search_does_not_have_pandas_imported():
    """Which takes a fifth of a second, in a process that may have to serve others."""
    program = f"""
import sys
from sparklog.log.search import first_record_from
from sparklog.record.batch import RecordBatch
assert first_record_from(RecordBatch(bytes.fromhex("{bytes(batch_of(10, 30)).hex()}")), 20, 0) == (30, 1)
print("pandas" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
