"""Consumers against a broker of ours and, under the marker ``peer``, against Kafka: the same promises for both."""

import asyncio
import contextlib
import threading
from typing import Any

import confluent_kafka
import pytest
from client.reading import read, values

from sparklog.client.consumer.async_consumer import AsyncConsumer
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.errors import ApiError, ClientClosed, ConfigError, DeserializationError, LocalProtocolError, WokenUp
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration


def test_a_subscriber_reads_everything_in_order(consumer, partitions, put):
    tps = partitions(2)
    for tp in tps:
        put(tp, *(b"%d-%d" % (tp.partition, n) for n in range(5)))
    reader = consumer()
    reader.subscribe([tps[0].topic])
    found = read(reader, 10)
    for tp in tps:
        mine = [record for record in found if record.tp == tp]
        assert values(mine) == [b"%d-%d" % (tp.partition, n) for n in range(5)]
        assert [record.offset for record in mine] == list(range(5))
    assert found[0].headers == (("h", b"1"),)
    assert (found[0].key, found[0].timestamp_type) == (b"k", 0)
    assert reader.assignment == set(tps)
    assert reader.lag() == dict.fromkeys(tps, 0)
    assert reader.poll(0.05) == []


def test_arrow_batches_have_the_columns_of_the_spark_source(consumer, partitions, put):
    tps = partitions(2)
    for tp in tps:
        put(tp, b"a", None, b"c")
    reader = consumer()
    reader.assign(tps)
    rows = []
    while len(rows) < 6:
        batch = reader.poll_arrow(20.0, max_rows=2)
        assert batch is not None
        assert batch.num_rows <= 2
        rows += batch.to_pylist()
    assert batch.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    for tp in tps:
        mine = [row for row in rows if row["partition"] == tp.partition]
        assert [(row["offset"], row["value"]) for row in mine] == [(0, b"a"), (1, None), (2, b"c")]
    assert {row["topic"] for row in rows} == {tps[0].topic}
    assert [reader.position(tp) for tp in tps] == [3, 3]


def test_records_and_columns_can_take_turns(consumer, partitions, put):
    (tp,) = partitions()
    put(tp, *(b"%d" % n for n in range(10)))
    reader = consumer()
    reader.assign([tp])
    first = values(read_one_poll(reader, 3))
    second = reader.poll_arrow(20.0, max_rows=4).column("value").to_pylist()
    assert first + second + values(read_one_poll(reader, 10)) == [b"%d" % n for n in range(10)]


def read_one_poll(reader, most):
    records = reader.poll(20.0, max_records=most)
    assert records
    return records


def test_a_new_member_begins_where_the_group_committed(consumer, partitions, put):
    (tp,) = partitions()
    put(tp, *(b"%d" % n for n in range(6)))
    first = consumer(enable_auto_commit=False)
    first.subscribe([tp.topic])
    assert values(read_one_poll(first, 4)) == [b"0", b"1", b"2", b"3"]
    first.commit()
    assert first.committed(tp)[tp].offset == 4
    read_one_poll(first, 4)
    first.close()
    second = consumer()
    second.subscribe([tp.topic])
    assert values(read(second, 2)) == [b"4", b"5"]


def test_close_commits_what_was_given(consumer, partitions, put):
    (tp,) = partitions()
    put(tp, *(b"%d" % n for n in range(6)))
    first = consumer()
    first.subscribe([tp.topic])
    read_one_poll(first, 4)
    first.close()
    second = consumer()
    second.assign([tp])
    assert second.position(tp) == 4


def test_auto_commit_happens_while_it_polls(consumer, partitions, put):
    (tp,) = partitions()
    put(tp, b"a", b"b")
    reader, other = consumer(auto_commit_interval_ms=50), consumer()
    reader.assign([tp])
    read(reader, 2)

    def committed():
        reader.poll(0.1)
        at = other.committed(tp)[tp]
        return at is not None and at.offset == 2

    eventually(committed)


def test_commits_of_chosen_offsets_and_without_waiting(consumer, partitions):
    (tp,) = partitions()
    reader = consumer()
    reader.assign([tp])
    reader.commit({tp: OffsetAndMetadata(7, metadata="why")})
    assert reader.committed(tp)[tp] == (7, -1, "why")
    told = []
    reader.commit_async(lambda offsets, error: told.append((threading.get_ident(), offsets[tp].offset, error)), {tp: 8})
    eventually(lambda: reader.poll(0.05) or told)
    assert told == [(threading.get_ident(), 8, None)]
    assert reader.committed(tp)[tp].offset == 8


