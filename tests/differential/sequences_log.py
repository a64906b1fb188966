"""Sequences about records: produce, fetch, offsets, deletion."""

from __future__ import annotations

from struct import pack_into
from typing import Any

import crc32c
from differential.asking import (
    T0,
    add_partitions,
    batch,
    batch_of,
    fetch,
    init_producer,
    list_offset,
    make_topic,
    produce,
    read_back,
    records_of,
)
from differential.pair import Pair
from differential.table import sequence
from record.legacy_bytes import entry, wrapper

from sparklog.protocol.api_key import ApiKey
from sparklog.record import layout
from sparklog.record.batch import increment_sequence
from sparklog.record.compression import CompressionType


def with_field(data: bytes, position: int, value: int, *, size: str = ">i") -> bytes:
    """``data`` with one field of its header overwritten, and its CRC as it was."""
    changed = bytearray(data)
    pack_into(size, changed, position, value)
    return bytes(changed)


def resealed(data: bytes, position: int, value: int, *, size: str = ">i") -> bytes:
    """``data`` with one field of its header overwritten, and the CRC to go with it."""
    changed = bytearray(with_field(data, position, value, size=size))
    pack_into(">I", changed, layout.CRC, crc32c.crc32c(bytes(changed[layout.ATTRIBUTES :])))
    return bytes(changed)


