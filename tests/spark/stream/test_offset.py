"""The JSON of a query's offsets: Spark's Kafka source's, with the topics' ids where that source sees nothing."""

import json
from uuid import UUID

from sparklog.protocol.wire import ZERO_UUID
from sparklog.spark.stream.offset import StreamOffset
from sparklog.structs import TopicPartition

_A0, _A10, _B = TopicPartition("a", 0), TopicPartition("a", 10), TopicPartition("b", 2)
_ID = UUID("4b3c2d1e-0000-4000-8000-000000000001")


def test_the_id_of_a_topic_stands_beside_it_as_a_topic_without_partitions():
    offset = StreamOffset({_B: 2, _A10: 1, _A0: 3}, {"b": ZERO_UUID, "a": _ID})
    text = json.dumps(offset.to_json())
    assert text == f'{{"a": {{"0": 3, "10": 1}}, "a@{_ID}": {{}}, "b": {{"2": 2}}}}'
    assert StreamOffset.from_json(json.loads(text)) == StreamOffset({_A0: 3, _A10: 1, _B: 2}, {"a": _ID})


def test_an_offset_of_the_kafka_source_has_no_ids():
    assert StreamOffset.from_json({"a": {"0": 3}}) == StreamOffset({_A0: 3}, {})


def test_topics_are_the_same_unless_both_ids_are_known_and_differ():
    one, other, unknown = (StreamOffset({}, {"a": each}) for each in (_ID, UUID(int=7), ZERO_UUID))
    assert one.is_same_topic("a", one)
    assert not one.is_same_topic("a", other)
    assert one.is_same_topic("a", unknown)
    assert StreamOffset({}, {}).is_same_topic("a", one)


def test_leader_epochs_stand_there_too():
    a = [TopicPartition("a", number) for number in range(5)]
    epochs = {a[0]: 7, a[1]: 7, a[2]: 12, a[4]: 7, _B: 0}
    offset = StreamOffset({**dict.fromkeys(a, 1), _B: 2}, {"a": _ID}, epochs)
    text = json.dumps(offset.to_json())
    assert text == (
        f'{{"a": {{"0": 1, "1": 1, "2": 1, "3": 1, "4": 1}}, "a@12:2": {{}}, "a@{_ID}": {{}}, "a@7:0-1,4": {{}},'
        ' "b": {"2": 2}, "b@0:2": {}}'
    )
    assert StreamOffset.from_json(json.loads(text)) == offset


def test_a_checkpoint_without_epochs_has_none():
    assert StreamOffset.from_json({"a": {"0": 3}, f"a@{_ID}": {}}) == StreamOffset({_A0: 3}, {"a": _ID}, {})


def test_where_a_first_batch_begins_stands_there_too():
    offset = StreamOffset({_A0: 3, _A10: 1, _B: 2}, {"a": _ID}, {}, {_A0: 0, _A10: 1, _B: 2})
    text = json.dumps(offset.to_json())
    assert text == (
        f'{{"a": {{"0": 3, "10": 1}}, "a@{_ID}": {{}}, "a@from:0=0,10=1": {{}}, "b": {{"2": 2}}, "b@from:2=2": {{}}}}'
    )
    assert StreamOffset.from_json(json.loads(text)) == offset
