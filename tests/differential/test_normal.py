"""How answers are made comparable, without a broker."""

import pytest
from differential.normal import Names, compare
from differential.pair import Both, Difference, of_side
from differential.table import Allowance, allowances

from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    FetchResponse,
    FindCoordinatorResponse,
    InitProducerIdResponse,
    JoinGroupResponse,
    MetadataResponse,
)
from sparklog.record.builder import RecordBatchBuilder

_Topic = MetadataResponse.MetadataResponseTopic


def differences(api, kafka, ours, sides=None):
    sides = sides or (Names(), Names())
    return list(compare(sides[0].normal(api, kafka), sides[1].normal(api, ours)))


def test_ids_are_told_apart_but_not_compared():
    sides = Names(), Names()
    first, other, second = (InitProducerIdResponse(producer_id=each, producer_epoch=0) for each in (100, 7, 101))
    assert differences(ApiKey.INIT_PRODUCER_ID, first, other, sides) == []
    assert differences(ApiKey.INIT_PRODUCER_ID, second, other, sides) == [("producer_id", "producer 2", "producer 1")]


def test_nobody_is_not_somebody():
    answers = [InitProducerIdResponse(producer_id=each, producer_epoch=-1) for each in (-1, 7)]
    assert [path for path, _, _ in differences(ApiKey.INIT_PRODUCER_ID, *answers)] == ["producer_id"]


def test_the_wording_of_a_text_is_not_compared_but_whether_there_is_one():
    def found(text):
        return FindCoordinatorResponse(error_message=text)

    assert differences(ApiKey.FIND_COORDINATOR, found("not here"), found("it is elsewhere")) == []
    texts = [(None, ""), ("", "why"), (None, "why")]
    told = [differences(ApiKey.FIND_COORDINATOR, *map(found, each)) for each in texts]
    assert [pair for ((_, *pair),) in told] == [[None, ""], ["", "some text"], [None, "some text"]]


def test_the_leader_of_a_group_is_one_of_its_members():
    def joined(leader):
        members = [JoinGroupResponse.JoinGroupResponseMember(member_id=each, metadata=b"") for each in ("x", "y")]
        return JoinGroupResponse(leader=leader, member_id="x", members=members)

    assert differences(ApiKey.JOIN_GROUP, joined("x"), joined("x")) == []
    assert [path for path, _, _ in differences(ApiKey.JOIN_GROUP, joined("x"), joined("y"))] == ["leader"]


def test_topics_may_come_in_any_order():
    def answer(*names, code=0):
        return MetadataResponse(topics=[_Topic(name=each, error_code=code, partitions=[]) for each in names])

    assert differences(ApiKey.METADATA, answer("a", "b"), answer("b", "a")) == []
    assert differences(ApiKey.METADATA, answer("a"), answer("b")) != []
    assert differences(ApiKey.METADATA, answer("a"), answer("a", code=3)) == [
        ("topics.a.error_code", "NONE", "UNKNOWN_TOPIC_OR_PARTITION")
    ]


def test_records_are_compared_by_what_they_say():
    def answer(value, producer):
        builder = RecordBatchBuilder(producer_id=producer, producer_epoch=0, base_sequence=0)
        builder.append(5, b"k", value)
        topic = FetchResponse.FetchableTopicResponse
        part = topic.PartitionData(partition_index=0, records=builder.build())
        return FetchResponse(responses=[topic(topic="t", partitions=[part])])

    assert differences(ApiKey.FETCH, answer(b"v", 1), answer(b"v", 2)) == []
    ((path, kafka, ours),) = differences(ApiKey.FETCH, answer(b"v", 1), answer(b"w", 1))
    assert path == "responses.t.partitions.0.records"
    assert "b'v'" in kafka[0]
    assert "b'w'" in ours[0]


def test_a_broker_that_hangs_up_answers_nothing():
    answers = InitProducerIdResponse(producer_id=1), "the broker hung up"
    assert differences(ApiKey.INIT_PRODUCER_ID, *answers) != []


def test_each_side_gets_its_own_back():
    answer = Both([InitProducerIdResponse(producer_id=each) for each in (100, 7)])
    fields = {"who": answer.producer_id, "rows": [{"next": answer.producer_id.map(lambda each: each + 1)}]}
    assert [of_side(fields, side) for side in (0, 1)] == [
        {"who": 100, "rows": [{"next": 101}]},
        {"who": 7, "rows": [{"next": 8}]},
    ]


def test_an_allowance_covers_what_it_names_and_no_more():
    (allowance,) = allowances("# why\n\nFETCH | some-*/a step | *.code | 'NO' -> * | for a reason\n")
    difference = Difference("some-where", "a step", "FETCH", 4, "topics.t.code", "'NO'", "'YES'")
    assert allowance == Allowance("FETCH", "some-*/a step", "*.code", "'NO' -> *", "for a reason")
    assert allowance.covers(difference)
    for other in ({"api": "PRODUCE"}, {"step": "b step"}, {"path": "topics.t.size"}, {"kafka": "'YES'"}):
        assert not allowance.covers(difference._replace(**other))


@pytest.mark.parametrize("line", ["FETCH | a/b | path | x -> y", "FETCH | a/b | path | x -> y |  "])
def test_every_allowance_has_a_reason(line):
    with pytest.raises(ValueError, match="reason"):
        allowances(line)
    assert allowances(), "those that are in force can be read"
