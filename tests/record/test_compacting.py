"""The kernels of compaction: both codecs do the same, and what a model of records says."""

import random
import struct
from types import SimpleNamespace
from typing import Any, NamedTuple

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptRecord
from sparklog.record import _impl, layout
from sparklog.record._impl.siphash import siphash128
from sparklog.record.batch import RecordBatch
from sparklog.record.compacting import (
    RewriteRules,
    ScanLimits,
    Verdict,
    Versions,
    empty_header,
    index_batch,
    make_offset_map,
    make_rewriter,
    open_offset_map,
    rebuilt,
    rewrite_batch,
    skip_plain,
)
from sparklog.record.compression import CompressionType, compress
from sparklog.record.records import batch_fields, iter_batches, iter_records, records_section
from sparklog.record.scanner import make_scanner

SEED = bytes(range(16))
NOW = 1_000_000
RETENTION = 5000
LIMITS = ScanLimits(0, 2**31, 100, 1000, 1000)
PLAIN = CompressionType.NONE

TIMESTAMP = st.integers(NOW - 2000, NOW + 2000) | st.integers(-1, 1) | st.integers(0, 2**43)
KEY = st.none() | st.binary(max_size=1) | st.sampled_from([b"a", b"b", b"c", b"k" * 7, b"k" * 8, b"k" * 19, b"k" * 130])
VALUE = st.none() | st.binary(max_size=12) | st.binary(min_size=120, max_size=140)
HEADERS = st.just([]) | st.lists(st.tuples(st.text("hg\u00fc", max_size=2), VALUE), max_size=2)


class Spec(NamedTuple):
    """A batch to make; ``rows`` are its records: gap before the offset, timestamp, key, value, headers."""

    rows: list[tuple[Any, ...]]
    gap: int = 0
    tail: int = 0
    compression: CompressionType = PLAIN
    append_time: int | None = None
    horizon: int | None = None
    producer: int = -1
    is_transactional: bool = False
    is_control: bool = False
    attribute: int = 0


ROW = st.tuples(st.integers(0, 2), TIMESTAMP, KEY, VALUE, HEADERS)
SPEC = st.builds(
    Spec,
    rows=st.lists(ROW, max_size=7),
    gap=st.integers(0, 2),
    tail=st.integers(0, 2),
    compression=st.sampled_from([PLAIN, PLAIN, *CompressionType]),
    append_time=st.none() | st.none() | TIMESTAMP,
    horizon=st.none() | st.none() | st.sampled_from([NOW - 1, NOW, NOW + 1]) | st.integers(0, 2**43),
    producer=st.sampled_from([-1, -1, 1, 2]),
    is_transactional=st.sampled_from([False, False, True]),
    is_control=st.sampled_from([False, False, False, True]),
    attribute=st.sampled_from([0, 0, 0, 9]),
)
PLAIN_SPEC = SPEC.map(lambda spec: spec._replace(compression=PLAIN, is_transactional=False, is_control=False))
RULES = st.builds(
    RewriteRules,
    now_ms=st.just(NOW),
    delete_retention_ms=st.just(RETENTION),
    last_offsets=st.dictionaries(st.sampled_from([1, 2]), st.integers(0, 60), max_size=2),
)


def built(spec, base_offset):
    """The batch as some broker has it on its disk."""
    pure, section, delta = _impl.load("python"), bytearray(), -1
    base = spec.horizon if spec.horizon is not None else spec.rows[0][1] if spec.rows else -1
    for gap, timestamp, key, value, headers in spec.rows:
        delta += 1 + gap
        before = len(section)
        pure.write_record(section, timestamp - base, delta, key, value, headers)
        if spec.attribute:
            section[before + (1 if section[before] < 0x80 else 2)] = spec.attribute
    greatest = max([-1, *(row[1] for row in spec.rows)]) if spec.append_time is None else spec.append_time
    attributes = spec.compression | (spec.append_time is not None) << 3 | spec.is_transactional << 4
    attributes |= spec.is_control << 5 | (spec.horizon is not None) << 6
    body = compress(spec.compression, section)
    delta = max(delta, 0) + spec.tail
    producer = (spec.producer, 3, 17) if spec.producer >= 0 else (-1, -1, -1)
    fields = (5, 2, 0, attributes, delta, base, greatest, *producer, len(spec.rows))
    return sealed(bytearray(layout.HEADER.pack(base_offset, 49 + len(body), *fields)) + body)


def sealed(batch):
    struct.pack_into(">I", batch, layout.CRC, crc32c.crc32c(memoryview(batch)[layout.ATTRIBUTES :]))
    return bytes(batch)


def log_of(specs):
    batches, offset = [], 0
    for spec in specs:
        batches.append(built(spec, offset + spec.gap))
        offset = RecordBatch(batches[-1]).next_offset
    return batches


def under_each(action):
    results = []
    for name in ("python", "native"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_impl, "codec", _impl.load(name))
            results.append(action())
    return results


def refused(action, *args, **kwargs):
    """What it gives, or that it was refused."""
    try:
        return action(*args, **kwargs)
    except CorruptRecord:
        return CorruptRecord


