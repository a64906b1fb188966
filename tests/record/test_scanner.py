"""Walking a file of batches: the good ones are taken, the first bad byte ends it, under either codec alike."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.record import _impl
from sparklog.record._impl.abc import ScanLimits
from sparklog.record.batch import patch_header
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType

BASE = 100
LIMITS = ScanLimits(BASE, 1000, 0, 100, 100)


def batch(offset, *timestamps, producer=-1, codec=CompressionType.NONE, epoch=0):
    builder = RecordBatchBuilder(codec, producer_id=producer, producer_epoch=min(producer, 0), base_sequence=0)
    for timestamp in timestamps or (1000,):
        builder.append(timestamp, None, b"value")
    out = bytearray(builder.build())
    patch_header(out, 0, offset, epoch)
    return bytes(out)


@pytest.fixture(params=["python", "native"])
def scanner_of(request):
    return _impl.load(request.param).BatchScanner


def state(scanner):
    names = ("position", "next_offset", "latest_timestamp", "latest_offset", "first_timestamp", "bytes_since_entry")
    return {name: getattr(scanner, name) for name in (*names, "is_bad")} | {"entries": scanner.entries()}


def test_whole_batches_are_taken_and_indexed(scanner_of):
    batches = [batch(100, 5, 9, 7), batch(103, 8), batch(110, 20, producer=7), batch(111, 20)]
    scanner = scanner_of(LIMITS)
    assert scanner.scan(b"".join(batches)) == [len(batches[0]) + len(batches[1])]
    sizes = [sum(map(len, batches[:number])) for number in range(5)]
    assert state(scanner) == {
        "position": sizes[4],
        "next_offset": 112,
        "latest_timestamp": 20,
        "latest_offset": 110,
        "first_timestamp": 9,
        "bytes_since_entry": len(batches[3]),
        "is_bad": False,
        "entries": (
            struct.pack(">6i", 3, sizes[1], 10, sizes[2], 11, sizes[3]),
            struct.pack(">qiqi", 9, 2, 20, 10),
        ),
    }


@pytest.mark.parametrize("interval", [0, 100, 250, 10_000])
def test_an_entry_is_due_after_more_than_the_interval(scanner_of, interval):
    data = [batch(100 + number) for number in range(20)]
    scanner = scanner_of(LIMITS._replace(index_interval=interval))
    scanner.scan(b"".join(data))
    size, expected, since = len(data[0]), [], 0
    for number in range(20):
        if since > interval:
            expected.append((number, number * size))
            since = 0
        since += size
    assert list(struct.iter_unpack(">ii", scanner.entries()[0])) == expected


def test_full_indexes_take_no_more(scanner_of):
    data = b"".join(batch(100 + number, number) for number in range(20))
    scanner = scanner_of(LIMITS._replace(max_offset_entries=5, max_time_entries=3))
    scanner.scan(data)
    assert [len(entries) for entries in scanner.entries()] == [5 * 8, 3 * 12]
    assert scanner.position == len(data)


def test_a_batch_cut_short_is_waited_for(scanner_of):
    data = batch(100) + batch(101)
    for cut in range(len(data) // 2, len(data)):
        scanner = scanner_of(LIMITS)
        scanner.scan(data[:cut])
        assert (scanner.position, scanner.is_bad) == (len(data) // 2, False)
        scanner.scan(data[scanner.position :])
        assert (scanner.position, scanner.next_offset) == (len(data), 102)


CASES = {
    "before the base": batch(99),
    "beyond the limit": batch(1000),
    "reaching the limit": batch(999, 1, 2),
    "going back": batch(100) + batch(100),
    "magic 1": batch(100)[:16] + b"\1" + batch(100)[17:],
    "length 0": batch(100)[:8] + b"\0\0\0\0" + batch(100)[12:],
    "length -1": batch(100)[:8] + b"\xff\xff\xff\xff" + batch(100)[12:],
    "length too small": batch(100)[:8] + b"\0\0\0\x30" + batch(100)[12:],
    "crc": batch(100)[:17] + b"\0\0\0\0" + batch(100)[21:],
    "offset at its greatest": batch(2**63 - 1, 1, 2),
    "zeros": bytes(200),
}


@pytest.mark.parametrize("data", CASES.values(), ids=CASES)
def test_what_is_no_good_batch_ends_it(scanner_of, data):
    scanner = scanner_of(LIMITS)
    scanner.scan(data + batch(500))
    assert scanner.is_bad
    assert scanner.position == (len(data) // 2 if data is CASES["going back"] else 0)
    before = state(scanner)
    assert scanner.scan(batch(500)) == []
    assert state(scanner) == before


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(-5, 50), min_size=1, max_size=4), st.integers(-1, 2)),
        max_size=8,
    ),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 7)), max_size=2),
    st.integers(0, 300),
    st.integers(0, 2000),
)
def test_both_codecs_find_the_same(shape, flips, interval, cut):
    data, offset = bytearray(), BASE
    for gap, timestamps, producer in shape:
        data += batch(offset + gap, *timestamps, producer=producer)
        offset += gap + len(timestamps)
    for position, bit in flips:
        if data:
            data[position % len(data)] ^= 1 << bit
    results = []
    for name in ("python", "native"):
        scanner = _impl.load(name).BatchScanner(LIMITS._replace(index_interval=interval))
        found = [scanner.scan(data[:cut])]
        found.append(scanner.scan(data[scanner.position :]))
        results.append((found, state(scanner)))
    assert results[0] == results[1]
