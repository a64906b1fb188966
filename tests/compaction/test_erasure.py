"""Erasing the files of one log: what goes, what stays as it was, and what is told."""

import hashlib
import io
import json
import os
from contextlib import closing

import pytest
from compaction.dump import dump
from compaction.erasures import erase, expected_batches, raw, task_of, without_crc
from compaction.keyed import Producer, append, fill, leftovers, mark, records_of
from compaction.logs import LogWriter
from compaction.ours import SEED, clean, opened

from sparklog.compaction.erasure import ErasureStats, LogErasing, Progress
from sparklog.compaction.task import Failure
from sparklog.compaction.worker import serve
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import CorruptRecord, DiskFull
from sparklog.log.files import LOG_SUFFIX, segment_path
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.record import _impl
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType
from sparklog.testing.clock import ManualClock

NOW_MS = 1_700_000_100_000
SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "700", "index.interval.bytes": "0"}
CONFIG = parse(TopicConfig, SETTINGS)


@pytest.fixture(params=["python", "native"])
def codec(request, monkeypatch):
    monkeypatch.setattr(_impl, "codec", _impl.load(request.param))


@pytest.fixture
def log(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    with closing(opened(directory, CONFIG, NOW_MS)) as found:
        yield found


def erase_all(log, keys):
    """Below the end of the log."""
    end = log.log_end_offset
    log.roll()
    return erase(log, keys, end)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cleans", [False, True], ids=["written", "cleaned"])
def test_any_log_loses_the_records_of_the_keys_and_nothing_else(codec, tmp_path, seed, cleans):
    """Logs of all kinds of batches, as they were written, or compacted before, so that they have delete horizons."""
    directory = tmp_path / "t-0"
    written = LogWriter(seed, {"delete.retention.ms": "3600000"}).write(directory)
    if cleans:
        clean(directory, config=written.settings, now_ms=written.now_ms, log_start_offset=written.log_start_offset)
    config = parse(TopicConfig, written.settings)
    keys = {b"", b"hot-0", b"hot-1", *(b"cold-%d" % number for number in range(0, 300, 3)), b"once-1"}
    with closing(opened(directory, config, written.now_ms, written.log_start_offset)) as log:
        log.roll()
        end = log.log_end_offset - 11
        before = dump(directory)
        files = {path.name: path.stat().st_ino for path in directory.glob("*.log")}
        stats = erase(log, keys, end)
        after = dump(directory)
        expected = expected_batches(before, keys, end)
        assert without_crc(after.batches, expected) == expected
        assert after.aborted == before.aborted
        assert after.bases == before.bases
        assert [each.modified_ms for each in after.segments] == [each.modified_ms for each in before.segments]
        assert stats.records_found == len(before.records) - len(after.records)
        assert stats.keys == len(keys)
        same = {path.name for path in directory.glob("*.log") if files[path.name] == path.stat().st_ino}
        changed = [old.base_offset for old, new in zip(before.segments, after.segments, strict=True) if old != new]
        assert same == {name for name in files if int(name[:20]) not in changed}
        assert stats.segments_rewritten == len(changed)
        again = erase(log, keys, end, scan_only=True)
        assert (again.records_found, again.records_scanned) == (0, stats.records_scanned - stats.records_found)
        producers = sorted(log.producers)
    with closing(opened(directory, config, written.now_ms, written.log_start_offset)) as log:
        assert sorted(log.producers) == producers
        assert dump(directory) == after


@pytest.mark.parametrize("kind", CompressionType)
def test_nothing_of_the_keys_is_left_in_any_file(codec, log, kind):
    secret = b"erase-me-" + os.urandom(8).hex().encode()
    for number in range(30):
        append(log, (secret, b"%d of " % number + secret), (b"other%d" % number, b"." * 50), codec=kind)
    others = [each for each in records_of(log) if each[1] != secret]
    stats = erase_all(log, [secret])
    assert records_of(log) == others
    assert stats.records_found == 30
    assert secret not in raw(log.directory)
    assert leftovers(log.directory) == []


def test_an_aborted_record_goes_and_its_transaction_stays_aborted(log):
    producer = Producer(7, 0, 0, is_transactional=True)
    append(log, (b"a", b"aborted"), (b"b", b"aborted"), producer=producer)
    append(log, (b"a", b"alone"), producer=producer._replace(sequence=2))
    mark(log, producer, ControlType.ABORT)
    append(log, (b"a", b"committed"), (b"a", None), producer=producer._replace(sequence=3))
    mark(log, producer, ControlType.COMMIT)
    aborted = log.aborted_transactions(0, 100)
    erase_all(log, [b"a"])
    assert records_of(log) == [(1, b"b", b"aborted")]
    assert log.aborted_transactions(0, 100) == aborted != []
    assert [each.record_count for each in dump(log.directory).batches] == [1, 0, 1, 0, 1]


def test_of_a_segment_in_which_all_is_erased_the_headers_stay(log):
    fill(log, keys=1)
    end = log.log_end_offset
    bases = [each.base_offset for each in log.segment_facts()]
    times = [each.latest_timestamp for each in log.segment_facts()]
    assert erase_all(log, [b"k0"]).records_found == end
    assert [each.base_offset for each in log.segment_facts()] == [*bases, end]
    assert [each.latest_timestamp for each in log.segment_facts()[:-1]] == times
    assert (records_of(log), log.size, log.log_end_offset) == ([], 61 * end, end)
    assert append(log, (b"k0", b"again")) == end
    directory = log.directory
    log.close()
    with closing(opened(directory, CONFIG, NOW_MS)) as again:
        assert records_of(again) == [(end, b"k0", b"again")]
        assert again.log_start_offset == 0


def test_a_start_after_a_crash_takes_no_end_of_a_segment_for_lost(log):
    """However much of the log it reads again: the point up to which all was flushed may be behind."""
    fill(log)
    erase_all(log, [b"k0", b"k4", b"k%d" % ((log.log_end_offset - 1) % 5)])
    append(log, (b"last", b"v"))
    records, end, directory = records_of(log), log.log_end_offset, log.directory
    log.flush()
    crashed = Knowledge(recovery_point=0, clean=False, high_watermark=2**62)
    again = Log(directory, log.tp, CONFIG, ManualClock(NOW_MS), lambda work: work(), crashed)
    assert (records_of(again), again.log_end_offset) == (records, end)
    assert not list(directory.glob("*.corrupt"))
    again.close()


def test_a_search_changes_nothing_and_tells_of_every_file(log):
    fill(log)
    log.roll()
    before = {path.name: path.read_bytes() for path in log.directory.iterdir()}
    stats = erase(log, [b"k1", b"none"], log.log_end_offset, scan_only=True)
    assert {path.name: path.read_bytes() for path in log.directory.iterdir()} == before
    assert stats.records_found == sum(key == b"k1" for _, key, _ in records_of(log))
    assert stats.records_scanned == log.log_end_offset
    assert stats.bytes_scanned == log.size == sum(each.size for each in stats.segments)
    assert {each.base_offset: each.sha256 for each in stats.segments} == {
        int(name[:20]): hashlib.sha256(data).hexdigest()
        for name, data in before.items()
        if name.endswith(".log") and data
    }


def test_nothing_lies_below_the_first_offset(log):
    fill(log)
    assert erase(log, [b"k1"], 0).bytes_scanned == 0


def test_progress_is_told_segment_by_segment(log):
    fill(log, segments=2)
    erasing = LogErasing(task_of(log, [b"none"], log.end.segment_base), ManualClock(), SEED)
    assert list(erasing.run()) == [Progress(1, 2), Progress(2, 2)]


def test_a_log_with_a_segment_that_cannot_be_read_is_not_changed(log):
    fill(log)
    end = log.log_end_offset
    log.roll()
    bad = segment_path(log.directory, log.segment_facts()[-2].base_offset, LOG_SUFFIX)
    damaged = bytearray(bad.read_bytes())
    damaged[-3] ^= 1
    bad.write_bytes(damaged)
    before = raw(log.directory)
    with pytest.raises(CorruptRecord, match="CRC"):
        erase(log, [b"k1"], end)
    assert raw(log.directory) == before
    assert leftovers(log.directory) == []


def test_what_was_set_aside_for_damage_is_in_the_way(log):
    fill(log)
    (log.directory / "00000000000000000003.log.corrupt").write_bytes(b"k1")
    with pytest.raises(CorruptRecord, match=r"00000000000000000003\.log\.corrupt was set aside .*: remove it"):
        erase(log, [b"k1"], log.end.segment_base, scan_only=True)


def test_a_full_disk_is_told_before_anything_is_written(log, monkeypatch):
    fill(log)
    end = log.end.segment_base
    before = raw(log.directory)
    full = os.statvfs(log.directory)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*full[:4], 0, *full[5:])))
    with pytest.raises(DiskFull, match="has 0 bytes left"):
        erase(log, [b"k1"], end)
    assert raw(log.directory) == before
    assert erase(log, [b"none"], end).records_found == 0


