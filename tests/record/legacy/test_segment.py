from typing import Any

import pytest
from record.legacy_bytes import GZIP, entry, first, first_wrapper, wrapper

from sparklog.errors import CorruptRecord
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.record.legacy.message import Format, LegacyMessage
from sparklog.record.legacy.segment import detect_format, iter_any, iter_entries, iter_records, unwrap
from sparklog.record.records import Record


def batch(base_offset, *values):
    builder = RecordBatchBuilder(base_offset=base_offset)
    for value in values:
        builder.append(3000, None, value, [("h", b"1")])
    return bytes(builder.build())


OLD = entry(0, b"k", b"magic 0")
NEWER = wrapper(2, entry(0, None, b"a", magic=1, timestamp=9) + entry(1, None, b"b", magic=1, timestamp=9), magic=1)
NEWEST = batch(3, b"v2", b"v2 too")
FIRST = first(b"one", magic=0) + first_wrapper(first(b"two"))
UPGRADED = OLD + NEWER + NEWEST

SAMPLES = [
    (FIRST, Format.FIRST),
    (first(b"", magic=0), Format.FIRST),
    (first(b"", magic=1), Format.FIRST),
    (first_wrapper(first(b"two")), Format.FIRST),
    (OLD, Format.MAGIC_0),
    (entry(2**40, None, None), Format.MAGIC_0),
    (wrapper(0, OLD), Format.MAGIC_0),
    (NEWER, Format.MAGIC_1),
    (NEWEST, Format.V2),
    (batch(2**62, b"v"), Format.V2),
]


@pytest.mark.parametrize(("data", "expected"), SAMPLES)
def test_the_format_of_a_file(data, expected):
    assert detect_format(data) is expected
    assert detect_format(bytearray(data + b"whatever follows")) is expected


@pytest.mark.parametrize(("data", "expected"), SAMPLES)
def test_a_cut_or_damaged_beginning_is_of_no_format(data, expected):
    message: Any = next(iter_entries(data))
    size = message.size if expected is not Format.V2 else len(data)
    for length in range(size):
        with pytest.raises(CorruptRecord, match="begin no segment file"):
            detect_format(data[:length])
    if size > 10:
        damaged = bytearray(data)
        damaged[size - 1] ^= 0x10
        with pytest.raises(CorruptRecord, match="begin no segment file"):
            detect_format(damaged)


@pytest.mark.parametrize(
    "data",
    [b"", bytes(4096), b"\xff" * 4096, b"PAR1" * 100, b"not a log\n" * 100, entry(-1, None, b"v"), batch(-1, b"v")],
    ids=["empty", "zeros", "ones", "parquet", "text", "negative offset", "negative base offset"],
)
def test_what_is_no_segment_file_is_refused(data):
    with pytest.raises(CorruptRecord, match="begin no segment file"):
        detect_format(data)


def test_entries_of_every_magic_in_one_file():
    entries: list[Any] = list(iter_any(UPGRADED, partial_tail=False))
    assert [type(each) for each in entries] == [LegacyMessage, LegacyMessage, RecordBatch]
    assert [each.position for each in entries[:2]] == [0, len(OLD)]
    assert [each.offset for each in entries[:2]] == [0, 2]
    assert entries[2].base_offset == 3
    assert [type(each) for each in iter_any(UPGRADED, len(OLD))] == [LegacyMessage, RecordBatch]


@pytest.mark.parametrize("last", [OLD, NEWER, NEWEST])
def test_a_tail_may_be_incomplete(last):
    for missing in range(1, len(last)):
        cut = UPGRADED + last[:-missing]
        assert len(list(iter_any(cut))) == 3
        with pytest.raises(CorruptRecord):
            list(iter_any(cut, partial_tail=False))


def test_an_unknown_magic_is_refused():
    damaged = bytearray(OLD + OLD)
    damaged[len(OLD) + 16] = 3
    with pytest.raises(CorruptRecord, match="magic 3"):
        list(iter_any(damaged))


def test_records_of_every_magic_in_one_file():
    marker = EndTransactionMarker(ControlType.COMMIT, 1)
    control = build_marker(marker, ProducerIdAndEpoch(1, 0), 1, base_offset=5)
    assert list(iter_records(UPGRADED + control + batch(6, b"end"))) == [
        Record(0, -1, b"k", b"magic 0", ()),
        Record(1, 9, None, b"a", ()),
        Record(2, 9, None, b"b", ()),
        Record(3, 3000, None, b"v2", (("h", b"1"),)),
        Record(4, 3000, None, b"v2 too", (("h", b"1"),)),
        Record(6, 3000, None, b"end", (("h", b"1"),)),
    ]


def test_records_of_the_first_format():
    second = 500 + len(first(b"one", magic=0))
    expected = [Record(500, -1, None, b"one", ()), Record(second, -1, None, b"two", ())]
    assert list(iter_records(FIRST, base_offset=500)) == expected
    entries: list[Any] = list(iter_entries(FIRST, base_offset=500))
    assert [each.offset for each in entries] == [500, second]


def test_an_empty_file_has_nothing():
    assert list(iter_entries(b"")) == []
    assert list(iter_records(b"")) == []


@pytest.mark.parametrize("whole", [UPGRADED, FIRST])
def test_the_tail_of_records(whole):
    count = len(list(iter_records(whole, partial_tail=False)))
    assert len(list(iter_records(whole + whole[:9]))) == count
    with pytest.raises(CorruptRecord):
        list(iter_records(whole + whole[:9], partial_tail=False))


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_records_are_checked(damaged):
    entries = [OLD, NEWER, NEWEST]
    entries[damaged] = entries[damaged][:-1] + bytes([entries[damaged][-1] ^ 0x80])
    with pytest.raises(CorruptRecord):
        list(iter_records(b"".join(entries)))


@pytest.mark.parametrize("data", [wrapper(0, entry(0, None, bytes(999))), first_wrapper(first(bytes(999)))])
def test_the_limit_of_records(data):
    assert len(list(iter_records(data))) == 1
    with pytest.raises(CorruptRecord):
        list(iter_records(data, max_decompressed=999))


def test_a_message_is_unwrapped_as_its_format_says():
    inner_set = wrapper(0, OLD)
    payload_set = first(inner_set, attributes=0)
    (message,) = iter_entries(payload_set)
    assert [bytes(each.value) for each in unwrap(message)] == [inner_set]
    (message,) = iter_entries(inner_set)
    assert message.attributes == GZIP
    assert [bytes(each.value) for each in unwrap(message)] == [b"magic 0"]