def test_nothing_is_committed_for_records_that_iteration_has_not_given(consumer, partitions, put):
    (tp,) = partitions()
    put(tp, *(b"%d" % n for n in range(6)))
    reader = consumer(enable_auto_commit=False)
    reader.assign([tp])
    given = []
    for record in reader:
        given.append(record.value)
        if len(given) == 3:
            reader.commit()
            break
    assert reader.committed(tp)[tp].offset == 3
    assert values(read(reader, 3)) == [b"3", b"4", b"5"]


def test_iteration_follows_a_seek(consumer, partitions, put):
    (tp,) = partitions()
    put(tp, *(b"%d" % n for n in range(6)))
    reader = consumer()
    reader.assign([tp])
    given = []
    for record in reader:
        given.append(record.offset)
        if len(given) == 2:
            reader.seek(tp, 5)
        if record.offset == 5:
            break
    assert given == [0, 1, 5]


def test_seeking(consumer, partitions, put):
    (tp,) = partitions()
    put(tp, *(b"%d" % n for n in range(6)))
    reader = consumer()
    reader.assign([tp])
    read(reader, 6)
    reader.seek(tp, 4)
    assert values(read(reader, 2)) == [b"4", b"5"]
    reader.seek_to_beginning(tp)
    assert reader.position(tp) == 0
    reader.seek_to_end()
    assert reader.position(tp) == 6
    with pytest.raises(ApiError, match="not assigned"):
        reader.seek(TopicPartition(tp.topic, 9), 0)


def test_what_there_is(consumer, partitions, put):
    full, empty = partitions(2)
    put(full, b"a", b"b", b"c")
    reader = consumer()
    assert reader.beginning_offsets([full, empty]) == {full: 0, empty: 0}
    assert reader.end_offsets([full, empty]) == {full: 3, empty: 0}
    for none in (-1, -2, 2**63):
        with pytest.raises(ValueError, match="ms since 1970"):
            reader.offsets_for_times({full: none})
    found = reader.offsets_for_times({full: 1_700_000_000_001, empty: 0})
    assert (found[full].offset, found[empty]) == (1, None)
    assert len(reader.partitions_for(full.topic)) == 2


def test_a_paused_partition_gives_nothing_and_loses_nothing(consumer, partitions, put):
    one, other = partitions(2)
    put(one, b"1", b"2")
    put(other, b"a", b"b")
    reader = consumer()
    reader.assign([one, other])
    reader.pause(one)
    assert values(read(reader, 2)) == [b"a", b"b"]
    assert reader.poll(0.3) == []
    reader.resume(one)
    assert values(read(reader, 2)) == [b"1", b"2"]


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 3), ("by_duration:P1D", 3)])
def test_where_to_begin(consumer, partitions, put, reset, first):
    (tp,) = partitions()
    put(tp, b"a", b"b", b"c")
    reader = consumer(auto_offset_reset=reset)
    reader.assign([tp])
    assert reader.position(tp) == first


def test_without_a_policy_a_beginning_must_be_chosen(consumer, partitions, put):
    (tp,) = partitions()
    put(tp, b"a")
    reader = consumer(auto_offset_reset="none")
    reader.assign([tp])
    with pytest.raises(ApiError, match="no committed offset"):
        reader.poll(20.0)
    reader.seek(tp, 0)
    assert values(read(reader, 1)) == [b"a"]
    reader.seek(tp, 5)
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        reader.poll(20.0)


def test_out_of_range_goes_on_as_the_policy_says(consumer, partitions, put):
    (tp,) = partitions()
    put(tp, b"a", b"b")
    reader = consumer()
    reader.assign([tp])
    reader.seek(tp, 99)
    assert values(read(reader, 2)) == [b"a", b"b"]


def test_a_pattern_finds_topics_that_come_later(consumer, partitions, make_topic, put, topic):
    (tp,) = partitions()
    put(tp, b"a")
    reader = consumer(metadata_max_age_ms=200)
    reader.subscribe(pattern=f"{topic}.*")
    assert values(read(reader, 1)) == [b"a"]
    later = TopicPartition(make_topic(suffix="-later"), 0)
    put(later, b"b")
    assert values(read(reader, 1)) == [b"b"]
    assert reader.subscription == {tp.topic, later.topic}


