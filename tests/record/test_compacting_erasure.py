"""The kernels of compaction under the rules of an erasure: both codecs, and what a model of records says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record.test_compacting import LIMITS, NOW, SEED, SPEC, Spec, built, log_of, rewrite_all, state, under_each

from sparklog.record.batch import RecordBatch
from sparklog.record.compacting import RewriteRules, index_keys, make_offset_map, make_rewriter
from sparklog.record.compression import CompressionType
from sparklog.record.records import iter_batches, iter_records

RULES = RewriteRules(NOW, 0, {}, erases=True)
KEYS = st.sets(st.sampled_from([b"a", b"b", b"", b"k" * 7, b"k" * 8, b"k" * 19, b"k" * 130, b"none"]), min_size=1)
HEAD = (
    *("base_offset", "last_offset", "partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence"),
    *("timestamp_type", "is_transactional", "is_control"),
)


def erased(data, keys, end):
    offset_map = make_offset_map(4096, 0.9, SEED)
    index_keys(offset_map, sorted(keys), end)
    rewriter = make_rewriter(offset_map, RULES, LIMITS)
    return rewrite_all(rewriter, data), state(rewriter)


@given(st.lists(SPEC, max_size=8), KEYS, st.integers(0, 60))
def test_only_records_of_the_keys_below_the_end_go(specs, keys, end):
    batches = log_of(specs)
    pure, native = under_each(lambda: erased(b"".join(batches), keys, end))
    if all(spec.compression == CompressionType.NONE for spec in specs):
        assert native == pure
    for out, counted in (pure, native):
        after = {each.base_offset: each for each in iter_batches(out, partial_tail=False)}
        found = 0
        for data in batches:
            before = RecordBatch(data)
            records = list(iter_records(before))
            stay = [each for each in records if before.is_control or each.key not in keys or each.offset >= end]
            found += len(records) - len(stay)
            left = after.pop(before.base_offset, None)
            assert left is not None
            left.validate()
            assert [getattr(left, name) for name in HEAD] == [getattr(before, name) for name in HEAD]
            assert list(iter_records(left)) == stay
            if len(stay) == len(records) and records:
                assert bytes(left.buffer) == bytes(data)
            elif stay:
                assert left.compression == before.compression
                assert left.has_delete_horizon == before.has_delete_horizon
                assert not before.has_delete_horizon or left.base_timestamp == before.base_timestamp
                if before.timestamp_type:
                    assert left.max_timestamp == before.max_timestamp
                else:
                    assert left.max_timestamp == max(-1, *(each.timestamp for each in stay))
        assert not after
        assert counted["messages_read"] - counted["messages_kept"] == found
        assert counted["invalid"] == 0


@pytest.mark.parametrize("horizon", [None, NOW - 1, NOW + 1])
def test_tombstones_of_other_keys_stay_as_they_are(codec, horizon):
    rows = [(0, 1, b"a", b"v", []), (0, 2, b"other", None, []), (0, 3, None, b"no key", [])]
    data = built(Spec(rows, horizon=horizon), 0)
    out, counted = erased(data, {b"a"}, 100)
    (left,) = iter_batches(out)
    assert [(each.offset, each.key, each.value) for each in iter_records(left)] == [
        (1, b"other", None),
        (2, None, b"no key"),
    ]
    assert left.has_delete_horizon == (horizon is not None)
    assert counted["messages_kept"] == 2


def test_the_end_is_exact_for_every_key(codec):
    rows = [(0, 1, b"%d" % (number % 3), b"v", []) for number in range(12)]
    out, _ = erased(built(Spec(rows), 0), {b"0", b"1", b"2"}, 7)
    assert [each.offset for batch in iter_batches(out) for each in iter_records(batch)] == [*range(7, 12)]


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("producer", [-1, 1])
def test_a_batch_stays_without_records(codec, producer, is_transactional):
    spec = Spec([(0, 9, b"a", b"v", [])], producer=producer, is_transactional=is_transactional and producer >= 0)
    out, _ = erased(built(spec, 4), {b"a"}, 100)
    assert [(each.base_offset, each.record_count, each.max_timestamp) for each in iter_batches(out)] == [(4, 0, 9)]
