"""The records of one poll, until the user has done with them."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.consumer.record import ConsumerRecord
from sparklog.client.zookeeper.polled_records import PolledRecords
from sparklog.structs import TopicPartition

_batches = st.lists(st.integers(0, 2), min_size=1, max_size=20)


def records_of(partitions):
    """The next record of each of these partitions."""
    return [
        ConsumerRecord("t", partition, 10 + partitions[:place].count(partition), 0, 0, None, b"", (), 0)
        for place, partition in enumerate(partitions)
    ]


@given(_batches)
def test_a_whole_poll_is_given_at_once(partitions):
    polled = PolledRecords(records_of(partitions), 1.0)
    assert polled.rest == {}
    assert polled.given == {TopicPartition("t", each): 10 + partitions.count(each) for each in set(partitions)}


@given(_batches, st.data())
def test_what_was_not_given_comes_again(partitions, data):
    records = records_of(partitions)
    count = data.draw(st.integers(0, len(records)))
    polled = PolledRecords(records, 1.0)
    polled.hold_back()
    for record in records[:count]:
        polled.give(record)
    again = {
        (each.tp, each.offset) for each in records if each.tp in polled.rest and each.offset >= polled.rest[each.tp]
    }
    assert again == {(each.tp, each.offset) for each in records[count:]}
    assert polled.given.keys() == {each.tp for each in records[:count]}


def test_a_partition_that_is_anothers_is_dropped():
    polled = PolledRecords(records_of([0, 1]), 1.0)
    polled.drop(TopicPartition("t", 0))
    assert list(polled.given) == list(polled.first) == [TopicPartition("t", 1)]