def index_all(offset_map, data, start=0):
    """As the cleaner will: the codec takes what it can, and the rest goes a batch at a time."""
    view, at = memoryview(data), 0
    while at < len(view):
        at += offset_map.index_batches(view[at:], start)
        if at < len(view):
            batch = RecordBatch(view, at)
            if not batch.is_control:
                index_batch(offset_map, batch, start)
            if offset_map.is_full:
                break
            at += batch.size_in_bytes
    return at


def rewrite_all(rewriter, data, verdict_of=lambda batch: Verdict()):
    view, at, out = memoryview(data), 0, b""
    while at < len(view):
        at += rewriter.take(view[at:])
        if at < len(view):
            batch = RecordBatch(view, at)
            rewrite_batch(rewriter, batch, verdict_of(batch))
            at += batch.size_in_bytes
        out += bytes(rewriter.drain())
    return out


STATE = (
    *("size", "slots", "most", "nbytes", "is_full", "latest_offset", "messages"),
    *("next_offset", "latest_timestamp", "bytes_since_entry", "messages_read", "messages_kept", "invalid"),
    *("bytes_read", "bytes_written", "batches_read", "batches_written"),
)
SAME = (
    *("base_offset", "last_offset", "partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence"),
    *("timestamp_type", "is_transactional", "is_control"),
)


def state(kernel):
    found = {name: getattr(kernel, name) for name in STATE if hasattr(kernel, name)}
    return found | ({"entries": kernel.entries()} if hasattr(kernel, "entries") else {})


def keys_of(specs):
    return sorted({row[2] for spec in specs for row in spec.rows if row[2] is not None})


# SipHash


def test_siphash_known_answers():
    assert siphash128(SEED, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert siphash128(SEED, b"\0").hex() == "da87c1d86b99af44347659119b22fc45"


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=40) | st.binary(min_size=250, max_size=520))
def test_the_hash_of_the_native_map_is_that_of_python(seed, key):
    high = int.from_bytes(siphash128(seed, key)[8:], "little")
    for count in (2, 3, 64, 2**31, 2**63):
        part = high * count >> 64
        for name in ("python", "native"):
            make = _impl.load(name).OffsetMap
            assert make(0, 1.0, seed, (part, count)).covers(key)
            assert not make(0, 1.0, seed, ((part + 1) % count, count)).covers(key)


# The map


@given(
    st.lists(SPEC, max_size=6),
    st.integers(-1, 20),
    st.sampled_from([0, 23, 24, 48, 24 * 6, 4096]),
    st.sampled_from([0.5, 0.9, 1.0]),
    st.sampled_from([(0, 1), (0, 2), (1, 2), (2, 3)]),
)
def test_both_maps_find_the_same(specs, start, size, load, part):
    data = b"".join(log_of(specs))

    def indexed():
        offset_map = make_offset_map(size, load, SEED, part)
        at = index_all(offset_map, data, start)
        found = at, state(offset_map), [offset_map.get(key) for key in [*keys_of(specs), b"none"]]
        offset_map.clear()
        return found, state(offset_map), [offset_map.get(key) for key in keys_of(specs)]

    pure, native = under_each(indexed)
    assert native == pure


def test_the_greatest_offset_counts(codec):
    offset_map = make_offset_map(1000, 0.9, SEED)
    rows = [(0, 1, b"a", b"", []), (0, 1, b"", b"", []), (0, 1, None, b"", []), (0, 1, b"a", None, [])]
    later = built(Spec(rows), 10)
    assert offset_map.index_batches(later, 0) == len(later)
    assert [offset_map.get(key) for key in (b"a", b"", b"b")] == [13, 11, -1]
    assert state(offset_map) == {
        "size": 2, "slots": 41, "most": 36, "nbytes": 984, "is_full": False, "latest_offset": 13, "messages": 4
    }  # fmt: skip
    offset_map.index_batches(built(Spec(rows), 2), 0)
    assert offset_map.get(b"a") == 13
    offset_map.advance(12)
    assert offset_map.latest_offset == 13
    offset_map.advance(20)
    assert offset_map.latest_offset == 20


VERSION = st.sampled_from([b"", b"1234567", b"123456789", *(struct.pack(">q", n) for n in (-3, -1, 0, 1, 1, 2**40))])
VERSIONED = st.lists(st.tuples(st.sampled_from(["v", "v", "v", "V", "vv", ""]), st.none() | VERSION), max_size=3)


def version_of(record, versions):
    if versions.header is None:
        return max(record.timestamp, -1)
    found = [value for name, value in record.headers if name == versions.header][-1:]
    return max(int.from_bytes(found[0], "big", signed=True), -1) if found and len(found[0] or b"") == 8 else -1