def test_wakeup_ends_a_poll_in_another_thread(consumer, partitions):
    reader = consumer()
    reader.assign(partitions())
    reader.poll(0.1)
    timer = threading.Timer(0.2, reader.wakeup)
    timer.start()
    with pytest.raises(WokenUp):
        reader.poll(60.0)
    timer.join()
    assert reader.poll(0.05) == []


def test_a_record_that_cannot_be_deserialized_is_not_passed_over(servers, partitions, put):
    (tp,) = partitions()
    put(tp, b"1", b"2", b"x", None)
    with Consumer({"bootstrap.servers": servers}, value_deserializer=int, auto_offset_reset="earliest") as reader:
        reader.assign([tp])
        assert values(read(reader, 2)) == [1, 2]
        for _ in range(2):
            with pytest.raises(DeserializationError, match="offset 2") as raised:
                reader.poll(20.0)
        reader.seek(tp, raised.value.offset + 1)
        assert values(read(reader, 1)) == [None]


def test_read_committed_sees_only_what_was_committed(consumer, partitions, servers, topic):
    (tp,) = partitions()
    writer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": topic})
    writer.init_transactions(60)
    for outcome in ("commit", "abort", "commit"):
        writer.begin_transaction()
        for number in range(3):
            writer.produce(tp.topic, f"{outcome}{number}".encode(), partition=0)
        writer.flush(60)
        (writer.commit_transaction if outcome == "commit" else writer.abort_transaction)(60)
    committed, everything = consumer(isolation_level="read_committed"), consumer()
    for reader in (committed, everything):
        reader.assign([tp])
    assert values(read(committed, 6)) == [b"commit0", b"commit1", b"commit2"] * 2
    assert len(read(everything, 9)) == 9
    assert committed.poll(0.3) == []
    assert committed.position(tp) == everything.end_offsets([tp])[tp] == 12
    rows = consumer(isolation_level="read_committed")
    rows.assign([tp])
    assert rows.poll_arrow(20.0).column("value").to_pylist()[:3] == [b"commit0", b"commit1", b"commit2"]


def test_one_thread_at_a_time(consumer, partitions):
    reader = consumer()
    reader.assign(partitions())
    thread = threading.Thread(target=_poll_until_woken, args=[reader])
    thread.start()
    eventually(lambda: reader._jobs)
    with pytest.raises(LocalProtocolError, match="another thread"):
        reader.poll(0)
    reader.wakeup()
    thread.join()


def _poll_until_woken(reader):
    with contextlib.suppress(WokenUp):
        reader.poll(60.0)


def test_without_a_group_there_is_nothing_to_join_or_commit(servers, partitions, put):
    (tp,) = partitions()
    put(tp, b"a")
    with Consumer({"bootstrap.servers": servers}, auto_offset_reset="earliest") as reader:
        for call in (lambda: reader.subscribe([tp.topic]), reader.commit, reader.consumer_group_metadata):
            with pytest.raises(ConfigError, match=r"group\.id"):
                call()
        reader.assign([tp])
        assert values(read(reader, 1)) == [b"a"]
    with pytest.raises(ClientClosed):
        reader.poll(0)
    reader.close()


def test_in_the_callers_loop(servers, partitions, put, topic):
    (tp,) = partitions()
    put(tp, *(b"%d" % n for n in range(5)))
    assigned = []
    reader: Any = None

    async def on_assigned(partitions):
        assigned.append((partitions, await reader.committed(*partitions)))

    async def main():
        nonlocal reader
        async with AsyncConsumer(bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest") as reader:
            reader.subscribe([tp.topic], on_assigned=on_assigned)
            found = []
            async for record in reader:
                found.append(record.value)
                if len(found) == 5:
                    break
            return found

    assert asyncio.run(main()) == [b"%d" % n for n in range(5)]
    assert assigned == [([tp], {tp: None})]


def test_subscribing_to_a_name_that_no_topic_can_have_is_raised(consumer):
    reader = consumer()
    reader.subscribe(["a b"])
    with pytest.raises(ApiError, match="topic 'a b': INVALID_TOPIC_EXCEPTION"):
        read(reader, 1)