@sequence(ApiKey.PRODUCE)
def produce_what_is_wrong(pair: Pair) -> None:
    topic = make_topic(pair)
    good = batch(b"one", b"two")
    produce(pair, "good", topic, good)
    produce(pair, "acks 1", topic, good, acks=1)
    produce(pair, "acks 2", topic, good, acks=2)
    produce(pair, "acks -2", topic, good, acks=-2)
    produce(pair, "no such topic", pair.name("nowhere"), good)
    produce(pair, "an impossible topic", "a/b", good)
    produce(pair, "no such partition", topic, good, partition=7)
    produce(pair, "a negative partition", topic, good, partition=-1)
    produce(pair, "no bytes", topic, b"")
    produce(pair, "two batches", topic, good + good)
    produce(pair, "half a batch", topic, good[: len(good) // 2])
    produce(pair, "a batch and a half", make_topic(pair, "torn"), good + good[:30])
    produce(pair, "corrupt", topic, good[:-1] + b"?")
    for magic in (0, 1, 3, -1):
        produce(pair, f"magic {magic}", topic, with_field(good, layout.MAGIC, magic, size=">b"))
    legacy = make_topic(pair, "legacy")
    produce(pair, "old messages of magic 0", legacy, entry(0, b"k", b"v"))
    produce(pair, "old messages of magic 1", legacy, entry(0, b"k", b"v", magic=1, timestamp=T0))
    old = entry(0, b"k", b"v", magic=1, timestamp=T0) + entry(1, b"k", b"w", magic=1, timestamp=T0 + 5)
    produce(pair, "old messages in a wrapper", legacy, wrapper(1, old, magic=1, timestamp=T0 + 5))
    parts = [{"index": each, "records": good} for each in (0, 1)]
    asked = {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": parts}]}
    pair.ask("one good partition and one bad", ApiKey.PRODUCE, **asked)
    pair.ask("nothing", ApiKey.PRODUCE, **{**asked, "topic_data": []})
    read_back(pair, topic)


@sequence(ApiKey.PRODUCE)
def produce_odd_headers(pair: Pair) -> None:
    topic = make_topic(pair)
    good = batch(b"one", b"two", b"three")
    produce(pair, "its offsets begin elsewhere", topic, batch(b"x", base_offset=17))
    produce(pair, "a last offset delta that is too large", topic, resealed(good, layout.LAST_OFFSET_DELTA, 5))
    produce(pair, "a last offset delta that is too small", topic, resealed(good, layout.LAST_OFFSET_DELTA, 0))
    produce(pair, "a negative last offset delta", topic, resealed(good, layout.LAST_OFFSET_DELTA, -1))
    produce(pair, "a record count that is too large", topic, resealed(good, layout.RECORD_COUNT, 9))
    produce(pair, "a record count that is too small", topic, resealed(good, layout.RECORD_COUNT, 1))
    produce(pair, "a record count of zero", topic, resealed(good, layout.RECORD_COUNT, 0))
    produce(pair, "a batch without records", topic, batch())
    produce(pair, "control", topic, batch(b"x", is_control=True))
    produce(pair, "an unknown compression", topic, resealed(good, layout.ATTRIBUTES, 7, size=">h"))
    poisoned = make_topic(pair, "poisoned")
    produce(pair, "compression claimed, not done", poisoned, resealed(good, layout.ATTRIBUTES, 1, size=">h"))
    produce(pair, "append time claimed", topic, batch(b"x", timestamp_type=1))
    produce(pair, "a sequence without a producer", topic, batch(b"x", base_sequence=3))
    produce(pair, "a producer without a sequence", topic, batch(b"x", producer_id=900_001, producer_epoch=0))
    produce(pair, "max timestamp too small", topic, resealed(good, layout.MAX_TIMESTAMP, T0 - 9, size=">q"))
    produce(pair, "a timestamp of -1", topic, batch(b"x", time=-1))
    produce(pair, "a timestamp of -2", topic, batch(b"x", time=-2))
    produce(pair, "far in the future", topic, batch(b"x", time=T0 * 3))
    produce(pair, "no key", topic, batch(b"x", key=None))
    produce(pair, "no value", topic, batch(None))
    for kind in CompressionType:
        produce(pair, f"compressed with {kind.name}", topic, batch(b"x" * 100, b"y" * 100, compression=kind))
    read_back(pair, topic)


@sequence(ApiKey.PRODUCE)
def produce_to_topics_with_settings(pair: Pair) -> None:
    small = make_topic(pair, "small", max_message_bytes="200")
    produce(pair, "too large", small, batch(b"x" * 300))
    produce(pair, "too large before it was compressed", small, batch(b"x" * 900, compression=CompressionType.GZIP))
    produce(pair, "just right", small, batch(b"x" * 100))
    compacted = make_topic(pair, "compacted", cleanup_policy="compact")
    produce(pair, "a key", compacted, batch(b"x"))
    produce(pair, "no key", compacted, batch(b"x", b"y", key=None))
    produce(pair, "no key, compressed", compacted, batch(b"x", key=None, compression=CompressionType.GZIP))
    append_time = make_topic(pair, "append-time", message_timestamp_type="LogAppendTime")
    produce(pair, "append time", append_time, batch(b"x", b"y"))
    gzipped = make_topic(pair, "gzipped", compression_type="gzip")
    produce(pair, "compressed by the broker", gzipped, batch(b"x" * 100, b"y" * 100))
    produce(pair, "compressed anew", gzipped, batch(b"x" * 100, compression=CompressionType.LZ4))
    strict = make_topic(pair, "strict", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    produce(pair, "too old", strict, batch(b"x"))
    produce(pair, "too new", strict, batch(b"x", time=T0 * 2))
    two = make_topic(pair, "min-isr", min_insync_replicas="2")
    produce(pair, "too few in sync, acks 1", two, batch(b"x"), acks=1)
    produce(pair, "too few in sync", two, batch(b"x"))
    for topic in (small, compacted, append_time):
        read_back(pair, topic)
    for topic in (small, gzipped, strict):
        list_offset(pair, f"the end of {topic}", topic, -1, version=5)


@sequence(ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID)
def produce_in_sequence(pair: Pair) -> None:
    topic = make_topic(pair, partitions=2)
    producer = init_producer(pair, "a producer", version=1)

    def send(step: str, number: int, *values: bytes, **how: Any) -> None:
        produce(pair, step, topic, batch_of(producer, number, *(values or (b"v",)), **how), version=_modern(pair))

    send("the first is not 0", 5)
    send("the first", 0, b"a", b"b")
    send("the first again", 0, b"a", b"b")
    send("part of the first again", 0, b"a")
    send("the rest of the first again", 1, b"b")
    send("the next", 2)
    send("a gap", 9)
    send("an older epoch", 3, epoch=-1)
    for number in range(3, 9):
        send(f"number {number}", number)
    send("the last again", 8)
    send("the fifth last again", 4)
    send("the sixth last again", 3)
    send("the very first again", 0, b"a", b"b")
    send("a newer epoch, not from 0", 9, epoch=1)
    send("a newer epoch", 0, epoch=1)
    send("the older epoch is fenced", 9)
    send("a newer epoch, further", 1, epoch=1)
    stranger = init_producer(pair, "another producer", version=1)
    produce(pair, "another begins at 7", topic, batch_of(stranger, 7, b"x"), version=_modern(pair))
    produce(pair, "another begins at 0", topic, batch_of(stranger, 0, b"x"), version=_modern(pair))
    produce(pair, "in another partition", topic, batch_of(stranger, 0, b"x"), partition=1, version=_modern(pair))
    last = increment_sequence(0, layout.MAX_INT32)
    third = init_producer(pair, "a third producer", version=1)
    produce(pair, "begins at the very end", topic, batch_of(third, last, b"x"), version=_modern(pair))
    produce(pair, "nobody gave this id", topic, batch(b"x", producer_id=77_777, producer_epoch=3, base_sequence=0))
    asked = [{"name": topic, "partition_indexes": [0, 1]}]
    pair.ask("what is remembered", ApiKey.DESCRIBE_PRODUCERS, topics=asked)
    read_back(pair, topic)


def _modern(pair: Pair) -> int:
    return max(pair.version(ApiKey.PRODUCE), 3)


@sequence(ApiKey.FETCH)
def fetch_here_and_there(pair: Pair) -> None:
    topic = make_topic(pair)
    for number in range(5):
        values = [b"%d/%d" % (number, each) + b"v" * 50 for each in range(4)]
        produce(pair, f"batch {number}", topic, batch(*values, time=T0 + 100 * number), version=9)
    for offset in (0, 1, 3, 4, 10, 19):
        fetch(pair, f"from {offset}", topic, offset)
    fetch(pair, "at the end", topic, 20)
    fetch(pair, "beyond the end", topic, 21)
    fetch(pair, "below the start", topic, -1)
    fetch(pair, "a tiny partition limit", topic, 5, partition_max_bytes=1)
    fetch(pair, "a partition limit of 0", topic, 5, partition_max_bytes=0)
    fetch(pair, "a tiny limit", topic, 5, max_bytes=1)
    fetch(pair, "a limit of two and a half batches", topic, 0, partition_max_bytes=800)
    fetch(pair, "more than there is", topic, 20, min_bytes=10_000, max_wait_ms=50)
    fetch(pair, "more than there is, from the middle", topic, 8, min_bytes=1 << 19, max_wait_ms=50)
    fetch(pair, "read committed", topic, 0, isolation_level=1)
    fetch(pair, "no such partition", topic, 0, partition=4)
    fetch(pair, "a leader epoch of the future", topic, 0, current_leader_epoch=9)
    fetch(pair, "the leader epoch", topic, 0, current_leader_epoch=0)
    fetch(pair, "an unknown topic", pair.name("nowhere"), 0, version=min(pair.version(ApiKey.FETCH), 12))
    fetch(pair, "a session that nobody knows", topic, 0, session_id=4711, session_epoch=3)
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1, "topics": []}
    pair.ask("nothing", ApiKey.FETCH, replica_id=-1, **nothing)
    places = [{"partition_index": 0, "offset": 6}]
    pair.ask("delete", ApiKey.DELETE_RECORDS, topics=[{"name": topic, "partitions": places}], timeout_ms=30_000)
    fetch(pair, "below the new start", topic, 5)
    fetch(pair, "at the new start", topic, 6)
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 300, "replica_id": -1, "session_epoch": -1}
    other = make_topic(pair, "other", partitions=2)
    for partition in (0, 1):
        produce(pair, f"into {partition}", other, batch(b"v" * 200), partition=partition, version=9)
    part = [{"partition": each, "fetch_offset": 0, "partition_max_bytes": 1000} for each in (1, 0)]
    by_name = min(pair.version(ApiKey.FETCH), 12)
    pair.ask(
        "a limit over two partitions",
        ApiKey.FETCH,
        version=by_name,
        topics=[{"topic": other, "partitions": part}],
        **limits,
    )


@sequence(ApiKey.LIST_OFFSETS)
def list_offsets(pair: Pair) -> None:
    topic = make_topic(pair)
    for special in (-1, -2, -3, -4, -5, -6, 0, T0):
        list_offset(pair, f"{special} while empty", topic, special)
    for number in range(3):
        values = [b"v"] * 3
        produce(pair, f"batch {number}", topic, batch(*values, time=T0 + 100 * number), version=9)
    produce(pair, "an older batch", topic, batch(b"v", b"w", time=T0 + 150), version=9)
    for special in (-1, -2, -3, -4, -5, -6, -7):
        list_offset(pair, f"{special}", topic, special)
    for when in (0, T0, T0 + 1, T0 + 2, T0 + 3, T0 + 100, T0 + 103, T0 + 202, T0 + 203, T0 * 2):
        list_offset(pair, f"at T0 {when - T0:+}", topic, when)
    list_offset(pair, "read committed", topic, -1, isolation_level=1)
    list_offset(pair, "of an unknown isolation", topic, -1, isolation_level=2)
    list_offset(pair, "no such partition", topic, -1, partition=3)
    list_offset(pair, "no such topic", pair.name("nowhere"), -1)
    list_offset(pair, "the leader epoch", topic, -1, current_leader_epoch=0)
    list_offset(pair, "a leader epoch of the future", topic, -1, current_leader_epoch=5)
    twice = [{"partition_index": 0, "timestamp": each} for each in (-1, -2)]
    pair.ask("one partition twice", ApiKey.LIST_OFFSETS, replica_id=-1, topics=[{"name": topic, "partitions": twice}])
    pair.ask("nothing", ApiKey.LIST_OFFSETS, replica_id=-1, topics=[])
    list_offset(pair, "as a debugger", topic, -1, replica_id=-2)


@sequence(ApiKey.LIST_OFFSETS, ApiKey.FETCH)
def offsets_beside_an_open_transaction(pair: Pair) -> None:
    topic = make_topic(pair)
    who = pair.name("worker")
    produce(pair, "before", topic, batch(b"before"), version=9)
    producer = init_producer(pair, "the producer", who, version=1)
    add_partitions(pair, "add", who, producer, topic)
    records = batch_of(producer, 0, b"in the transaction", time=T0 + 50, is_transactional=True)
    pair.ask(
        "write", ApiKey.PRODUCE, version=9, acks=-1, timeout_ms=30_000, transactional_id=who,
        topic_data=records_of(topic, records),
    )  # fmt: skip
    produce(pair, "after", topic, batch(b"after", time=T0 + 100), version=9)
    for level in (0, 1):
        for when in (-1, -2, -3, T0, T0 + 50, T0 + 51, T0 + 101):
            list_offset(pair, f"at {when - T0:+}, isolation {level}", topic, when, isolation_level=level)
        for offset in (0, 1, 2, 3):
            fetch(pair, f"from {offset}, isolation {level}", topic, offset, isolation_level=level)
    fetch(pair, "beyond the last stable", topic, 4, isolation_level=1)


@sequence(ApiKey.DELETE_RECORDS)
def delete_records(pair: Pair) -> None:
    topic = make_topic(pair, partitions=2)
    for number in range(3):
        produce(pair, f"batch {number}", topic, batch(b"a", b"b", b"c"), version=9)

    def delete(step: str, offset: int, partition: int = 0, name: str = topic) -> None:
        places = [{"partition_index": partition, "offset": offset}]
        asked = [{"name": name, "partitions": places}]
        pair.ask(step, ApiKey.DELETE_RECORDS, topics=asked, timeout_ms=30_000)

    delete("up to 4", 4)
    delete("back to 2", 2)
    delete("beyond the end", 10)
    delete("below -1", -2)
    delete("all", -1)
    delete("all again", -1)
    delete("of an empty partition", -1, 1)
    delete("beyond an empty one", 1, 1)
    delete("no such partition", 0, 5)
    delete("no such topic", 0, 0, pair.name("nowhere"))
    delete("an internal topic", 0, 0, "__consumer_offsets")
    for special in (-1, -2, T0):
        list_offset(pair, f"offset {special}", topic, special, version=5)
    produce(pair, "afterwards", topic, batch(b"a"), version=9)
    fetch(pair, "read", topic, 9, version=11)


@sequence(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def ends_of_epochs(pair: Pair) -> None:
    topic = make_topic(pair)

    def ask(step: str, epoch: int, current: int = -1, partition: int = 0, name: str = topic) -> None:
        asked = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
        pair.ask(step, ApiKey.OFFSET_FOR_LEADER_EPOCH, replica_id=-1, topics=[{"topic": name, "partitions": [asked]}])

    ask("empty", 0)
    produce(pair, "some", topic, batch(b"a", b"b"), version=9)
    for epoch in (0, 1, -1, -2, 7):
        ask(f"epoch {epoch}", epoch)
    ask("the current one", 0, 0)
    ask("a current one of the future", 0, 3)
    ask("no such partition", 0, -1, 3)
    ask("no such topic", 0, -1, 0, pair.name("nowhere"))