@given(
    st.lists(SPEC, max_size=5),
    st.lists(VERSIONED, min_size=6, max_size=6),
    st.sampled_from([Versions(), Versions("v")]),
    st.integers(0, 6),
    st.integers(-1, 8),
)
def test_the_greatest_version_counts_and_the_later_of_two(specs, headers, versions, most, start):
    specs = [
        spec._replace(rows=[(*row[:4], headers[(row[0] + n) % 6]) for n, row in enumerate(spec.rows)]) for spec in specs
    ]
    data = b"".join(log_of(specs))

    def indexed():
        offset_map = make_offset_map(32 * most, 1.0, SEED, versions=versions)
        index_all(offset_map, data, start)
        keys = keys_of(specs)
        found = [(offset_map.get(key), offset_map.is_followed(key)) for key in keys]
        assert [[offset_map.outdates(key, at) for at in range(60)] for key in keys] == [
            [winner >= 0 and at != winner for at in range(60)] for winner, _ in found
        ]
        return offset_map.is_versioned, found, state(offset_map)

    pure, native = under_each(indexed)
    assert native == pure
    if not pure[2]["is_full"]:
        records = [
            each
            for batch in map(RecordBatch, log_of(specs))
            for each in (() if batch.is_control else iter_records(batch))
            if each.key is not None and each.offset >= start
        ]
        expected = []
        for key in keys_of(specs):
            mine = [(version_of(each, versions), each.offset) for each in records if each.key == key]
            winner = max(mine, default=(-1, -1))[1]
            expected.append((winner, any(offset > winner for _, offset in mine)))
        assert pure[1] == expected


@pytest.mark.parametrize("count", [500, 9000])
def test_many_versions(codec, count):
    """More than a table begins with: they move with the keys."""
    order = [n * 7 % count for n in range(2 * count)]
    rows = [(0, 1 + (at * 31) % 1009, b"key %d" % n, b"v", []) for at, n in enumerate(order)]
    data = b"".join(built(Spec(rows[at : at + 250]), at) for at in range(0, len(rows), 250))
    best = {}
    for at, row in enumerate(rows):
        best[row[2]] = max(best.get(row[2], (0, 0)), (row[1], at))
    offset_map = make_offset_map(32 * count, 1.0, SEED, versions=Versions())
    for _ in range(2):
        assert offset_map.index_batches(data, 0) == len(data)
        assert (offset_map.size, offset_map.is_full, offset_map.nbytes) == (count, False, 32 * count)
        assert {key: offset_map.get(key) for key in best} == {key: at for key, (_, at) in best.items()}
        offset_map.clear()


def test_records_before_the_start_are_looked_at_only(codec):
    offset_map = make_offset_map(1000, 0.9, SEED)
    data = built(Spec([(0, 1, b"a", b"", []), (0, 1, b"b", b"", []), (0, 1, b"a", b"", [])]), 10)
    offset_map.index_batches(data, 12)
    assert (offset_map.get(b"a"), offset_map.get(b"b"), offset_map.messages) == (12, -1, 3)
    offset_map.clear()
    assert offset_map.index_batches(data, 13) == len(data)
    assert (offset_map.size, offset_map.latest_offset) == (0, -1)


def test_a_full_map_stops_before_the_batch_that_filled_it(codec):
    offset_map = make_offset_map(24 * 10, 0.5, SEED)
    batches = [built(Spec([(0, 1, b"%d" % (3 * n + i), b"", []) for i in range(3)]), 3 * n) for n in range(4)]
    data = b"".join(batches)
    assert offset_map.index_batches(data, 0) == len(batches[0])
    assert (offset_map.size, offset_map.most, offset_map.is_full) == (5, 5, True)
    assert (offset_map.latest_offset, offset_map.messages) == (4, 5)
    assert offset_map.index_batches(data, 0) == 0
    fields = batch_fields(RecordBatch(batches[3]))
    offset_map.index(RecordBatch(batches[3]).payload, fields, 0)
    assert (offset_map.size, offset_map.messages) == (5, 5)


