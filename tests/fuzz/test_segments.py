"""Batches as nobody should send them, files that keep recovery busy: our own errors only, soon, in little memory."""

import random
import time
import tracemalloc

import crc32c
import pytest
from fuzz.damages import arbitrary, spoiled
from log.samples import batch_of, marker_of, open_log, transactional, whole

from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogError
from sparklog.log.origin import AppendOrigin
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_header
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType
from sparklog.record.records import MAX_DECOMPRESSED, iter_batches, iter_records
from sparklog.testing.steps import finish

pytestmark = pytest.mark.fuzz

TRIES = 1500
SETTINGS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "gzip"},
    "uncompressed": {"compression.type": "uncompressed"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "timely": {"message.timestamp.before.max.ms": "1000000"},
}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


HOLED = {"segment.bytes": "2000", "cleanup.policy": "compact,delete"}
"""Holes at the end of a segment are no loss."""


def sealed(data):
    """``data`` with the CRC that it should have, so that what lies behind the CRC is looked at."""
    out = bytearray(data)
    if len(out) > layout.HEADER_SIZE:
        layout.UINT32.pack_into(out, layout.CRC, crc32c.crc32c(out[layout.ATTRIBUTES :]))
    return out


def hostile(seeds, chance):
    """A spoiled batch; half of the time its length and CRC are right again."""
    if chance.random() < 0.1:
        return memoryview(bytearray(arbitrary(chance)))
    out = bytearray(spoiled(chance.choice(seeds), chance))
    if chance.random() < 0.5 and len(out) > layout.HEADER_SIZE:
        layout.INT32.pack_into(out, layout.LENGTH, len(out) - layout.LOG_OVERHEAD)
        out[layout.MAGIC] = layout.MAGIC_V2
        out = sealed(out)
    return memoryview(bytearray(out))


def seeds():
    """Good batches of every kind."""
    each = [batch_of(1000, 1002, key=b"k", size=40, codec=codec) for codec in CompressionType]
    return [bytes(data) for data in (*each, transactional(1, 0, 3), marker_of(1, ControlType.ABORT))]


def check_whole(log):
    """What the log holds are good batches, end to end, with offsets that rise."""
    next_offset = 0
    for batch in iter_batches(whole(log), partial_tail=False):
        batch.validate()
        assert batch.base_offset >= next_offset
        next_offset = batch.next_offset
    assert log.log_end_offset >= next_offset


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_produced_batches(home, settings, origin):
    """Refused with a code and nothing written, or written whole."""
    chance, log, taken = random.Random(f"{settings}{origin}"), open_log(home, SETTINGS[settings]), 0
    good = seeds()
    tracemalloc.start()
    try:
        for _ in range(TRIES):
            end, size = log.log_end_offset, log.size
            try:
                log.append_as_leader(hostile(good, chance), 0, origin)
                taken += log.log_end_offset > end
            except (ApiError, LogError):
                assert (log.log_end_offset, log.size) == (end, size)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert taken
    check_whole(log)
    log.close()
    again = open_log(home, SETTINGS[settings], clean=False)
    assert again.recovered_bytes_dropped == 0
    again.close()


