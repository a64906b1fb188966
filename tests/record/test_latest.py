"""What counts in the end of a log of records with keys, under both codecs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.record import _impl
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.record.latest import LatestRecords

KEY = st.none() | st.sampled_from([b"a", b"b", b"c"])
RECORD = st.tuples(KEY, st.none() | st.binary(max_size=3))
DATA = st.tuples(
    st.just("data"),
    st.sampled_from([-1, -1, 1, 2]),
    st.sampled_from([CompressionType.NONE, CompressionType.NONE, CompressionType.ZSTD]),
    st.lists(RECORD, min_size=1, max_size=3),
)
MARKER = st.tuples(st.just("marker"), st.sampled_from([1, 2]), st.sampled_from(ControlType))
DAMAGE = st.tuples(st.just("damage"), st.integers(0, 12))


def built(step):
    if step[0] == "data":
        _, producer, compression, records = step
        fields = {} if producer < 0 else {"producer_id": producer, "producer_epoch": 0, "is_transactional": True}
        builder = RecordBatchBuilder(compression, **fields)
        for key, value in records:
            builder.append(1, key, value, (("h", b"1"),) if value else ())
        return builder.build()
    if step[0] == "marker":
        return build_marker(EndTransactionMarker(step[2], 0), ProducerIdAndEpoch(step[1], 0), 1)
    builder = RecordBatchBuilder()
    builder.append(1, b"a", b"damaged")
    batch = bytearray(builder.build())
    batch[61 + step[1]] ^= 0x7F
    return batch


def log_of(steps):
    log, next_offset = b"", 0
    for step in steps:
        batch = RecordBatch(bytearray(built(step)))
        batch.assign(next_offset, 0)
        next_offset = batch.next_offset
        log += bytes(batch.buffer)
    return log


def read(log, codec):
    """What counts, what is undecided and what was left out, without producers that have nothing."""
    damage = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_impl, "codec", _impl.load(codec))
        records = LatestRecords(lambda offset, _error: damage.append(offset))
        records.add(memoryview(log))
    return records.latest, {each: found for each, found in records.undecided.items() if found}, damage


@given(st.lists(DATA | MARKER | DAMAGE, max_size=8))
def test_the_codecs_agree(steps):
    log = log_of(steps)
    assert read(log, "native") == read(log, "python")


def model(steps):
    """By hand, of steps without damage: what counts."""
    latest, open_, offset = {}, {}, 0
    for step in steps:
        if step[0] == "marker":
            for key, each in open_.pop(step[1], {}).items():
                if step[2] is ControlType.COMMIT and (key not in latest or latest[key][0] <= each[0]):
                    latest[key] = each
            offset += 1
            continue
        for key, value in step[3]:
            into = latest if step[1] < 0 else open_.setdefault(step[1], {})
            if key is not None and value is not None:
                into[key] = (offset, value)
            elif key is not None:
                for each in (latest, *open_.values()):
                    each.pop(key, None)
            offset += 1
    return latest, {each: found for each, found in open_.items() if found}, []


@pytest.mark.parametrize("codec", ["python", "native"])
@given(steps=st.lists(DATA | MARKER, max_size=12))
def test_what_counts_is_what_compaction_would_leave(codec, steps):
    assert read(log_of(steps), codec) == model(steps)


@pytest.mark.parametrize("codec", ["python", "native"])
def test_a_marker_that_compaction_emptied_ends_what_is_left_of_nothing(codec):
    marker = bytearray(built(("marker", 1, ControlType.COMMIT)))[:61]
    marker[8:12] = (61 - 12).to_bytes(4, "big")
    marker[57:61] = bytes(4)
    assert read(bytes(marker) + log_of([("data", -1, CompressionType.NONE, [(b"a", b"1")])]), codec) == (
        {b"a": (0, b"1")},
        {},
        [],
    )