@pytest.mark.parametrize(
    ("size", "slots", "keys"), [(128 << 20, 5_592_405, 5_033_164), (256 << 20, 11_184_810, 10_066_329)]
)
def test_how_many_keys_a_map_holds(codec, size, slots, keys):
    """The default, and what Kafka's operators know: 256 MB has room for 11 million, and is full at 10 million."""
    offset_map = make_offset_map(size, 0.9, SEED)
    assert (offset_map.slots, offset_map.most) == (slots, keys) == (size // 24, size // 24 * 9 // 10)


def test_what_could_not_be_a_map_is_refused(codec):
    for arguments in [(10, 0.0, SEED), (10, 1.1, SEED), (10, 0.5, b"short"), (-1, 0.5, SEED), (10, 0.5, SEED, (1, 1))]:
        with pytest.raises(ValueError, match=r"offset map needs|no part"):
            make_offset_map(*arguments)


@given(st.lists(SPEC, max_size=5), st.integers(2, 4))
def test_the_parts_make_up_the_whole(specs, count):
    data = b"".join(log_of(specs))
    for name in ("python", "native"):
        make = _impl.load(name).OffsetMap
        whole = make(4096, 1.0, SEED)
        parts = [make(4096, 1.0, SEED, (number, count)) for number in range(count)]
        for each in (whole, *parts):
            index_all(each, data)
        assert sum(part.size for part in parts) == whole.size
        for key in keys_of(specs):
            assert [part.covers(key) for part in parts].count(True) == 1
            assert max(part.get(key) for part in parts) == whole.get(key)
        assert all(part.latest_offset == whole.latest_offset for part in parts)


@pytest.mark.parametrize("count", [500, 2000, 9000])
def test_many_keys(codec, count):
    """More than a table begins with, and in the end one that is full, so that most probes go on."""
    order = [n * 7 % count for n in range(2 * count)]
    rows = [(0, 1, b"key %d" % n, b"v", []) for n in order]
    data = b"".join(built(Spec(rows[at : at + 250]), at) for at in range(0, len(rows), 250))
    offset_map = make_offset_map(24 * count, 1.0, SEED)
    assert offset_map.index_batches(data, 0) < len(data)
    assert (offset_map.size, offset_map.is_full, offset_map.messages) == (count, True, count)
    assert [offset_map.get(b"key %d" % n) for n in order[:count]] == list(range(count))
    assert offset_map.get(b"none") == -1
    for slots in (count + 1, 100 * count):
        offset_map = make_offset_map(24 * slots, 1.0, SEED)
        for _ in range(2):
            assert offset_map.index_batches(data, 0) == len(data)
            assert [offset_map.get(b"key %d" % n) for n in order[:count]] == list(range(count, 2 * count))
            assert offset_map.get(b"none") == -1
            offset_map.clear()
            assert offset_map.get(b"key 1") == -1


# Rewriting


def model(specs, batches, offset_map, rules, verdict_of):
    """What is left, as (offset, timestamp, key, value, headers) by batch; a batch that goes is None."""
    left = []
    for spec, data in zip(specs, batches, strict=True):
        batch = RecordBatch(data)
        verdict = verdict_of(batch)
        kept = []
        for record in iter_records(batch):
            beyond = record.offset > offset_map.latest_offset
            superseded = record.key is None or record.offset < offset_map.get(record.key)
            expired = record.value is None and spec.horizon is not None and spec.horizon <= NOW
            if not verdict.discard and (spec.is_control or beyond or not (superseded or expired)):
                kept.append(tuple(record))
        last = rules.last_offsets.get(spec.producer) if spec.producer >= 0 else None
        stays = verdict.retain_empty or last == batch.last_offset
        left.append(kept if kept or stays else None)
    return left


def check_header(before, after, kept, spec, verdict):
    assert [getattr(after, name) for name in SAME] == [getattr(before, name) for name in SAME]
    assert after.record_count == len(kept)
    needs = verdict.needs_horizon or any(record[3] is None for record in kept)
    if not kept:
        assert (after.size_in_bytes, after.compression, after.has_delete_horizon) == (61, PLAIN, False)
        assert (after.base_timestamp, after.max_timestamp) == (-1, before.max_timestamp)
    elif len(kept) == before.record_count and (spec.horizon is not None or not needs):
        assert bytes(after.buffer) == bytes(before.buffer)
    else:
        assert after.compression == before.compression
        greatest = max(-1, *(record[1] for record in kept))
        assert after.max_timestamp == (greatest if spec.append_time is None else spec.append_time)
        assert after.has_delete_horizon == (needs or spec.horizon is not None)
        horizon = spec.horizon if spec.horizon is not None else NOW + RETENTION if needs else kept[0][1]
        assert after.base_timestamp == horizon


def check_output(specs, batches, out, left, verdict_of):
    written = list(iter_batches(out, partial_tail=False))
    stays = [number for number, kept in enumerate(left) if kept is not None]
    assert len(written) == len(stays)
    for number, after in zip(stays, written, strict=True):
        before = RecordBatch(batches[number])
        after.validate()
        assert [tuple(record) for record in iter_records(after)] == left[number]
        check_header(before, after, left[number], specs[number], verdict_of(before))


@settings(max_examples=2 * settings().max_examples)
@given(
    st.lists(SPEC, max_size=6) | st.lists(PLAIN_SPEC, max_size=6),
    RULES,
    st.lists(st.builds(Verdict, st.booleans(), st.booleans(), st.booleans()), min_size=6, max_size=6),
    st.integers(0, 40),
    st.integers(0, 300),
)
def test_what_is_written_is_what_the_model_says(specs, rules, verdicts, start, interval):
    batches = log_of(specs)
    data = b"".join(batches)
    limits = LIMITS._replace(index_interval=interval)

    def verdict_of(batch):
        is_seen = batch.attributes & 0x37
        return verdicts[batch.base_offset % 6] if is_seen else Verdict()

    def rewritten():
        offset_map = make_offset_map(4096, 0.9, SEED)
        index_all(offset_map, data, start)
        rewriter = make_rewriter(offset_map, rules, limits)
        out = rewrite_all(rewriter, data, verdict_of)
        scanner = make_scanner(limits)
        scanner.scan(out)
        assert not scanner.is_bad
        assert rewriter.entries() == scanner.entries()
        names = ("next_offset", "latest_timestamp", "latest_offset", "bytes_since_entry")
        assert [getattr(rewriter, name) for name in names] == [getattr(scanner, name) for name in names]
        assert rewriter.size == scanner.position == len(out) == rewriter.bytes_written
        assert (rewriter.bytes_read, rewriter.batches_read) == (len(data), len(batches))
        left = model(specs, batches, offset_map, rules, verdict_of)
        check_output(specs, batches, out, left, verdict_of)
        assert rewriter.messages_kept == sum(len(kept) for kept in left if kept)
        return out, state(rewriter)

    pure, native = under_each(rewritten)
    assert native == pure


@given(st.lists(PLAIN_SPEC, min_size=1, max_size=5), RULES, st.sampled_from([(0, 2), (1, 2), (2, 3)]))
def test_a_part_keeps_the_keys_of_the_others(specs, rules, part):
    data = b"".join(log_of(specs))

    def rewritten():
        offset_map = make_offset_map(4096, 0.9, SEED, part)
        index_all(offset_map, data)
        rewriter = make_rewriter(offset_map, rules, LIMITS)
        out = rewrite_all(rewriter, data)
        others = [
            (record.offset, record.key) for batch in iter_batches(data) for record in iter_records(batch)
            if record.key is not None and not offset_map.covers(record.key)
        ]  # fmt: skip
        kept = {(record.offset, record.key) for batch in iter_batches(out) for record in iter_records(batch)}
        assert kept.issuperset(others)
        return out, state(rewriter)

    pure, native = under_each(rewritten)
    assert native == pure


@given(st.lists(PLAIN_SPEC, min_size=1, max_size=5), RULES, st.integers(2, 3))
def test_one_part_after_another_leaves_what_the_whole_map_leaves(specs, rules, count):
    whole = b"".join(log_of([spec._replace(horizon=None) for spec in specs]))

    def records(maps):
        data = whole
        for each in maps:
            index_all(each, whole)
            data = rewrite_all(make_rewriter(each, rules, LIMITS), data)
        return data, [record for batch in iter_batches(data) for record in iter_records(batch)]

    make = _impl.load("native").OffsetMap
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_impl, "codec", _impl.load("native"))
        at_once = records([make(4096, 0.9, SEED)])
        assert records([make(4096, 0.9, SEED, (number, count)) for number in range(count)])[1] == at_once[1]