def test_batches_of_a_leader(home):
    """Refused with nothing written, or written as they are."""
    chance, log, refused = random.Random("leader"), open_log(home, HOLED), 0
    good = seeds()
    for number in range(TRIES):
        out = bytearray()
        for data in chance.choices(good, k=3):
            one = bytearray(data)
            patch_header(one, 0, log.log_end_offset + chance.choice((0, 1, 5, 1 << 33)) + 5 * len(out), number // 100)
            out += one if chance.random() < 0.5 else hostile([bytes(one)], chance)
        end, size = log.log_end_offset, log.size
        try:
            assert log.append_as_follower(memoryview(out)) == log.log_end_offset
        except LogError:
            refused += 1
            assert (log.log_end_offset, log.size) == (end, size)
        if log.log_end_offset > layout.MAX_INT64 - (1 << 40):
            log.restart_at(0)
    assert 0 < refused < TRIES
    check_whole(log)
    log.close()
    end, again = log.log_end_offset, open_log(home, HOLED, clean=False)
    assert (again.log_end_offset, again.recovered_bytes_dropped) == (end, 0)
    again.close()


def test_a_batch_far_beyond_an_empty_segment_gets_one_of_its_own(home):
    log, far = open_log(home), batch_of(1000)
    patch_header(far, 0, 1 << 33, 0)
    assert log.append_as_follower(far) == (1 << 33) + 1
    assert finish(log.offset_for_timestamp(1000)) == (1000, 1 << 33)
    log.close()
    again = open_log(home, clean=False)
    assert (again.log_end_offset, again.recovered_bytes_dropped) == ((1 << 33) + 1, 0)
    again.close()


def test_batches_too_far_apart_for_one_segment_are_taken_one_after_another(home):
    log, near, far = open_log(home), batch_of(1000), batch_of(1000)
    patch_header(far, 0, 1 << 33, 0)
    both = memoryview(bytearray(bytes(near) + bytes(far)))
    assert log.append_as_follower(both) == 1
    assert log.append_as_follower(both[len(near) :]) == (1 << 33) + 1
    log.close()


def test_a_batch_that_ends_beyond_all_offsets_is_refused(home):
    log, last = open_log(home), batch_of(1000)
    patch_header(last, 0, layout.MAX_INT64, 0)
    with pytest.raises(CorruptRecord, match="beyond all offsets"):
        log.append_as_follower(last)
    assert log.append_as_leader(batch_of(1000), 0).first_offset == 0
    log.close()


@pytest.mark.parametrize("how", ["leader", "follower"])
def test_a_marker_that_says_nothing_is_refused_and_leaves_nothing(home, how):
    log, builder = open_log(home), RecordBatchBuilder(producer_id=7, is_transactional=True, is_control=True)
    builder.append(1000, b"no", b"marker")
    marker = memoryview(bytearray(builder.build()))
    with pytest.raises(CorruptRecord, match="control record"):
        log.append_as_follower(marker) if how == "follower" else log.append_as_leader(
            marker, 0, AppendOrigin.COORDINATOR
        )
    assert (log.size, log.log_end_offset) == (0, 0)
    log.append_as_leader(batch_of(1000), 0)
    assert [batch.base_offset for batch in iter_batches(whole(log))] == [0]
    log.close()


def test_a_marker_is_not_compressed(home):
    log = open_log(home, {"compression.type": "zstd"})
    log.append_as_leader(transactional(1, 0), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(marker_of(1, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    codecs = [batch.compression for batch in iter_batches(whole(log))]
    assert codecs == [CompressionType.ZSTD, CompressionType.NONE]
    log.close()


def bomb(size, codec=CompressionType.ZSTD):
    builder = RecordBatchBuilder(compression=codec)
    builder.append(1000, b"k", bytes(size))
    return memoryview(bytearray(builder.build()))


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.ZSTD])
@pytest.mark.parametrize("settings", ["compacted", "recompressed", "uncompressed", "timely"])
def test_a_decompression_bomb_is_refused(home, settings, codec):
    """Where the records are looked at; what a topic only stores is its readers' to refuse."""
    log = open_log(home, SETTINGS[settings])
    if settings == "recompressed" and codec is CompressionType.GZIP:
        codec = CompressionType.LZ4
    data = bomb(MAX_DECOMPRESSED + 1, codec)
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(data, 0)
    assert caught.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    assert log.size == 0
    log.close()


def test_what_grows_beyond_the_largest_batch_in_the_topics_codec_is_refused(home):
    log = open_log(home, SETTINGS["uncompressed"])
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(bomb(2_000_000), 0)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert log.size == 0
    log.close()


TAIL = 16 << 20


def _headers():
    """Headers of batches half as large as the file, each of which has a CRC to be computed."""
    one = layout.HEADER.pack(5, TAIL // 2, 0, layout.MAGIC_V2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    return one * (TAIL // len(one))


TAILS = {
    "zeros": lambda: bytes(TAIL),
    "magics": lambda: b"\2" * TAIL,
    "magics with attributes": lambda: (bytes(16) + b"\2") * (TAIL // 17),
    "text": lambda: b"The quick brown fox jumps over the lazy dog. " * (TAIL // 45),
    "random": lambda: random.Random(0).randbytes(TAIL),
    "headers": _headers,
}


@pytest.mark.parametrize("kind", TAILS)
def test_a_start_over_a_long_spoiled_tail_is_soon_over(home, kind):
    home.mkdir()
    good = bytes(batch_of(1000, 1001))
    (home / f"{0:020d}.log").write_bytes(good + TAILS[kind]())
    started = time.process_time()
    log = open_log(home, clean=False)
    assert time.process_time() - started < 10
    assert whole(log) == good
    kept = list(home.glob("*.corrupt"))
    assert bool(kept) == (kind == "headers"), "what could not be examined is kept, all else is torn"
    log.close()


def test_a_good_batch_behind_long_damage_is_found_at_every_position(home):
    """So the bytes behind the damage are set aside, not thrown away."""
    good, chance = bytes(batch_of(1000, 1001)), random.Random("found")
    later = bytearray(batch_of(1002))
    patch_header(later, 0, 9, 0)
    home.mkdir()
    for block in (0, (4 << 20) - 100):
        for shift in (*range(1, 70, 7), chance.randrange(70, 200)):
            (home / f"{0:020d}.log").write_bytes(good + bytes(block + shift) + later)
            log = open_log(home, clean=False)
            assert log.log_end_offset == 2
            log.close()
            (kept,) = home.glob("*.corrupt")
            assert kept.read_bytes().endswith(later)
            kept.unlink()


def test_a_batch_that_is_good_but_for_its_records_count_allocates_nothing():
    data = bytearray(batch_of(1000, codec=CompressionType.ZSTD))
    layout.INT32.pack_into(data, layout.RECORD_COUNT, layout.MAX_INT32)
    layout.INT32.pack_into(data, layout.LAST_OFFSET_DELTA, layout.MAX_INT32 - 1)
    batch = RecordBatch(sealed(data))
    batch.validate()
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord, match="claims"):
            list(iter_records(batch))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