class Incoming:
    """What a broker says: a task, its keys, and a go for each group."""

    def __init__(self, task, keys):
        self._task, self._lines = task, [keys]

    def __iter__(self):
        return iter([self._task])

    def readline(self):
        return self._lines.pop() if self._lines else '{"go": true}\n'


def served(lines):
    first, keys = lines.split("\n")
    outgoing = io.StringIO()
    serve(Incoming(first + "\n", keys + "\n"), outgoing, ManualClock())
    return [json.loads(line) for line in outgoing.getvalue().splitlines()]


def test_a_worker_tells_of_each_step_and_never_of_a_key(log):
    fill(log)
    log.roll()
    task = task_of(log, [b"k1"], log.log_end_offset)
    assert "k1" not in repr(task)
    answers = served(task.to_lines())
    segments = len(task.log.segments)
    assert [each["progress"] for each in answers[:segments]] == [[n, segments] for n in range(1, segments + 1)]
    groups = [each["group"] for each in answers[segments:-1]]
    assert groups == [{"old": each["new"], "new": each["new"]} for each in groups]
    stats = ErasureStats.from_dict(answers[-1]["done"])
    assert (stats.segments_rewritten, stats.records_found) == (len(groups), sum(r[1] == b"k1" for r in records_of(log)))
    assert "k1" not in json.dumps(answers)
    search = served(task_of(log, [b"k1"], log.log_end_offset, scan_only=True).to_lines())
    assert ErasureStats.from_dict(search[-1]["done"]).segments[0].base_offset == 0


def test_a_worker_that_cannot_read_says_so(log):
    fill(log)
    first, _ = task_of(log, [b"k1"], 3).to_lines().split("\n")
    (failed,) = served(f"{first}\nAAAA")
    assert failed["failed"] == {"kind": Failure.CORRUPT, "text": "the keys of the erasure are malformed"}
    segment_path(log.directory, 0, LOG_SUFFIX).unlink()
    (failed,) = served(task_of(log, [b"k1"], 3).to_lines())
    assert failed["failed"]["kind"] == Failure.GONE