@given(SPEC, RULES, st.booleans(), st.booleans(), st.booleans())
def test_retain_alone(spec, rules, all_gone, keep_all, needs_horizon):
    batch = RecordBatch(built(spec, 3))

    def retained():
        offset_map = make_offset_map(4096, 0.9, SEED)
        index_batch(offset_map, batch, 4)
        rewriter = make_rewriter(offset_map, rules, LIMITS)
        flags = {"all_gone": all_gone, "keep_all": keep_all, "needs_horizon": needs_horizon}
        found = rewriter.retain(records_section(batch), batch_fields(batch), spec.horizon, **flags)
        assert type(found.section) in (bytearray, type(None))
        return found, state(rewriter)

    pure, native = under_each(retained)
    assert native == pure
    assert [type(field) for field in native[0]] == [type(field) for field in pure[0]]
    assert not (all_gone and native[0].kept)


def one_batch(*rows, at=0, **fields):
    return built(Spec([(0, *row) for row in rows], **fields), at)


def rewriter_of(data, rules=None, limits=LIMITS):
    offset_map = make_offset_map(20_000, 0.9, SEED)
    index_all(offset_map, data)
    return make_rewriter(offset_map, rules or RewriteRules(NOW, RETENTION, {}), limits)


def test_a_tombstone_gets_a_horizon_and_goes_when_it_is_over(codec):
    data = one_batch((10, b"a", None, []), (20, b"b", b"v", []))
    first = rewrite_all(rewriter_of(data), data)
    batch = RecordBatch(first)
    assert batch.has_delete_horizon
    assert batch.base_timestamp == NOW + RETENTION
    assert [record.timestamp for record in iter_records(batch)] == [10, 20]
    for now, left in [(NOW + RETENTION - 1, [b"a", b"b"]), (NOW + RETENTION, [b"b"])]:
        rules = RewriteRules(now, RETENTION, {})
        out = RecordBatch(rewrite_all(rewriter_of(data, rules), first))
        assert [record.key for record in iter_records(out)] == left
        assert out.base_timestamp == NOW + RETENTION


def test_horizons_end_at_the_end_of_time(codec):
    data = one_batch((10, b"a", None, []))
    rules = RewriteRules(NOW, layout.MAX_INT64, {})
    assert RecordBatch(rewrite_all(rewriter_of(data, rules), data)).base_timestamp == layout.MAX_INT64


def test_the_markers_horizon(codec):
    data = one_batch((10, b"marker", b"commit", []), is_control=True, is_transactional=True, producer=1)
    rewriter = rewriter_of(b"")
    rewriter_verdict = Verdict(needs_horizon=True)
    out = RecordBatch(rewrite_all(rewriter, data, lambda _: rewriter_verdict))
    assert (out.base_timestamp, out.has_delete_horizon, out.is_control) == (NOW + RETENTION, True, True)
    again = rewrite_all(rewriter_of(b""), out.buffer, lambda _: rewriter_verdict)
    assert again == bytes(out.buffer)


def test_the_last_batch_of_a_producer_stays_empty(codec):
    batches = [one_batch((1, None, b"v", []), at=n, producer=n) for n in range(5)]
    rules = RewriteRules(NOW, RETENTION, {1: 1, 2: 7})
    data = b"".join(batches)
    rewriter = rewriter_of(data, rules)
    out = rewrite_all(rewriter, data)
    assert out == bytes(empty_header(RecordBatch(batches[1])))
    assert (rewriter.invalid, rewriter.messages_kept, rewriter.messages_read) == (5, 0, 5)
    assert rewrite_all(rewriter_of(data, rules), out) == out
    assert rewrite_all(rewriter_of(data), out) == b""


