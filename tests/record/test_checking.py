"""The walk over a batch refuses what the decoders refuse, and nothing else; both codecs agree."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from integration import poison

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode
from sparklog.log.origin import AppendOrigin
from sparklog.log.validator import validate_appended
from sparklog.record import _impl, layout
from sparklog.record._impl.abc import BatchFields
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import COLUMNS, ColumnarDecoder
from sparklog.record.compression import CompressionType, compress
from sparklog.record.records import check_records, iter_records

relaxed = settings(
    deadline=None, max_examples=2 * settings().max_examples, suppress_health_check=[HealthCheck.too_slow]
)
CODECS = st.sampled_from(CompressionType)
FIELD = st.none() | st.binary(max_size=9) | st.binary(min_size=60, max_size=70) | st.just(b"v" * 9000)
HEADER = st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), FIELD)
ROW = st.tuples(st.integers(-3, 2**31), FIELD, FIELD, st.lists(HEADER, max_size=2))
MUTATION = st.tuples(st.sampled_from(["flip", "set", "cut", "insert"]), st.integers(0, 2**16), st.integers(0, 255))


def column_wise(batch):
    decoder = ColumnarDecoder(COLUMNS)
    decoder.append(batch)
    decoder.finish()


WAYS: dict[str, Callable[[RecordBatch], object]] = {
    "walk": check_records,
    "records": lambda batch: list(iter_records(batch)),
    "columns": column_wise,
}


def verdicts(batch):
    """Whether each way of reading takes the batch, under each codec."""
    found = {}
    for name in ("python", "native"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_impl, "codec", _impl.load(name))
            for way, read in WAYS.items():
                try:
                    read(batch)
                    found[name, way] = True
                except CorruptRecord:
                    found[name, way] = False
    return found


def section(rows, first_delta=0):
    out = bytearray()
    for number, (delta, key, value, headers) in enumerate(rows, first_delta):
        _impl.load("python").write_record(out, delta, number, key, value, headers)
    return out


def mutated(data, mutations):
    data = bytearray(data)
    for how, place, value in mutations:
        if not data:
            break
        at = place % len(data)
        if how == "flip":
            data[at] ^= 1 << value % 8
        elif how == "set":
            data[at] = value
        elif how == "cut":
            del data[at : at + 1 + value % 4]
        else:
            data[at:at] = bytes([value])
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "records", "count"), list(poison.malformed()), ids=lambda each: each if isinstance(each, str) else ""
)
@pytest.mark.parametrize("codec", list(CompressionType))
def test_each_malformed_section_is_refused_by_all(name, records, count, codec):
    batch = RecordBatch(poison.batch(compress(codec, records), codec, count))
    assert set(verdicts(batch).values()) == {False}


@relaxed
@given(st.lists(ROW, min_size=1, max_size=8), CODECS)
def test_what_is_whole_is_taken_by_all(rows, codec):
    batch = RecordBatch(poison.batch(compress(codec, section(rows)), codec, len(rows)))
    assert set(verdicts(batch).values()) == {True}


@relaxed
@given(st.lists(ROW, min_size=1, max_size=8), st.lists(MUTATION, min_size=1, max_size=3), st.integers(-1, 1))
def test_all_agree_on_mutated_records(rows, mutations, more):
    batch = RecordBatch(poison.batch(mutated(section(rows), mutations), CompressionType.NONE, max(len(rows) + more, 1)))
    assert len(set(verdicts(batch).values())) == 1


@relaxed
@given(st.lists(ROW, min_size=1, max_size=30), CODECS, st.lists(MUTATION, min_size=1, max_size=2))
def test_what_the_log_accepts_can_be_read_to_the_end(rows, codec, mutations):
    data = poison.batch(mutated(compress(codec, section(rows)), mutations), codec, len(rows))
    _accepted_is_readable(data)


@relaxed
@given(st.lists(ROW, min_size=1, max_size=5), CODECS, st.lists(MUTATION, min_size=1, max_size=3))
def test_nor_does_a_changed_header_make_it_unreadable(rows, codec, mutations):
    """Any byte behind the CRC, sealed again."""
    data = poison.batch(compress(codec, section(rows)), codec, len(rows))
    for how, place, value in mutations:
        at = layout.ATTRIBUTES + place % (len(data) - layout.ATTRIBUTES)
        data[at] = value if how == "set" else data[at] ^ 1 << value % 8
    poison.seal(data)
    _accepted_is_readable(data)


def _accepted_is_readable(data):
    batch, refusal = RecordBatch(data), None
    try:
        validate_appended(memoryview(data), TopicConfig(), AppendOrigin.CLIENT, 0)
    except ApiError as error:
        refusal = error.code
    if refusal is not None:
        assert refusal is ErrorCode.INVALID_RECORD
        return
    batch.assign(1000, 5)
    assert set(verdicts(batch).values()) == {True}
    assert [record.offset for record in iter_records(batch)] == list(range(1000, batch.next_offset))


def test_gaps_are_for_compaction_alone(codec):
    """A stored batch may have them; one that is appended says as many records as offsets, and so has none."""
    records = section([(0, None, b"v", [])]) + section([(0, None, b"v", [])], 3)
    codec.check_records(records, BatchFields(2, 0, 0, None, 3))
    for last_delta in (2, 1):
        with pytest.raises(CorruptRecord):
            codec.check_records(records, BatchFields(2, 0, 0, None, last_delta))


def test_a_bomb_is_refused_at_the_limit():
    for codec in poison.CODECS:
        batch = RecordBatch(poison.batch(compress(codec, bytes(1 << 20)), codec, 1))
        with pytest.raises(CorruptRecord):
            check_records(batch, max_decompressed=1 << 16)


def greatest_of(codec, rows, base, append_time=None):
    fields = BatchFields(len(rows), 0, base, append_time, len(rows) - 1)
    return _impl.load(codec).check_records(section(rows), fields)


@pytest.mark.parametrize("name", ["python", "native"])
@pytest.mark.parametrize(
    ("base", "deltas", "greatest"),
    [
        (1000, [0], 1000),
        (1000, [0, 0, 5, -5, 0], 1005),
        (1000, [-1, -2, -3], 999),
        (1000, [0, 64, 8192, 2**20, 2**31, 7], 1000 + 2**31),
        (1000, [-(2**20), 2**40, 1], 1000 + 2**40),
        (-1, [0, 0], -1),
        (-5, [0, -3], -1),
        (-5, [0, 7], 2),
        (2**63 - 3, [0, 5], 2**63 - 3),
        (-(2**63), [0, -1], 2**63 - 1),
    ],
)
@pytest.mark.parametrize("size", [0, 100])
def test_the_walk_tells_the_greatest_timestamp(name, base, deltas, greatest, size):
    """Whether a record is walked as most are or field by field; what passes 64 bits wraps, as it does for a reader."""
    rows = [(delta, None, b"v" * size, []) for delta in deltas]
    assert greatest_of(name, rows, base) == greatest
    assert greatest_of(name, rows, base, append_time=77) == 77
    assert greatest_of(name, rows, base, append_time=-7) == -1


@relaxed
@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), FIELD, FIELD, st.lists(HEADER, max_size=2)), max_size=8),
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(-2, 9),
)
def test_the_greatest_timestamp_is_that_of_the_records(rows, base, append_time):
    fields = BatchFields(len(rows), 0, base, append_time, max(len(rows) - 1, 0))
    times = [record.timestamp for record in _impl.load("python").read_records(section(rows), fields)]
    for name in ("python", "native"):
        assert greatest_of(name, rows, base, append_time) == max([-1, *times])


def test_a_long_section_is_walked_like_a_short_one(codec):
    """Beyond the size from which on the GIL is let go."""
    records = section([(0, b"k" * 50, b"v" * 300, [])] * 1000)
    fields = BatchFields(1000, 0, 0, None, 999)
    codec.check_records(records, fields)
    for at in (0, len(records) // 2, len(records) - 1):
        broken = bytearray(records)
        struct.pack_into("B", broken, at, broken[at] ^ 0xFF)
        if at == len(records) // 2:
            broken = broken[:-1]
        with pytest.raises(CorruptRecord):
            codec.check_records(broken, fields)