def test_many_batches_and_many_records(codec):
    """More batches than a run has, and more records than a chunk."""
    chance = random.Random(5)
    batches, offset = [], 0
    for number in range(150):
        count = 700 if number == 70 else chance.randrange(1, 9)
        rows = [(n + 5, b"%d" % chance.randrange(400), chance.choice([b"v" * 30, None]), []) for n in range(count)]
        batches.append(one_batch(*rows, at=offset))
        offset += count
    data = b"".join(batches)
    rewriter = rewriter_of(data)
    assert rewriter.take(data) == len(data)
    out = bytes(rewriter.drain())
    assert bytes(rewriter.drain()) == b""
    latest = {record.key: record for batch in iter_batches(data) for record in iter_records(batch)}
    left = [record for batch in iter_batches(out) for record in iter_records(batch)]
    assert left == sorted(latest.values())
    for batch in iter_batches(out):
        batch.validate()


def test_what_is_written_must_follow(codec):
    first, second = one_batch((1, b"a", b"v", []), at=5), one_batch((1, b"b", b"v", []), at=6)
    rewriter = rewriter_of(b"", limits=LIMITS._replace(base_offset=5, end_offset=7))
    rewriter.write(first)
    for bad in (first, second[:-1], second + b"x", b"", one_batch((1, b"b", b"v", []), at=7), bytes(100)):
        with pytest.raises(CorruptRecord):
            rewriter.write(bad)
    assert rewriter.take(first) == 0
    assert rewriter.take(one_batch((1, b"b", b"v", []), at=7)) == 0
    rewriter.write(second)
    assert bytes(rewriter.drain()) == first + second
    assert (rewriter.batches_written, rewriter.size) == (2, len(first + second))


def test_another_codecs_map_is_refused():
    pure = _impl.load("python").OffsetMap(100, 0.5, SEED)
    with pytest.raises(TypeError):
        _impl.load("native").BatchRewriter(pure, RewriteRules(0, 0, {}), LIMITS)


def test_a_batch_that_stays_whole_is_not_rebuilt(codec):
    data = one_batch((1, b"a", b"v", []))
    rewriter = rewriter_of(data)
    retained = rewriter.retain(RecordBatch(data).payload, batch_fields(RecordBatch(data)), None)
    with pytest.raises(ValueError, match="some stay"):
        rebuilt(RecordBatch(data), retained)


# Malformed input


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 65])
def test_a_batch_cut_short_is_not_taken(codec, cut):
    first, second = one_batch((1, b"a", b"v" * 20, [])), one_batch((1, b"a", b"v" * 20, []), at=1)
    offset_map = make_offset_map(4096, 0.9, SEED)
    assert offset_map.index_batches(first + second[:cut], 0) == len(first)
    rewriter = make_rewriter(offset_map, RewriteRules(NOW, RETENTION, {}), LIMITS)
    assert rewriter.take(first + second[:cut]) == len(first)
    assert bytes(rewriter.drain()) == first


def fare(data):
    """What becomes of two batches, of which the second may be anything, in every way there is."""
    offset_map = make_offset_map(4096, 0.9, SEED)
    found = [offset_map.index_batches(data, 0), state(offset_map)]
    size = 12 + int.from_bytes(data[8:12], "big")
    second = SimpleNamespace(buffer=data[size:])
    batch = refused(RecordBatch, second.buffer)
    if batch is not CorruptRecord:
        found.append(refused(index_batch, offset_map, batch, 0))
        found.append(refused(offset_map.index, batch.payload, batch_fields(batch), 0))
    found.append(state(offset_map))
    rewriter = make_rewriter(offset_map, RewriteRules(NOW, RETENTION, {}), LIMITS)
    found += [rewriter.take(data), state(rewriter), bytes(rewriter.drain())]
    if batch is not CorruptRecord:
        found.append(refused(rewriter.retain, batch.payload, batch_fields(batch), None))
        found.append(refused(rewriter.retain, batch.payload, batch_fields(batch), 0, keep_all=True))
        found.append(refused(rewriter.retain, batch.payload, batch_fields(batch), 0, all_gone=True))
        found.append(refused(rewrite_batch, rewriter, batch, Verdict()))
    return [*found, state(rewriter), bytes(rewriter.drain())]


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_mutated_batches_fare_alike(seed):
    chance = random.Random(seed)
    rows = []
    for n in range(12):
        headers = [(f"h{n}", b"x" * n), ("gr\u00fcn", None)][: n % 3]
        rows.append((1000 - n, (b"a", b"b", None)[n % 3], b"v" * (n * 13) if n % 4 else None, headers if n > 5 else []))
    first = one_batch((1, b"a", b"v", []), at=90)
    data = one_batch(*rows, at=100)
    taken = 0
    for _ in range(1500):
        mutated = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            at = chance.randrange(len(data)) if chance.random() < 0.2 else chance.randrange(61, len(data))
            mutated[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if chance.random() < 0.9:
            mutated = sealed(mutated)
        pure, native = under_each(lambda: fare(first + mutated))  # noqa: B023
        assert native == pure
        taken += native[0] > len(first)
    assert 0 < taken < 1500


VARINT = st.sampled_from([b"\x00", b"\x80\x00", b"\x80\x80\x80\x80\x00", b"\x02", b"\x82\x00", b"\x82\x80\x80\x80\x70"])


@given(st.lists(st.tuples(VARINT, st.binary(max_size=20), st.booleans()), min_size=1, max_size=5), st.booleans())
def test_numbers_longer_than_need_be(rows, is_padded):
    """They are read as what they are, and written in the shortest form."""
    section = bytearray()
    for number, (timestamp, value, is_long) in enumerate(rows):
        delta = bytes([2 * number]) if not is_long else bytes([2 * number | 0x80, 0x80, 0])
        body = b"\0" + timestamp + delta + b"\x02" + bytes([97 + number % 2])
        body += bytes([2 * len(value)]) + value + b"\0"
        size = bytes([2 * len(body) | 0x80, 0x80, 0] if is_padded else [2 * len(body)])
        section += size + body
    batch = bytearray(one_batch((1, b"x", b"v", [])))[:61] + section
    struct.pack_into(">i", batch, layout.LENGTH, len(batch) - 12)
    struct.pack_into(">i", batch, layout.RECORD_COUNT, len(rows))
    struct.pack_into(">i", batch, layout.LAST_OFFSET_DELTA, len(rows) + 3)
    data = sealed(batch)

    def rewritten():
        rewriter = rewriter_of(data)
        assert rewriter.take(data) == len(data)
        return bytes(rewriter.drain()), state(rewriter)

    pure, native = under_each(rewritten)
    assert native == pure


# Maps in files


def dumped(codec, log, parts, directory):
    """The files of the parts of a map, and the parts."""
    maps = [codec.OffsetMap(1 << 20, 0.9, SEED, (number, parts)) for number in range(parts)]
    paths = [directory / f"{codec.name}-{number}-of-{parts}" for number in range(parts)]
    for each, path in zip(maps, paths, strict=True):
        for batch in iter_batches(log):
            index_batch(each, batch, 0)
        each.dump(path)
    return maps, paths


CODECS = [_impl.load("python"), *([_impl.load("native")] if _impl.codec.name == "native" else [])]


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("reader", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("writer", CODECS, ids=lambda codec: codec.name)
def test_a_map_in_files_knows_what_the_parts_know(writer, reader, parts, tmp_path):
    keys = [b"key-%d" % number for number in range(3000)]
    rows = [(0, NOW, key, b"v", []) for key in (*keys, *keys[::7], b"")]
    log = b"".join(built(Spec(rows[at : at + 50]), at) for at in range(0, len(rows), 50))
    maps, paths = dumped(writer, log, parts, tmp_path)
    opened = reader.OffsetMap.open(paths[::-1])
    whole = writer.OffsetMap(1 << 20, 0.9, SEED)
    for batch in iter_batches(log):
        index_batch(whole, batch, 0)
    assert [opened.get(key) for key in (*keys, b"", b"none")] == [whole.get(key) for key in (*keys, b"", b"none")]
    assert all(map(opened.covers, keys))
    assert (opened.size, opened.latest_offset, opened.messages) == (len(keys) + 1, len(rows) - 1, len(rows))
    assert sum(each.size for each in maps) == opened.size


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=12),
    st.lists(st.integers(0, 12), max_size=3),
    st.sampled_from([1, 2, 3]),
)
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_of_maps_of_several_stretches_the_latest_counts(codec, tmp_path_factory, rows, cuts, parts):
    """Each stretch has the parts that it has; in any order of the files the greatest offset of a key is found."""
    directory = tmp_path_factory.mktemp("maps")
    log = b"".join(built(Spec([(0, NOW, b"%d" % key, b"v", [])] * count), 3 * n) for n, (key, count) in enumerate(rows))
    batches = [*iter_batches(log)]
    bounds = sorted({0, *(cut for cut in cuts if cut < len(rows))})
    paths = []
    for start, end in zip(bounds, [*bounds[1:], len(rows)], strict=True):
        for number in range(1 if start else parts):
            each = codec.OffsetMap(1 << 20, 0.9, SEED, (number, 1 if start else parts))
            for batch in batches[start:end]:
                index_batch(each, batch, 0)
            each.advance(3 * end - 1)
            paths.append(directory / f"{start}-{number}")
            each.dump(paths[-1], 3 * start)
    opened, whole = codec.OffsetMap.open(paths[::-1]), codec.OffsetMap(1 << 20, 0.9, SEED)
    for batch in batches:
        index_batch(whole, batch, 0)
    assert [opened.get(b"%d" % key) for key in range(10)] == [whole.get(b"%d" % key) for key in range(10)]
    assert opened.latest_offset == 3 * len(rows) - 1
    assert opened.messages == whole.messages
    if len(bounds) > 1:
        with_a_hole = [path for path in paths if not path.name.startswith(f"{bounds[-1]}-")]
        assert codec.OffsetMap.open(with_a_hole).latest_offset == 3 * bounds[-1] - 1


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_of_a_map_that_became_full_what_follows_is_not_told(codec, tmp_path):
    log = b"".join(built(Spec([(0, NOW, b"%d" % number, b"v", [])]), number) for number in range(6))
    batches = [*iter_batches(log)]
    for name, some, end in (("a", batches[:2], 1), ("b", batches[4:], 5)):
        each = codec.OffsetMap(1 << 20, 0.9, SEED)
        for batch in some:
            index_batch(each, batch, 0)
        each.advance(end)
        each.dump(tmp_path / name, 0 if name == "a" else 4)
    opened = codec.OffsetMap.open([tmp_path / "b", tmp_path / "a"])
    assert opened.latest_offset == 1
    assert (opened.get(b"1"), opened.get(b"3"), opened.get(b"5")) == (1, -1, 5)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_an_opened_map_takes_nothing_and_the_least_of_its_parts_counts(codec, tmp_path):
    log = built(Spec([(0, NOW, b"a", b"v", [])]), 0)
    maps = [codec.OffsetMap(1 << 10, 0.9, SEED, (number, 2)) for number in range(2)]
    maps[0].advance(7)
    maps[1].advance(5)
    for number, each in enumerate(maps):
        each.dump(tmp_path / str(number))
    opened = codec.OffsetMap.open([tmp_path / "0", tmp_path / "1"])
    assert (opened.latest_offset, opened.size, opened.get(b"a")) == (5, 0, -1)
    index_batch(opened, next(iter_batches(log)), 0)
    assert opened.is_full
    with pytest.raises(ValueError, match="in files already"):
        opened.dump(tmp_path / "again")
    opened.clear()
    assert opened.get(b"a") == -1


@pytest.mark.parametrize("reader", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("writer", CODECS, ids=lambda codec: codec.name)
def test_parts_by_version_in_files_may_be_of_several_sizes(writer, reader, tmp_path):
    rows = [(0, NOW - (at // 100) % 2, b"key %d" % (at % 100), b"v", []) for at in range(200)]
    log = b"".join(built(Spec(rows[at : at + 50]), at) for at in range(0, len(rows), 50))
    parts = [(0, 2), (2, 4), (6, 8), (7, 8)]
    for part in parts:
        found = writer.OffsetMap(1 << 16, 0.9, SEED, part, Versions())
        for batch in iter_batches(log):
            index_batch(found, batch, 0)
        found.dump(tmp_path / f"{part[0]}-of-{part[1]}")
    opened = reader.OffsetMap.open([tmp_path / f"{number}-of-{count}" for number, count in parts])
    assert opened.is_versioned
    keys = [b"key %d" % number for number in range(100)]
    assert [(opened.get(key), opened.is_followed(key)) for key in keys] == [(number, True) for number in range(100)]
    assert (opened.outdates(keys[3], 103), opened.outdates(keys[3], 3), opened.outdates(b"none", 3)) == (
        True,
        False,
        False,
    )
    index_batch(opened, next(iter_batches(log)), 0)
    assert opened.is_full


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_what_is_no_map_is_refused(codec, tmp_path):
    for number in range(2):
        codec.OffsetMap(1 << 10, 0.9, SEED, (number, 2)).dump(tmp_path / str(number))
    codec.OffsetMap(1 << 10, 0.9, bytes(16), (1, 2)).dump(tmp_path / "of another seed")
    with pytest.raises(FileExistsError):
        codec.OffsetMap(1 << 10, 0.9, SEED).dump(tmp_path / "0")
    for names in (["0"], ["0", "0"], ["0", "of another seed"]):
        with pytest.raises(ValueError, match="not the parts of one map"):
            codec.OffsetMap.open([tmp_path / name for name in names])
    whole = (tmp_path / "0").read_bytes()
    for number, data in enumerate((b"", b"x" * 10, b"x" + whole[1:], whole[:-1], whole + b"x")):
        (tmp_path / f"bad-{number}").write_bytes(data)
        with pytest.raises(CorruptRecord):
            codec.OffsetMap.open([tmp_path / f"bad-{number}", tmp_path / "1"])


@given(st.lists(SPEC, min_size=1, max_size=6), st.integers(2, 4))
def test_records_are_judged_by_the_map_of_their_keys_part(tmp_path_factory, specs, parts):
    log, directory = b"".join(log_of(specs)), tmp_path_factory.mktemp("maps")
    _, paths = dumped(_impl.codec, log, parts, directory)
    whole = make_offset_map(1 << 20, 0.9, SEED)
    for batch in iter_batches(log):
        index_batch(whole, batch, 0)
    results = []
    for each in (whole, open_offset_map(paths)):
        rewriter = make_rewriter(each, RewriteRules(NOW, RETENTION, {}), LIMITS)
        for batch in iter_batches(log):
            rewrite_batch(rewriter, batch, Verdict())
        results.append(bytes(rewriter.drain()))
    assert results[0] == results[1]


@given(st.lists(SPEC, max_size=6), st.integers(0, 60))
def test_batches_of_no_transaction_are_passed_over(specs, cut):
    log = b"".join(log_of(specs))
    log = log[: max(len(log) - cut, 0)]
    expected = 0
    for batch in iter_batches(log):
        if batch.is_transactional or batch.is_control:
            break
        expected += batch.size_in_bytes
    assert skip_plain(log) == expected
    assert {codec.skip_plain(log) for codec in CODECS} == {expected}
